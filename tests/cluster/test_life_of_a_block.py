"""The whole engine on a real control plane: jobs, blocks and services, watched from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from tests.cluster.documents import pool
from tests.cluster.objects import budget, deployment, is_ready, job, pod
from tests.cluster.observers import ReadyObserver
from tests.cluster.stage import Stage
from tidemill.spec import names

Opened = Callable[..., Stage]


@pytest.mark.requirement("CB-9", "CB-10", "CB-11", "CB-12", "CB-13")
@pytest.mark.parametrize("provisioner", ["native", "asg", "managed"])
def test_a_block_is_warmed_used_drained_and_hands_over_without_downtime(
    stage: Opened, make_namespace: Callable[..., str], ours: str, provisioner: str
) -> None:
    """Block a is delivered at 08:31 and ends at 11:30; block b is bought in between and lasts until tomorrow."""
    scene = stage(pool(provisioner=provisioner, limits={"nodes": 4}), speed=60)
    scene.run()
    a = scene.buy(2, ends="2026-11-18T11:30:00Z")
    scene.eventually(lambda: len(scene.open_nodes(a)) == 2, "block a is warm, for nobody", timeout_s=180)
    serving = make_namespace()
    scene.create(
        serving,
        budget("chat", 2),
        deployment("chat", 2, gpus=4, grace_s=60, annotations={names.HANDOVER: "rollout"}),
    )
    observer = ReadyObserver(scene, serving, "chat")
    scene.eventually(lambda: sum(map(is_ready, scene.pods(serving))) == 2, "the service serves", timeout_s=90)
    short, long = job("short", lasts="20m", gpus=4), job("long", lasts="6h", gpus=4)
    scene.create(ours, short, long)
    b = scene.buy(2, ends="2026-11-19T11:30:00Z")
    scene.eventually(lambda: scene.is_complete(ours, "short"), "the short Job completes", timeout_s=120)
    assert scene.sources_of(ours, "short") == {a}
    scene.eventually(lambda: len(scene.open_nodes(b)) == 2, "block b is warm", timeout_s=120)
    (pod,) = scene.eventually(
        lambda: [pod for pod in scene.pods(ours) if pod["status"]["phase"] == "Running"],
        "the long Job, which cannot end on a, runs",
        timeout_s=120,
    )
    assert scene.source_of(pod) == b
    scene.eventually(lambda: not scene.open_nodes(a), "block a is drained", timeout_s=240)
    scene.eventually(
        lambda: not scene.account.instances_on(a, "pending", "running"), "block a is over", timeout_s=240
    )
    scene.eventually(lambda: sum(map(is_ready, scene.pods(serving))) == 2, "the service serves on")
    assert {scene.source_of(pod) for pod in scene.pods(serving) if is_ready(pod)} == {b}
    assert observer.lowest_since_full(2) == 2, "the service was below its budget"
    assert not scene.account.kubelets()["diedWithInstance"]
    assert not scene.account.kubelets()["withoutFullGrace"]
    assert scene.stop() == 0


@pytest.mark.requirement("PE-11", "PE-23")
def test_a_gang_starts_together_or_not_at_all_and_no_stranger_takes_its_room(
    stage: Opened, make_namespace: Callable[..., str], ours: str
) -> None:
    """Four nodes are wanted and the block has three: nothing starts until another is there, though three stand free."""
    scene = stage(pool(admittedPodsOnly=True, limits={"nodes": 7}), speed=60)
    scene.run()
    small = scene.buy(3, ends="2026-11-18T11:30:00Z")
    scene.create(ours, job("gang", lasts="10m", parallelism=4, gang=True))
    scene.eventually(lambda: len(scene.open_nodes(small)) == 3, "three nodes are there", timeout_s=180)
    elsewhere = make_namespace()
    tolerated = (names.NVIDIA_GPU, names.TAINT_STARTUP, names.TAINT_DRAINING)
    stranger = pod("stranger", tolerations=[{"key": key, "operator": "Exists"} for key in tolerated])
    scene.create(elsewhere, stranger)
    whole = scene.buy(4, ends="2026-11-19T11:30:00Z")
    began = scene.account.now()
    while scene.account.now() - began < timedelta(minutes=10):
        assert not [one for one in scene.pods(ours) if one["spec"].get("nodeName")], (
            "a part of the gang was bound"
        )
        assert not scene.pods(elsewhere)[0]["spec"].get("nodeName"), "a stranger took its room"
        time.sleep(0.5)
    scene.eventually(lambda: scene.is_complete(ours, "gang"), "the gang ran", timeout_s=240)
    assert not scene.pods(elsewhere)[0]["spec"].get("nodeName"), "a stranger took its room"
    assert scene.sources_of(ours, "gang") == {whole}
    ran = [pod for pod in scene.account.kubelets()["pods"] if pod["pod"].startswith(f"{ours}/")]
    assert [pod["end"] for pod in ran] == ["succeeded"] * 4
    starts = sorted(datetime.fromisoformat(pod["startedAt"]) for pod in ran)
    assert starts[-1] - starts[0] < timedelta(minutes=2), "they started together"
