"""A pod waits and no node fits: which instance is launched for it, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.decide import builders as given
from tests.decide.builders import NOW, ON_DEMAND, ahead, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.plan import Admit, Launch, StartDrain
from tidemill.model.pods import Pod, PodShape
from tidemill.spec import names
from tidemill.wording import sentence


def launched(documents, *things):
    """What is launched, as (type, count)."""
    plan = decide(spec(*documents), world(*things))
    return [(action.intent.instance_type, action.intent.count) for action in of(plan, Launch)]


@pytest.mark.requirement("PE-3")
@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (given.pod(gpus=1), "g6.xlarge"),
        (given.pod(gpus=4), "g6.12xlarge"),
        (given.pod(neurons=16), "trn1.32xlarge"),
        (given.pod(cpu="2"), "g6.xlarge"),
        (given.pod(cpu="100", memory="100Gi"), "trn1.32xlarge"),
    ],
    ids=["one GPU", "four GPUs", "neuron", "plain CPU", "much plain CPU"],
)
def test_launches_an_instance_that_has_what_a_pending_pod_asks_for(waiting: Pod, expected: str):
    pools = [given.hourly_pool("g6", "g6.xlarge", "g6.12xlarge"), given.hourly_pool("trn", "trn1.32xlarge")]
    assert launched(pools, waiting) == [(expected, 1)]


@pytest.mark.requirement("PE-3")
def test_launches_nothing_for_a_pod_that_fits_a_ready_node():
    up = given.node(source=ON_DEMAND, pool="g6", instance_type="g6.xlarge")
    plan = decide(spec(given.hourly_pool()), world(up, given.pod(gpus=1)))
    assert not of(plan, Launch)
    assert [admitted.source_label for admitted in of(plan, Admit)] == ["on-demand"]


@pytest.mark.requirement("PE-3")
def test_counts_on_a_node_that_is_on_its_way_instead_of_launching_another():
    for coming in (
        given.node(phase="launched", launched="1m", source=ON_DEMAND, pool="g6", instance_type="g6.xlarge"),
        given.launch_intent(pool="g6", source=ON_DEMAND, instance_type="g6.xlarge"),
    ):
        assert launched([given.hourly_pool()], coming, given.pod(gpus=1)) == []
        assert launched([given.hourly_pool()], coming, given.pod("a", gpus=1), given.pod("b", gpus=1)) == [
            ("g6.xlarge", 1)
        ]


@pytest.mark.requirement("PE-3")
def test_does_not_count_on_a_node_that_is_going_away():
    leaving = given.node(phase="draining", source=ON_DEMAND, pool="g6", instance_type="g6.xlarge")
    assert launched([given.hourly_pool()], leaving, given.pod(gpus=1)) == [("g6.xlarge", 1)]


# A person cordoned it: a pod pinned to it could never start, and a pin cannot be taken back.
@pytest.mark.requirement("PE-3")
def test_does_not_count_on_a_cordoned_node():
    cordoned = given.node(source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", unschedulable=True)
    plan = decide(spec(given.hourly_pool()), world(cordoned, given.pod(gpus=1)))
    assert not of(plan, Admit)
    assert [action.intent.instance_type for action in of(plan, Launch)] == ["g6.xlarge"]


@pytest.mark.requirement("PE-3")
def test_a_gang_that_is_held_by_somebody_else_is_no_demand():
    assert launched([given.hourly_pool()], given.pod(gpus=1, held_by_others=True)) == []


@pytest.mark.requirement("PE-4")
@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (given.pod(gpus=1, cpu="1"), "g6.xlarge"),
        (given.pod(gpus=1, cpu="6"), "g6.2xlarge"),
        (given.pod(gpus=1, cpu="1", memory="50Gi"), "g6.4xlarge"),
        (given.pod(gpus=3), "g6.12xlarge"),
        (given.pod(gpus=8), "g6.48xlarge"),
        # 64 vCPUs with one GPU cost less than 48 with four: price decides, not the number of GPUs.
        (given.pod(gpus=1, cpu="40"), "g6.16xlarge"),
    ],
)
def test_launches_the_cheapest_type_that_fits(waiting: Pod, expected: str):
    assert launched([given.hourly_pool()], waiting) == [(expected, 1)]


@pytest.mark.requirement("PE-4")
def test_leaves_room_for_daemon_pods_on_a_new_node():
    # 3.92 CPU are allocatable on g6.xlarge; what the CNI and its neighbours take must stay free.
    assert launched([given.hourly_pool()], given.pod(gpus=1, cpu="3.9")) == [("g6.2xlarge", 1)]


@pytest.mark.requirement("PE-4")
@pytest.mark.parametrize(
    ("daemon", "expected"),
    [
        (PodShape(((names.CPU, 2000),)), "g6.2xlarge"),
        (PodShape(((names.CPU, 2000),), node_selector=((names.LABEL_POOL, "g6"),)), "g6.2xlarge"),
        (PodShape(((names.CPU, 2000),), node_selector=(("arch", "other"),)), "g6.xlarge"),
    ],
)
def test_leaves_room_for_what_daemon_sets_will_put_on_the_first_node_of_a_pool(daemon, expected):
    documents = given.spec(given.hourly_pool())
    waiting = given.pod(gpus=1, cpu="3")
    plan = decide(documents, given.world(waiting, daemons=(daemon,)))
    assert [launch.intent.instance_type for launch in given.of(plan, Launch)] == [expected]


@pytest.mark.requirement("PE-4")
def test_packs_several_pods_onto_one_node_before_opening_the_next():
    eight_halves = [given.pod(f"half-{place}", gpus=4) for place in range(4)]
    assert launched([given.hourly_pool("p5", "p5.48xlarge")], *eight_halves) == [("p5.48xlarge", 2)]


@pytest.mark.requirement("PE-2")
def test_asks_the_pool_of_higher_weight_first():
    light, heavy = (
        given.hourly_pool("light", "g6.xlarge", weight=1),
        given.hourly_pool("heavy", "g6e.xlarge", weight=50),
    )
    assert launched([light, heavy], given.pod(gpus=1)) == [("g6e.xlarge", 1)]


@pytest.mark.requirement("PE-2")
@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (given.pod(gpus=1), []),
        (given.pod(gpus=1, tolerates=["gpu"]), [("g6.xlarge", 1)]),
        (given.pod(gpus=1, tolerates=["gpu"], selector={"tier": "train"}), [("g6.xlarge", 1)]),
        (given.pod(gpus=1, tolerates=["gpu"], selector={"tier": "serve"}), []),
        (
            given.pod(gpus=1, tolerates=["gpu"], selector={"topology.kubernetes.io/zone": "us-west-2b"}),
            [("g6.xlarge", 1)],
        ),
        (given.pod(gpus=1, tolerates=["gpu"], selector={"topology.kubernetes.io/zone": "mars-1a"}), []),
    ],
)
def test_taints_and_selectors_mean_what_they_mean_to_the_scheduler(waiting: Pod, expected: list):
    tainted = given.hourly_pool("g6", "g6.xlarge", taints=[{"key": "gpu"}], labels={"tier": "train"})
    assert launched([tainted], waiting) == expected


@pytest.mark.requirement("PE-2")
def test_a_zone_selector_decides_the_zone_of_the_launch():
    waiting = given.pod(gpus=1, selector={"topology.kubernetes.io/zone": "us-west-2b"})
    plan = decide(spec(given.hourly_pool()), world(waiting))
    assert [action.intent.zone for action in of(plan, Launch)] == ["us-west-2b"]


# --- the batch window ---------------------------------------------------------------------------------


def test_waits_a_second_for_more_pods_before_it_launches():
    fresh = given.pod(gpus=1, created_at=NOW)
    plan = decide(spec(given.hourly_pool()), world(fresh))
    assert not of(plan, Launch)
    assert plan.wake_at == NOW + timedelta(seconds=1)
    assert of(decide(spec(given.hourly_pool()), world(fresh, now=ahead("1s"))), Launch)


def test_a_steady_trickle_of_pods_delays_a_launch_by_ten_seconds_at_most():
    def trickle(seconds: int):
        pods = [
            given.pod(f"p{age}", gpus=1, created_at=NOW - timedelta(seconds=age)) for age in range(seconds)
        ]
        return decide(spec(given.hourly_pool("g6", "g6.xlarge")), world(pods))

    assert not of(trickle(10), Launch)
    assert [action.intent.count for action in of(trickle(11), Launch)] == [11]


def test_pods_of_one_batch_share_one_launch():
    pods = [given.pod(f"p{place}", gpus=1) for place in range(5)]
    (launch,) = of(decide(spec(given.hourly_pool("g6", "g6.xlarge")), world(pods)), Launch)
    assert launch.intent.count == 5
    assert "4 other pods wait" in sentence(launch.reason)


def test_a_new_launch_says_who_waits_and_carries_its_pool_and_provisioner():
    (launch,) = of(
        decide(spec(given.hourly_pool("g6", provisioner="asg")), world(given.pod("solo", gpus=1))), Launch
    )
    assert sentence(launch.reason) == "ml/solo waits"
    assert (launch.intent.pool, launch.intent.provisioner, launch.intent.written_at) == ("g6", "asg", NOW)


def test_higher_priority_is_served_first_and_then_the_older():
    one_slot = [given.hourly_pool("g6", "g6.xlarge", limits={"nodes": 1})]
    pods = [
        given.pod("late", gpus=1, created_at=ahead("0s") - timedelta(minutes=2)),
        given.pod("early", gpus=1, created_at=ahead("0s") - timedelta(minutes=9)),
    ]
    assert why(decide(spec(*one_slot), world(pods)), pods[1]).code == "launching"
    urgent = given.pod("urgent", gpus=1, priority=10)
    plan = decide(spec(*one_slot), world(pods, urgent))
    assert [why(plan, one).code for one in (urgent, *pods)] == ["launching", "limit", "limit"]


def test_a_service_replica_that_waits_gets_a_node_too():
    assert launched([given.hourly_pool("g6", "g6.xlarge")], given.replica(gpus=1)) == [("g6.xlarge", 1)]


def test_a_block_pool_launches_for_a_pod_onto_the_block_when_it_is_not_warmed():
    pools = [given.pool(warm=False)]
    plan = decide(spec(*pools), world(given.block(free=4), given.pod(gpus=8)))
    (launch,) = of(plan, Launch)
    assert (launch.intent.source.id, launch.intent.zone, launch.intent.count) == ("cr-1", "us-west-2a", 1)
    assert not of(plan, StartDrain)


def test_of_pods_alike_in_name_and_age_the_same_one_is_served_whichever_was_listed_first():
    up = given.node(source=ON_DEMAND, pool="g6", instance_type="g6.xlarge")
    first, second = (given.pod(gpus=1, namespace=team, uid=f"uid-{team}") for team in ("ml", "research"))
    served = []
    for listed in ([first, second], [second, first]):
        plan = decide(spec(given.hourly_pool()), world(up, *listed))
        served.append([admitted.pods for admitted in of(plan, Admit) if admitted.source_label == "on-demand"])
    assert served[0] == served[1]
