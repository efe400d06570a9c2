"""What goes wrong under an engine on a real control plane: nodes, GPUs, gangs, namespaces, quotas, other managers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import APPLY, ApiError
from tests.cluster.documents import by_the_hour, platform, pool
from tests.cluster.objects import RESUMABLE, SPARED, deployment, is_ready, job, pod
from tests.cluster.observers import KubectlWatch
from tests.cluster.programs import Kubectl
from tests.cluster.stage import Stage
from tests.cluster.test_disruption import running
from tests.spec.test_import_ryvn import EBS_CLASS, ONE_NODE_POOL
from tidemill.spec import names

Opened = Callable[..., Stage]
P5 = {"instanceTypes": ["p5.48xlarge"]}


def why(scene: Stage, pod: str) -> str:
    return scene.tidemill("why", "--kube", "--aws", pod, str(scene.files)).splitlines()[0]


def phase_of(node: dict[str, Any]) -> tuple[str, str]:
    """As kubectl shows it: the annotation, and the condition's status and reason."""
    said = next(
        (
            f"{one['status']} {one['reason']}"
            for one in node["status"]["conditions"]
            if one["type"] == names.CONDITION_TAKES_PODS
        ),
        "",
    )
    return node["metadata"].get("annotations", {}).get(names.NODE_PHASE, ""), said


def notes_about(scene: Stage, namespace: str, kind: str, name: str) -> dict[str, str]:
    """Our Events on an object: reason and sentence."""
    return {
        one["reason"]: one["message"]
        for one in scene.api().items(f"/api/v1/namespaces/{namespace}/events")
        if one["involvedObject"]["kind"] == kind and one["involvedObject"]["name"] == name
    }


@pytest.mark.requirement("PE-9", "PE-10", "PE-13")
def test_gpus_that_never_register_are_a_timed_failure_and_everybody_can_see_it(
    stage: Opened, ours: str
) -> None:
    """The first node's GPUs never register. Its phases, and those of the node that takes its place, are kubectl's."""
    empty = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2m"}
    scene = stage(by_the_hour(disruption=empty), speed=60)
    watch = KubectlWatch(scene, "nodes", "nodes")
    scene.account.fault("gpus-never-register")
    scene.run()
    scene.create(ours, job("train", lasts="4m", gpus=4))
    scene.create(ours, pod("too-big", gpus=64))
    (lame,) = scene.eventually(scene.nodes, "a node joins", timeout_s=90)
    scene.account.speed(5)
    passing, sentence = why(scene, f"{ours}/train-0"), why(scene, f"{ours}/too-big")
    assert "register" in passing
    assert sentence.startswith(f"{ours}/too-big waits: ")
    scene.account.speed(60)
    scene.eventually(
        lambda: scene.is_complete(ours, "train") and not scene.nodes(),
        "the job completes elsewhere, and all nodes go",
        timeout_s=120,
    )
    seen: dict[str, list[tuple[str, str]]] = {}
    for _, node in watch.events():
        phases = seen.setdefault(node["metadata"]["name"], [])
        if phase_of(node) not in phases:
            phases.append(phase_of(node))
    first = seen.pop(lame["metadata"]["name"])
    assert ("registering", "False Registering") in first
    assert "ready" not in dict(first)
    (second,) = seen.values()
    told = [("registering", "False Registering"), ("ready", "True Ready"), ("draining", "False Draining")]
    assert [phase for phase in second if phase in told] == told, second
    assert "did not register its accelerators within 10m; it is replaced" in scene.log()
    assert len(scene.account.instances()) == 2
    about = notes_about(scene, ours, "Pod", "too-big")
    said = sentence.split("waits: ", 1)[1]
    assert any(note.lower().rstrip(".") in said.lower() for note in about.values()), (sentence, about)
    assert any(reason.startswith("Waiting") for reason in notes_about(scene, ours, "Job", "train"))


@pytest.mark.requirement("PE-17", "SM-9")
def test_a_gang_that_loses_a_node_stops_whole_keeps_its_other_node_and_comes_back(
    stage: Opened, ours: str
) -> None:
    """The Node object and the pod of the dead instance go before the cloud controller's five minutes are over."""
    scene = stage(by_the_hour(requirements=P5), speed=60)
    scene.run("controller", "--queue-url", scene.account.queue())
    scene.create(
        ours,
        job("gang", lasts="30m", parallelism=2, gang=True, grace_s=60, annotations=RESUMABLE, spec=SPARED),
    )
    scene.eventually(lambda: len(_pods_running(scene, ours)) == 2, "the gang runs", timeout_s=120)
    first = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in _pods_running(scene, ours)}
    scene.account.speed(10)
    dead = scene.account.fault("node-dies")
    died_at = scene.account.now()
    scene.eventually(lambda: dead not in _instances_of_nodes(scene), "its Node object is removed")
    assert scene.account.now() - died_at < timedelta(minutes=4)
    scene.eventually(
        lambda: not {pod["metadata"]["uid"] for pod in scene.pods(ours)} & set(first), "both pods are gone"
    )
    scene.account.speed(60)
    scene.eventually(lambda: scene.is_complete(ours, "gang"), "the gang ran, whole", timeout_s=150)
    rows = [row for row in scene.account.kubelets()["pods"] if row["pod"].startswith(f"{ours}/")]
    assert sorted(row["end"] for row in rows if row["uid"] in first) == ["died", "stopped"]
    again = [row for row in rows if row["uid"] not in first]
    assert [row["end"] for row in again] == ["succeeded"] * 2
    assert {row["node"] for row in again} & set(first.values()), "the survivor's node was not kept"
    assert len(scene.account.instances()) == 3, "one slot was replaced"
    assert not scene.job(ours, "gang")["status"].get("failed")


def _pods_running(scene: Stage, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in scene.pods(namespace) if pod["status"]["phase"] == "Running"]


def _instances_of_nodes(scene: Stage) -> set[str]:
    return {node["spec"]["providerID"].rsplit("/", 1)[-1] for node in scene.nodes()}


@pytest.mark.requirement("MG-5", "MG-7", "PE-17")
def test_a_managed_node_that_never_joins_is_reported_and_a_broken_one_is_repaired_by_one_only(
    stage: Opened, ours: str
) -> None:
    scene = stage(by_the_hour(provisioner="managed"), speed=60)
    scene.account.fault("never-joins")
    scene.run("controller", "--queue-url", scene.account.queue())
    scene.create(ours, job("train", lasts="40m", gpus=4, annotations=RESUMABLE, spec={"backoffLimit": 6}))
    scene.eventually(lambda: "did not join the cluster within" in scene.log(), "it is reported", timeout_s=90)
    scene.eventually(lambda: running(scene, ours), "the job runs on another", timeout_s=90)
    (node,) = set(running(scene, ours).values())
    eks = scene.account.client("eks")
    group = eks.list_nodegroups(clusterName="real")["nodegroups"][0]
    described = eks.describe_nodegroup(clusterName="real", nodegroupName=group)["nodegroup"]
    assert not described["nodeRepairConfig"]["enabled"], "EKS would repair, too"
    eks.update_nodegroup_config(clusterName="real", nodegroupName=group, nodeRepairConfig={"enabled": True})
    scene.eventually(
        lambda: (
            not eks.describe_nodegroup(clusterName="real", nodegroupName=group)["nodegroup"][
                "nodeRepairConfig"
            ]["enabled"]
        ),
        "somebody turned EKS's repair on, and the engine turns it off",
        timeout_s=60,
    )
    scene.account.speed(20)
    assert (
        scene.account.fault("gpu-fails", target=described["resources"]["autoScalingGroups"][0]["name"])
        == node
    )
    scene.eventually(
        lambda: node not in {one["metadata"]["name"] for one in scene.nodes()}, "it goes", timeout_s=60
    )
    scene.account.speed(60)
    scene.eventually(lambda: scene.is_complete(ours, "train"), "the job completes", timeout_s=120)
    assert len(scene.account.instances()) == 3, (
        "the one that never joined, the broken one, and one in its place"
    )


@pytest.mark.requirement("PE-2")
def test_the_pool_of_a_ryvn_blueprint_is_used_as_it_stands(stage: Opened, ours: str, tmp_path: Path) -> None:
    """A blueprint's YAML, imported: a p5 node by family, category and generation, with its labels, taints and limit."""
    (tmp_path / "class.yaml").write_text(EBS_CLASS)
    (tmp_path / "pool.yaml").write_text(ONE_NODE_POOL)
    scene = stage(pool("unused"), speed=60)
    imported = scene.tidemill("import", "ryvn", str(tmp_path / "class.yaml"), str(tmp_path / "pool.yaml"))
    scene.files.write_text(
        yaml.safe_dump(platform(scene.cluster.server)) + "---\n" + imported[imported.index("apiVersion") :]
    )
    scene.run()
    wanted = {"workload-type": "gpu-training"}
    scene.create(ours, job("train", lasts="5m", selector=wanted), job("second", lasts="5m", selector=wanted))
    (node,) = scene.eventually(scene.nodes, "a node joins", timeout_s=90)
    assert node["metadata"]["labels"]["workload-type"] == "gpu-training"
    assert node["metadata"]["labels"][names.LABEL_TYPE].startswith("p5")
    assert {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"} in node["spec"]["taints"]
    scene.eventually(
        lambda: scene.is_complete(ours, "train") and scene.is_complete(ours, "second"),
        "both complete, one after the other",
        timeout_s=120,
    )
    scene.eventually(lambda: not scene.nodes(), "the empty node goes after five minutes", timeout_s=60)
    assert len(scene.account.instances()) == 1, "limits.cpu allows one node: the jobs took turns"


# --- what users do to their objects -------------------------------------------------------------------


@pytest.mark.requirement("PE-21")
def test_held_jobs_that_are_deleted_and_namespaces_that_go_leave_nothing_behind(
    stage: Opened, make_namespace: Callable[..., str], ours: str
) -> None:
    scene = stage(by_the_hour(limits={"nodes": 1}), speed=60)
    controller = scene.run()
    scene.create(ours, job("busy", lasts="9h", gpus=4))
    scene.eventually(lambda: running(scene, ours), "the only node is used", timeout_s=90)
    leaving = make_namespace(**{names.MANAGED: "true"})
    scene.create(leaving, *(job(f"held{number}", gpus=4, lasts="5m") for number in range(3)))
    scene.create(ours, job("regretted", gpus=4, lasts="5m"), job("next", gpus=4, lasts="5m"))
    scene.eventually(lambda: notes_about(scene, ours, "Job", "regretted"), "it is told why it waits")
    jobs = f"/apis/batch/v1/namespaces/{ours}/jobs"
    scene.api().delete(f"{jobs}/regretted", propagationPolicy="Background")
    scene.api().delete(f"/api/v1/namespaces/{leaving}")
    scene.eventually(
        lambda: _is_gone(scene, f"/api/v1/namespaces/{leaving}"), "the namespace goes", timeout_s=60
    )
    scene.api().delete(f"{jobs}/busy", propagationPolicy="Background")
    scene.eventually(
        lambda: scene.is_complete(ours, "next"), "the next in the queue has the room", timeout_s=90
    )
    assert "Traceback" not in controller.log()
    assert not [line for line in controller.lines() if line["level"] == "error"]
    assert len(scene.account.instances()) == 1


def _is_gone(scene: Stage, path: str) -> bool:
    try:
        scene.api().get(path)
    except ApiError as error:
        return error.status == 404
    return False


FORBIDDEN = {
    "none": (0, job("forbidden", gpus=4, lasts="5m")),
    "one of two": (1, job("forbidden", gpus=2, lasts="9h", parallelism=2, gang=True)),
}


@pytest.mark.requirement("PE-11")
@pytest.mark.parametrize("allowed", FORBIDDEN)
def test_an_admitted_job_whose_pods_a_quota_forbids_does_not_keep_the_room(
    stage: Opened, make_namespace: Callable[..., str], ours: str, allowed: str
) -> None:
    """Not all of its pods are made. Its room goes to the next after a while, and a gang does not run in part."""
    scene = stage(by_the_hour(limits={"nodes": 1}), speed=60)
    strict = make_namespace(**{names.MANAGED: "true"})
    quotas = f"/api/v1/namespaces/{strict}/resourcequotas"
    pods, forbidden = FORBIDDEN[allowed]
    scene.api().create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": str(pods)}}})
    scene.eventually(lambda: scene.api().get(f"{quotas}/few")["status"].get("hard"), "the quota holds")
    scene.create(strict, forbidden)
    scene.run()
    scene.eventually(
        lambda: not scene.job(strict, "forbidden")["spec"]["suspend"], "it is admitted", timeout_s=90
    )
    scene.create(ours, job("next", gpus=4, lasts="5m"))
    scene.eventually(lambda: scene.is_complete(ours, "next"), "the next has the room", timeout_s=90)
    assert "made no pods for 15m: see the events of Job forbidden; its room is given" in scene.log()
    if not pods:
        said = why(scene, f"{strict}/forbidden-0")
        assert "its controller made no pods for 15m: see the events of Job forbidden" in said
    else:
        assert scene.job(strict, "forbidden")["spec"]["suspend"], (
            "it runs in part, or was started again at once"
        )


@pytest.mark.requirement("PE-21", "CB-10")
def test_a_hand_over_does_not_fight_another_manager_of_the_replicas(
    stage: Opened, make_namespace: Callable[..., str], kubectl: Kubectl
) -> None:
    """The service says that the hand-over may scale it, but an autoscaler applies its replicas: the write stops and is
    reported, nothing is forced, and the old block is empty in time all the same."""
    scene = stage(pool(limits={"nodes": 4}), speed=60)
    a = scene.buy(2, ends="2026-11-18T11:30:00Z")
    scene.buy(2, ends="2026-11-19T11:30:00Z")
    scene.account.advance("2026-11-18T09:00:00Z")
    serving = make_namespace()
    chat = deployment(
        "chat", 2, gpus=4, grace_s=60, annotations={names.HANDOVER: "scale", names.MAY_SCALE: "true"}
    )
    scene.run()
    scene.eventually(lambda: len(scene.open_nodes(a)) == 2, "block a is warm", timeout_s=90)
    _close_others(scene, a, kubectl)
    scene.create(serving, chat)
    scene.eventually(lambda: sum(map(is_ready, scene.pods(serving))) == 2, "it serves", timeout_s=60)
    kubectl("uncordon", *(node["metadata"]["name"] for node in scene.nodes()))
    path = f"/apis/apps/v1/namespaces/{serving}/deployments/chat"
    applied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat"},
        "spec": {"replicas": 2},
    }
    scene.api().patch(path, applied, APPLY, fieldManager="autoscaler", force="true")
    scene.account.advance("2026-11-18T10:05:00Z")
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, int(scene.api().get(path)["spec"]["replicas"]))
        return not scene.account.instances_on(a, "pending", "running")

    scene.eventually(over, "block a is over", timeout_s=120)
    assert most == 2, "the replicas of another manager were changed"
    assert "autoscaler" in notes_about(scene, serving, "Deployment", "chat")["HandingOverFailed"]
    assert "autoscaler" in scene.log()
    assert not scene.account.kubelets()["diedWithInstance"]
    assert not scene.account.kubelets()["withoutFullGrace"]


def _close_others(scene: Stage, source: str, kubectl: Kubectl) -> None:
    """Cordon the nodes of other sources, so that new pods begin on this one."""
    others = [
        node["metadata"]["name"]
        for node in scene.nodes()
        if node["metadata"]["labels"][names.LABEL_SOURCE] != source
    ]
    if others:
        kubectl("cordon", *others)
