"""`tidemill inspect --kube` beside a real control plane: which pods would die with the block they are on."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cluster.documents import pool
from tests.cluster.objects import budget, deployment, is_ready
from tests.cluster.stage import Stage
from tidemill.spec import names


@pytest.mark.requirement("PE-22")
def test_the_pods_of_a_block_are_told_with_its_end_and_what_is_in_the_way(
    stage: Callable[..., Stage], make_namespace: Callable[..., str]
):
    scene = stage(pool(limits={"nodes": 2}), speed=60, admission=False)
    scene.run()
    block = scene.buy(1, ends="2026-11-18T11:30:00Z")
    serving = make_namespace()
    scene.create(serving, budget("chat", 1), deployment("chat", 1, gpus=4, grace_s=60))
    scene.eventually(lambda: any(map(is_ready, scene.pods(serving))), "the service serves", timeout_s=180)
    scene.account.speed(1)
    found = json.loads(scene.tidemill("inspect", "--aws", "--kube", "--json", str(scene.files)))["cluster"]
    (held,) = found["on_blocks"]
    assert (held["reservation"], len(held["nodes"]), held["pods"]) == (block, 1, 1)
    (dying,) = found["dying"]
    assert dying["pod"].startswith(f"{serving}/chat")
    assert dying["has_time"]
    assert dying["comes_back"]
    assert [name for name, _ in found["blocking"]] == [f"Deployment/{serving}/chat"]
    assert found["without_devices"] == []
    text = scene.tidemill("inspect", "--aws", "--kube")
    assert "Pods that still run when their node ends, if nobody drains it" in text
    assert names.GROUP not in text
