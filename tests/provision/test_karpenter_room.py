"""The limits of a pool, divided between its NodePools: never more together, and where pods wait for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.provision.test_karpenter import NOW, block, pool
from tests.provision.test_karpenter_reconciler import Cluster, node, world
from tidemill.model.capacity import ReservationState, Source, SourceKind
from tidemill.model.labels import Toleration
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodPhase, PodShape, Terms
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.provision.karpenter.objects import karpenter_objects
from tidemill.provision.karpenter.reconciler import KarpenterReconciler
from tidemill.provision.karpenter.room import TURN
from tidemill.provision.karpenter.settling import SETTLES_WITHIN
from tidemill.spec import names

SPOT, ON_DEMAND = Source(SourceKind.SPOT), Source(SourceKind.ON_DEMAND)
HOURLY = [{"type": "spot"}, {"type": "on-demand"}]
P5 = 192  # vCPUs
SOON = timedelta(seconds=20)
OVERFLOW = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 900, "maxMonthlyUsd": 90000}]
BUDGET = {"budget": {"monthlyUsd": 900000}}


def cpus(cluster: Cluster) -> dict[str, int]:
    return {
        name.removeprefix("train-"): int(found["spec"]["limits"]["cpu"]) // P5
        for (kind, name), found in cluster.objects.items()
        if kind == "NodePool"
    }


def pod(source: str = "", name: str = "one") -> Pod:
    return Pod(name, "ml", name, PodShape(), Terms(), PodPhase.PENDING, NOW, pinned_to=source)


class Engine:
    """One reconciler and its cluster; every look comes a while after the last."""

    def __init__(self, nodes: int, sources=HOURLY, **more):
        self.spec = pool(sources=sources, limits={"nodes": nodes}, platform=BUDGET, **more)[0]
        self.cluster, self.now = Cluster(), NOW
        self.start()

    def start(self):
        self.reconciler = KarpenterReconciler(self.spec, self.cluster)

    def looks(self, *blocks, nodes=(), pods=(), after=SOON):
        self.now += after
        self.reconciler.reconcile(world(*blocks, nodes=nodes, now=self.now, pods=pods))

    def sees(self, *blocks, nodes=(), pods=(), after=SOON):
        self.looks(*blocks, nodes=nodes, pods=pods, after=after)
        return cpus(self.cluster)


def nodes_on(source, count, **more):
    return tuple(node(source, name=f"i-{source.label}-{number}", **more) for number in range(count))


def drained(one, reason):
    id = one.instance.id
    return replace(
        one, kube=KubeNode(f"node-{id}", id, NOW, True, (), drain_reason=reason, draining_since=NOW)
    )


def test_all_the_room_is_with_one_hourly_node_pool_and_the_other_has_what_it_runs():
    engine = Engine(4)
    assert engine.sees() == {"spot": 4, "on-demand": 0}
    assert engine.sees(nodes=nodes_on(ON_DEMAND, 1)) == {"spot": 3, "on-demand": 0}
    later = engine.sees(nodes=nodes_on(ON_DEMAND, 1), after=SETTLES_WITHIN)
    assert later == {"spot": 3, "on-demand": 1}


def test_the_room_goes_to_where_pods_wait_but_only_after_it_was_taken_elsewhere():
    engine = Engine(4)
    engine.sees(nodes=nodes_on(SPOT, 1))
    waiting = {"nodes": nodes_on(SPOT, 1), "pods": (pod("on-demand"),)}
    assert engine.sees(**waiting) == {"spot": 1, "on-demand": 0}
    assert engine.reconciler.waits
    assert engine.sees(**waiting) == {"spot": 1, "on-demand": 0}
    assert engine.sees(**waiting, after=SETTLES_WITHIN) == {"spot": 1, "on-demand": 3}
    assert not engine.reconciler.waits


def test_a_launch_that_began_within_the_old_limit_is_counted_before_the_room_is_given():
    engine = Engine(4)
    engine.sees()
    engine.sees(pods=(pod("on-demand"),))
    late = engine.sees(nodes=nodes_on(SPOT, 2), pods=(pod("on-demand"),), after=SETTLES_WITHIN)
    assert sum(late.values()) <= 4
    assert late["on-demand"] == 2


def test_what_karpenter_counts_and_the_engine_does_not_see_yet_is_taken():
    engine = Engine(4)
    engine.sees()
    spot = engine.cluster.objects["NodePool", "train-spot"]
    launched = {"resources": {"cpu": str(3 * P5), "nodes": "3", "nvidia.com/gpu": "24"}}
    engine.cluster.objects["NodePool", "train-spot"] = {**spot, "status": launched}
    engine.sees(pods=(pod("on-demand"),))
    engine.cluster.objects["NodePool", "train-spot"]["status"] = launched
    assert engine.sees(pods=(pod("on-demand"),), after=SETTLES_WITHIN)["on-demand"] == 1


def test_a_new_engine_raises_nothing_before_it_has_seen_what_the_last_one_took():
    engine = Engine(4)
    engine.sees()
    engine.sees(pods=(pod("on-demand"),))
    engine.start()
    assert engine.sees(pods=(pod("on-demand"),)) == {"spot": 0, "on-demand": 0}
    assert engine.sees(pods=(pod("on-demand"),), after=SETTLES_WITHIN) == {"spot": 0, "on-demand": 4}


def test_two_that_are_waited_for_have_the_room_in_turns():
    """Spot may have no capacity, and Karpenter tells nobody."""
    engine = Engine(1)
    engine.sees()
    waiting, holders = (pod("spot", "a"), pod("on-demand", "b")), []
    for _ in range(9):
        found = engine.sees(pods=waiting, after=TURN / 3)
        assert sum(found.values()) <= 1
        holders += [name for name, count in found.items() if count]
    assert set(holders) == {"spot", "on-demand"}


def test_nothing_is_written_while_nothing_changes():
    engine = Engine(4)
    for _ in range(5):
        engine.sees(nodes=nodes_on(ON_DEMAND, 1), pods=(pod("spot"),), after=TURN)
    engine.cluster.calls.clear()
    for _ in range(5):
        engine.sees(nodes=nodes_on(ON_DEMAND, 1), pods=(pod("spot"),), after=TURN)
    assert engine.cluster.calls == []


def test_a_block_has_its_room_before_the_hourly_ones():
    engine = Engine(6, OVERFLOW)
    assert engine.sees(block("cr-a")) == {"cr-a": 4, "on-demand": 2}
    assert engine.sees(block("cr-a"), nodes=nodes_on(ON_DEMAND, 2)) == {"cr-a": 4, "on-demand": 2}


def test_a_block_gets_no_more_than_what_hourly_nodes_leave():
    engine = Engine(4, OVERFLOW)
    running = nodes_on(ON_DEMAND, 3)
    assert engine.sees(block("cr-a"), nodes=running) == {"cr-a": 1, "on-demand": 3}


def test_room_that_an_idle_block_does_not_use_goes_to_pods_that_wait_for_another_source():
    engine = Engine(4, OVERFLOW)
    assert engine.sees(block("cr-a")) == {"cr-a": 4, "on-demand": 0}
    waiting = (pod("on-demand"), pod("cr-a", "two"))
    assert engine.sees(block("cr-a"), pods=waiting) == {"cr-a": 1, "on-demand": 0}
    assert engine.sees(block("cr-a"), pods=waiting, after=SETTLES_WITHIN) == {"cr-a": 1, "on-demand": 3}


@pytest.mark.parametrize(("begins_in", "room"), [(timedelta(days=1), 0), (timedelta(minutes=10), 4)])
def test_a_block_that_has_not_begun_keeps_no_room_from_hourly_nodes(begins_in, room):
    later = replace(block("cr-a", state=ReservationState.SCHEDULED), start=NOW + begins_in)
    assert Engine(4, OVERFLOW).sees(later) == {"cr-a": room, "on-demand": 4 - room}


def test_nodes_of_another_provisioner_count_too():
    engine = Engine(4)
    native = nodes_on(SPOT, 1, provisioner="native") + nodes_on(Source(SourceKind.BLOCK, "cr-x"), 2)
    assert sum(engine.sees(nodes=native).values()) == 2  # with the one that Karpenter does not have


@pytest.mark.parametrize("limits", [{"cpu": 1000}, {"memory": "9Ti"}, {"gpus": 30}, {"nodes": 4, "gpus": 16}])
def test_no_resource_is_over_the_limits_of_the_pool(limits):
    spec, _ = pool(sources=HOURLY, limits=limits)
    running = {"nodes": nodes_on(SPOT, 1) + nodes_on(ON_DEMAND, 1)}
    cluster = Cluster()
    KarpenterReconciler(spec, cluster).reconcile(world(**running))
    sums: dict[str, float] = {}
    for name in ("train-spot", "train-on-demand"):
        for key, value in cluster.node_pool(name)["limits"].items():
            amount = float(value.removesuffix("Ti").removesuffix("Gi")) * (
                1024 if value.endswith("Ti") else 1
            )
            sums[key] = sums.get(key, 0) + amount
    caps = {"cpu": limits.get("cpu", 4 * P5), "memory": 9 * 1024, "nvidia.com/gpu": limits.get("gpus", 0)}
    assert sums
    assert all(amount <= caps[key] for key, amount in sums.items())


def test_without_an_engine_one_hourly_node_pool_has_the_limits_and_a_warning_says_so():
    found = karpenter_objects(*pool(sources=[{"type": "block"}, *HOURLY], limits={"gpus": 8}), None)
    limits = {
        manifest["metadata"]["name"]: manifest["spec"]["limits"]
        for manifest in found.objects
        if manifest["kind"] == "NodePool"
    }
    assert limits["train-spot"] == {"nvidia.com/gpu": "8"}
    assert limits["train-on-demand"] == {"nvidia.com/gpu": "0"}
    assert any("train-spot has all" in sentence for sentence in found.warnings)
    assert any("reserved capacity" in sentence for sentence in found.warnings)


def test_a_replica_that_waits_for_any_source_has_room_on_the_block_that_would_take_it():
    """It is pinned to nothing. All the room went to the hourly NodePool, which may have nothing to launch."""
    shape = PodShape((("nvidia.com/gpu", 8),), tolerations=(Toleration("nvidia.com/gpu", "Exists"),))
    takes, elsewhere = (
        replace(pod(), shape=replace(shape, node_selector=((names.LABEL_ZONE, zone),)))
        for zone in ("us-east-1a", "us-east-1b")
    )
    assert Engine(2, OVERFLOW).sees(block("cr-a"), pods=(takes,)) == {"cr-a": 1, "on-demand": 1}
    assert Engine(2, OVERFLOW).sees(block("cr-a"), pods=(elsewhere,)) == {"cr-a": 0, "on-demand": 2}


def test_a_static_node_pool_of_a_block_that_is_drained_makes_no_node_anew():
    """Its replicas stay, because fewer of them would end nodes that are still being drained."""
    engine = Engine(4, [{"type": "block"}], static=True, warm=2)
    block_a = block("cr-a", count=2)
    up = nodes_on(block_a.source, 2)
    ends = DrainReason(DrainKind.SOURCE_ENDS, at=NOW, name="cr-a")
    for nodes, replicas, limit in (
        (up, 2, "2"),
        (tuple(drained(one, ends) for one in up), 2, "0"),
        ((drained(up[0], ends),), 1, "0"),
    ):
        engine.looks(block_a, nodes=nodes)
        written = engine.cluster.objects["NodePool", "train-cr-a-warm"]["spec"]
        assert (written["replicas"], written["limits"]) == (replicas, {"nodes": limit})


def test_a_static_node_pool_has_a_replica_for_each_pod_that_waits_beside_its_warm_ones():
    """Karpenter launches nothing for pods there: with its warm nodes alone the rest of a block could not be used."""
    engine = Engine(8, [{"type": "block"}], static=True, warm=1)
    block_a = block("cr-a", count=4)
    boots, up = nodes_on(block_a.source, 1), nodes_on(block_a.source, 2)
    open_ = tuple(replace(one, kube=KubeNode(one.name, one.instance.id, NOW, True, ())) for one in up)
    two = (pod("cr-a", "one"), pod("cr-a", "two"))
    for nodes, pods, replicas in (
        (boots, (), 1),
        (boots, two[:1], 1),  # it is for that pod
        (boots, two, 2),
        (open_, two, 4),  # they found no room there
        (open_, (), 2),  # fewer would end some
    ):
        engine.looks(block_a, nodes=nodes, pods=pods)
        assert engine.cluster.objects["NodePool", "train-cr-a-warm"]["spec"]["replicas"] == replicas
