"""The small Karpenter, on the objects that the karpenter provisioner makes, in the simulated account and cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.sim.simulated_cluster import START, job_stream
from tidemill.catalog import load
from tidemill.model.errors import Gone, Refused
from tidemill.model.nodes import Node
from tidemill.model.world import World
from tidemill.provision.karpenter.reconciler import KarpenterReconciler
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cluster.cluster import SimCluster
from tidemill.sim.karpenter.controller import SimKarpenter
from tidemill.sim.timeline import Journal, Timeline
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Market, OwnedReservation
from tidemill.spec.units import parse_duration
from tidemill.wording import sentence

ZONE = "us-west-2a"


def documents(karpenter: dict[str, Any], **pool: Any) -> Spec:
    platform = {
        "region": "us-west-2", "deployment": "tides", "cluster": {"name": "tides"}, "nodeRole": "node",
        "subnets": {ZONE: ["subnet-1"]}, "karpenter": karpenter, "budget": {"monthlyUsd": 5000},
    }  # fmt: skip
    asked = {
        "nodeClassName": "gpu", "provisioner": "karpenter", "sources": [{"type": "block"}],
        "requirements": {"instanceTypes": ["p5.48xlarge"]}, "limits": {"nodes": 8}, **pool,
    }  # fmt: skip
    node_class = {"amiSelectorTerms": [{"alias": "al2023@v20260714"}]}
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "tides"}, "spec": platform}),
        catalog=load(),
        node_classes={"gpu": NodeClass.model_validate({"metadata": {"name": "gpu"}, "spec": node_class})},
        pools={"p5": ComputePool.model_validate({"metadata": {"name": "p5"}, "spec": asked})},
    )


def changed(spec: Spec, **platform: Any) -> Spec:
    written = {**spec.platform.spec.model_dump(by_alias=True, exclude_defaults=True), **platform}
    made = Platform.model_validate({"metadata": {"name": "tides"}, "spec": written})
    return replace(spec, platform=made)


class KarpenterSimulation:
    """An account with blocks, a cluster, Karpenter, and the engine's reconciler of its objects; no engine."""

    def __init__(self, *blocks: dict[str, Any], karpenter: dict[str, Any] | None = None, **pool: Any) -> None:
        self.spec = documents(karpenter or {"version": "1.8.0"}, **pool)
        self.timeline = Timeline(START)
        self.journal = Journal(self.timeline.now)
        catalog = self.spec.catalog
        self.cloud = SimCloud(
            self.timeline,
            self.journal,
            catalog,
            seed=1,
            zones=[ZONE],
            market=Market(),
            wake=lambda reason: None,
        )
        self.cluster = SimCluster(
            self.timeline, self.journal, catalog, self.spec, seed=1, wake=lambda reason: None
        )
        self.cloud.on_instance.append(self.cluster.instance_changed)
        self.karpenter = SimKarpenter(self.timeline, self.journal, catalog, self.cloud, self.cluster, [ZONE])
        self.reconciler = KarpenterReconciler(self.spec, self.karpenter)
        self.ids = [self.cloud.add_reservation(owned(**each), owner="tides") for each in blocks]
        self.pass_time("1m")
        self.reconcile()

    @property
    def now(self) -> datetime:
        return self.timeline.now()

    def pass_time(self, duration: str) -> None:
        self.timeline.advance(self.now + parse_duration(duration))

    def reconcile(self) -> None:
        nodes = tuple(Node(instance, None) for instance in self.alive())
        self.warnings = self.reconciler.reconcile(
            World(self.now, reservations=self.cloud.reservations(), nodes=nodes)
        )

    def submit(self, name: str, to: str, pods: int = 1, **fields: Any) -> None:
        """Jobs of one pod each, ungated before there is capacity, and pinned to a source."""
        for number in range(pods):
            self.cluster.submit_job(job_stream(**fields), f"{name}-{number}", timedelta(hours=2))
        for pod in self.cluster.view().pods:
            if pod.gated:
                self.cluster.admit([pod.uid], to, None)

    def open_nodes(self) -> None:
        for node in self.cluster.view().nodes:
            if node.check == "passed":
                self.cluster.mark_ready(node.name)

    def alive(self) -> list[Any]:
        return [history.now for history in self.cloud.alive()]

    def journal_lines(self, kind: str) -> list[str]:
        return [line.sentence for line in self.journal.lines if line.kind == kind]


def owned(name: str = "first", **fields: Any) -> OwnedReservation:
    asked = {
        "name": name, "type": "block", "instanceType": "p5.48xlarge", "count": 2, "zone": ZONE, "start": "0s",
        "duration": "2d", "pool": "p5", **fields,
    }  # fmt: skip
    return OwnedReservation.model_validate(asked)


@pytest.mark.requirement("KP-1")
def test_pods_that_fit_nowhere_get_nodes_of_their_block():
    simulation = KarpenterSimulation({})
    simulation.submit("train", to=simulation.ids[0], pods=2)
    simulation.pass_time("30s")
    assert [(one.source.id, one.provisioner, one.pool, one.owner) for one in simulation.alive()] == [
        (simulation.ids[0], "karpenter", "p5", "tides")
    ] * 2
    simulation.pass_time("9m")
    simulation.open_nodes()
    simulation.pass_time("1m")
    assert {pod.phase.value for pod in simulation.cluster.view().pods if not pod.daemon} == {"running"}


def test_pods_share_a_node_that_is_on_its_way():
    simulation = KarpenterSimulation({})
    simulation.submit("small", to=simulation.ids[0], pods=4, gpus=2)
    simulation.pass_time("5m")
    assert len(simulation.alive()) == 1


def test_karpenter_launches_nothing_for_a_gated_pod():
    simulation = KarpenterSimulation({})
    simulation.cluster.submit_job(job_stream(), "train", timedelta(hours=2))
    simulation.pass_time("5m")
    assert simulation.alive() == []


def test_more_than_the_block_holds_waits_until_there_is_room():
    simulation = KarpenterSimulation({})
    simulation.submit("train", to=simulation.ids[0], pods=3)
    simulation.pass_time("30m")
    assert len(simulation.alive()) == 2
    assert len(simulation.karpenter.claims) == 2


def test_limits_hold():
    simulation = KarpenterSimulation({}, limits={"nodes": 1})
    simulation.submit("train", to=simulation.ids[0], pods=2)
    simulation.pass_time("30m")
    assert len(simulation.alive()) == 1


@pytest.mark.parametrize(
    ("apart", "nodes"), [("topology.kubernetes.io/zone", 1), ("kubernetes.io/hostname", 2)]
)
def test_no_node_is_launched_on_which_a_pod_could_not_run_beside_others(apart: str, nodes: int):
    """Real Karpenter reckons with the pods that run and those it launches for."""
    simulation = KarpenterSimulation({})
    term = {"topologyKey": apart, "labelSelector": {"matchLabels": {"app": "fit"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    simulation.submit("train", to=simulation.ids[0], pods=3, gpus=2, labels={"app": "fit"}, affinity=rule)
    simulation.pass_time("1m")
    assert len(simulation.alive()) == nodes
    simulation.pass_time("10m")
    simulation.open_nodes()
    simulation.pass_time("10m")
    assert len(simulation.alive()) == nodes


def test_a_pod_pinned_to_another_source_does_not_run_on_this_one():
    simulation = KarpenterSimulation({})
    simulation.submit("train", to="cr-another")
    simulation.pass_time("30m")
    assert simulation.alive() == []


@pytest.mark.requirement("KP-2")
def test_pods_that_may_overflow_get_an_on_demand_fallback():
    sources = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 100, "maxMonthlyUsd": 1000}]
    simulation = KarpenterSimulation({}, sources=sources)
    simulation.submit("overflowing", to="on-demand", pods=2)
    simulation.pass_time("30m")
    (only,) = simulation.alive()  # a second one would cost more than the cap
    assert only.source.kind.value == "on-demand"


@pytest.mark.requirement("KP-8")
def test_a_warm_block_is_up_without_a_pod():
    simulation = KarpenterSimulation({}, karpenter={"version": "1.8.0", "staticCapacity": True}, warm=True)
    simulation.pass_time("1m")
    assert len(simulation.alive()) == 2


def test_an_empty_node_paid_by_the_hour_is_terminated():
    simulation = KarpenterSimulation(sources=[{"type": "on-demand"}], disruption={"consolidateAfter": "5m"})
    simulation.submit("short", to="on-demand")
    simulation.pass_time("10m")
    simulation.open_nodes()
    simulation.pass_time("1h")
    assert len(simulation.alive()) == 1
    simulation.pass_time("90m")  # the job took two hours
    assert simulation.alive() == []
    assert any("empty" in sentence for sentence in simulation.journal_lines("nodeclaim-deleted"))


@pytest.mark.requirement("KP-4")
def test_an_empty_prepaid_node_stays():
    simulation = KarpenterSimulation({})
    simulation.submit("short", to=simulation.ids[0])
    simulation.pass_time("10m")
    simulation.open_nodes()
    simulation.pass_time("6h")
    assert len(simulation.alive()) == 1


@pytest.mark.requirement("CB-10")
def test_forty_minutes_before_the_end_nothing_of_it_is_left_and_nothing_new_is_launched():
    simulation = KarpenterSimulation({})
    simulation.submit("train", to=simulation.ids[0])
    simulation.pass_time("10m")
    end = simulation.cloud.reservation(simulation.ids[0]).end
    simulation.timeline.advance(end - timedelta(minutes=40))
    assert simulation.alive() == []
    simulation.submit("late", to=simulation.ids[0])
    simulation.timeline.advance(end - timedelta(minutes=35))
    assert simulation.alive() == []


@pytest.mark.requirement("KP-6")
def test_at_the_hand_over_the_successor_is_taken_up_and_the_old_one_let_go():
    simulation = KarpenterSimulation({}, {"name": "second", "start": "1d"}, limits={"nodes": 8})
    first, second = simulation.ids
    assert {each["metadata"]["name"] for each in simulation.karpenter.listed("NodePool")} == {
        f"p5-{first}",
        f"p5-{second}",
    }
    simulation.timeline.advance(simulation.cloud.reservation(second).start + timedelta(minutes=1))
    simulation.reconcile()
    simulation.submit("train", to=second)
    simulation.pass_time("1m")
    assert [one.source.id for one in simulation.alive()] == [second]
    simulation.timeline.advance(simulation.cloud.reservation(first).end - timedelta(minutes=40))
    simulation.reconcile()
    assert [each["metadata"]["name"] for each in simulation.karpenter.listed("NodePool")] == [f"p5-{second}"]


def test_karpenter_tries_again_later_what_had_no_capacity():
    simulation = KarpenterSimulation(sources=[{"type": "on-demand"}])
    simulation.cloud.no_capacity_for(timedelta(minutes=10))
    simulation.submit("train", to="on-demand")
    simulation.pass_time("5m")
    assert simulation.alive() == []
    simulation.pass_time("15m")
    assert len(simulation.alive()) == 1
    assert 2 <= len(simulation.journal_lines("nodeclaim-failed")) <= 6


def test_a_throttled_account_is_asked_again():
    simulation = KarpenterSimulation({})
    simulation.cloud.throttle(timedelta(minutes=2))
    simulation.submit("train", to=simulation.ids[0])
    simulation.pass_time("10m")
    assert len(simulation.alive()) == 1


def test_a_launch_that_was_not_answered_is_not_made_twice():
    simulation = KarpenterSimulation({})
    simulation.cloud.timeout_after_commit(2, "launch")
    simulation.submit("train", to=simulation.ids[0])
    simulation.pass_time("15m")
    assert len(simulation.alive()) == 1
    assert len(simulation.karpenter.claims) == 1


def test_a_node_that_could_not_be_ended_while_aws_was_throttled_is_ended_later():
    simulation = KarpenterSimulation({})
    simulation.submit("train", to=simulation.ids[0])
    simulation.pass_time("1m")
    assert len(simulation.alive()) == 1
    simulation.cloud.throttle(timedelta(minutes=30))
    for written in list(simulation.karpenter.listed("NodePool")):
        simulation.karpenter.remove("NodePool", written["metadata"]["name"])
    simulation.pass_time("20m")
    assert len(simulation.alive()) == 1
    simulation.pass_time("12m")
    assert simulation.alive() == []


def test_a_node_that_died_is_replaced_for_its_pods():
    simulation = KarpenterSimulation({})
    simulation.submit("train", to=simulation.ids[0])
    simulation.pass_time("1m")
    (first,) = simulation.alive()
    simulation.cloud.kill_instance(first.id)
    simulation.pass_time("15m")
    (second,) = simulation.alive()
    assert second.id != first.id


# --- its objects ------------------------------------------------------------------------------------


def test_the_reconciler_makes_changes_and_removes_only_what_is_ours():
    simulation = KarpenterSimulation({})
    nobodys = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "nobodys"}
    spec = {"template": {"spec": {"nodeClassRef": nobodys}}}
    theirs = {"kind": "NodePool", "metadata": {"name": "theirs"}, "spec": spec}
    simulation.karpenter.apply(theirs)
    simulation.timeline.advance(simulation.cloud.reservation(simulation.ids[0]).end)
    simulation.reconcile()
    (left,) = simulation.karpenter.listed("NodePool")
    assert left["metadata"] == theirs["metadata"]
    assert left["spec"] == theirs["spec"]
    simulation.pass_time("5m")
    simulation.reconcile()  # what it named goes after it
    (left,) = simulation.karpenter.listed("NodePool")
    assert left["metadata"] == theirs["metadata"]
    assert left["spec"] == theirs["spec"]
    assert simulation.karpenter.listed("EC2NodeClass") == []


def test_objects_with_fields_added_by_the_api_server_are_left_alone():
    simulation = KarpenterSimulation({})
    before = len(simulation.journal_lines("object-applied"))
    world = World(simulation.now, reservations=simulation.cloud.reservations())
    assert simulation.reconciler.planned(world) == ()
    for kind in ("EC2NodeClass", "NodePool"):
        (own,) = simulation.karpenter.listed(kind)
        simulation.karpenter.apply({**own, "spec": {**own["spec"], "added": "by somebody"}})
    assert simulation.reconciler.planned(world) == ()
    before += 2
    simulation.pass_time("1h")
    simulation.reconcile()
    assert len(simulation.journal_lines("object-applied")) == before


def test_objects_changed_by_hand_are_corrected():
    simulation = KarpenterSimulation({})
    (own,) = simulation.karpenter.listed("NodePool")
    spoiled = {**own, "spec": {**own["spec"], "disruption": {"consolidateAfter": "1m"}}}
    simulation.karpenter.apply(spoiled)
    world = World(simulation.now, reservations=simulation.cloud.reservations())
    (change,) = simulation.reconciler.planned(world)
    assert (change.verb, change.about, change.reason) == (
        "change",
        f"NodePool p5-{simulation.ids[0]}",
        "disruption changed",
    )
    simulation.pass_time("10m")
    simulation.reconcile()
    assert simulation.karpenter.listed("NodePool") == [own]


def test_a_pool_whose_objects_cannot_be_written_is_reported():
    simulation = KarpenterSimulation({}, karpenter={"version": "1.5.0"})
    assert any("upgrade it to 1.6" in sentence(warning.reason) for warning in simulation.warnings)
    assert simulation.karpenter.listed("NodePool") == []


def test_the_api_server_refuses_what_the_real_one_does():
    simulation = KarpenterSimulation({})
    (own,) = simulation.karpenter.listed("NodePool")
    with pytest.raises(Refused, match="between static and dynamic"):
        simulation.karpenter.apply({**own, "spec": {**own["spec"], "replicas": 1}})
    with pytest.raises(Refused, match=r"limits\.nodes"):
        simulation.karpenter.apply(
            {
                **own,
                "metadata": {"name": "new"},
                "spec": {**own["spec"], "replicas": 1, "limits": {"cpu": "1"}},
            }
        )
    with pytest.raises(Gone):
        simulation.karpenter.remove("NodePool", "nobody")


@pytest.mark.requirement("KP-4")
@pytest.mark.parametrize(
    "slip",
    [
        lambda spec: replace(spec, pools={}),
        lambda spec: changed(spec, nodeRole=""),
        lambda spec: changed(spec, karpenter={"version": "1.5.0"}),
        lambda spec: changed(spec, deployment="another"),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_work_on_a_block_goes_on_when_the_documents_are_wrong_for_a_while(
    slip: Callable[[Spec], Spec], warm: bool
):
    simulation = KarpenterSimulation({}, karpenter={"version": "1.8.0", "staticCapacity": True}, warm=warm)
    simulation.submit("train", to=simulation.ids[0])
    simulation.pass_time("9m")
    simulation.open_nodes()
    before = {one.id for one in simulation.alive()}
    simulation.reconciler = KarpenterReconciler(slip(simulation.spec), simulation.karpenter)
    for _ in range(12):
        simulation.pass_time("5m")
        simulation.reconcile()
    assert before
    assert {one.id for one in simulation.alive()} == before
    assert simulation.journal_lines("nodeclaim-deleted") == []


def test_a_closed_warm_node_pool_brings_up_no_other_node():
    simulation = KarpenterSimulation({}, karpenter={"version": "1.8.0", "staticCapacity": True}, warm=True)
    simulation.pass_time("1m")
    simulation.reconciler = KarpenterReconciler(replace(simulation.spec, pools={}), simulation.karpenter)
    simulation.reconcile()
    first, second = simulation.alive()
    simulation.cloud.kill_instance(first.id)
    simulation.pass_time("1h")
    assert simulation.alive() == [second]
    assert any("removed when they are gone" in sentence(warning.reason) for warning in simulation.warnings)


def test_removing_a_node_pool_gives_its_pods_their_grace():
    simulation = KarpenterSimulation({})
    simulation.submit("train", to=simulation.ids[0])
    simulation.pass_time("9m")
    simulation.open_nodes()
    simulation.pass_time("5m")
    simulation.karpenter.remove("NodePool", f"p5-{simulation.ids[0]}")
    simulation.pass_time("1m")
    assert len(simulation.alive()) == 1
    simulation.pass_time("10m")
    assert simulation.alive() == []
    assert simulation.cluster.cut_short == []
