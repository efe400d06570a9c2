"""Gangs run whole or not at all, on one source in one zone, and come back whole after a loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.decide import builders as given
from tests.decide.builders import NOW, ago, ahead, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.labels import Expression
from tidemill.model.nodes import Node
from tidemill.model.plan import Admit, Evict, Launch, Recreate, SettleLaunch, StartDrain
from tidemill.model.pods import MAX_GANG_PODS, Gang, Pod, PodPhase, PodTerm, TakenBack
from tidemill.model.purchases import LaunchIntent, LaunchState
from tidemill.model.reasons import HoldKind, HoldReason
from tidemill.spec import names
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-17")


def running(pods: list[Pod], *nodes: Node) -> list[Pod]:
    """These pods, admitted to the nodes' block, bound and started."""
    return [
        replace(
            one,
            gated=False,
            pinned_to="cr-1",
            node=here.name,
            phase=PodPhase.RUNNING,
            started_at=ago("30m"),
            ready=True,
        )
        for one, here in zip(pods, nodes, strict=True)
    ]


def admitted(one: Pod) -> Pod:
    return replace(one, gated=False, pinned_to="cr-1")


@pytest.mark.requirement("PE-11")
def test_a_gang_that_has_room_is_admitted_in_one_action():
    pods = given.gang(size=2)
    (admit,) = of(decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), pods)), Admit)
    assert set(admit.pods) == {one.uid for one in pods}


@pytest.mark.requirement("PE-11")
def test_a_gang_waits_whole_until_there_is_room_for_all_of_it():
    pods = given.gang(size=3)
    plan = decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), pods))
    assert not of(plan, Admit)
    assert all(why(plan, one) for one in pods)


def test_a_gang_that_is_too_large_says_so_whatever_of_it_is_there():
    there = [replace(one, gang=Gang("g", MAX_GANG_PODS + 1)) for one in given.gang(size=2)]
    plan = decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), there))
    assert not of(plan, Admit)
    reason = why(plan, there[0]).reason
    assert reason == HoldReason(HoldKind.GANG_TOO_LARGE, name="g", count=MAX_GANG_PODS, of=MAX_GANG_PODS + 1)
    assert "has 5001 pods, and no more than 5000 are started together" in sentence(reason)


@pytest.mark.requirement("PE-11")
def test_room_on_two_blocks_is_not_room_for_a_gang():
    other = given.node("i-2", source=Source(SourceKind.BLOCK, "cr-2"))
    plan = decide(
        spec(), world(given.block(), given.block("cr-2"), given.node("i-1"), other, given.gang(size=2))
    )
    assert not of(plan, Admit)


@pytest.mark.requirement("PE-11")
def test_room_in_two_zones_is_not_room_for_a_gang():
    pools = spec(given.hourly_pool("p5", "p5.48xlarge", limits={"nodes": 2}))
    on_demand = {"source": Source(SourceKind.ON_DEMAND), "pool": "p5"}
    here, there = given.node("i-1", **on_demand), given.node("i-2", zone="us-west-2b", **on_demand)
    assert not of(decide(pools, world(here, there, given.gang(size=2))), Admit)
    assert of(decide(pools, world(here, given.node("i-2", **on_demand), given.gang(size=2))), Admit)


@pytest.mark.requirement("PE-11")
def test_room_in_two_pools_is_not_room_for_a_gang_which_is_pinned_to_one_of_them():
    on_demand = Source(SourceKind.ON_DEMAND)
    shared = {"labels": {"team": "ml"}, "limits": {"nodes": 1}}
    pools = spec(
        given.hourly_pool("a", "p5.48xlarge", **shared), given.hourly_pool("b", "p5.48xlarge", **shared)
    )
    assert not of(decide(pools, world(given.gang(size=2))), Launch)
    there = [given.node(f"i-{pool}", source=on_demand, pool=pool) for pool in ("a", "b")]
    assert not of(decide(pools, world(*there, given.gang(size=2))), Admit)


@pytest.mark.requirement("PE-11")
def test_a_gang_is_launched_for_in_one_zone():
    plan = decide(spec(given.hourly_pool("p5", "p5.48xlarge")), world(given.gang(size=3)))
    (launch,) = of(plan, Launch)
    assert launch.intent.count == 3


@pytest.mark.requirement("PE-11")
def test_a_launch_gives_a_gang_all_of_its_new_nodes_or_none():
    pools = spec(given.hourly_pool("p5", "p5.48xlarge", limits={"nodes": 9}))
    up = given.node("i-1", source=Source(SourceKind.ON_DEMAND))
    others = [given.pod(f"single-{number}", gpus=8) for number in range(2)]
    (launch,) = of(decide(pools, world(up, given.gang(size=4, priority=9), others)), Launch)
    assert (launch.intent.count, launch.intent.least) == (5, 3), "what single pods need may come in part"
    blocks = decide(spec(given.pool(warm=False)), world(given.block(free=4), given.gang(size=2)))
    assert [one.intent.least for one in of(blocks, Launch)] == [1], (
        "a block is paid for, whatever comes of it"
    )


def test_a_gang_whose_pods_are_not_all_there_waits_for_them():
    pods = given.gang(size=3)[:2]
    plan = decide(spec(), world(given.block(count=4, free=4), given.node("i-1"), given.node("i-2"), pods))
    assert not of(plan, Admit)
    assert {sentence(why(plan, one).reason) for one in pods} == {"gang g has 2 of its 3 pods"}


def test_a_gang_that_lost_a_member_is_stopped_to_start_again_whole():
    pods = given.gang(size=3)
    survivors = running(pods[:2], given.node("i-1"), given.node("i-2"))
    plan = decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), survivors, pods[2]))
    assert {action.pod for action in of(plan, Recreate)} == {survivor.uid for survivor in survivors}
    assert not of(plan, Evict)
    assert why(plan, pods[2]).code == "gang"
    assert "lost a pod" in sentence(why(plan, pods[2]).reason)


@pytest.mark.requirement("PE-17")
@pytest.mark.parametrize("free", [False, True])
def test_a_pinned_replacement_that_finds_no_ready_node_stops_the_gang(free: bool):
    """A Job with a pinned template makes its lost pod again without a gate."""
    nodes = [given.node("i-1"), given.node("i-2"), given.node("i-3", "ready" if free else "registering")]
    pods = given.gang(size=3)
    survivors, again = running(pods[:2], *nodes[:2]), admitted(pods[2])
    plan = decide(spec(), world(given.block(), nodes, survivors, again))
    stopped = {action.pod for action in of(plan, Recreate)}
    assert stopped == (set() if free else {pod.uid for pod in (*survivors, again)})


def test_an_admitted_gang_of_which_nobody_started_waits_for_a_node_that_comes():
    nodes = [given.node("i-1"), given.node("i-2", "registering")]
    plan = decide(spec(), world(given.block(), nodes, [admitted(pod) for pod in given.gang(size=2)]))
    assert not of(plan, Recreate)


def test_the_nodes_of_the_survivors_are_kept():
    pods = given.gang(size=3)
    survivors = running(pods[:2], given.node("i-1"), given.node("i-2"))
    plan = decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), survivors, pods[2]))
    assert not of(plan, StartDrain)


def test_a_member_that_is_merely_missing_may_have_finished():
    survivors = running(given.gang(size=3)[:2], given.node("i-1"), given.node("i-2"))
    assert not of(
        decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), survivors)), Recreate
    )


def test_a_gang_that_is_being_stopped_is_not_admitted_in_part():
    pods = given.gang(size=2)
    (going,) = running(pods[:1], given.node("i-1"))
    going = replace(going, deleting_until=ahead("30s"))
    plan = decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), going, pods[1]))
    assert not of(plan, Admit)
    assert "start again whole" in sentence(why(plan, pods[1]).reason)


def test_the_gang_is_admitted_again_once_it_waits_whole():
    pods = [replace(one, uid=f"{one.uid}-again") for one in given.gang(size=2)]
    (admit,) = of(decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), pods)), Admit)
    assert len(admit.pods) == 2


def test_a_gang_with_too_little_time_left_is_held_with_the_reason():
    pods = given.gang(size=2, expected="20h")
    plan = decide(spec(), world(given.block(ends_in="10h"), given.node("i-1"), given.node("i-2"), pods))
    assert not of(plan, Admit)
    assert {why(plan, one).code for one in pods} == {"held"}


def test_a_gang_moves_to_a_block_that_lasts():
    later = Source(SourceKind.BLOCK, "cr-2")
    nodes = [
        given.node("i-1"),
        given.node("i-2"),
        given.node("i-3", source=later),
        given.node("i-4", source=later),
    ]
    blocks = [given.block(ends_in="10h"), given.block("cr-2", ends_in="100h")]
    (admit,) = of(decide(spec(), world(blocks, nodes, given.gang(size=2, expected="20h"))), Admit)
    assert admit.source_label == "cr-2"


# --- a gang that was admitted only in part ------------------------------------------------------------


def test_a_half_admitted_gang_is_completed_on_the_same_source():
    pods = given.gang(size=2)
    plan = decide(
        spec(), world(given.block(), given.node("i-1"), given.node("i-2"), admitted(pods[0]), pods[1])
    )
    (admit,) = of(plan, Admit)
    assert (admit.pods, admit.source_label) == ((pods[1].uid,), "cr-1")
    assert not of(plan, Recreate)


def test_a_half_admitted_gang_whose_source_has_no_room_for_the_rest_is_rolled_back():
    pods = given.gang(size=3)
    half = [admitted(pods[0]), admitted(pods[1]), pods[2]]
    other = Source(SourceKind.BLOCK, "cr-2")
    there = [
        given.block(count=0),
        given.block("cr-2"),
        given.node("i-2", source=other),
        given.node("i-3", source=other),
    ]
    plan = decide(spec(), world(there, half))
    assert {action.pod for action in of(plan, Recreate)} == {pods[0].uid, pods[1].uid}


def test_room_promised_to_the_admitted_half_is_not_promised_to_the_rest():
    """One node is left of two: the admitted pod will take it, so the other must not follow yet."""
    pods = given.gang(size=2)
    plan = decide(spec(), world(given.block(), given.node("i-1"), admitted(pods[0]), pods[1]))
    assert not of(plan, Admit)


def test_every_waiting_member_of_a_half_admitted_gang_has_a_reason():
    pods = given.gang(size=3)
    members = [admitted(pods[0]), pods[1]]  # and one that its controller has not made again yet
    plan = decide(
        spec(), world(given.block(), given.node("i-1"), given.node("i-2"), given.node("i-3"), members)
    )
    assert {unmet.pod for unmet in plan.unmet} == {member.uid for member in members}


def test_an_admitted_gang_keeps_its_room_until_it_is_bound():
    promised = [admitted(one) for one in given.gang("first", 2)]
    later = given.gang("second", 2, priority=9)
    plan = decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), promised, later))
    assert not of(plan, Admit)
    assert not of(plan, Recreate)


def test_a_gang_that_waits_for_the_last_node_says_which():
    pods = given.gang(size=2)
    plan = decide(
        spec(), world(given.block(), given.node("i-1"), given.node("i-2", "registering", joined="1m"), pods)
    )
    reasons = {sentence(why(plan, one).reason) for one in pods}
    assert any("is held for it until the rest of its gang has room" in reason for reason in reasons)
    assert any("node-i-2 is registering" in reason for reason in reasons)


def test_two_gangs_of_the_same_name_in_two_namespaces_are_two_gangs():
    here, there = given.gang(size=2)[:1], given.gang(size=2, namespace="research")[:1]
    there = [replace(one, uid=f"{one.uid}-research") for one in there]
    plan = decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), here, there))
    assert not of(plan, Admit)
    assert {sentence(unmet.reason) for unmet in plan.unmet} == {"gang g has 1 of its 2 pods"}


def test_a_gang_falls_back_to_the_other_zone_when_one_has_no_capacity():
    source = Source(SourceKind.ON_DEMAND)
    failed = given.failed_launch(source=source, pool="p5", zone="us-west-2a", count=2)
    plan = decide(spec(given.hourly_pool("p5", "p5.48xlarge")), world(given.gang(size=2), failed, now=NOW))
    (launch,) = of(plan, Launch)
    assert (launch.intent.zone, launch.intent.count) == ("us-west-2b", 2)


def test_a_gang_takes_its_pools_preferred_source_even_when_limits_allow_only_one_try():
    """Weighing one source must not use up the limits before the next is looked at."""
    wanted = spec(
        given.pool(
            limits={"nodes": 3},
            sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 999, "maxMonthlyUsd": 99999}],
            warm=False,
        ),
        budget={"monthlyUsd": 99999},
    )
    lonely = given.node("i-1", source=Source(SourceKind.ON_DEMAND))
    pods = given.gang(size=2, overflow=True)
    (launch,) = of(decide(wanted, world(given.block(free=4), lonely, pods)), Launch)
    assert launch.intent.source.id == "cr-1"


def test_a_survivor_that_nobody_would_create_again_is_not_deleted():
    pods = given.gang(size=2, workload="")
    survivor = running(pods[:1], given.node("i-1"))
    plan = decide(spec(), world(given.block(), given.node("i-1"), survivor, pods[1]))
    assert not of(plan, Recreate)


@pytest.mark.requirement("PE-17")
def test_the_nodes_of_a_broken_gang_are_kept_while_ec2_cleans_the_slot_of_the_lost_one():
    """One of two nodes died and its slot is not free yet: a small job must not move in between."""
    pods = given.gang(size=2)
    small = given.pod("small", gpus=8, priority=-1)
    plan = decide(spec(), world(given.block(count=2, free=0), given.node("i-1"), pods, small))
    assert not of(plan, Admit)
    assert "held for it" in sentence(why(plan, pods[0]).reason)
    assert "cleaning its slot" in sentence(why(plan, pods[1]).reason)


@pytest.mark.parametrize(
    ("times", "since", "rests"), [(1, "4s", True), (1, "6s", False), (6, "2m", True), (20, "11m", False)]
)
def test_a_gang_that_was_taken_back_is_admitted_again_ever_later(times: int, since: str, rests: bool):
    """kube-scheduler knows no gangs: it may put one pod where the others have no room, time after time."""
    pods = given.gang(size=2)
    back = TakenBack(pods[0].workload, times, ago(since))
    here = (given.block(), given.node("i-1"), given.node("i-2"), pods)
    plan = decide(spec(), world(*here, taken_back=(back,)))
    assert bool(of(plan, Admit)) != rests
    if rests:
        told = why(plan, pods[0])
        assert told.reason.kind is HoldKind.TAKEN_BACK_OFTEN
        assert "kube-scheduler found no node for all of it" in sentence(told.reason)
        assert plan.wake_at == told.reason.at
    assert not of(plan, StartDrain)


def short(id: str, came: int, since: str) -> LaunchIntent:
    ids = tuple(f"i-{id}-{number}" for number in range(came))
    source = Source(SourceKind.ON_DEMAND)
    return given.launch_intent(
        id, state=LaunchState.SHORT, source=source, count=came + 1, state_at=ago(since), instance_ids=ids
    )


@pytest.mark.parametrize(
    ("before", "rests"),
    [
        ([(1, "9m")], True),
        ([(1, "11m")], False),
        ([(1, "9h"), (2, "30m")], True),
        ([(7, "6h")], True),
        ([(9, "23h")], True),
    ],
)
def test_a_gang_waits_ever_longer_where_only_some_of_its_nodes_came(
    before: list[tuple[int, str]], rests: bool
):
    """Those that came would stand idle, be given back and asked for again, in one zone after the other."""
    pools = spec(given.hourly_pool("p5", "p5.48xlarge"))
    launches = [short(f"ti-{number}", *one) for number, one in enumerate(before)]
    pods = given.gang(size=2)
    plan = decide(pools, world(pods, launches))
    assert bool(of(plan, Launch)) != rests
    if rests:
        assert why(plan, pods[0]).code == "no-capacity"
    assert of(decide(pools, world(given.pod(gpus=8), launches)), Launch), "one node is no gang"


def test_a_launch_that_came_short_is_written_down_as_one():
    up = given.node("i-1", source=Source(SourceKind.ON_DEMAND), intent_id="ti-1")
    pools = spec(given.hourly_pool("p5", "p5.48xlarge"))
    answered = given.launch_intent(
        state=LaunchState.LAUNCHED, source=Source(SourceKind.ON_DEMAND), count=2, instance_ids=("i-1",)
    )
    (settled,) = of(decide(pools, world(up, answered, given.gang(size=2))), SettleLaunch)
    assert settled.short == ("i-1",)
    asked = replace(answered, state=LaunchState.ASKED, written_at=ago("11m"), instance_ids=())
    (settled,) = of(decide(pools, world(up, asked, given.gang(size=2))), SettleLaunch)
    assert settled.short == ("i-1",)


def test_a_gang_whose_pods_keep_out_of_each_others_zone_is_told_that_it_cannot_start():
    apart = PodTerm(names.LABEL_ZONE, (Expression("app", "In", ("g",)),))
    pods = [
        replace(one, shape=replace(one.shape, labels=(("app", "g"),), anti_affinity=(apart,)))
        for one in given.gang(size=2)
    ]
    plan = decide(spec(), world(given.block(), given.node("i-1"), given.node("i-2"), pods))
    told = why(plan, pods[0])
    assert (told.code, told.reason.kind) == ("impossible", HoldKind.GANG_KEEPS_APART)
    assert "keeps them out of each other's zone" in sentence(told.reason)
