"""`tidemill run` beside a real control plane: what it does, who leads, how it ends, and what it says when it cannot."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import Api, eventually
from controlplane.start import ControlPlane
from tests.aws.messages import INSTANCE, envelope
from tests.cluster.documents import by_the_hour, platform
from tests.cluster.objects import create, job, job_is_complete, pod, pod_phase
from tests.cluster.programs import Kubectl
from tests.cluster.stage import OWN_NAMESPACE, Stage

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OWN_NAMESPACE}/leases/tidemill"


def train(**more: Any) -> dict[str, Any]:
    """A pool on demand whose nodes take every pod and go when they are empty."""
    empty = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2m"}
    return by_the_hour("train", **({"disruption": empty, "limits": {"nodes": 4}} | more))


@pytest.fixture
def scene(stage: Callable[..., Stage]) -> Stage:
    """A virtual minute is a second."""
    return stage(train(), speed=60, admission=False)


@pytest.mark.requirement("PE-3")
@pytest.mark.requirement("PE-6")
@pytest.mark.requirement("PE-9")
@pytest.mark.requirement("PE-10")
def test_a_gpu_job_on_an_empty_cluster_gets_a_node_completes_and_the_node_goes(
    scene: Stage, api: Api, namespace: str, kubectl: Kubectl
):
    """The controller is a ServiceAccount with the roles of `tidemill rbac`, and no more."""
    account = scene.account
    kubectl("apply", "-f", "-", stdin=scene.tidemill("rbac", "controller", "--json"))
    config = scene.cluster.service_account(OWN_NAMESPACE, "tidemill-controller")
    controller = scene.run("run", kubeconfig=config)
    controller.wait_for("this process leads")
    assert controller.get("readyz") == (200, "ok\n")
    create(api, namespace, job("train", parallelism=2, gpus=2, lasts="10m"))
    eventually(lambda: job_is_complete(api, namespace, "train"), timeout_s=180, what="the Job completes")
    launched = account.instances()
    assert len(launched) == 1
    assert {"Key": "deployment", "Value": "real"} in launched[0]["Tags"]
    eventually(lambda: not api.items("/api/v1/nodes"), timeout_s=120, what="the node is gone")
    assert account.instances()[0]["State"]["Name"] in ("shutting-down", "terminated")
    told = [line["action"] for line in controller.events("acted")]
    for action in ("Launch", "MarkReady", "StartDrain", "Terminate"):
        assert action in told
    assert all(line["reason"] and line["tick"] for line in controller.events("acted"))
    assert controller.metric('tidemill_pending_to_launch_seconds_count{pool="train"}') == 1
    assert controller.get("healthz") == (200, "ok\n")
    assert "Draining" in kubectl("get", "events", "-A")
    assert "does not allow" not in controller.log()


def test_sigterm_gives_the_lease_back_and_the_next_one_leads_at_once(scene: Stage, api: Api):
    first = scene.run("first")
    first.wait_for("this process leads")
    began_s = time.monotonic()
    scene.processes.signal("first", signal.SIGTERM)
    assert scene.processes.wait("first", 20) == 0
    assert time.monotonic() - began_s < 15
    assert not api.get(LEASE)["spec"].get("holderIdentity")
    second = scene.run("second")
    assert second.wait_for("this process leads")["epoch"] == 2


@pytest.mark.requirement("CB-4")
def test_a_second_process_on_a_ledger_in_a_file_is_refused(scene: Stage):
    scene.run("first").wait_for("this process leads")
    done = scene.run_to_end()
    assert done.returncode == 1
    assert "SQLite allows one" in done.stderr
    done = scene.run_to_end("--replicas", "2")
    assert done.returncode == 2
    assert "2 replicas need a ledger on PostgreSQL" in done.stderr


def test_a_second_process_on_another_file_says_at_once_who_leads(scene: Stage, api: Api):
    scene.run("first").wait_for("this process leads")
    second = scene.run("second", "--ledger", f"sqlite:///{scene.files.parent}/other.db")
    told = second.wait_for("another process leads, and this one waits")
    assert told["holder"] == api.get(LEASE)["spec"]["holderIdentity"]
    assert "SQLite allows one" in told["ends_after"]
    assert scene.processes.wait("second", 60) == 1
    assert "leads, and a ledger on SQLite allows one process" in second.log()


@pytest.mark.parametrize("more", [(), ("--once",)])
def test_a_namespace_for_the_lease_that_is_not_there_ends_it(scene: Stage, more: tuple[str, ...]):
    done = scene.run_to_end("--lease-namespace", "nowhere", *more, timeout_s=60)
    assert done.returncode == 1, done.stderr
    assert "there is no namespace nowhere: kubectl create namespace nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("CB-3")
def test_a_platform_without_a_role_launches_nothing_until_it_has_one(scene: Stage, api: Api, namespace: str):
    scene.write(platform(nodeRole=""), train())
    create(api, namespace, pod("waits", gpus=2))
    controller = scene.run("run")
    warning = "nodes of this pool could never join the cluster: nothing is launched or bought for it"
    warned = controller.wait_for(warning)
    assert warned["why"] == "Platform real: spec.nodeRole is not set"
    failed = controller.wait_for("action failed")
    assert failed["error"] == "refused", failed
    assert scene.account.instances() == []
    scene.write(train())
    eventually(scene.account.instances, timeout_s=25, what="new documents end the back-off")


def test_a_dry_run_writes_nothing_and_says_what_it_would_do(scene: Stage, api: Api, namespace: str):
    create(api, namespace, pod("waits", gpus=2))
    time.sleep(1)
    before = {
        one["metadata"]["name"]: one["metadata"]["resourceVersion"]
        for kind in ("pods", "nodes", "events")
        for one in api.items(f"/api/v1/{kind}")
    }
    done = scene.run_to_end("--dry-run", "--once")
    assert done.returncode == 0, done.stderr
    would = [json.loads(line) for line in done.stderr.splitlines() if '"would act"' in line]
    assert [line["action"] for line in would] == ["Launch"]
    assert scene.account.instances() == []
    assert not (scene.files.parent / "ledger.db").exists()
    assert not api.items(f"/apis/coordination.k8s.io/v1/namespaces/{OWN_NAMESPACE}/leases")
    after = {
        one["metadata"]["name"]: one["metadata"]["resourceVersion"]
        for kind in ("pods", "nodes", "events")
        for one in api.items(f"/api/v1/{kind}")
    }
    assert {name: after[name] for name in before} == before


def test_once_acts_once_and_says_by_its_exit_code_how_it_went(scene: Stage, api: Api, namespace: str):
    create(api, namespace, pod("waits", gpus=2))
    time.sleep(3)
    done = scene.run_to_end("--once")
    assert done.returncode == 0, done.stderr
    assert len(scene.account.instances()) == 1
    assert not api.get(LEASE)["spec"].get("holderIdentity")


def test_documents_that_change_are_used_and_bad_ones_are_not(scene: Stage, api: Api, namespace: str):
    scene.write(train(limits={"nodes": 0}))
    controller = scene.run("run")
    controller.wait_for("this process leads")
    create(api, namespace, pod("waits", gpus=2))
    scene.files.write_text("kind: Nonsense\n")
    controller.wait_for("the documents changed, but the last good version stays")
    assert controller.metric("tidemill_documents_good") == 0
    assert scene.account.instances() == []
    scene.write(train())
    eventually(scene.account.instances, what="the new limit allows a launch")
    assert controller.metric("tidemill_documents_good") == 1


def test_an_event_of_aws_in_the_queue_wakes_it(scene: Stage):
    sqs = scene.account.client("sqs")
    url = sqs.create_queue(QueueName="test-events")["QueueUrl"]
    controller = scene.run("run", "--queue-url", url)
    controller.wait_for("this process leads")
    warning = envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": INSTANCE})
    sqs.send_message(QueueUrl=url, MessageBody=json.dumps(warning))

    def woken() -> bool:
        return any("spot-interruption" in line["woken_by"] for line in controller.events("ticked"))

    eventually(woken, timeout_s=60, what="the event wakes the controller")
    assert controller.get("healthz") == (200, "ok\n")


@pytest.mark.requirement("PE-13")
def test_the_verbs_that_look_show_the_running_cluster(scene: Stage, api: Api, namespace: str):
    scene.run("run").wait_for("this process leads")
    create(api, namespace, pod("waits", gpus=2), pod("too-big", gpus=64))
    eventually(lambda: pod_phase(api, namespace, "waits") == "Running", timeout_s=120, what="it runs")
    files = str(scene.files)
    status = json.loads(scene.tidemill("status", "--kube", "--aws", "--json", files))
    assert status["account"] == "123456789012"
    assert status["server"] == scene.cluster.server
    assert [(node["phase"], node["gpus_used"]) for node in status["nodes"]] == [("ready", 2)]
    assert [row["name"] for row in status["waiting"]] == [f"{namespace}/too-big"]
    why = scene.tidemill("why", "--kube", "--aws", "too-big", files)
    assert why.startswith(f"{namespace}/too-big waits: ")
    assert "running now" in scene.tidemill("costs", "--kube", "--aws", "-f", files)
    assert "AWS shows no block" in scene.tidemill("blocks", "--kube", "--aws", "-f", files)
    plan = json.loads(scene.tidemill("plan", "--kube", "--aws", "--json", files))
    assert plan["cluster"] == status["cluster"]


# --- what cannot be: one sentence, an exit code, no traceback ------------------------------------------


def _sentence(done: Any) -> str:
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return str(errors[0])


def test_a_kubeconfig_that_is_wrong_is_the_users_mistake(scene: Stage, tmp_path: Path):
    wrong = tmp_path / "wrong"
    wrong.write_text("contexts: [{name: a, context: {cluster: gone, user: b}}]\ncurrent-context: a\n")
    done = scene.run_to_end(kubeconfig=wrong)
    assert done.returncode == 2
    assert "cluster 'gone'" in _sentence(done)


def test_another_cluster_than_the_documents_name_is_refused(scene: Stage):
    scene.write(platform("https://eks.example.com"), train())
    done = scene.run_to_end()
    assert done.returncode == 1
    assert "https://eks.example.com" in _sentence(done)


def test_a_token_that_expired_is_not_allowed(scene: Stage, cluster: ControlPlane):
    done = scene.run_to_end(kubeconfig=cluster.kubeconfig_with_token("expired"))
    assert done.returncode == 3
    assert "does not accept the credentials" in _sentence(done)


def test_a_right_that_is_missing_is_named(scene: Stage, cluster: ControlPlane, api: Api):
    account = {"metadata": {"name": "nobody"}}
    api.create(f"/api/v1/namespaces/{OWN_NAMESPACE}/serviceaccounts", account)
    done = scene.run_to_end(kubeconfig=cluster.service_account(OWN_NAMESPACE, "nobody"))
    assert done.returncode == 3
    assert "does not allow to list" in _sentence(done)


def test_an_api_server_that_is_away_at_the_start_is_waited_for(scene: Stage, cluster: ControlPlane):
    with cluster.through_proxy() as (proxy, kubeconfig):
        with proxy.held():
            controller = scene.run("run", kubeconfig=kubeconfig)
            controller.wait_for("waiting for what is away")
            assert controller.get("healthz")[0] == 200
            assert controller.get("readyz")[0] == 503
        controller.wait_for("this process leads")
        assert controller.get("readyz")[0] == 200
    assert "Traceback" not in controller.log()
