"""`tidemill run --record` beside a real control plane: what it decided is decided again, plan for plan."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from controlplane.api import Api, eventually
from tests.cluster.objects import create, job, job_is_complete
from tests.cluster.stage import Stage
from tests.cluster.test_run import train

pytestmark = pytest.mark.requirement("GB-1")


def test_a_recorded_run_gives_identical_plans(
    stage: Callable[..., Stage], api: Api, namespace: str, tmp_path: Path
):
    """Jobs come, nodes are launched, drained and ended; nothing of the connection's secrets is in the bytes."""
    scene, folder = stage(train(), speed=60, admission=False), tmp_path / "recording"
    controller = scene.run("run", "--record", str(folder))
    controller.wait_for("this process leads")
    create(api, namespace, job("long", parallelism=1, gpus=2, lasts="90m"))
    eventually(lambda: _runs(api, namespace), timeout_s=180, what="the long Job runs")
    live = json.loads(_rehearsed(scene, "--from-live", str(scene.files)))
    assert live["nodes"], "the node that is there is carried over"
    assert [one["started"] is not None for one in live["job_rows"]] == [True]
    for number in range(4):
        name = f"train-{number}"
        create(api, namespace, job(name, parallelism=2, gpus=2, lasts="5m"))
        eventually(partial(job_is_complete, api, namespace, name), timeout_s=180, what=f"{name} completes")
    eventually(lambda: not api.items("/api/v1/nodes"), timeout_s=120, what="the node is gone")
    assert controller.metric('tidemill_recording_ticks{result="lost"}') == 0
    assert controller.metric("tidemill_recording_good") == 1
    scene.processes.signal("run", signal.SIGTERM)
    assert scene.processes.wait("run", 30) == 0
    (ended,) = controller.events("the recording ends")
    said = json.loads(scene.tidemill("replay", str(folder), "--json"))
    assert said["ticks"] == ended["kept"] > 20
    assert (said["differ"], said["unread"], said["failed"]) == (0, [], [])
    share = 100 * ended["cpu_s"] / ended["of_cpu_s"]
    print(f"{ended['kept']} ticks, {ended['cpu_s']} s of {ended['of_cpu_s']} s CPU: {share:.1f} %")
    assert share < 15  # a busy machine: the figure itself is in docs/guides/benchmarks.md
    story = scene.tidemill("replay", str(folder), "--pod", "Job/train-0")
    assert "running on" in story
    assert json.loads(_rehearsed(scene, "--from", str(folder)))["invariant_violations"] == []


def _runs(api: Api, namespace: str) -> bool:
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
    return any(one.get("status", {}).get("phase") == "Running" for one in pods)


def _rehearsed(scene: Stage, *arguments: str) -> str:
    return scene.tidemill("rehearse", *arguments, "--for", "2h", "--json", code=None)
