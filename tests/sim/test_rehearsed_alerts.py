"""A rehearsal lists the alerts people would have had, and sends none of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.sim.scenario_builder import START, block, fault, job, scenario_with, service
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally
from tidemill.spec.read import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "first-block.yaml"
# Nothing listens there: a rehearsal that sent anything would say so.
TARGETS = """  notifications:
    - {name: ops, type: webhook, url: "http://127.0.0.1:9/"}
    - {name: pager, type: webhook, url: "http://127.0.0.1:9/", minSeverity: critical}
"""


def rehearsed(tmp_path: Path, fault: str = "") -> dict[str, Any]:
    text = EXAMPLE.read_text() + (f"  faults:\n    - {fault}\n" if fault else "")
    head, mark, rest = text.partition("  subnets:")
    path = tmp_path / "scenario.yaml"
    path.write_text(head + TARGETS + mark + rest)
    loaded = load([path])
    assert loaded.spec is not None
    assert loaded.scenario is not None
    rehearsal = Rehearsal(loaded.spec, loaded.scenario, 1)
    rehearsal.run()
    return tally(rehearsal, scenario="it", wall_s=0.0).as_json()


@pytest.mark.requirement("NT-1")
def test_a_purchase_that_waited_for_approval_is_listed_with_when_it_was_over(tmp_path: Path):
    (alert,) = rehearsed(tmp_path)["alerts"]
    assert (alert["kind"], alert["raised_at"]) == ("approval-waiting", "2026-11-16T08:00:02Z")
    assert alert["resolved_at"] == "2026-11-16T10:00:00Z"
    assert alert["targets"] == ["ops"]
    assert ["highest fee", "$11,127"] in alert["facts"]


@pytest.mark.requirement("CB-16")
def test_an_engine_that_is_away_for_long_is_listed_as_silent(tmp_path: Path):
    away = "{fault: engine-absent, at: 4h, duration: 40m}"
    silent = [one for one in rehearsed(tmp_path, away)["alerts"] if one["kind"] == "engine-silent"]
    assert [(one["severity"], one["targets"]) for one in silent] == [("critical", ["ops", "pager"])]
    raised, resolved = (datetime.fromisoformat(silent[0][key]) for key in ("raised_at", "resolved_at"))
    gone = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
    # It was last heard of at most ten minutes before it went, and is called silent after fifteen.
    assert gone + timedelta(minutes=5) <= raised <= gone + timedelta(minutes=15)
    assert resolved == gone + timedelta(minutes=40)


def test_a_short_absence_of_the_engine_is_not_listed(tmp_path: Path):
    away = "{fault: engine-absent, at: 4h, duration: 4m}"
    assert [one["kind"] for one in rehearsed(tmp_path, away)["alerts"]] == ["approval-waiting"]


@pytest.mark.requirement("NT-1")
def test_a_payment_that_fails_is_listed_and_over_when_it_is_bought_again(tmp_path: Path):
    found = rehearsed(tmp_path, "{fault: payment-fails, at: 1h}")["alerts"]
    assert "payment-failed" in [one["kind"] for one in found]


@pytest.mark.requirement("NT-1")
def test_a_service_without_a_successor_raises_an_alert_before_it_is_short():
    rehearsal = scenario_with(reservations=[block()], services=[service()]).run()
    told = tally(rehearsal, scenario="test", wall_s=0.0)
    (alert,) = [alert for alert in told.alerts if alert.kind == "service-short"]
    assert alert.key == "service-short/Deployment/chat/2026-11-17T11:00:00Z"
    (row,) = told.services
    assert row.down
    assert alert.raised_at < row.down[0][0]


@pytest.mark.requirement("NT-1")
def test_a_service_that_moves_in_time_raises_an_alert_only_for_the_end_without_a_successor():
    blocks = [block(), block("b", duration="28h")]
    rehearsal = scenario_with(reservations=blocks, services=[service()], duration="8h").run()
    told = tally(rehearsal, scenario="test", wall_s=0.0)
    assert [alert.key for alert in told.alerts] == ["service-short/Deployment/chat/2026-11-18T11:00:00Z"]
    assert not told.services[0].down


@pytest.mark.requirement("NT-1")
def test_pods_that_had_to_be_forced_out_are_named():
    stubborn = service(replicas=2, minAvailable=2)
    rehearsal = scenario_with(reservations=[block()], services=[stubborn]).run()
    told = tally(rehearsal, scenario="test", wall_s=0.0)
    forced = [alert for alert in told.alerts if alert.kind == "forced-eviction"]
    assert len([row for row in told.evictions if row.forced]) > 0
    named = " ".join(dict(one.facts)["pods, with the grace that was left"] for one in forced)
    assert all(row.pod in named for row in told.evictions if row.forced)


@pytest.mark.requirement("NT-1")
def test_a_paid_block_that_ec2_does_not_fill_is_listed_until_it_does():
    shortage = fault("0s", "no-capacity", duration="2h", target="a")
    rehearsal = scenario_with(reservations=[block()], jobs=[job()], faults=[shortage]).run()
    told = tally(rehearsal, scenario="test", wall_s=0.0)
    (alert,) = [alert for alert in told.alerts if alert.kind == "block-not-filled"]
    assert timedelta(minutes=20) <= alert.raised_at - START <= timedelta(minutes=21)
    assert dict(alert.facts)["since"] == "2026-11-17T07:30:00Z"
    assert dict(alert.facts)["AWS says"] == "none to be had for now"
    assert alert.resolved_at is not None
    assert timedelta(hours=2) <= alert.resolved_at - START <= timedelta(hours=2, minutes=15)
