"""Good neighbours on a real control plane: GPU caps per namespace, a pause, and one drainer only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.api import Api, eventually
from tests.cluster.documents import by_the_hour, platform
from tests.cluster.objects import create, job, job_is_complete, template
from tests.cluster.programs import Kubectl
from tests.cluster.stage import Stage
from tidemill.spec import names


def jobs_that_run(api: Api, namespace: str) -> list[str]:
    jobs = api.items(f"/apis/batch/v1/namespaces/{namespace}/jobs")
    return [one["metadata"]["name"] for one in jobs if not one["spec"].get("suspend")]


def gpus_in_use(api: Api, namespace: str) -> int:
    """Of the pods that are bound and not finished."""
    pods: list[Any] = api.items(f"/api/v1/namespaces/{namespace}/pods")
    return sum(
        int(container["resources"]["requests"].get(names.NVIDIA_GPU, 0))
        for pod in pods
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
        for container in pod["spec"]["containers"]
    )


@pytest.mark.requirement("PE-20")
def test_a_flood_from_one_namespace_keeps_to_its_cap_and_another_runs_beside_it(
    stage: Callable[..., Stage], api: Api, make_namespace: Callable[..., str], kubectl: Kubectl
):
    """Two nodes of four GPUs at most: without a cap the flood would have both."""
    flood, calm = (make_namespace(**{names.MANAGED: "true"}) for _ in range(2))
    limits = [{"namespaces": [flood], "gpus": 4}]
    scene = stage(platform(namespaceLimits=limits), by_the_hour("train", limits={"nodes": 2}), speed=60)
    create(api, flood, *(job(f"flood-{number}", gpus=2, lasts="40m") for number in range(8)))
    scene.run().wait_for("this process leads")
    eventually(lambda: gpus_in_use(api, flood) == 4, timeout_s=120, what="the flood has its share")
    create(api, calm, job("calm", gpus=4, lasts="10m"))
    most = 0

    def calm_is_done() -> bool:
        nonlocal most
        most = max(most, gpus_in_use(api, flood))
        return job_is_complete(api, calm, "calm")

    eventually(calm_is_done, timeout_s=120, what="the other namespace runs beside the flood")
    assert most == 4
    assert len(jobs_that_run(api, flood)) < 8
    told = kubectl("get", "events", "-n", flood)
    assert f"Namespace {flood} uses 4 of the 4 GPUs that namespaceLimits of the platform allow it" in told


@pytest.mark.requirement("PE-21")
def test_a_paused_engine_admits_and_launches_nothing_and_goes_on_when_it_may(
    stage: Callable[..., Stage], api: Api, ours: str, kubectl: Kubectl
):
    scene = stage(by_the_hour("train", limits={"nodes": 2}), speed=60)
    given = ("-f", str(scene.files), "--aws")
    scene.tidemill("pause", "--reason", "a fire drill", *given)
    controller = scene.run()
    controller.wait_for("this process leads")
    create(api, ours, job("waits", gpus=4, lasts="10m"))
    eventually(
        lambda: "a fire drill" in kubectl("get", "events", "-n", ours),
        what="its Event says that it is paused",
    )
    assert controller.metric("tidemill_paused") == 1
    assert scene.account.instances() == []
    assert jobs_that_run(api, ours) == []
    scene.stop()  # a pause survives the process
    scene.run("second").wait_for("this process leads")
    scene.tidemill("pause", *given, code=1)  # it is paused already
    scene.tidemill("resume", *given)
    eventually(
        lambda: job_is_complete(api, ours, "waits"), timeout_s=120, what="the Job runs once it may go on"
    )
    assert "a fire drill" in scene.tidemill("ledger", "show", "--json", scene.ledger)


@pytest.mark.requirement("PE-20")
def test_a_drainer_that_comes_later_has_its_pool_refused_and_the_pods_say_who(
    stage: Callable[..., Stage], api: Api, ours: str, kubectl: Kubectl
):
    scene = stage(by_the_hour("train", limits={"nodes": 2}), speed=60)
    controller = scene.run()
    controller.wait_for("this process leads")
    handler = template(gpus=0, labels={"app": "nth"})
    handler["spec"]["containers"][0]["image"] = "example.com/aws-node-termination-handler:v1"
    spec = {"selector": {"matchLabels": {"app": "nth"}}, "template": handler}
    api.create(f"/apis/apps/v1/namespaces/{ours}/daemonsets", {"metadata": {"name": "nth"}, "spec": spec})
    controller.wait_for("another drainer", timeout_s=120)
    create(api, ours, job("waits", gpus=4, lasts="10m"))
    name = f"DaemonSet/{ours}/nth"
    said = f"{name} acts on the nodes of pool train too"
    eventually(lambda: said in kubectl("get", "events", "-n", ours), timeout_s=60, what="its Event says who")
    assert scene.account.instances() == []
    api.delete(f"/apis/apps/v1/namespaces/{ours}/daemonsets/nth")
    eventually(
        lambda: job_is_complete(api, ours, "waits"), timeout_s=180, what="it runs once the other is gone"
    )
