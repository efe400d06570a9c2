"""The HTTP request of each target type, its signature, and what the responses mean."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from tests.decide.builders import NOW
from tests.notify.receiver import Receiver
from tests.notify.sample_alerts import hook, message, platform
from tidemill.notify import bodies, transports
from tidemill.notify.delivery import FIRST_RETRY, LONGEST_RETRY, next_try
from tidemill.notify.targets import senders
from tidemill.notify.transports import SendResult, result_of_status, retry_delay


def send(target: dict, **fields: object) -> SendResult:
    return senders(platform(target).platform)[target["name"]](message(**fields), NOW)  # type: ignore[arg-type]


@pytest.mark.requirement("NT-1")
def test_a_webhook_is_posted_as_json_with_an_idempotency_key(receiver: Receiver):
    assert send(hook(receiver.url)) == SendResult("sent", "200 ok")
    (got,) = receiver.got
    assert got.json == bodies.webhook(message())
    assert got.path == "/hook"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["idempotency-key"] == "offer-gone/tp-1#1/raised"
    assert got.headers["user-agent"].startswith("tidemill/")
    assert "tidemill-signature" not in got.headers


@pytest.mark.requirement("NT-1")
def test_the_signature_covers_the_time_and_the_body(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOOK_SECRET", "s3cret\n")
    send(hook(receiver.url, secretFrom={"env": "HOOK_SECRET"}))
    (got,) = receiver.got
    at, signed = (part.partition("=")[2] for part in got.headers["tidemill-signature"].split(","))
    assert int(at) == NOW.timestamp()
    expected = hmac.new(b"s3cret", at.encode() + b"." + got.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(signed, expected)
    assert not hmac.compare_digest(signed, hmac.new(b"s3cret", b"0." + got.body, hashlib.sha256).hexdigest())


@pytest.mark.requirement("NT-1")
def test_slack_is_posted_to_the_address_in_a_file(receiver: Receiver, tmp_path: Path):
    (tmp_path / "slack").write_text(receiver.url + "\n")
    answer = send({"name": "chat", "type": "slack", "urlFrom": {"file": str(tmp_path / "slack")}})
    assert answer.outcome == "sent"
    assert receiver.bodies() == [bodies.slack(message())]


@pytest.mark.requirement("NT-1")
def test_pagerduty_gets_trigger_and_resolve(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PD", "R123")
    receiver.answers = [(202, {}), (202, {})]
    target = {"name": "pager", "type": "pagerduty", "url": receiver.url, "routingKeyFrom": {"env": "PD"}}
    assert send(target).outcome == "sent"
    assert send(target, resolved_at=NOW).outcome == "sent"
    assert [body["event_action"] for body in receiver.bodies()] == ["trigger", "resolve"]
    assert {body["dedup_key"] for body in receiver.bodies()} == {"tides/offer-gone/tp-1"}
    assert {body["routing_key"] for body in receiver.bodies()} == {"R123"}


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ({"env": "NO_SUCH_VARIABLE"}, "urlFrom: the environment variable NO_SUCH_VARIABLE is not set"),
        ({"file": "/no/such/file"}, "urlFrom: /no/such/file cannot be read: No such file or directory"),
    ],
)
def test_a_missing_secret_is_retried(ref: dict[str, str], says: str):
    assert send({"name": "chat", "type": "slack", "urlFrom": ref}) == SendResult("retry", says)


def test_a_secret_that_is_not_an_address_is_misconfigured_and_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLACK", "xoxb-very-secret")
    answer = send({"name": "chat", "type": "slack", "urlFrom": {"env": "SLACK"}})
    assert answer.outcome == "misconfigured"
    assert "secret" not in answer.detail


# --- answers ------------------------------------------------------------------------------------------


@pytest.mark.requirement("NT-1")
@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "sent"), (202, "sent"), (204, "sent"),
        (301, "misconfigured"), (400, "misconfigured"), (401, "misconfigured"), (403, "misconfigured"),
        (404, "misconfigured"), (410, "misconfigured"),
        (408, "retry"), (429, "retry"), (500, "retry"), (503, "retry"),
    ],
)  # fmt: skip
def test_each_http_status_has_an_outcome(receiver: Receiver, status: int, outcome: str):
    receiver.answers = [(status, {"Location": "/elsewhere"} if status == 301 else {})]
    receiver.says = b"" if status == 204 else b"because\n  so"
    answer = send(hook(receiver.url))
    assert answer.outcome == outcome
    assert answer.detail.startswith(str(status))
    assert len(receiver.got) == 1  # a redirect is not followed
    if status not in (204, 301):
        assert answer.detail == f"{status} because so"


@pytest.mark.requirement("NT-1")
def test_an_unreachable_receiver_is_tried_again():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert send(hook(url)) == SendResult("retry", "cannot be reached: Connection refused")


def test_a_receiver_that_closes_the_connection_is_tried_again():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        answer = send(hook(f"http://127.0.0.1:{server.getsockname()[1]}"))
        thread.join()
    assert answer.outcome == "retry"


def test_a_receiver_that_does_not_respond_times_out(receiver: Receiver):
    receiver.hold = threading.Event()
    answer = transports.post(receiver.url, b"{}", {}, NOW, timeout_s=0.2)
    assert answer == SendResult("retry", "no response in time")


@pytest.mark.requirement("NT-1")
@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("120", timedelta(seconds=120)),
        ("Mon, 16 Nov 2026 12:05:00 GMT", timedelta(minutes=5)),
        ("Mon, 16 Nov 2026 11:00:00 GMT", timedelta(0)),
        ("999999999999999999999", timedelta(hours=1)),
        ("86400", timedelta(hours=1)),
        ("soon", None),
        (None, None),
    ],
)
def test_retry_after_delays_the_next_attempt(header: str | None, wait: timedelta | None):
    assert retry_delay(header, NOW) == wait


def test_retry_after_is_read_as_seconds_or_a_date(receiver: Receiver):
    receiver.answers = [(429, {"Retry-After": "90"})]
    assert send(hook(receiver.url)).retry_after == timedelta(seconds=90)


@pytest.mark.requirement("NT-1")
def test_retries_back_off_exponentially_with_a_jitter_of_their_own():
    again = SendResult("retry", "503")
    waits = [next_try("a#1/raised", "ops", tries, again, NOW) - NOW for tries in range(1, 12)]
    for place, wait in enumerate(waits):
        full = min(FIRST_RETRY * 2**place, LONGEST_RETRY)
        assert full / 2 <= wait <= full
    assert waits[0] == next_try("a#1/raised", "ops", 1, again, NOW) - NOW
    assert waits[0] != next_try("b#1/raised", "ops", 1, again, NOW) - NOW
    patient = result_of_status(429, "", "3600", NOW)
    assert next_try("a#1/raised", "ops", 1, patient, NOW) - NOW == timedelta(hours=1)


def test_bodies_are_compact_utf_8(receiver: Receiver):
    send(hook(receiver.url))
    assert (
        receiver.got[0].body
        == json.dumps(bodies.webhook(message()), ensure_ascii=False, separators=(",", ":")).encode()
    )
