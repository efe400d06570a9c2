"""A drain that began for an end that has moved since is taken back."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.decide.builders import CHECK_FAILED, NOW, block, block_ends, node, of, pod, spec, world
from tidemill.decide import decide
from tidemill.model.plan import CancelDrain, Evict, Terminate
from tidemill.model.reasons import DrainReason


def draining(reason: DrainReason):
    leaving = node("i-1", "draining")
    assert leaving.kube is not None
    return replace(leaving, kube=replace(leaving.kube, drain_reason=reason, draining_since=NOW))


@pytest.mark.requirement("CB-7")
def test_a_drain_is_taken_back_when_the_extension_is_paid():
    leaving = draining(block_ends(datetime(2026, 11, 16, 12, 20, tzinfo=UTC)))
    plan = decide(spec(), world(block(ends_in="7d"), leaving, pod("work", on=leaving)))
    assert [action.node for action in of(plan, CancelDrain)] == [leaving.kube.name]
    assert not of(plan, Evict)


@pytest.mark.requirement("CB-7")
def test_an_extension_that_is_only_pending_takes_no_drain_back():
    leaving = draining(block_ends(datetime(2026, 11, 16, 12, 20, tzinfo=UTC)))
    pending = replace(block(ends_in="39m"), extension_pending_to=NOW)
    plan = decide(spec(), world(pending, leaving, pod("work", on=leaving)))
    assert not of(plan, CancelDrain)


def test_a_drain_for_another_reason_goes_on_whatever_the_end_is():
    leaving = draining(CHECK_FAILED)
    plan = decide(spec(), world(block(ends_in="7d"), leaving))
    assert not of(plan, CancelDrain)
    assert of(plan, Terminate)
