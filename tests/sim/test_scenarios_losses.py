"""Loss through the whole loop: nodes that never work, nodes and GPUs that die, spot that is taken back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import actions_done, after, journal_lines, scenario_with
from tidemill.model.nodes import InstanceState
from tidemill.model.plan import Recreate, StartDrain, Terminate
from tidemill.model.reasons import DrainKind, TerminateKind
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.wording import sentence

PAIR = given.job("pair", nodes=2, lasts="2h", checkpointEvery="15m", grace="1m")


def nodes_up(rehearsal: Rehearsal) -> int:
    return rehearsal.cluster.gpus_ready() // 8


# --- PE-9: nodes that never become ready --------------------------------------------------------------


@pytest.mark.requirement("PE-9")
def test_a_node_whose_gpus_never_register_is_replaced_within_the_limit() -> None:
    faults = [given.fault("0s", "gpus-never-register")]
    rehearsal = scenario_with(reservations=[given.block()], faults=faults, duration="1h30m").run()
    ((at, ended),) = actions_done(rehearsal, Terminate)
    joined = rehearsal.cluster.nodes[ended.instance_id].joined_at
    assert joined is not None
    assert timedelta(minutes=10) <= at - joined <= timedelta(minutes=10, seconds=5)
    assert ended.reason.kind is TerminateKind.NEVER_REGISTERED
    assert nodes_up(rehearsal) == 2


@pytest.mark.requirement("PE-9")
def test_gpus_that_register_in_their_usual_time_are_waited_for() -> None:
    rehearsal = scenario_with(
        reservations=[given.block()], services=[given.service(load="0s")], duration="30m"
    ).run()
    assert not actions_done(rehearsal, Terminate)
    assert rehearsal.cluster.services["chat"].ready == 2


@pytest.mark.requirement("PE-9")
@pytest.mark.parametrize("kind", ["never-joins", "gpu-fails"])
def test_a_node_that_never_joins_or_fails_its_first_check_is_replaced(kind: str) -> None:
    rehearsal = scenario_with(
        reservations=[given.block()], faults=[given.fault("0s", kind)], duration="1h30m"
    ).run()
    assert len(actions_done(rehearsal, Terminate)) == 1
    assert nodes_up(rehearsal) == 2


@pytest.mark.requirement("MG-5")
def test_a_broken_image_is_tried_ever_less_and_costs_little() -> None:
    rehearsal = scenario_with(
        given.pool(sources=[{"type": "on-demand"}]),
        jobs=[given.job(f"fit-{number}", lasts="30m", gpus=8) for number in range(6)],
        faults=[given.fault("0s", "never-joins", count=1000)],
        duration="24h",
    ).run()
    launched = sorted(one.now.launched_at for one in rehearsal.cloud.instance_histories.values())
    assert len(launched) <= 6 + 24  # all six at first, then one at a time
    assert len([at for at in launched if at > after("1h")]) <= 23
    assert launched[-1] > after("22h")  # it is not given up: somebody may mend it


@pytest.mark.requirement("MG-5")
def test_a_pool_recovers_as_soon_as_one_node_becomes_ready() -> None:
    rehearsal = scenario_with(
        given.pool(sources=[{"type": "on-demand"}]),
        jobs=[given.job(f"fit-{number}", lasts="30m", gpus=8) for number in range(6)],
        faults=[given.fault("0s", "never-joins", count=7)],
        duration="3h",
    ).run()
    assert all(job.state == "finished" for job in rehearsal.cluster.jobs.values())


# --- PE-17: loss of what works ------------------------------------------------------------------------


@pytest.mark.requirement("PE-17")
def test_a_gang_that_loses_a_node_is_stopped_keeps_its_other_node_and_comes_back_whole() -> None:
    faults = [given.fault("1h", "node-dies")]
    rehearsal = scenario_with(
        reservations=[given.block()], jobs=[PAIR], faults=faults, duration="3h15m"
    ).run()
    pair = rehearsal.cluster.jobs["pair-1"]
    assert pair.state == "finished"
    assert pair.restarts == 1
    assert len(actions_done(rehearsal, Recreate)) == 1  # the survivor, told to stop with its grace
    assert not actions_done(rehearsal, Terminate)  # its node is kept
    assert len(rehearsal.cloud.instance_histories) == 3  # and one was launched in place of the lost one


@pytest.mark.requirement("PE-17")
def test_a_gang_whose_gpu_fails_leaves_the_broken_node_and_comes_back_whole() -> None:
    faults = [given.fault("1h", "gpu-fails")]
    rehearsal = scenario_with(
        reservations=[given.block()], jobs=[PAIR], faults=faults, duration="3h50m"
    ).run()
    pair = rehearsal.cluster.jobs["pair-1"]
    assert pair.state == "finished"
    ((_, drained), *rest) = [
        one
        for one in actions_done(rehearsal, StartDrain)
        if one[1].reason.kind is DrainKind.NODE_CHECK_FAILED
    ]
    assert not rest
    ended = rehearsal.cloud.instance_histories[drained.node.partition(".")[0]]
    assert ended.ended_by == "engine"


@pytest.mark.requirement("PE-17")
def test_a_gang_that_no_longer_has_time_is_held_with_the_reason() -> None:
    """It loses a node half an hour before the drain: no checkpoint could be written on a new one."""
    late = given.job("pair", nodes=2, lasts="3h", checkpointEvery="40m", at=("10m",), grace="1m")
    faults = [given.fault("2h50m", "node-dies")]
    rehearsal = scenario_with(reservations=[given.block()], jobs=[late], faults=faults).prepare()
    rehearsal.run_until(after("3h20m"))
    members = rehearsal.cluster.jobs["pair-1"].uids
    assert all(rehearsal.cluster.pods[uid].gated for uid in members)
    reasons = {rehearsal.reasons.reason(uid) for uid in members}
    assert reasons
    assert all(reason for reason in reasons)
    held = [unmet for unmet in rehearsal.plan.unmet if unmet.pod in members]
    assert {unmet.code for unmet in held} == {"held"}
    rehearsal.run()


@pytest.mark.requirement("PE-17")
def test_a_gang_that_loses_its_block_s_node_moves_to_the_block_that_lasts() -> None:
    late = given.job("pair", nodes=2, lasts="3h", checkpointEvery="40m", at=("10m",), grace="1m")
    rehearsal = scenario_with(
        reservations=[
            given.block("a"),
            given.block("b", zone="us-east-1b", **{"from": "30m"}, duration="28h"),
        ],
        jobs=[late],
        faults=[given.fault("2h50m", "node-dies", target="a")],
        duration="8h",
    ).run()
    pair = rehearsal.cluster.jobs["pair-1"]
    assert pair.state == "finished"
    assert rehearsal.cloud.names["b"] in pair.sources


@pytest.mark.requirement("PE-17")
def test_an_interrupted_spot_node_is_drained_within_its_notice_and_replaced() -> None:
    spot = given.pool(sources=[{"type": "spot"}])
    work = given.job(lasts="1h", checkpointEvery="10m", grace="30s")
    faults = [given.fault("40m", "spot-interruption")]
    rehearsal = scenario_with(spot, jobs=[work], faults=faults, duration="3h").run()
    assert journal_lines(rehearsal, "instance-ending")
    assert not rehearsal.cluster.kills
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert len(rehearsal.cloud.instance_histories) == 2


@pytest.mark.requirement("PE-17")
def test_a_node_that_will_be_retired_is_drained_before_and_its_place_is_filled() -> None:
    work = given.job(lasts="3h", checkpointEvery="10m", grace="2m", at=("0s", "0s"))
    faults = [given.fault("20m", "retirement", duration="2h")]
    rehearsal = scenario_with(
        reservations=[given.block(duration="28h")], jobs=[work], faults=faults, duration="8h"
    ).run()
    assert journal_lines(rehearsal, "instance-ending")
    assert not rehearsal.cluster.kills
    assert {one.state for one in rehearsal.cluster.jobs.values()} == {"finished"}
    assert nodes_up(rehearsal) == 2


@pytest.mark.requirement("PE-17")
def test_a_short_delivery_runs_what_came_and_holds_the_gang_that_needs_more() -> None:
    faults = [given.fault("10m", "short-delivery")]
    late = given.block(**{"from": "1h"}, duration="3h")
    alone = given.job(at=("1h",), lasts="20m")
    pair = {**PAIR, "arrivals": {"at": ["1h"]}}
    rehearsal = scenario_with(reservations=[late], jobs=[alone, pair], faults=faults, duration="2h30m").run()
    assert nodes_up(rehearsal) == 1
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    waiting = [unmet for unmet in rehearsal.plan.unmet if "pair" in unmet.name]
    assert len(waiting) == 2
    assert all(sentence(unmet.reason) for unmet in waiting)


@pytest.mark.requirement("PE-17")
def test_a_service_that_loses_a_node_gets_its_replica_back() -> None:
    faults = [given.fault("1h", "node-dies")]
    rehearsal = scenario_with(
        reservations=[given.block(count=3)],
        services=[given.service(zeroDowntime=True)],
        faults=faults,
        duration="2h",
    ).run()
    chat = rehearsal.cluster.services["chat"]
    assert (chat.lowest_ready(), chat.ready) == (1, 2)


@pytest.mark.requirement("PE-17")
def test_every_instance_that_was_lost_leaves_no_node_behind() -> None:
    faults = [given.fault("1h", "node-dies", count=2), given.fault("2h", "gpu-fails")]
    rehearsal = scenario_with(reservations=[given.block()], jobs=[PAIR], faults=faults, duration="3h").run()
    alive = {
        history.now.id
        for history in rehearsal.cloud.instance_histories.values()
        if history.now.state is InstanceState.RUNNING
    }
    assert {node.instance_id for node in rehearsal.cluster.view().nodes} == alive
