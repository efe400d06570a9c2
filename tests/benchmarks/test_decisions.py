"""Nobody starves: who is next in the queue gets its nodes at every load (PE-11, PE-16)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from benchmarks.decisions.__main__ import play
from benchmarks.decisions.ideal import Supply, least_node_hours, most_gpu_hours
from benchmarks.decisions.scenarios import situations
from benchmarks.decisions.situation import START, Situation, block, jobs, pool, small
from tidemill.sim.cluster.workloads import JobTruth
from tidemill.sim.scenario.rehearsal import Rehearsal


def test_situations_have_names_of_their_own_and_documents_that_are_valid():
    known = list(situations())
    assert len({one.name for one in known}) == len(known) >= 30
    for one in known:
        assert one.spec().pools
        assert one.scenario().spec.duration


@pytest.mark.slow
@pytest.mark.requirement("PE-11")
@pytest.mark.parametrize("percent", [75, 85, 95, 106])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_gang_starts_within_what_runs_at_every_load(percent: int, seed: int):
    (situation,) = (one for one in situations() if one.name == f"gang-{percent}")
    played = play(situation, "tidemill", seed)
    assert played.good, played
    assert not played.never_started


@pytest.mark.requirement("PE-11")
@pytest.mark.parametrize("large", [{"nodes": 2}, {"gpus": 8}])
def test_a_large_job_starts_once_what_ran_when_it_came_is_done(large: dict[str, Any]):
    gang = jobs("large", "1h", {"at": ["3h"]}, **large)
    crowd = Situation(
        "crowd", "", (pool(),), {"duration": "8h", "reservations": [block(2)], "jobs": [small(0.95, 2), gang]},
        longest_wait=timedelta(hours=1.5), counted_wait="large",
    )  # fmt: skip
    played = play(crowd, "tidemill", 1)
    assert not played.never_started
    assert played.wait_h <= 1.5
    assert play(crowd, "script", 1).never_started  # what the test is about: left alone it never starts


@pytest.mark.parametrize("name", ["two-pools", "two-pools-full"])
def test_pools_that_share_a_block_boot_no_node_that_the_work_does_not_need(name: str):
    (situation,) = (one for one in situations() if one.name == name)
    played = play(situation, "tidemill", 1)
    assert played.good, played
    assert play(situation, "karpenter", 1).launches > 8 * played.launches


def truths(*streams: dict[str, object], duration: str = "10h") -> list[JobTruth]:
    situation = Situation("x", "", (pool(),), {"duration": duration, "jobs": list(streams)})
    rehearsal = Rehearsal(situation.spec(), situation.scenario(), 1)
    rehearsal.run()
    return list(rehearsal.cluster.jobs.values())


def hours(count: float) -> datetime:
    return START + timedelta(hours=count)


SLOT = timedelta(minutes=15)


def test_the_bound_on_work_is_all_of_it_where_all_of_it_fits():
    four = truths(jobs("a", "2h", {"every": "1s", "count": 4}))
    assert most_gpu_hours(four, [Supply(32, hours(0), hours(10))], START, hours(10), SLOT) == pytest.approx(
        64
    )


def test_the_bound_on_work_knows_that_a_job_must_be_done_before_its_source_ends():
    late = truths(jobs("a", "2h", {"at": ["9h"]}))
    assert most_gpu_hours(late, [Supply(8, hours(0), hours(9.75))], START, hours(10), SLOT) == 0
    resumable = truths(jobs("a", "2h", {"at": ["9h"]}, checkpointEvery="30m"))
    done = most_gpu_hours(resumable, [Supply(8, hours(0), hours(9.75))], START, hours(10), SLOT)
    assert done == pytest.approx(6)


def test_the_least_node_hours_keep_a_node_where_a_boot_costs_more():
    boot = timedelta(minutes=10)
    one = truths(jobs("a", "1h", {"at": ["0s"]}))
    assert least_node_hours(one, hours(10), 8, boot) == pytest.approx(1 + 1 / 6)
    soon = truths(jobs("a", "1h", {"at": ["0s", "1h5m"]}))
    assert least_node_hours(soon, hours(10), 8, boot) == pytest.approx(2 + 1 / 6 + 1 / 12)
    later = truths(jobs("a", "1h", {"at": ["0s", "5h"]}))
    assert least_node_hours(later, hours(10), 8, boot) == pytest.approx(2 + 2 / 6)
    shared = truths(jobs("a", "1h", {"at": ["0s", "1m"]}, gpus=4))
    assert least_node_hours(shared, hours(10), 8, boot) == pytest.approx(1 + 1 / 6 + 1 / 60)
