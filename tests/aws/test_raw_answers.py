"""Answers that are no AWS answers at all, through the real client: proxies, half-closed connections, broken XML.

A read is read again later; a purchase is never taken for a no, and never called twice.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.sim.account import OWNER, P5, START, tags
from tidemill import catalog
from tidemill.aws.account import AwsAccount
from tidemill.aws.session import Aws, RateLimits
from tidemill.model.errors import OutcomeUnknown, PortError, Refused
from tidemill.model.offers import OfferQuery

_EC2 = b'<?xml version="1.0"?><R xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">%s</R>'
ANSWERS: dict[str, tuple[int, bytes]] = {
    "nothing": (200, b""),
    "a proxy's page": (200, b"<html><body>Please log in to the guest network</body></html>"),
    "a proxy's error page": (502, b"<html><body>Bad gateway</body></html>"),
    "JSON": (200, b'{"ok": true}'),
    "half of the XML": (200, _EC2[:60]),
    "no XML at all": (200, b"\x00\xff\xfe junk \x1b[31m"),
    "an empty result": (200, _EC2 % b""),
    "the wrong things inside": (
        200,
        _EC2 % b"<capacityReservationSet><item>x</item></capacityReservationSet><capacityReservation>x"
        b"</capacityReservation>",
    ),
    "numbers that are none": (
        200,
        _EC2 % b"<capacityReservation><capacityReservationId>cr-1</capacityReservationId>"
        b"<totalInstanceCount>many</totalInstanceCount></capacityReservation>",
    ),
    "an error without a code": (400, _EC2 % b"<Errors><Error></Error></Errors>"),
    "a redirect": (301, b""),
    "too many requests, from a proxy": (429, b"slow down"),
    "a teapot": (418, b"short and stout"),
}


class Stub(ThreadingHTTPServer):
    """Answers every request the same way, and counts them."""

    daemon_threads = True
    status, body, asked = 200, b"", 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Stub)
        self.server.asked += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def listening() -> Iterator[Stub]:
    server = Stub(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        with calling(server.url):
            yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def calling(url: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        patch.setenv("AWS_ACCESS_KEY_ID", "simulated")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "simulated")
        # The SDK's own back-off between tries, in no time.
        patch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
        yield


class Clock:
    def now(self) -> datetime:
        return START


def account() -> AwsAccount:
    return AwsAccount(
        Aws("us-east-1", rate_limits=RateLimits(sleep=lambda _: None)), Clock(), catalog.load(), owner=OWNER
    )


@pytest.fixture(scope="module")
def there(listening: Stub) -> AwsAccount:
    """One for all tests: making a client takes longer than all it does here."""
    return account()


@pytest.fixture
def stub(listening: Stub) -> Stub:
    listening.asked = 0
    return listening


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("name", ANSWERS)
def test_a_purchase_with_any_invalid_answer_is_unknown_and_called_once(
    stub: Stub, there: AwsAccount, name: str
):
    stub.status, stub.body = ANSWERS[name]
    with pytest.raises(OutcomeUnknown):
        there.purchase("cb-1", tags(intent="p-1"))
    with pytest.raises(OutcomeUnknown):
        there.purchase_extension("cbe-1", "cr-1")
    assert stub.asked == 2


@pytest.mark.parametrize("name", ANSWERS)
def test_a_read_with_an_invalid_answer_is_never_an_empty_list(stub: Stub, there: AwsAccount, name: str):
    stub.status, stub.body = ANSWERS[name]
    query = OfferQuery(P5, 2, timedelta(days=2), START, START + timedelta(days=9))
    for read in (there.reservations, there.instances, there.extensions):
        with pytest.raises(PortError):
            read()
    with pytest.raises((PortError, Refused)):
        there.search_offers(query)


def test_a_refused_connection_is_retryable_and_nothing_was_sent():
    with calling("http://127.0.0.1:9"), pytest.raises(PortError, match="nothing was sent"):
        account().reservations()
