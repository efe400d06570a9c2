"""Paid capacity that EC2 does not fill although it has free slots: said with since when, and what AWS answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ago, ahead, block, failed_launch, node, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.alerts import AlertKind, Severity
from tidemill.model.plan import Launch, Plan
from tidemill.model.purchases import LaunchIntent
from tidemill.model.warning_reasons import BlockNotFilled
from tidemill.report.alerts import alerts
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("NT-1")
ANSWER = "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested."


def refused(since: str = "25m", last: str = "2m", **fields: Any) -> LaunchIntent:
    return failed_launch(at=ago(last), failing_since=ago(since), answer=ANSWER, **fields)


def warned(plan: Plan) -> list[BlockNotFilled]:
    return [one.reason for one in plan.warnings if isinstance(one.reason, BlockNotFilled)]


def test_a_block_with_free_slots_that_is_not_filled_for_twenty_minutes_is_warned_of():
    (reason,) = warned(decide(spec(), world(block(count=4, free=4), refused())))
    assert reason == BlockNotFilled("cr-1", "p5", 4, 4, ago("25m"), ANSWER)
    assert sentence(reason) == (
        "it is paid for and has 4 of 4 free, but since 2026-11-16T11:35:00Z EC2 launches nothing there:"
        f' "{ANSWER}"'
    )


def test_it_is_an_alert_with_the_block_since_when_and_what_aws_says():
    documents, there = spec(), world(block(count=4, free=4), refused())
    (alert,) = alerts(documents, there, decide(documents, there), ())
    assert (alert.kind, alert.severity, alert.about) == (AlertKind.BLOCK_NOT_FILLED, Severity.ERROR, "cr-1")
    assert dict(alert.facts) == {
        "block": "cr-1", "pool": "p5", "since": "2026-11-16T11:35:00Z", "AWS says": ANSWER,
    }  # fmt: skip
    assert "AWS Support" in alert.text


def test_the_first_minutes_are_no_trouble_and_the_engine_looks_again():
    plan = decide(spec(), world(block(count=4, free=4), refused(since="19m", last="19m")))
    assert not warned(plan)
    assert plan.wake_at is not None
    assert plan.wake_at <= ahead("1m")


@pytest.mark.parametrize(
    "there",
    [
        (block(count=4, free=0), refused()),  # EC2 says itself that it is full
        (block(count=4, free=3), refused(), node(launched="1m", joined="1m")),  # one came since
        (block(count=4, free=4), refused(failure="retryable")),  # AWS did not answer: another matter
    ],
)
def test_a_full_block_one_that_is_filling_and_an_aws_that_is_silent_are_not(there: Any):
    assert not warned(decide(spec(), world(*there)))


def test_the_next_launch_remembers_since_when_they_fail():
    (launch,) = of(decide(spec(), world(block(count=4, free=4), refused(last="21m"))), Launch)
    assert launch.intent.failing_since == ago("25m")
    (launch,) = of(decide(spec(), world(block(count=4, free=4))), Launch)
    assert launch.intent.failing_since is None


def test_a_pod_that_waits_for_it_says_so():
    waits = given.pod(gpus=8, expected="1h")
    plan = decide(spec(), world(block(count=4, free=4), refused(last="10s"), waits))
    assert sentence(why(plan, waits).reason).startswith(
        "cr-1 is paid for and has free slots, but since 2026-11-16T11:35:00Z EC2 launches nothing there; next try"
    )
