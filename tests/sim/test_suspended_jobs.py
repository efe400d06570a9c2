"""Jobs that are held by suspension, as in a real cluster: their pods are shown before they are there."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import scenario_with
from tests.sim.simulated_cluster import BLOCK, SimulatedCluster
from tidemill.model.errors import Gone
from tidemill.model.plan import Admit, Recreate
from tidemill.ports import ClusterView
from tidemill.sim.cluster import suspended_jobs
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.read import load

ROOT = Path(__file__).parents[2]
EXAMPLES = ("first-block", "two-blocks", "groups", "services-apart")
DEMO = ROOT / "src" / "tidemill" / "cli" / "demo.yaml"


def _stem(path: Path) -> str:
    return path.stem


def suspending() -> SimulatedCluster:
    simulated = SimulatedCluster(suspended_jobs=True)
    simulated.ready_nodes("i-1", "i-2")
    return simulated


def uids(simulated: SimulatedCluster) -> list[str]:
    return [pod.uid for pod in simulated.pods_of("Job/pair")]


@pytest.mark.requirement("PE-17")
def test_a_suspended_job_is_shown_as_the_pods_it_will_make_and_admitted_by_one_patch() -> None:
    simulated = suspending()
    shown = simulated.submit("pair", nodes=2, gpus=8)
    assert [pod.uid for pod in shown] == ["job-training-pair.0", "job-training-pair.1"]
    assert all(pod.gated and pod.gang is not None for pod in shown)
    simulated.pass_time("1h")
    assert not any(pod.node for pod in simulated.pods_of("Job/pair")), "nobody binds what is only shown"
    simulated.cluster.admit([shown[0].uid], BLOCK.label, None, "p5")  # the patch is of the whole Job
    assert uids(simulated) == [pod.uid for pod in shown]
    assert {(pod.gated, pod.pinned_to, pod.node) for pod in simulated.pods_of("Job/pair")} == {
        (False, BLOCK.label, "")
    }
    simulated.pass_time("30s")
    made = simulated.pods_of("Job/pair")
    assert not {pod.uid for pod in made} & {pod.uid for pod in shown}
    assert all(pod.node and pod.pinned_to == BLOCK.label for pod in made)
    with pytest.raises(Gone):
        simulated.cluster.admit([shown[0].uid], BLOCK.label, None)


def test_evicting_a_pod_suspends_the_job_and_the_others_stop_with_their_own_grace() -> None:
    simulated = suspending()
    first, _ = simulated.run_job("pair", nodes=2, gpus=8, grace="2m")
    submitted = simulated.cluster.jobs["pair"].submitted
    assert simulated.cluster.evict(first.uid)
    going = [pod for pod in simulated.pods_of("Job/pair") if pod.deleting_until is not None]
    shown = [pod for pod in simulated.pods_of("Job/pair") if pod.gated]
    assert (len(going), len(shown)) == (2, 2)
    assert all(pod.created_at == submitted for pod in shown), "it is as old as its Job"
    simulated.pass_time("3m")
    assert uids(simulated) == ["job-training-pair.0", "job-training-pair.1"]
    assert not simulated.cluster.cut_short
    assert simulated.cluster.jobs["pair"].failures == 0


def test_deleting_what_is_only_shown_suspends_the_job() -> None:
    simulated = suspending()
    shown = simulated.submit("pair", nodes=2, gpus=8)
    simulated.cluster.admit([pod.uid for pod in shown], BLOCK.label, None)
    simulated.cluster.delete(shown[0].uid, None, disruption=True)
    simulated.pass_time("1m")
    assert all(pod.gated for pod in simulated.pods_of("Job/pair")), "no pod was made after all"


def test_a_pod_that_dies_with_its_node_is_made_again_on_the_same_source() -> None:
    simulated = suspending()
    lost, other = simulated.run_job("pair", nodes=2, gpus=8)
    simulated.ready_nodes("i-3")
    simulated.end_instance("i-1" if "i-1" in lost.node else "i-2")
    simulated.pass_time("1m")
    now = simulated.pods_of("Job/pair")
    assert other.uid in [pod.uid for pod in now]
    assert all(pod.node and not pod.gated for pod in now)


# --- the room between the patch and the first pod -------------------------------------------------------

ONE_NODE = scenario_with(
    reservations=[given.block(count=1)],
    jobs=[given.job("first", at=("0s",), lasts="30m"), given.job("second", at=("1s",), lasts="30m")],
    duration="2h",
)


def admissions(rehearsal: Rehearsal) -> list[tuple[datetime, tuple[str, ...]]]:
    return [(done.at, done.action.pods) for done in rehearsal.done if isinstance(done.action, Admit)]


@pytest.mark.requirement("CB-13")
def test_the_room_of_an_admitted_job_stays_claimed_until_its_pods_are_there() -> None:
    rehearsal = ONE_NODE.run(every_second=True, suspended_jobs=True)
    (_, first), (at, second) = admissions(rehearsal)
    assert (first, second) == (("job-training-first-1.0",), ("job-training-second-1.0",))
    done = rehearsal.cluster.jobs["first-1"].finished
    assert done is not None
    assert at >= done
    assert not [one for one in rehearsal.done if isinstance(one.action, Recreate)]


def test_an_adapter_that_shows_nothing_in_between_gives_the_room_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suspended_jobs, "_MADE_S", (3, 4))
    rehearsal = ONE_NODE.prepare(every_second=True, suspended_jobs=True)
    cluster, full_view = rehearsal.cluster, rehearsal.cluster.view

    def forgetful_view() -> ClusterView:
        view = full_view()
        real = (pod for pod in view.pods if pod.gated or pod.uid not in cluster._api.shown_only)
        return replace(view, pods=tuple(real))

    monkeypatch.setattr(cluster, "view", forgetful_view)
    rehearsal.run()
    (first_at, _), (second_at, _) = admissions(rehearsal)[:2]
    assert second_at - first_at <= timedelta(seconds=2), "two jobs have the same room"
    assert [one for one in rehearsal.done if isinstance(one.action, Recreate)], (
        "and one of them is taken back"
    )


# --- whole rehearsals -----------------------------------------------------------------------------------


@pytest.mark.requirement("PE-17")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_gang_that_loses_a_node_of_a_full_block_comes_back_whole(seed: int) -> None:
    pair = given.job("pair", nodes=2, lasts="90m", checkpointEvery="15m", grace="2m")
    rehearsal = scenario_with(
        reservations=[given.block()], jobs=[pair], faults=[given.fault("1h", "node-dies")], duration="3h15m"
    ).run(seed, suspended_jobs=True)
    truth = rehearsal.cluster.jobs["pair-1"]
    assert (truth.state, truth.restarts) == ("finished", 1)


@pytest.mark.parametrize(
    "path", [DEMO, *(ROOT / "examples" / f"{name}.yaml" for name in EXAMPLES)], ids=_stem
)
def test_the_examples_keep_every_invariant_with_suspended_jobs(path: Path) -> None:
    """Twenty seeds of every example are in the slow tier."""
    loaded = load([path])
    rehearsal = Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), 1, suspended_jobs=True)
    rehearsal.run()
    states = [job.state for job in rehearsal.cluster.jobs.values()]
    assert states.count("finished") > len(states) / 2
