"""`tidemill alerts` and `watchdog`: list alerts and deliveries, test a target, alert on a silent engine."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.engine.ports import Hands
from tests.notify.receiver import Receiver, receiving
from tests.notify.sample_alerts import GONE, message
from tests.store.ledgers import Opener
from tidemill.cli import main
from tidemill.cli.loading import load_spec
from tidemill.engine.clock import WallClock
from tidemill.model.alerts import AlertKind
from tidemill.notify.delivery import TargetDelivery
from tidemill.notify.targets import sender, senders
from tidemill.spec.platform import Notification
from tidemill.store.ledger_owner import LedgerOwner

PLATFORM = """
kind: Platform
metadata: {{name: tides}}
spec:
  region: us-west-2
  deployment: tides
  cluster: {{name: research}}
  subnets: {{us-west-2a: [subnet-a]}}
  notifications:
    - {{name: ops, type: webhook, url: "{url}"}}
    - {{name: pager, type: pagerduty, url: "{url}", routingKeyFrom: {{env: PD_KEY}}}}
"""
OURS = LedgerOwner("tides", "", "us-west-2", "research")
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("PD_KEY", "R1")
    with receiving() as one:
        yield one


@pytest.fixture
def document(receiver: Receiver, tmp_path: Path) -> str:
    path = tmp_path / "platform.yaml"
    path.write_text(PLATFORM.format(url=receiver.url))
    return str(path)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def address(url: str, opened: Opener, clock: Hands) -> str:
    """One alert that was sent and is over, one that is refused, and one that merely happened."""
    book = opened(url, owner=OURS).alerts
    book.raise_alert(GONE, clock.now(), ["ops"])
    found = book.claim("ops", clock.now(), clock.now())
    assert found is not None
    book.mark(replace(found[1], due_at=None, sent_at=clock.now(), answer="200 ok"))
    book.resolve_alert(GONE.key, clock.now())
    book.raise_alert(replace(GONE, key="other", title="Another"), clock.now(), ["ops"])
    found = book.claim("ops", clock.now(), clock.now())
    while found is not None and found[1].key != "other":
        book.mark(replace(found[1], due_at=None, sent_at=clock.now()))
        found = book.claim("ops", clock.now(), clock.now())
    assert found is not None
    book.mark(replace(found[1], due_at=None, failure="misconfigured", answer="404 no_service"))
    book.raise_alert(replace(GONE, key="third", lasts=False), clock.now(), [])
    book.beat(clock.now())
    return url


@pytest.mark.requirement("NT-1")
def test_list_shows_raised_sent_resolved_and_failed_alerts(address: str, capsys: Captured):
    assert main(["alerts", address]) == 0
    shown = capsys.readouterr().out
    assert "error     offer-gone         EC2 offers nothing inside an approved envelope" in shown
    assert "ops: raised, sent 2026-11-16 12:00:00 (200 ok)" in shown
    assert "resolved 2026-11-16 12:00:00; offer-gone/tp-1" in shown
    assert "ops: raised, NOT sent and not retried: 404 no_service" in shown
    assert "happened; third" in shown
    assert "no target takes this alert" in shown
    assert "last heartbeat of the engine: 2026-11-16 12:00:00" in shown


def test_open_lists_only_unresolved_alerts(address: str, capsys: Captured):
    assert main(["alerts", address, "--open"]) == 0
    shown = capsys.readouterr().out
    assert "Another" in shown
    assert "offer-gone/tp-1" not in shown


def test_json_has_every_delivery(address: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEMILL_LEDGER", address)
    assert main(["alerts", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    first = told["alerts"][0]
    assert (first["key"], first["kind"], first["occasion"]) == ("offer-gone/tp-1", "offer-gone", 1)
    assert [one["id"] for one in first["deliveries"]] == [
        "offer-gone/tp-1#1/raised",
        "offer-gone/tp-1#1/resolved",
    ]
    assert told["heartbeat_at"] == "2026-11-16T12:00:00+00:00"


@pytest.mark.requirement("NT-1")
def test_testing_a_target_prints_its_answer(document: str, receiver: Receiver, capsys: Captured):
    receiver.says = b"thank you"
    assert main(["alerts", "test", "ops", document]) == 0
    assert capsys.readouterr().out == "ops accepted it: 200 thank you\n"
    (body,) = receiver.bodies()
    assert (body["kind"], body["event"], body["severity"]) == ("test", "raised", "info")


def test_testing_pagerduty_leaves_no_incident_open(document: str, receiver: Receiver):
    assert main(["alerts", "test", "pager", document]) == 0
    assert [one["event_action"] for one in receiver.bodies()] == ["trigger", "resolve"]
    assert len({one["dedup_key"] for one in receiver.bodies()}) == 1


@pytest.mark.requirement("NT-1")
def test_testing_a_target_that_refuses_exits_1(document: str, receiver: Receiver, capsys: Captured):
    receiver.answers, receiver.says = [(403, {})], b"who are you"
    assert main(["alerts", "test", "ops", document]) == 1
    assert "ops did not accept it, an alert would not be retried: 403 who are you" in capsys.readouterr().err


def test_an_unknown_target_exits_2(document: str, capsys: Captured):
    assert main(["alerts", "test", "nobody", document]) == 2
    assert "there is no target 'nobody'; the targets are: ops, pager" in capsys.readouterr().err


# --- watchdog -----------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-16")
@pytest.mark.requirement("NT-1")
def test_a_silent_engine_is_alerted_once_and_exits_1(
    document: str, url: str, opened: Opener, receiver: Receiver, capsys: Captured
):
    opened(url, owner=OURS).alerts.beat(WallClock().now() - timedelta(hours=2))
    for _ in range(2):
        assert main(["watchdog", document, "--ledger", url]) == 1
    assert "ago: too long" in capsys.readouterr().out
    events = [(one.get("event") or one["event_action"]) for one in receiver.bodies()]
    assert sorted(events) == ["raised", "trigger"]


@pytest.mark.requirement("CB-16")
def test_a_new_heartbeat_resolves_the_alert(
    document: str, url: str, opened: Opener, receiver: Receiver, capsys: Captured
):
    book = opened(url, owner=OURS).alerts
    book.beat(WallClock().now() - timedelta(hours=2))
    main(["watchdog", document, "--ledger", url])
    book.beat(WallClock().now())
    assert main(["watchdog", document, "--ledger", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["silent"] is False
    assert [one["event"] for one in receiver.bodies() if "event" in one] == ["raised", "resolved"]


def test_a_ledger_without_a_heartbeat_exits_1(
    document: str, url: str, opened: Opener, receiver: Receiver, capsys: Captured
):
    opened(url, owner=OURS)
    assert main(["watchdog", document, "--ledger", url]) == 1
    assert "there is no heartbeat of the engine in this ledger yet" in capsys.readouterr().out
    assert receiver.got == []


def test_a_missing_ledger_exits_2_and_is_not_created(document: str, tmp_path: Path, capsys: Captured):
    """Made, it would be an empty one, in which the engine is never silent for too long."""
    mistyped = tmp_path / "legder.db"
    assert main(["watchdog", document, "--ledger", f"sqlite:///{mistyped}"]) == 2
    assert (
        capsys.readouterr().err
        == f"error: there is no ledger at {mistyped}; name the address of one that exists\n"
    )
    assert not mistyped.exists()


def test_watchdog_with_every_runs_until_sigterm(document: str, url: str, opened: Opener):
    opened(url, owner=OURS).alerts.beat(WallClock().now())
    command = [sys.executable, "-m", "tidemill", "watchdog", document, "--ledger", url, "--every", "1s"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "src"}
    )
    assert running.stdout is not None
    assert "the last heartbeat of the engine was" in running.stdout.readline()
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=60) == 130
    running.stdout.close()


def test_two_senders_on_one_ledger_send_an_alert_once(
    document: str, url: str, opened: Opener, receiver: Receiver
):
    platform = load_spec([document])[0].platform
    books = [opened(url, owner=OURS).alerts for _ in range(2)]
    for place in range(20):
        books[0].raise_alert(replace(GONE, key=f"k{place}"), WallClock().now(), ["ops"])
    postmen = [TargetDelivery("ops", senders(platform)["ops"], platform, book, WallClock()) for book in books]
    threads = [threading.Thread(target=one.deliver_due) for one in postmen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one["key"] for one in receiver.bodies()) == sorted(f"k{place}" for place in range(20))


# --- the guide ----------------------------------------------------------------------------------------

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "alerts.md"


def test_the_platform_in_the_guide_is_valid(tmp_path: Path):
    (written,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "platform.yaml").write_text(written)
    assert main(["validate", str(tmp_path / "platform.yaml")]) == 0


def test_the_guide_lists_every_alert_kind():
    listed = re.findall(
        r"^\| `([a-z-]+)` \| (?:info|warning|error|critical)", GUIDE.read_text(), re.MULTILINE
    )
    assert set(listed) == {kind.value for kind in AlertKind} - {"test"}


def test_the_signature_check_of_the_guide_works(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOOK", "s3cret")
    target = Notification.model_validate(
        {"name": "ops", "type": "webhook", "url": receiver.url, "secretFrom": {"env": "HOOK"}}
    )
    now = WallClock().now()
    sender(target)(message(), now)
    (snippet,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (got,) = receiver.got
    request = SimpleNamespace(
        headers={"Tidemill-Signature": got.headers["tidemill-signature"]}, body=got.body
    )
    known = {"request": request, "secret": b"s3cret", "hmac": hmac, "hashlib": hashlib, "time": time}
    exec(snippet, known)
    request.body = got.body.replace(b"tp-1", b"tp-2")
    with pytest.raises(AssertionError):
        exec(snippet, known)
