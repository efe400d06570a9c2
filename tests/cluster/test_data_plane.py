"""Instances of the simulated AWS as nodes of a real control plane: kube-scheduler binds, our kubelets run the pods."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from controlplane.api import Api, eventually
from controlplane.start import ControlPlane
from tests.cluster.account import Account, took_s
from tests.cluster.objects import (
    condition,
    create,
    job,
    job_is_complete,
    pod,
    pod_phase,
    pod_runs,
    sim,
    template,
)
from tests.cluster.programs import Kubectl, SimulatedAws

Start = Callable[..., SimulatedAws]


@pytest.fixture
def account(sim_aws: Start, api: Api) -> Account:
    """A virtual minute is a second."""
    return Account(sim_aws("--speed", "60"), api)


def pod_is_gone(api: Api, namespace: str, name: str) -> bool:
    names = [each["metadata"]["name"] for each in api.items(f"/api/v1/namespaces/{namespace}/pods")]
    return name not in names


def node_status(api: Api, name: str, kind: str = "Ready") -> str:
    return condition(api.get(f"/api/v1/nodes/{name}")["status"]["conditions"], kind)


def test_a_job_is_bound_to_a_booted_node_runs_and_completes(account: Account, api: Api, namespace: str):
    create(api, namespace, job("train", parallelism=3, gpus=1, lasts="5m"))
    (node,) = account.joined(*account.launch())
    instance = account.ec2.describe_instances()["Reservations"][0]["Instances"][0]
    assert node == instance["PrivateDnsName"]
    eventually(lambda: job_is_complete(api, namespace, "train"), timeout_s=60, what="the Job completes")
    rows = list(account.pods().values())
    assert [row["end"] for row in rows] == ["succeeded"] * 3
    assert all(300 <= took_s(row) <= 301 for row in rows)  # virtual: five seconds of wall time
    assert max(took_s(row, "startedWall", "endedWall") for row in rows) < 30


def test_a_failing_job_is_tried_again_by_its_controller(account: Account, api: Api, namespace: str):
    create(api, namespace, job("train", gpus=0, lasts="1m", annotations=sim(fails="exit=3,times=1")))
    account.launch()
    eventually(lambda: job_is_complete(api, namespace, "train"), timeout_s=90, what="the Job completes")
    assert sorted(row["end"] for row in account.pods().values()) == ["failed", "succeeded"]


def test_the_pods_of_a_daemon_set_and_a_deployment_run(account: Account, api: Api, namespace: str):
    account.joined(*account.launch(2))
    always = template(gpus=0)
    for kind, more in (("DaemonSet", {}), ("Deployment", {"replicas": 3})):
        labels = {"app": kind.lower()}
        always["metadata"] = {"labels": labels, "annotations": {"tidemill.dev/load-time": "1m"}}
        spec = {"selector": {"matchLabels": labels}, "template": always, **more}
        made = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}
        create(api, namespace, made)

    def all_ready() -> bool:
        daemons = api.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/daemonset")["status"]
        service = api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/deployment")["status"]
        return bool(daemons.get("numberReady") == 2 and service.get("readyReplicas") == 3)

    eventually(all_ready, timeout_s=60, what="two daemons and three replicas are Ready")
    assert {row["daemon"] for row in account.pods().values()} == {True, False}


def test_a_pod_bound_before_the_gpus_registered_is_refused(account: Account, api: Api, namespace: str):
    account.fault("gpus-never-register")
    (node,) = account.joined(*account.launch(), with_gpus=False)
    create(api, namespace, pod("early", gpus=4, nodeName=node))
    eventually(lambda: pod_phase(api, namespace, "early") == "Failed", what="it is refused")
    assert api.get(f"/api/v1/namespaces/{namespace}/pods/early")["status"]["reason"] == "OutOfnvidia.com/gpu"
    create(api, namespace, pod("waits", gpus=4))  # the scheduler does not count on what is not registered
    time.sleep(2)
    assert pod_phase(api, namespace, "waits") == "Pending"


@pytest.mark.requirement("CB-10")
def test_a_deleted_pod_has_its_grace_in_virtual_time(account: Account, api: Api, namespace: str):
    account.joined(*account.launch())
    slow = sim(stops_after="10m")
    for name in ("train", "hasty"):
        create(api, namespace, pod(name, gpus=0, grace_s=600, annotations=slow))
    for name in ("train", "hasty"):
        eventually(partial(pod_runs, api, namespace, name), what="it runs")
    began = time.monotonic()
    api.delete(f"/api/v1/namespaces/{namespace}/pods/train")
    api.delete(f"/api/v1/namespaces/{namespace}/pods/hasty", gracePeriodSeconds=0)
    eventually(lambda: pod_is_gone(api, namespace, "train"), timeout_s=60, what="it stops")
    assert 8 < time.monotonic() - began < 40  # ten virtual minutes
    rows = account.pods()
    assert (rows["train"]["end"], rows["train"]["fullGrace"], rows["train"]["graceHadS"]) == (
        "stopped",
        True,
        600,
    )
    assert (rows["hasty"]["end"], rows["hasty"]["fullGrace"]) == ("removed", False)


@pytest.mark.requirement("SM-9")
def test_a_node_that_dies_goes_silent_and_its_pods_stay_until_it_is_removed(
    account: Account, api: Api, namespace: str
):
    (node,) = account.joined(*account.launch())
    create(api, namespace, pod("train", gpus=4, grace_s=600))
    eventually(partial(pod_runs, api, namespace, "train"), what="it runs")
    account.fault("node-dies")
    eventually(lambda: node_status(api, node) == "Unknown", what="the node is silent")
    assert pod_phase(api, namespace, "train") == "Running"
    assert [row["pod"] for row in account.kubelets()["diedWithInstance"]] == [f"{namespace}/train"]
    eventually(
        lambda: not api.items("/api/v1/nodes"), timeout_s=30, what="the cloud controller removes the node"
    )
    eventually(
        lambda: pod_is_gone(api, namespace, "train"), timeout_s=120, what="the garbage collector its pod"
    )


@pytest.mark.requirement("CB-11")
def test_a_pod_acknowledges_a_checkpoint_request(account: Account, api: Api, namespace: str):
    account.joined(*account.launch())
    notes = sim(acknowledges="true") | {"tidemill.dev/checkpoint-time": "2m"}
    create(api, namespace, pod("train", gpus=0, annotations=notes))
    eventually(partial(pod_runs, api, namespace, "train"), what="it runs")
    asked = datetime.now(UTC)
    path = f"/api/v1/namespaces/{namespace}/pods/train"
    request = {"tidemill.dev/checkpoint-requested-at": asked.isoformat().replace("+00:00", "Z")}
    api.patch(path, {"metadata": {"annotations": request}})

    def answer() -> str:
        return str(api.get(path)["metadata"]["annotations"].get("tidemill.dev/checkpoint-done-at", ""))

    done = datetime.fromisoformat(eventually(answer, what="it answers"))
    assert timedelta(seconds=1) < done - asked < timedelta(seconds=20)  # two virtual minutes, in wall time


def test_nodes_stay_ready_in_slow_time(sim_aws: Start, api: Api):
    """At speed 1 a heartbeat in virtual time would be too rare; `--boot fast` boots all the same."""
    account = Account(sim_aws("--speed", "1", "--boot", "fast"), api)
    began = time.monotonic()
    (node,) = account.joined(*account.launch())
    assert time.monotonic() - began < 30
    first = api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")["spec"][
        "renewTime"
    ]

    def renewed() -> bool:
        lease = api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
        return bool(lease["spec"]["renewTime"] != first)

    eventually(renewed, timeout_s=30, what="the lease is renewed")
    assert node_status(api, node) == "True"


def test_an_api_server_that_was_away_loses_nothing(
    account: Account, cluster: ControlPlane, api: Api, namespace: str
):
    create(api, namespace, job("train", parallelism=4, gpus=1, lasts="10m"))
    account.joined(*account.launch())
    eventually(lambda: len(account.pods()) == 4, timeout_s=60, what="its pods are on the node")
    cluster.restart("kube-apiserver", kill=True)
    eventually(lambda: job_is_complete(api, namespace, "train"), timeout_s=90, what="the Job completes")


@pytest.mark.slow
def test_two_hundred_nodes_run_two_thousand_pods(
    sim_aws: Start, api: Api, namespace: str, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
):
    aws = sim_aws("--speed", "60")
    account = Account(aws, api)
    began, cpu = time.monotonic(), cpu_s(aws)
    ids = [id_ for _ in range(4) for id_ in account.launch(50)]
    account.joined(*ids, timeout_s=120)
    joined_s, joined_cpu_s = time.monotonic() - began, cpu_s(aws) - cpu
    began, cpu = time.monotonic(), cpu_s(aws)
    create(api, namespace, job("many", parallelism=2000, gpus=0, lasts="2m"))
    eventually(lambda: job_is_complete(api, namespace, "many"), timeout_s=600, what="2,000 pods succeed")
    ran_s, ran_cpu_s = time.monotonic() - began, cpu_s(aws) - cpu
    began, cpu = time.monotonic(), cpu_s(aws)
    time.sleep(20)
    idle = (cpu_s(aws) - cpu) / (time.monotonic() - began)
    assert all(node_status(api, node) == "True" for node in account.joined(*ids))
    assert [row["end"] for row in account.pods().values()] == ["succeeded"] * 2000
    with capsys.disabled():
        print(f"\n200 nodes joined in {joined_s:.0f} s ({joined_cpu_s:.1f} s of CPU in the simulator); 2,000 pods "
              f"ran in {ran_s:.0f} s ({ran_cpu_s:.1f} s of CPU); at rest {idle:.1%} of a core")  # fmt: skip


def cpu_s(aws: SimulatedAws) -> float:
    """User and system time of the simulator's process."""
    stat = Path(f"/proc/{aws.processes.pids()[aws.name]}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
