"""A drain that began for an end that has moved since is taken back."""

from dataclasses import replace

import pytest

from tests.decide.builders import NOW, block, node, of, pod, spec, world
from tidemill.decide import decide
from tidemill.model.plan import CancelDrain, Evict, Terminate


def draining(reason: str):
    leaving = node("i-1", "draining")
    assert leaving.kube is not None
    return replace(leaving, kube=replace(leaving.kube, drain_reason=reason, draining_since=NOW))


@pytest.mark.requirement("CB-7")
def test_a_drain_is_taken_back_when_the_extension_is_paid():
    leaving = draining("cr-1 must be empty by 2026-11-16T12:20:00Z")
    plan = decide(spec(), world(block(ends_in="7d"), leaving, pod("work", on=leaving)))
    assert [action.node for action in of(plan, CancelDrain)] == [leaving.kube.name]
    assert not of(plan, Evict)


@pytest.mark.requirement("CB-7")
def test_an_extension_that_is_only_pending_takes_no_drain_back():
    leaving = draining("cr-1 must be empty by 2026-11-16T12:20:00Z")
    pending = replace(block(ends_in="39m"), extension_pending_to=NOW)
    plan = decide(spec(), world(pending, leaving, pod("work", on=leaving)))
    assert not of(plan, CancelDrain)


def test_a_drain_for_another_reason_goes_on_whatever_the_end_is():
    leaving = draining("node check failed: Xid 79")
    plan = decide(spec(), world(block(ends_in="7d"), leaving))
    assert not of(plan, CancelDrain)
    assert of(plan, Terminate)
