"""Nodes that go on purpose, on a real control plane: consolidation, scale-in by hand, spot, the end of a block."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.cluster.documents import by_the_hour, pool
from tests.cluster.objects import RESUMABLE, SPARED, budget, job, sim, taints
from tests.cluster.stage import Stage
from tidemill.spec import names

Opened = Callable[..., Stage]


def running(scene: Stage, namespace: str) -> dict[str, str]:
    """The node of each Job whose pod runs."""
    return {
        pod["metadata"]["labels"]["job-name"]: pod["spec"]["nodeName"]
        for pod in scene.pods(namespace)
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


@pytest.mark.requirement("PE-7", "PE-8", "PE-23")
def test_half_used_nodes_are_merged_one_at_a_time_but_not_under_protected_pods_nor_strangers(
    stage: Opened, ours: str
) -> None:
    """Four nodes, each half used after half of the jobs were deleted; the pods on two of them may not be disrupted."""
    scene = stage(
        by_the_hour(
            disruption={
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "2m",
                "budgets": [{"nodes": "1"}],
            }
        ),
        speed=60,
    )
    account = scene.account
    strangers = account.launch(2, pool="gpu")  # empty, of another deployment, with the label of our pool
    before = {name: scene.api().get(f"/api/v1/nodes/{name}") for name in account.joined(*strangers)}
    scene.create(
        ours,
        *(job(f"j{number}", lasts="9h", gpus=2, annotations=RESUMABLE) for number in range(8)),
    )
    scene.run()
    scene.eventually(lambda: len(running(scene, ours)) == 8, "eight jobs run", timeout_s=120)
    placed = running(scene, ours)
    nodes = sorted(set(placed.values()))
    assert len(nodes) == 4
    kept = {next(name for name, where in sorted(placed.items()) if where == node) for node in nodes}
    protected = {name for name in kept if placed[name] in nodes[:2]}  # those that would leave first
    for pod in scene.pods(ours):
        name = pod["metadata"]["labels"]["job-name"]
        if name in protected:
            # Longer than the others, whichever of them starts again: to a node that is empty sooner nobody is moved.
            written = {names.DO_NOT_DISRUPT: "true", names.EXPECTED_DURATION: "20h"}
            mark = {"metadata": {"annotations": written}}
            scene.api().patch(f"/api/v1/namespaces/{ours}/pods/{pod['metadata']['name']}", mark)
    for name in set(placed) - kept:
        scene.api().delete(f"/apis/batch/v1/namespaces/{ours}/jobs/{name}", propagationPolicy="Background")
    most = 0

    def merged() -> bool:
        nonlocal most
        found = [node for node in scene.nodes() if node["metadata"]["name"] not in before]
        most = max(most, sum(names.TAINT_DRAINING in taints(node) for node in found))
        return len(found) == 2 and len(running(scene, ours)) == 4

    scene.eventually(merged, "two nodes are left, with all four jobs", timeout_s=120)
    assert most == 1, "the budget allows one node at a time"
    assert {placed[name] for name in protected} == set(running(scene, ours).values())
    rows = {row["workload"]: row for row in scene.account.kubelets()["pods"]}
    assert all(rows[f"Job/{name}"]["toldAt"] is None for name in protected), "a protected pod was moved"
    assert not scene.account.kubelets()["withoutFullGrace"]
    for name, node in before.items():
        now = scene.api().get(f"/api/v1/nodes/{name}")
        assert now["spec"] == node["spec"]
        assert not {one["manager"] for one in now["metadata"]["managedFields"]} & {"tidemill"}
        assert names.NODE_PHASE not in now["metadata"].get("annotations", {})
    alive = {one["InstanceId"] for one in scene.account.instances("running")}
    assert set(strangers) <= alive, "an instance without our tag was ended"


@pytest.mark.requirement("SM-7")
def test_an_instance_scaled_in_by_hand_waits_in_the_hook_until_its_pods_are_gone(
    stage: Opened, ours: str
) -> None:
    scene = stage(by_the_hour(provisioner="asg"), speed=60)
    scene.run("controller", "--queue-url", scene.account.queue())
    scene.create(
        ours,
        *(job(f"j{number}", lasts="9h", gpus=4, grace_s=120, annotations=RESUMABLE) for number in range(2)),
    )
    scene.eventually(lambda: len(running(scene, ours)) == 2, "two jobs run", timeout_s=120)
    scaling = scene.account.client("autoscaling")

    def group() -> dict[str, Any]:
        found: dict[str, Any] = scaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]
        return found

    before = {one["InstanceId"] for one in group()["Instances"]}
    scaling.set_desired_capacity(
        AutoScalingGroupName=group()["AutoScalingGroupName"], DesiredCapacity=1, HonorCooldown=False
    )
    (waiting,) = scene.eventually(
        lambda: [one for one in group()["Instances"] if one["LifecycleState"].startswith("Terminating")],
        "one waits in the hook",
    )
    gone = waiting["InstanceId"]
    scene.eventually(
        lambda: gone in {one["InstanceId"] for one in scene.account.instances("shutting-down", "terminated")},
        "the hook is completed and the instance goes on",  # its pod may work until its time in the hook runs out
        timeout_s=90,
    )
    assert gone in before
    (row,) = [row for row in scene.account.kubelets()["pods"] if row["instance"] == gone]
    assert row["end"] == "stopped"
    assert row["fullGrace"]
    assert not scene.account.kubelets()["diedWithInstance"]
    scene.eventually(lambda: len(running(scene, ours)) == 2, "both jobs run again", timeout_s=60)


@pytest.mark.requirement("PE-17")
def test_an_interrupted_spot_node_is_drained_within_its_notice(stage: Opened, ours: str) -> None:
    scene = stage(by_the_hour(sources=[{"type": "spot"}]), speed=60)
    scene.run("controller", "--queue-url", scene.account.queue())
    scene.create(ours, job("train", lasts="30m", gpus=4, grace_s=60, annotations=RESUMABLE))
    scene.eventually(lambda: running(scene, ours), "the job runs", timeout_s=90)
    scene.account.speed(6)  # two minutes of notice are twenty seconds
    assert scene.account.fault("spot-interruption")
    scene.eventually(
        lambda: [row for row in scene.account.kubelets()["pods"] if row["end"] == "stopped"],
        "its pod is stopped",
    )
    scene.account.speed(60)
    scene.eventually(lambda: scene.is_complete(ours, "train"), "it completes elsewhere", timeout_s=120)
    assert not scene.account.kubelets()["diedWithInstance"]
    assert not scene.account.kubelets()["withoutFullGrace"]
    assert len(scene.account.instances()) == 2


@pytest.mark.requirement("CB-13", "CB-10")
def test_a_resumable_job_starts_late_on_a_block_and_every_pod_leaves_without_a_counted_failure(
    stage: Opened, ours: str
) -> None:
    """Two hours before the end: six hours of work start only if they write checkpoints. One pod has a budget that
    forbids its eviction: it is deleted by force at the last safe moment, and its Job's back-off limit holds."""
    scene = stage(pool(limits={"nodes": 2}), speed=60)
    a = scene.buy(2, ends="2026-11-18T11:30:00Z")
    scene.account.advance("2026-11-18T09:30:00Z")
    late = {names.CHECKPOINT_EVERY: "15m", names.LOAD_TIME: "5m", names.CHECKPOINT_TIME: "3m"}
    held = budget("stubborn", 1, **{"job-name": "stubborn"})
    polite = job(
        "polite",
        lasts="6h",
        gpus=4,
        spec=SPARED,
        annotations=late | sim(acknowledges="true"),
    )
    stubborn = job("stubborn", lasts="6h", gpus=4, annotations=late, spec={**SPARED, "completions": 2})
    scene.create(ours, held, polite, stubborn, job("whole", lasts="6h", gpus=4))
    controller = scene.run()
    scene.eventually(
        lambda: set(running(scene, ours)) == {"polite", "stubborn"}, "those two start", timeout_s=120
    )
    assert scene.job(ours, "whole")["spec"]["suspend"]
    assert "whole" in scene.tidemill("why", "--kube", "--aws", f"{ours}/whole-0", str(scene.files))
    scene.account.advance("2026-11-18T10:30:00Z")
    scene.eventually(lambda: len(_over(scene)) == 2, "both were drained", timeout_s=120)
    rows = {row["workload"]: row for row in _over(scene)}
    assert rows["Job/polite"]["checkpoints"] == 1, "it was asked for a checkpoint, and answered"
    assert rows["Job/polite"]["end"] == "stopped"
    end = datetime.fromisoformat("2026-11-18T11:00:00Z")
    for row in rows.values():
        assert row["fullGrace"]
        assert datetime.fromisoformat(row["endedAt"]) <= end
    assert datetime.fromisoformat(rows["Job/stubborn"]["toldAt"]) > end - timedelta(minutes=10), (
        "not before its time"
    )
    scene.eventually(
        lambda: not scene.account.instances_on(a, "pending", "running"), "the block is over", timeout_s=90
    )
    assert "ForceDelete" in {line["action"] for line in controller.events("acted")}
    for name in ("polite", "stubborn"):
        status = scene.job(ours, name)["status"]
        assert not status.get("failed"), f"{name}: {status}"
        assert "Failed" not in {one["type"] for one in status.get("conditions") or ()}
    assert not scene.account.kubelets()["diedWithInstance"]


def _over(scene: Stage) -> list[dict[str, Any]]:
    return [row for row in scene.account.kubelets()["pods"] if row["end"] is not None]
