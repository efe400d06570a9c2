"""The last day of a block: what is compared, how it is counted, and that knowing the end pays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.last_day import JOBS, RULES, karpenter, play
from tests.decide.builders import ago, ahead, block, node, of, pod, spec, world
from tidemill.model.plan import Admit, Evict, RequestCheckpoint, StartDrain
from tidemill.sim.cluster.workloads import Stint

HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)


@pytest.mark.requirement("CB-13")
def test_more_of_the_last_day_counts_when_the_end_is_known():
    ours, theirs = (play("long, starts over", rule, seed=1) for rule in RULES)
    assert ours.share > theirs.share
    assert (ours.lost_gpu_h, ours.restarts) == (0, 0)
    assert theirs.lost_gpu_h > 0
    assert ours.finished >= theirs.finished


def test_there_are_at_least_three_kinds_of_work_and_both_rules():
    assert {"short jobs", "mixed", "long, resumable"} <= set(JOBS)
    assert set(RULES) == {"tidemill", "karpenter"}


# --- Karpenter's rule ---------------------------------------------------------------------------------


def test_its_placement_knows_no_end():
    there = world(block(ends_in="50m"), node(), pod(gpus=8, expected="9h", created_at=ago("20m")))
    (admit,) = of(karpenter(spec(), there), Admit)
    assert admit.ends_at is None
    assert karpenter(spec(), there).wake_at == ahead("10m")


def test_it_deletes_nodes_forty_minutes_before_the_end_and_evicts_at_once():
    here = node()
    saved = pod(on=here, gpus=8, checkpoint_every="1h", checkpoint_time="5m")
    before = world(block(ends_in="40m1s"), here, saved)
    assert not of(karpenter(spec(), before), StartDrain)
    assert of(karpenter(spec(), world(block(ends_in="40m"), here, saved)), StartDrain)
    going = node(phase="draining")
    plan = karpenter(spec(), world(block(ends_in="40m"), going, saved))
    assert [one.pod for one in of(plan, Evict)] == [saved.uid]
    assert not of(plan, RequestCheckpoint)


# --- what counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "begin", "end", "counts"),
    [
        (3 * HOUR, 0, 9, 3),  # all of what was kept
        (3 * HOUR, 1, 2, 1),  # only what is within the span
        (3 * HOUR, 2, 9, 1),
        (0 * HOUR, 0, 9, 0),  # it was lost
        (None, 0, 9, 9),  # it goes on
        (3 * HOUR, 4, 9, 0),
    ],
)
def test_work_counts_where_it_was_done_and_kept(kept: timedelta | None, begin: int, end: int, counts: int):
    stint = Stint("cr-1", NOON, timedelta(0), kept)
    assert stint.kept_within(NOON + begin * HOUR, NOON + end * HOUR) == counts * HOUR
