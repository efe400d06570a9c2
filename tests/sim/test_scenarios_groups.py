"""The same scenarios with every provisioner: nodes come, jobs run, all is drained, no group picks what to end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.sim import scenario_builder as given
from tests.sim.provisioner_builder import delivered, extended, running, two_blocks
from tests.sim.scenario_builder import actions_done, after, journal_lines, last_pod_left_at, scenario_with
from tidemill.cli.loading import load_spec
from tidemill.cli.playback import observe_and_decide
from tidemill.model.plan import Launch, RemoveNode, Terminate
from tidemill.model.purchases import LaunchState
from tidemill.model.reasons import TerminateKind
from tidemill.provision.asg import DOWN, UP
from tidemill.sim.cloud.compute import SimCompute
from tidemill.sim.cloud.scaling_group import AutoScalingGroup, ScheduledAction
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally

EXAMPLE = Path(__file__).parents[2] / "examples" / "groups.yaml"
WAYS = ("native", "asg", "managed")
GROUPED = ("asg", "managed")
# A block of a scenario ends at 11:30: EC2 takes its nodes at 11:00, EKS acts at 10:50.
DEADLINE = {"native": after("3h30m"), "asg": after("3h30m"), "managed": after("3h20m")}


def group(rehearsal: Rehearsal) -> AutoScalingGroup:
    (one,) = rehearsal.cloud.groups.all()
    return one


def ended_by(rehearsal: Rehearsal) -> set[str]:
    return {history.ended_by for history in rehearsal.cloud.instance_histories.values()}


def by_hand(rehearsal: Rehearsal, at: str, desired: int) -> None:
    """Somebody sets a group's size in the console."""
    rehearsal.timeline.at(
        after(at), lambda: rehearsal.cloud.groups.set_desired(group(rehearsal).name, desired)
    )


# --- a block from its delivery to its end -------------------------------------------------------------


@pytest.mark.requirement("SM-3")
@pytest.mark.requirement("MG-4")
@pytest.mark.parametrize("way", WAYS)
def test_nodes_come_at_delivery_jobs_run_and_nothing_runs_at_the_kill_time(way: str):
    rehearsal = delivered(way).prepare()
    rehearsal.run_until(after("29m"))
    assert (
        not rehearsal.cloud.instance_histories
    )  # nothing before the block is there, and no launch that failed
    assert not rehearsal.cloud.refused_launches
    rehearsal.run_until(after("32m"))
    assert running(rehearsal) == 2
    rehearsal.run_until(DEADLINE[way])
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert not list(rehearsal.cloud.alive())
    rehearsal.run()
    assert ended_by(rehearsal) == {"engine"}
    left = last_pod_left_at(rehearsal, "a")
    assert left is not None
    assert left <= DEADLINE[way]


@pytest.mark.requirement("SM-9")
@pytest.mark.parametrize("way", GROUPED)
def test_after_the_end_neither_groups_nor_nodes_nor_templates_are_left(way: str):
    rehearsal = scenario_with(
        given.pool(provisioner=way), reservations=[given.block()], jobs=[given.job()], duration="5h"
    ).run()
    assert not rehearsal.cloud.groups.all()
    assert not rehearsal.cloud.node_groups.all()
    assert not rehearsal.compute.templates()
    assert not rehearsal.cluster.view().nodes
    assert len(actions_done(rehearsal, RemoveNode)) == 2


@pytest.mark.requirement("SM-2")
@pytest.mark.requirement("SM-6")
def test_an_auto_scaling_group_stands_ready_before_its_block():
    rehearsal = scenario_with(
        given.pool(provisioner="asg"), reservations=[given.block(**{"from": "1h"}, duration="3h")]
    ).prepare()
    rehearsal.run_until(after("10m"))
    one = group(rehearsal)
    (block_,) = rehearsal.cloud.all_reservations()
    assert (one.desired, one.minimum, one.maximum, one.zones) == (0, 0, 2, ("us-east-1a",))
    assert one.launch_spec.source == block_.source
    tags = dict(one.propagated)
    assert tags["Name"] == f"ml-{one.name}-Node"
    assert tags["kubernetes.io/cluster/ml"] == "owned"
    assert one.template.version == 1  # pinned
    assert {(name, each.at) for name, each in one.schedules.items()} == {
        (UP, after("1h1m")),
        (DOWN, after("3h19m")),  # more than 40 minutes before the end
    }


@pytest.mark.requirement("SM-4")
def test_without_an_engine_the_schedules_bring_the_nodes_up_and_take_them_down():
    rehearsal = scenario_with(
        given.pool(provisioner="asg"),
        reservations=[given.block(**{"from": "1h"}, duration="3h")],
        faults=[given.fault("30m", "engine-absent", duration="6h")],
        deadlineAgent=True,
    ).prepare()
    rehearsal.run_until(after("1h10m"))
    assert running(rehearsal) == 2
    rehearsal.run()
    assert {history.ended_by for history in rehearsal.cloud.instance_histories.values()} <= {"group", "ec2"}
    assert journal_lines(rehearsal, "schedule-fired")[-1].at == after("3h19m")


@pytest.mark.requirement("SM-4")
def test_with_an_engine_the_schedule_of_an_active_block_ends_no_node():
    """Two of three nodes are on their way at the start: a schedule that still went by the room left would say one."""
    rehearsal = scenario_with(
        given.pool(provisioner="asg", limits={"nodes": 3}),
        reservations=[given.block(duration="3h", **{"from": "1h"})],
        duration="2h",
    ).prepare()
    rehearsal.run_until(after("59m"))
    assert group(rehearsal).schedules[UP].desired == 2
    rehearsal.run_until(after("1h3m"))
    assert len(group(rehearsal).staying()) == 2
    assert UP not in group(rehearsal).schedules


@pytest.mark.requirement("SM-4")
@pytest.mark.requirement("CB-7")
def test_an_extension_moves_the_schedule_and_the_drain():
    rehearsal = extended("asg").prepare()
    rehearsal.run_until(after("1h9m"))
    assert group(rehearsal).schedules[DOWN].at == after("3h19m")  # not before it is paid
    rehearsal.run_until(after("1h11m"))
    assert group(rehearsal).schedules[DOWN].at == after("27h19m")
    rehearsal.run()
    assert not journal_lines(rehearsal, "schedule-fired", "3h19m")
    assert min(history.shutting_down_at for history in rehearsal.cloud.instance_histories.values()) > after(
        "27h"
    )


@pytest.mark.parametrize("way", GROUPED)
def test_a_reader_sees_what_the_engine_sees(way: str):
    """Instances of a group carry no intent: whoever reads them past the engine's port would count launches twice."""
    rehearsal = scenario_with(
        given.pool(provisioner=way), reservations=[given.block(duration="28h")], duration="1h"
    ).prepare()
    while not rehearsal.cloud.instance_histories:
        assert rehearsal.step()
    rehearsal.timeline.advance(rehearsal.timeline.now() + timedelta(seconds=20))
    world, _ = observe_and_decide(rehearsal)
    (intent,) = rehearsal.ledger.launches()
    assert [node.instance.intent_id for node in world.nodes if node.instance] == [intent.id] * 2


# --- EKS's own action ---------------------------------------------------------------------------------


@pytest.mark.requirement("MG-2")
def test_an_action_of_eks_that_stayed_behind_is_warned_of_and_survived():
    rehearsal = extended("managed").prepare()
    rehearsal.run_until(after("1h15m"))
    assert any("EKS still scales node group" in line.sentence for line in journal_lines(rehearsal, "warned"))
    rehearsal.run_until(after("3h20m"))  # when EKS acts
    assert not list(rehearsal.cloud.alive())  # drained before it, by name
    rehearsal.run_until(after("4h"))
    assert running(rehearsal) == 2  # the block lives on, and so do its nodes
    rehearsal.run()
    assert ended_by(rehearsal) == {"engine"}
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"


@pytest.mark.requirement("MG-2")
@pytest.mark.parametrize("lead", ["10m", "1h"])
def test_nothing_is_launched_that_an_action_of_eks_would_end_at_once(lead: str):
    """Invariant 14: drained early for the action, the group got one node after the other until it fired."""
    rehearsal = scenario_with(
        given.pool(provisioner="managed", drain={"lead": lead}), reservations=[given.block(count=4)],
        jobs=[given.job(lasts="20h", checkpointEvery="10m")],
        extensions=[{"at": "1h", "block": "a", "by": "1d"}], duration="29h",
    ).prepare()  # fmt: skip
    rehearsal.run_until(after("3h20m"))
    assert len(rehearsal.cloud.instance_histories) == 4
    rehearsal.run_until(after("3h25m"))
    assert running(rehearsal) >= 3
    rehearsal.run()
    assert len(rehearsal.cloud.instance_histories) == 8
    assert ended_by(rehearsal) == {"engine"}


@pytest.mark.requirement("MG-2")
def test_an_empty_node_group_whose_block_was_extended_is_made_again_with_the_right_date():
    rehearsal = scenario_with(
        given.pool(provisioner="managed"), reservations=[given.block(**{"from": "2h"})],
        jobs=[given.job(lasts="20h", at=["2h"])],
        extensions=[{"at": "1h", "block": "a", "by": "1d"}], duration="29h",
    ).prepare()  # fmt: skip
    rehearsal.run_until(after("90m"))
    assert len(journal_lines(rehearsal, "node-group-deleted")) == 1
    assert [action.at for action in group(rehearsal).schedules.values()] == [after("27h20m")]
    rehearsal.run()
    assert len(journal_lines(rehearsal, "node-group-made")) == 2
    assert len(rehearsal.cloud.instance_histories) == 2  # none ended at the old date
    assert rehearsal.cluster.jobs["fit-1"].restarts == 0


def test_an_action_of_a_person_that_empties_a_group_holds_back_launches_until_it_fired():
    rehearsal = scenario_with(
        given.pool(provisioner="asg", warm=False), reservations=[given.block(duration="28h")], duration="5h",
        jobs=[given.job(lasts="1h", at=["2h45m"])],
    ).prepare()  # fmt: skip
    rehearsal.run_until(after("35m"))
    night = ScheduledAction("night", after("3h"), 0, 0)
    rehearsal.cloud.groups.put_schedule(group(rehearsal).name, night)
    rehearsal.run_until(after("2h59m"))
    assert not rehearsal.cloud.instance_histories
    rehearsal.run_until(after("3h5m"))
    assert running(rehearsal) == 1


@pytest.mark.requirement("MG-2")
def test_an_action_that_eks_moves_with_the_end_costs_nothing():
    rehearsal = extended("managed").prepare()
    rehearsal.cloud.node_groups.follows_extensions = True
    rehearsal.run()
    assert len(rehearsal.cloud.instance_histories) == 2
    assert not any("EKS still scales" in line.sentence for line in journal_lines(rehearsal, "warned"))


# --- hand-over ----------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-9")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_blocks_hand_a_service_over_without_downtime(way: str, seed: int):
    rehearsal = two_blocks(given.pool(provisioner=way)).run(seed)
    assert rehearsal.cluster.services["chat"].downtime_s(rehearsal.end) == 0
    a = rehearsal.cloud.names["a"]
    histories = [
        history for history in rehearsal.cloud.instance_histories.values() if history.now.source.id == a
    ]
    assert {history.ended_by for history in histories} == {"engine"}
    assert running(rehearsal) == 2


def test_the_example_runs_as_its_comments_say():
    spec, scenario = load_spec([str(EXAMPLE)])
    assert scenario is not None
    rehearsal = given.PreparedScenario(spec, scenario).run()
    assert rehearsal.cluster.services["chat"].downtime_s(rehearsal.end) == 0
    assert {rehearsal.cluster.jobs[name].state for name in ("fit-1", "fit-2")} == {"finished"}
    assert ended_by(rehearsal) <= {"engine", ""}
    fired = [line.at for line in journal_lines(rehearsal, "schedule-fired", "demo-train")]
    assert fired == [datetime(2026, 11, 19, 10, 49, tzinfo=UTC)]  # once, after the extension


# --- what people do -----------------------------------------------------------------------------------


@pytest.mark.requirement("SM-7")
def test_an_instance_scaled_in_by_hand_waits_in_the_hook_until_its_pods_are_gone():
    rehearsal = scenario_with(
        given.pool(provisioner="asg"), reservations=[given.block(duration="28h")],
        jobs=[given.job(at=["0s", "1m"], lasts="9h", checkpointEvery="10m")], duration="5h",
    ).prepare()  # fmt: skip
    by_hand(rehearsal, "1h", 1)
    rehearsal.run_until(after("1h1m"))
    (waiting,) = [
        member for member in group(rehearsal).members.values() if member.state == "Terminating:Wait"
    ]
    (node,) = [node for node in rehearsal.cluster.view().nodes if node.instance_id == waiting.instance_id]
    assert node.draining_since is not None  # at once: nobody new is sent there
    rehearsal.run_until(after("1h31m"))
    history = rehearsal.cloud.instance_histories[waiting.instance_id]
    assert history.shutting_down_at is not None
    assert history.shutting_down_at < after("1h30m")  # not because its time was out
    assert history.ended_by == "group"  # by the hand, but only once the engine had let it go:
    assert next(one.instance_id for _, one in actions_done(rehearsal, Terminate)) == waiting.instance_id
    evicted = [row for row in rehearsal.cluster.evictions if waiting.instance_id in row.node]
    assert evicted
    assert not any(row.forced for row in evicted)
    rehearsal.run()


@pytest.mark.requirement("SM-7")
def test_an_empty_node_that_is_scaled_in_by_hand_goes_within_seconds():
    rehearsal = scenario_with(
        given.pool(provisioner="asg"), reservations=[given.block(duration="28h")], duration="2h"
    ).prepare()
    by_hand(rehearsal, "1h", 1)
    rehearsal.run_until(after("1h1m"))
    (gone,) = [
        history
        for history in rehearsal.cloud.instance_histories.values()
        if history.shutting_down_at is not None
    ]
    assert gone.shutting_down_at is not None
    assert gone.shutting_down_at < after("1h20s")


@pytest.mark.requirement("SM-5")
def test_a_size_raised_by_hand_is_left_alone():
    rehearsal = scenario_with(
        given.pool(provisioner="asg", warm=False), reservations=[given.block(count=3, duration="28h")],
        jobs=[given.job(lasts="9h")], duration="4h",
    ).prepare()  # fmt: skip
    by_hand(rehearsal, "1h", 3)
    rehearsal.run()
    assert running(rehearsal) == 3
    assert group(rehearsal).desired == 3


@pytest.mark.requirement("SM-5")
def test_a_size_raised_by_hand_before_the_block_starts_is_left_alone():
    rehearsal = scenario_with(
        given.pool(provisioner="asg", warm=False),
        reservations=[given.block(duration="3h", **{"from": "1h"})],
        duration="3h",
    ).prepare()
    by_hand(rehearsal, "10m", 2)
    rehearsal.run()
    assert running(rehearsal) == 2


@pytest.mark.requirement("SM-5")
def test_nodes_by_the_hour_that_somebody_scales_up_are_left_to_come():
    rehearsal = scenario_with(
        given.pool(provisioner="asg", sources=[{"type": "on-demand"}], requirements={"instanceTypes": ["g6.12xlarge"]}),
        jobs=[given.job(gpus=4, cpu="8", memory="32Gi", lasts="2h")], duration="1h",
    ).prepare()  # fmt: skip
    by_hand(rehearsal, "30m", 2)
    rehearsal.run_until(after("32m"))
    assert len(group(rehearsal).staying()) == 2
    rehearsal.run()
    assert len(group(rehearsal).staying()) == 1  # an empty one goes by the pool's own rule


# --- losses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", GROUPED)
def test_a_dead_node_is_replaced_once_its_slot_is_clean(way: str):
    rehearsal = scenario_with(
        given.pool(provisioner=way),
        reservations=[given.block(duration="28h")],
        faults=[given.fault("1h", "node-dies")],
        jobs=[given.job(at=["0s", "1m"], lasts="9h", checkpointEvery="10m")],
        duration="2h",
    ).run()
    assert running(rehearsal) == 2
    assert len(rehearsal.cloud.instance_histories) == 3


@pytest.mark.requirement("MG-5")
@pytest.mark.parametrize("way", GROUPED)
def test_a_node_that_never_joins_is_noticed_reported_and_replaced(way: str):
    rehearsal = scenario_with(
        given.pool(provisioner=way),
        reservations=[given.block(duration="28h")],
        faults=[given.fault("0s", "never-joins")],
        duration="1h",
    ).run()
    late = [
        action
        for _, action in actions_done(rehearsal, Terminate)
        if action.reason.kind is TerminateKind.NEVER_JOINED
    ]
    (lost,) = {action.instance_id for action in late}
    assert rehearsal.cloud.instance_histories[lost].ended_by == "engine"
    assert running(rehearsal) == 2
    (alert,) = tally(rehearsal, scenario="it", wall_s=0.0).as_json()["alerts"]
    assert (alert["kind"], lost in json.dumps(alert)) == ("nodes-never-join", True)


@pytest.mark.parametrize("way", GROUPED)
def test_a_launch_without_capacity_is_given_up_and_the_size_is_set_back(way: str):
    rehearsal = scenario_with(
        given.pool(provisioner=way), reservations=[given.block(duration="28h")],
        faults=[given.fault("0s", "no-capacity", duration="40m")], duration="70m",
    ).prepare()  # fmt: skip
    rehearsal.run_until(after("10m20s"))
    assert [launch.state for launch in rehearsal.ledger.launches()] == [LaunchState.FAILED]
    assert group(rehearsal).desired == 0
    assert any("could not launch" in line.sentence for line in journal_lines(rehearsal, "warned"))
    rehearsal.run()
    assert running(rehearsal) == 2


def a_gpu_fails() -> Rehearsal:
    """Two nodes with a job each; a GPU of the younger one fails, so that it is drained and ended."""
    rehearsal = scenario_with(
        given.pool(provisioner="asg"), reservations=[given.block(duration="28h")], duration="2h",
        jobs=[given.job(at=["0s", "1m"], lasts="9h", checkpointEvery="10m")],
    ).prepare()  # fmt: skip
    rehearsal.run_until(after("30m"))
    younger = list(group(rehearsal).members)[-1]
    rehearsal.cluster.fail_gpu(younger)
    rehearsal.run()
    return rehearsal


def test_the_node_that_failed_goes_and_no_other():
    rehearsal = a_gpu_fails()
    assert ended_by(rehearsal) == {"", "engine"}
    assert not rehearsal.cluster.kills


def test_lowering_the_size_of_a_group_would_end_another_instance(monkeypatch: pytest.MonkeyPatch):
    def smaller(self: SimCompute, instance_id: str) -> None:
        found = self._groups.of(instance_id)
        if found is not None and found[1].stays:
            self.resize(found[0].name, found[0].desired - 1)

    monkeypatch.setattr(SimCompute, "terminate_in_group", smaller)
    assert "group" in ended_by(a_gpu_fails())


CRASHES = [
    f"{when}:{call}"
    for when in ("before", "after")
    for call in ("launch", "put_template", "put_group", "put_schedule", "resize", "write_launch", "terminate",
                 "terminate_in_group", "release", "delete_group")
]  # fmt: skip
EKS_CRASHES = [
    f"{when}:{call}"
    for when in ("before", "after")
    for call in ("put_node_group", "resize_node_group", "terminate_in_group", "delete_node_group")
]


@pytest.mark.parametrize(
    ("way", "step"), [("asg", one) for one in CRASHES] + [("managed", one) for one in EKS_CRASHES]
)
def test_a_crash_at_any_step_neither_loses_nor_doubles(way: str, step: str):
    rehearsal = scenario_with(
        given.pool(provisioner=way),
        reservations=[given.block()],
        jobs=[given.job(at=["0s", "1m"], lasts="20h", checkpointEvery="10m")],
        faults=[given.fault("0s", "engine-crash", step=step)],
        duration="5h",
    ).run()
    assert journal_lines(rehearsal, "engine-crashed")
    assert len(rehearsal.cloud.instance_histories) == 2
    assert ended_by(rehearsal) == {"engine"}
    assert not rehearsal.cloud.groups.all()


@pytest.mark.parametrize("way", GROUPED)
@pytest.mark.parametrize("seed", range(6))
def test_with_random_faults_the_invariants_hold(way: str, seed: int):
    kinds = ["launch-fails", "no-capacity", "late-join", "never-joins", "node-dies", "throttle", "event-lost",
             "event-late", "engine-crash", "engine-absent", "short-delivery", "lost-answer"]  # fmt: skip
    rehearsal = scenario_with(
        given.pool(provisioner=way),
        reservations=[given.block(count=4), given.block("b", duration="28h", zone="us-east-1b")],
        jobs=[
            given.job(at=["0s", "10m", "1h", "2h"], lasts="1h"),
            given.job("long", at=["5m"], lasts="9h", checkpointEvery="10m"),
        ],
        randomFaults={"count": 8, "kinds": kinds, "until": "4h"},
        duration="6h",
    ).run(seed)
    assert "group" not in ended_by(rehearsal)


def test_another_pool_that_launches_natively_keeps_its_templates():
    """Both pools through the same compute, as in production."""
    beside = given.pool("beside", labels={"tier": "beside"})
    rehearsal = scenario_with(
        given.pool(provisioner="asg"), beside,
        reservations=[given.block(pool="train"), given.block("b", pool="beside", zone="us-east-1b")], duration="5h",
    ).prepare()  # fmt: skip
    rehearsal.run_until(after("2h"))
    assert {template.name.rpartition("-cr-")[2] for template in rehearsal.compute.templates()} == {
        id_.removeprefix("cr-") for id_ in rehearsal.cloud.names.values()
    }
    assert running(rehearsal) == 4
    rehearsal.run()
    assert not rehearsal.compute.templates()


# --- by the hour, and other sources -------------------------------------------------------------------


@pytest.mark.requirement("MG-3")
@pytest.mark.requirement("CB-14")
@pytest.mark.parametrize("way", GROUPED)
@pytest.mark.parametrize("kind", ["on-demand", "spot"])
def test_capacity_by_the_hour_comes_through_groups_too(way: str, kind: str):
    rehearsal = scenario_with(
        given.pool(provisioner=way, sources=[{"type": kind}], requirements={"instanceTypes": ["g6.12xlarge"]}),
        jobs=[given.job(gpus=4, cpu="8", memory="32Gi", at=["0s", "30m"], lasts="20m")], duration="3h",
    ).run()  # fmt: skip
    assert {rehearsal.cluster.jobs[name].state for name in ("fit-1", "fit-2")} == {"finished"}
    assert {history.now.source.kind.value for history in rehearsal.cloud.instance_histories.values()} == {
        kind
    }
    assert not list(rehearsal.cloud.alive())  # empty nodes went, by name
    assert ended_by(rehearsal) == {"engine"}


@pytest.mark.requirement("MG-3")
@pytest.mark.requirement("CB-14")
@pytest.mark.parametrize("way", GROUPED)
def test_a_reservation_on_demand_comes_through_groups_too(way: str):
    rehearsal = scenario_with(
        given.pool(provisioner=way, sources=[{"type": "odcr"}]),
        reservations=[given.block("a", type="odcr", duration=None)],
        jobs=[given.job(lasts="20m")], duration="1h",
    ).run()  # fmt: skip
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"


def rolled(way: str) -> Rehearsal:
    """The image changes an hour into the scenario."""
    return scenario_with(
        given.pool(provisioner=way), reservations=[given.block(duration="28h")], duration="3h",
        rolls=[{"at": "1h", "nodeClass": "gpu", "ami": {"alias": "al2023@v20261112"}}],
    ).prepare()  # fmt: skip


def test_a_new_image_reaches_the_nodes_of_a_group_one_by_one():
    rehearsal = rolled("asg")
    rehearsal.run()
    assert {member.template.version for member in group(rehearsal).staying()} == {2}
    assert len(rehearsal.cloud.instance_histories) == 4
    assert running(rehearsal) == 2


@pytest.mark.requirement("MG-4")
def test_a_node_group_takes_a_new_image_once_it_is_scaled_to_zero():
    rehearsal = rolled("managed")
    rehearsal.run_until(after("1h30m"))
    assert (
        len(rehearsal.cloud.instance_histories) == 2
    )  # nobody replaces a node by another of the same old template
    assert any("waits until it is empty" in line.sentence for line in journal_lines(rehearsal, "warned"))
    by_hand(rehearsal, "1h31m", 0)
    rehearsal.run()
    assert {member.template.version for member in group(rehearsal).staying()} == {2}
    assert running(rehearsal) == 2


@pytest.mark.parametrize("way", GROUPED)
def test_a_burst_of_pods_launches_what_is_missing_and_no_more(way: str):
    rehearsal = scenario_with(
        given.pool(provisioner=way, warm=False, limits={"nodes": 6}),
        reservations=[given.block(count=8, duration="28h")],
        jobs=[given.job(at=["0s", "3s", "6s", "40s", "90s"], lasts="2h")],
        duration="1h",
    ).run()
    assert len(rehearsal.cloud.instance_histories) == 5
    assert sum(action.intent.count for _, action in actions_done(rehearsal, Launch)) == 5
