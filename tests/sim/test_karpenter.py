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
        "subnets": {ZONE: ["subnet-1"]}, "karpenter": karpenter,
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


class Scene:
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
                self.cluster.admit(pod.uid, to, None)

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
    scene = Scene({})
    scene.submit("train", to=scene.ids[0], pods=2)
    scene.pass_time("30s")
    assert [(one.source.id, one.provisioner, one.pool, one.owner) for one in scene.alive()] == [
        (scene.ids[0], "karpenter", "p5", "tides")
    ] * 2
    scene.pass_time("9m")
    scene.open_nodes()
    scene.pass_time("1m")
    assert {pod.phase.value for pod in scene.cluster.view().pods if not pod.daemon} == {"running"}


def test_pods_share_a_node_that_is_on_its_way():
    scene = Scene({})
    scene.submit("small", to=scene.ids[0], pods=4, gpus=2)
    scene.pass_time("5m")
    assert len(scene.alive()) == 1


def test_a_pod_behind_a_gate_is_nobodys_business():
    scene = Scene({})
    scene.cluster.submit_job(job_stream(), "train", timedelta(hours=2))
    scene.pass_time("5m")
    assert scene.alive() == []


def test_more_than_the_block_holds_waits_until_there_is_room():
    scene = Scene({})
    scene.submit("train", to=scene.ids[0], pods=3)
    scene.pass_time("30m")
    assert len(scene.alive()) == 2
    assert len(scene.karpenter.claims) == 2


def test_limits_hold():
    scene = Scene({}, limits={"nodes": 1})
    scene.submit("train", to=scene.ids[0], pods=2)
    scene.pass_time("30m")
    assert len(scene.alive()) == 1


def test_a_pod_of_another_source_gets_none_of_this_one():
    scene = Scene({})
    scene.submit("train", to="cr-another")
    scene.pass_time("30m")
    assert scene.alive() == []


@pytest.mark.requirement("KP-2")
def test_the_fall_back_is_launched_on_demand_for_pods_that_may_use_it():
    sources = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 100, "maxMonthlyUsd": 1000}]
    scene = Scene({}, sources=sources)
    scene.submit("overflowing", to="on-demand", pods=2)
    scene.pass_time("30m")
    (only,) = scene.alive()  # a second one would cost more than the cap
    assert only.source.kind.value == "on-demand"


@pytest.mark.requirement("KP-8")
def test_a_warm_block_is_up_without_a_pod():
    scene = Scene({}, karpenter={"version": "1.8.0", "staticCapacity": True}, warm=True)
    scene.pass_time("1m")
    assert len(scene.alive()) == 2


def test_a_node_by_the_hour_that_is_empty_goes():
    scene = Scene(sources=[{"type": "on-demand"}], disruption={"consolidateAfter": "5m"})
    scene.submit("short", to="on-demand")
    scene.pass_time("10m")
    scene.open_nodes()
    scene.pass_time("1h")
    assert len(scene.alive()) == 1
    scene.pass_time("90m")  # the job took two hours
    assert scene.alive() == []
    assert any("empty" in sentence for sentence in scene.journal_lines("nodeclaim-deleted"))


@pytest.mark.requirement("KP-4")
def test_an_empty_prepaid_node_stays():
    scene = Scene({})
    scene.submit("short", to=scene.ids[0])
    scene.pass_time("10m")
    scene.open_nodes()
    scene.pass_time("6h")
    assert len(scene.alive()) == 1


@pytest.mark.requirement("CB-10")
def test_forty_minutes_before_the_end_nothing_of_it_is_left_and_nothing_new_is_launched():
    scene = Scene({})
    scene.submit("train", to=scene.ids[0])
    scene.pass_time("10m")
    end = scene.cloud.reservation(scene.ids[0]).end
    scene.timeline.advance(end - timedelta(minutes=40))
    assert scene.alive() == []
    scene.submit("late", to=scene.ids[0])
    scene.timeline.advance(end - timedelta(minutes=35))
    assert scene.alive() == []


@pytest.mark.requirement("KP-6")
def test_at_the_hand_over_the_successor_is_taken_up_and_the_old_one_let_go():
    scene = Scene({}, {"name": "second", "start": "1d"}, limits={"nodes": 8})
    first, second = scene.ids
    assert {each["metadata"]["name"] for each in scene.karpenter.listed("NodePool")} == {
        f"p5-{first}",
        f"p5-{second}",
    }
    scene.timeline.advance(scene.cloud.reservation(second).start + timedelta(minutes=1))
    scene.reconcile()
    scene.submit("train", to=second)
    scene.pass_time("1m")
    assert [one.source.id for one in scene.alive()] == [second]
    scene.timeline.advance(scene.cloud.reservation(first).end - timedelta(minutes=40))
    scene.reconcile()
    assert [each["metadata"]["name"] for each in scene.karpenter.listed("NodePool")] == [f"p5-{second}"]


def test_what_had_no_capacity_is_asked_for_again_later():
    scene = Scene(sources=[{"type": "on-demand"}])
    scene.cloud.no_capacity_for(timedelta(minutes=10))
    scene.submit("train", to="on-demand")
    scene.pass_time("5m")
    assert scene.alive() == []
    scene.pass_time("15m")
    assert len(scene.alive()) == 1
    assert 2 <= len(scene.journal_lines("nodeclaim-failed")) <= 6


def test_a_throttled_account_is_asked_again():
    scene = Scene({})
    scene.cloud.throttle(timedelta(minutes=2))
    scene.submit("train", to=scene.ids[0])
    scene.pass_time("10m")
    assert len(scene.alive()) == 1


def test_a_node_that_died_is_replaced_for_its_pods():
    scene = Scene({})
    scene.submit("train", to=scene.ids[0])
    scene.pass_time("1m")
    (first,) = scene.alive()
    scene.cloud.kill_instance(first.id)
    scene.pass_time("15m")
    (second,) = scene.alive()
    assert second.id != first.id


# --- its objects ------------------------------------------------------------------------------------


def test_the_reconciler_makes_changes_and_removes_only_what_is_ours():
    scene = Scene({})
    nobodys = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "nobodys"}
    spec = {"template": {"spec": {"nodeClassRef": nobodys}}}
    theirs = {"kind": "NodePool", "metadata": {"name": "theirs"}, "spec": spec}
    scene.karpenter.apply(theirs)
    scene.timeline.advance(scene.cloud.reservation(scene.ids[0]).end)
    scene.reconcile()
    assert scene.karpenter.listed("NodePool") == [theirs]
    scene.pass_time("5m")
    scene.reconcile()  # what it named goes after it
    assert scene.karpenter.listed("NodePool") == [theirs]
    assert scene.karpenter.listed("EC2NodeClass") == []


def test_what_is_as_it_should_be_is_left_alone_though_the_api_server_added_to_it():
    scene = Scene({})
    before = len(scene.journal_lines("object-applied"))
    world = World(scene.now, reservations=scene.cloud.reservations())
    assert scene.reconciler.planned(world) == ()
    for kind in ("EC2NodeClass", "NodePool"):
        (own,) = scene.karpenter.listed(kind)
        scene.karpenter.apply({**own, "spec": {**own["spec"], "added": "by somebody"}})
    assert scene.reconciler.planned(world) == ()
    before += 2
    scene.pass_time("1h")
    scene.reconcile()
    assert len(scene.journal_lines("object-applied")) == before


def test_what_somebody_changed_by_hand_is_put_right():
    scene = Scene({})
    (own,) = scene.karpenter.listed("NodePool")
    spoiled = {**own, "spec": {**own["spec"], "disruption": {"consolidateAfter": "1m"}}}
    scene.karpenter.apply(spoiled)
    world = World(scene.now, reservations=scene.cloud.reservations())
    (change,) = scene.reconciler.planned(world)
    assert (change.verb, change.about, change.reason) == (
        "change",
        f"NodePool p5-{scene.ids[0]}",
        "disruption changed",
    )
    scene.pass_time("10m")
    scene.reconcile()
    assert scene.karpenter.listed("NodePool") == [own]


def test_one_pool_that_cannot_be_written_down_is_told_about():
    scene = Scene({}, karpenter={"version": "1.5.0"})
    assert any("upgrade it to 1.6" in sentence(warning.reason) for warning in scene.warnings)
    assert scene.karpenter.listed("NodePool") == []


def test_the_api_server_refuses_what_the_real_one_does():
    scene = Scene({})
    (own,) = scene.karpenter.listed("NodePool")
    with pytest.raises(Refused, match="between static and dynamic"):
        scene.karpenter.apply({**own, "spec": {**own["spec"], "replicas": 1}})
    with pytest.raises(Refused, match=r"limits\.nodes"):
        scene.karpenter.apply(
            {
                **own,
                "metadata": {"name": "new"},
                "spec": {**own["spec"], "replicas": 1, "limits": {"cpu": "1"}},
            }
        )
    with pytest.raises(Gone):
        scene.karpenter.remove("NodePool", "nobody")


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
def test_work_on_a_block_outlives_a_slip_in_the_documents(slip: Callable[[Spec], Spec], warm: bool):
    scene = Scene({}, karpenter={"version": "1.8.0", "staticCapacity": True}, warm=warm)
    scene.submit("train", to=scene.ids[0])
    scene.pass_time("9m")
    scene.open_nodes()
    before = {one.id for one in scene.alive()}
    scene.reconciler = KarpenterReconciler(slip(scene.spec), scene.karpenter)
    for _ in range(12):
        scene.pass_time("5m")
        scene.reconcile()
    assert before
    assert {one.id for one in scene.alive()} == before
    assert scene.journal_lines("nodeclaim-deleted") == []


def test_a_closed_warm_node_pool_brings_up_no_other_node():
    scene = Scene({}, karpenter={"version": "1.8.0", "staticCapacity": True}, warm=True)
    scene.pass_time("1m")
    scene.reconciler = KarpenterReconciler(replace(scene.spec, pools={}), scene.karpenter)
    scene.reconcile()
    first, second = scene.alive()
    scene.cloud.kill_instance(first.id)
    scene.pass_time("1h")
    assert scene.alive() == [second]
    assert any("removed when they are gone" in sentence(warning.reason) for warning in scene.warnings)


def test_removing_a_node_pool_lets_its_pods_finish_their_grace():
    scene = Scene({})
    scene.submit("train", to=scene.ids[0])
    scene.pass_time("9m")
    scene.open_nodes()
    scene.pass_time("5m")
    scene.karpenter.remove("NodePool", f"p5-{scene.ids[0]}")
    scene.pass_time("1m")
    assert len(scene.alive()) == 1
    scene.pass_time("10m")
    assert scene.alive() == []
    assert scene.cluster.cut_short == []
