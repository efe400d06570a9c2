"""Karpenter's own AWS controller, unmodified: on our objects, against the simulated AWS and a real API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cluster.documents import NAME, platform, pool
from tests.cluster.objects import job, pod, pod_phase, sim
from tests.cluster.peers import Karpenter
from tests.cluster.programs import Kubectl
from tests.cluster.stage import Stage
from tidemill.spec import names

Opened = Callable[..., Stage]
P5 = "p5.48xlarge"
VERSION = {"version": "1.14.1", "staticCapacity": True}


def karpenter_pool(**more: Any) -> dict[str, Any]:
    return pool(provisioner="karpenter", **more)


def block(scene: Stage, name: str, ends_in: str, count: int = 1) -> str:
    """A block that is there already, tagged for the pool as its purchase would have."""
    given = {"name": name, "instanceType": P5, "count": count, "zone": "us-east-1a", "duration": "1d"}
    id_ = str(scene.account.ask("blocks", {**given, "endsIn": ends_in})["id"])
    tags = [{"Key": names.TAG_OWNER, "Value": NAME}, {"Key": names.TAG_POOL, "Value": "gpu"}]
    scene.account.ec2.create_tags(Resources=[id_], Tags=tags)
    return id_


@pytest.mark.requirement("GB-5", "KP-1", "KP-2", "KP-4")
def test_stock_karpenter_uses_a_block_falls_back_to_spot_and_lets_the_block_go_in_time(
    stage: Opened, make_namespace: Callable[..., str], kubectl: Kubectl
) -> None:
    """No engine runs: the objects are what `tidemill render karpenter` prints."""
    overflow = {"type": "spot", "maxHourlyUsd": 100, "maxMonthlyUsd": 1000}
    scene = stage(
        platform(karpenter=VERSION, securityGroups=[]),
        karpenter_pool(sources=[{"type": "block"}, overflow]),
        speed=1, start="", boot="fast", admission=False,
    )  # fmt: skip
    rendered = scene.tidemill("render", "karpenter", str(scene.files), "--pool", "gpu", "--no-engine")
    karpenter = Karpenter(scene)
    karpenter.wait_until_it_works()
    reserved = block(scene, "a", "41m")
    kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=rendered)
    scene.eventually(lambda: karpenter.node_class_is_ready("gpu"), "the node class is ready", timeout_s=60)
    namespace = make_namespace()
    quick = {"annotations": sim(stops_after="2s")}
    scene.create(namespace, pod("one", **quick))
    scene.eventually(lambda: pod_phase(scene.api(), namespace, "one") == "Running", "one runs", timeout_s=60)
    (claim,) = karpenter.claims("reserved")
    assert reservation_of(claim) == reserved
    (instance,) = scene.eventually(lambda: scene.account.instances_on(reserved), "EC2 lists its instance")
    assert claim["status"]["providerID"].endswith(instance["InstanceId"])

    scene.create(namespace, pod("two", **quick))
    scene.eventually(lambda: pod_phase(scene.api(), namespace, "two") == "Running", "two runs", timeout_s=60)
    assert len(karpenter.claims("spot")) == 1, "the block is full"
    struck = scene.account.fault("spot-interruption")
    scene.eventually(
        lambda: scene.account.state_of(struck) == "shutting-down", "the spot node is drained and ended"
    )
    assert ends_of_pods(scene, struck) == ["stopped"]

    goes = scene.account.end_of(reserved) - timedelta(minutes=40)
    gone = lambda: scene.account.state_of(instance["InstanceId"]) == "shutting-down"  # noqa: E731
    assert datetime.now(UTC) < goes, "this machine is too slow for the test"
    scene.eventually(gone, "Karpenter drains the block's node and ends it", timeout_s=150)
    assert datetime.now(UTC) > goes, "not before 40 minutes are left"
    assert datetime.now(UTC) < goes + timedelta(minutes=2), "it looks every minute"
    assert ends_of_pods(scene, instance["InstanceId"]) == ["stopped"]
    assert not scene.account.kubelets()["withoutFullGrace"]


@pytest.mark.requirement("GB-5", "KP-6", "CB-8", "CB-10")
def test_the_engine_empties_a_block_before_karpenters_time_and_hands_its_work_to_the_next(
    stage: Opened, ours: str
) -> None:
    """Karpenter lives in real time; the account and the engine are behind it, so that within a minute both come near
    the block's end: to the engine it is 85 minutes away when the work begins, to Karpenter 49."""
    begins = datetime.now(UTC) - timedelta(minutes=36)
    scene = stage(
        platform(karpenter=VERSION, securityGroups=[]), karpenter_pool(), speed=1, start=instant(begins), boot="fast"
    )  # fmt: skip
    karpenter = Karpenter(scene)
    scene.run()
    scene.eventually(lambda: '"ticked"' in scene.log(), "the engine works, and its ledger is there")
    karpenter.wait_until_it_works()
    first = block(scene, "a", "85m")
    ends = scene.account.end_of(first)
    scene.adopt(first)
    second = block(scene, "b", "24h")
    scene.adopt(second)
    resumable = {names.CHECKPOINT_EVERY: "2m", **sim(stops_after="2s", acknowledges="true")}
    scene.create(ours, job("fit", lasts="6h", annotations=resumable))
    scene.eventually(
        lambda: scene.sources_running(ours) == {first},
        "the job runs on a, which lasts long enough",
        timeout_s=90,
    )

    scene.account.advance(to=instant(ends - timedelta(minutes=50)))
    scene.eventually(lambda: not scene.open_nodes(first), "the engine drains block a")
    scene.account.advance(to=instant(ends - timedelta(minutes=44)))
    scene.eventually(
        lambda: scene.sources_running(ours) == {second}, "the job runs on block b", timeout_s=120
    )
    scene.eventually(
        lambda: {reservation_of(one) for one in karpenter.claims() if not deleting(one)} == {second},
        "Karpenter has no node of block a any more",
    )
    assert datetime.now(UTC) < ends - timedelta(minutes=40), "Karpenter's own time had come"
    assert "initiating delete for capacity block expiration" not in karpenter.log()
    assert f"gpu-{second}" in karpenter.pools()
    ran = [row["end"] for row in scene.account.kubelets()["pods"] if row["pod"].startswith(f"{ours}/")]
    assert ran == ["stopped", None], "the job stopped once, and runs"
    assert not scene.account.kubelets()["withoutFullGrace"]
    assert scene.stop() == 0


def instant(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def ends_of_pods(scene: Stage, instance: str) -> list[str]:
    return [row["end"] for row in scene.account.kubelets()["pods"] if row["instance"] == instance]


def reservation_of(claim: Mapping[str, Any]) -> str:
    return str(claim["metadata"]["labels"].get("karpenter.k8s.aws/capacity-reservation-id", ""))


def deleting(claim: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in claim["metadata"]
