"""`tidemill job` on a real API server: a job waits with its reason, runs on the block, is listed, read and stopped.

Its user may edit in one namespace, and nothing else.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from controlplane.api import Api, ApiError, eventually
from controlplane.start import ControlPlane
from tests.cluster.custom_resources import define_custom_resources
from tests.cluster.documents import pool, whole
from tests.cluster.log_kubelet import LogKubelet
from tests.cluster.objects import job as plain_job
from tests.cluster.programs import TIDEMILL, Kubectl, clean_environment
from tests.cluster.small_kubelet import STRATEGIC, SmallKubelet
from tests.cluster.stage import Stage
from tests.kube.admission.certificates import self_signed
from tidemill.cli import main
from tidemill.kube.rbac import Role, manifests
from tidemill.spec import names
from tidemill.spec.crds import definitions

pytestmark = pytest.mark.requirement("PE-15")
IMAGE = "ghcr.io/team/train:1"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "training-jobs.md"


class Printed(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class User:
    """Somebody with the role `edit` in one namespace, at a terminal."""

    def __init__(self, cluster: ControlPlane, api: Api, namespace: str) -> None:
        self.namespace = namespace
        api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "researcher"}})
        binding = {
            "metadata": {"name": "researcher"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "researcher", "namespace": namespace}],
        }
        api.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
        self.kubeconfig = cluster.service_account(namespace, "researcher")
        self.env = clean_environment() | {"KUBECONFIG": str(self.kubeconfig)}

    def __call__(self, verb: str, *arguments: str, code: int | None = 0) -> Printed:
        """In this process: a dozen interpreters that start take longer than what they do."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as only_here:
            for name in [name for name in os.environ if name.startswith("TIDEMILL_")]:
                only_here.delenv(name)
            only_here.setenv("KUBECONFIG", self.env["KUBECONFIG"])
            with redirect_stdout(out), redirect_stderr(err):
                found = main(["job", verb, "-n", self.namespace, *arguments])
        printed = Printed(found, out.getvalue(), err.getvalue())
        assert code in (None, found), f"{verb} {arguments}: {printed}"
        return printed

    def begin(self, verb: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command(verb, *arguments), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip

    def _command(self, verb: str, *arguments: str) -> tuple[str, ...]:
        return (*TIDEMILL, "job", verb, "-n", self.namespace, *arguments)

    def row(self, name: str) -> dict[str, Any]:
        rows = json.loads(self("list", "--json").stdout)["jobs"]
        found: dict[str, Any] = next((row for row in rows if row["name"] == name), {})
        return found


@pytest.fixture
def user(cluster: ControlPlane, api: Api, ours: str) -> User:
    return User(cluster, api, ours)


class Guide:
    """What the consoles of the guide show, with names and instants that are the same at every run."""

    def __init__(self, names_in_guide: dict[str, str]) -> None:
        self._names = names_in_guide
        consoles = re.findall(r"```console\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        shown = "".join(
            re.sub(r"^\$ (.*\\\n)*.*\n|^\^C\n", "", text, flags=re.MULTILINE) for text in consoles
        )
        self.lines = self.plain(shown)

    def plain(self, *printed: str) -> set[str]:
        text = "\n".join(printed)
        for name, instead in self._names.items():
            text = text.replace(name, instead)
        text = re.sub(r"2026-11-18T[0-9:]+Z|18 Nov [0-9:]+", "…", text)
        lines = {" ".join(line.replace("─", "").split()) for line in text.splitlines()}
        # Which cluster it is, and what may pass between two looks.
        return {
            line
            for line in lines
            if line and not re.search(r"^cluster test at|pods ready|said nothing", line)
        }


def gone(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def test_a_job_of_four_nodes_waits_with_its_reason_runs_on_the_block_and_is_stopped(
    stage: Callable[..., Stage], api: Api, user: User
) -> None:
    scene, ours = stage(pool(limits={"nodes": 8}), speed=60), user.namespace
    scene.run()
    block = scene.buy(4, ends="2026-11-19T11:30:00Z")
    scene.account.speed(1)  # it has not started yet, and will not for a while
    following = user.begin(
        "run", "-f", str(scene.files), "--image", IMAGE, "--name", "pretrain", "--nodes", "4", "--duration", "6h",
        "--checkpoint-interval", "30m", "--checkpoint-time", "5m", "--annotation", "sim.tidemill.dev/stops-after=4m",
        "--wait", "--", "torchrun", "train.py",
    )  # fmt: skip
    waits = scene.eventually(
        lambda: (row := user.row("pretrain")) and row["code"] and row, "the reason is there", timeout_s=90
    )
    assert (waits["state"], waits["nodes"], waits["gpus"], waits["expected"]) == ("waiting", 4, 32, "6h")
    assert f"block {block} starts " in waits["reason"]
    starts = scene.account.ec2.describe_capacity_reservations(CapacityReservationIds=[block])
    starts_at = starts["CapacityReservations"][0]["StartDate"]
    assert 0 <= (datetime.fromisoformat(waits["earliest"]) - starts_at).total_seconds() < 900
    listed = user("list").stdout
    assert waits["reason"].split(";")[0][:24] in listed
    assert not scene.pods(ours), "a held Job has no pods"
    assert (
        user("logs", "pretrain").stderr.splitlines()[-1].startswith("there are no pods yet: pretrain waits. ")
    )

    scene.account.speed(60)
    scene.eventually(lambda: user.row("pretrain")["state"] == "running", "the job runs", timeout_s=180)
    pods = scene.pods(ours)
    assert {scene.source_of(pod) for pod in pods} == {block}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 4
    assert {pod["spec"]["hostname"] for pod in pods} == {f"pretrain-{rank}" for rank in range(4)}
    assert all(pod["metadata"]["annotations"][names.ENDS_AT] for pod in pods)

    # Ctrl-C leaves it running, and says how to stop it.
    time.sleep(3)
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=30)
    assert following.returncode == 130
    assert out.startswith(
        f"created {ours}/pretrain: 4 nodes of pool gpu (p5.48xlarge), each with 8 nvidia.com/gpu"
    )
    assert waits["reason"] in err
    assert "pretrain runs on 4 nodes." in err
    assert f"stop it: tidemill job stop pretrain -n {ours}" in err.rstrip().splitlines()[-1]
    assert user.row("pretrain")["state"] == "running"

    # Stopping gives the pods their grace, and takes what was made and nothing else.
    scene.create(ours, plain_job("other", lasts="6h"))
    grace = scene.account.now()
    stopped = user("stop", "pretrain")
    assert "its pods have 5m30s to save and end" in stopped.stderr
    assert (scene.account.now() - grace).total_seconds() >= 4 * 60
    assert gone(api, f"/apis/batch/v1/namespaces/{ours}/jobs/pretrain")
    eventually(lambda: gone(api, f"/api/v1/namespaces/{ours}/services/pretrain"), what="its Service goes too")
    assert not [pod for pod in scene.pods(ours) if pod["metadata"]["name"].startswith("pretrain-")]
    assert not scene.account.kubelets()["withoutFullGrace"]
    refused = user("stop", "other", code=2).stderr
    assert "was not made by `tidemill job run`, so nothing was stopped" in refused
    assert f"to delete it: kubectl delete job other -n {ours}" in refused
    assert scene.job(ours, "other")
    # What the guide shows is what was printed here.
    guide = Guide({ours: "research", block: "cr-0a1b2c3d4e5f60718"})
    assert guide.plain(out, err, listed, stopped.stdout, stopped.stderr) == guide.lines


@pytest.mark.slow
@pytest.mark.requirement("CB-10")
def test_a_resumable_job_goes_on_on_the_next_block_and_its_pods_are_no_failures(
    stage: Callable[..., Stage], user: User
) -> None:
    """One failure that counts would end it."""
    scene, ours = stage(pool(limits={"nodes": 8}), speed=60), user.namespace
    scene.run()
    first = scene.buy(2, ends="2026-11-18T11:30:00Z")
    user(
        "run", "-f", str(scene.files), "--image", IMAGE, "--name", "long", "--nodes", "2", "--duration", "20h",
        "--checkpoint-interval", "10m", "--checkpoint-time", "1m", "--retries", "0",
        "--annotation", "sim.tidemill.dev/acknowledges=true", "--", "torchrun", "train.py",
    )  # fmt: skip
    scene.eventually(lambda: user.row("long")["state"] == "running", "the job runs", timeout_s=180)
    assert scene.sources_of(ours, "long") == {first}
    second = scene.buy(2, ends="2026-11-19T11:30:00Z")
    scene.account.advance("2026-11-18T10:20:00Z")

    def moved() -> bool:
        running = [pod for pod in scene.pods(ours) if pod["status"].get("phase") == "Running"]
        return len(running) == 2 and {scene.source_of(pod) for pod in running} == {second}

    scene.eventually(moved, "it runs on the second block", timeout_s=240)
    assert not scene.job(ours, "long")["status"].get("failed")
    left = [pod for pod in scene.account.kubelets()["pods"] if pod["end"]]
    assert [(pod["end"], pod["fullGrace"], pod["checkpoints"]) for pod in left] == [("stopped", True, 1)] * 2


# --- with pods that a test runs by hand ---------------------------------------------------------------


@pytest.fixture
def documents(tmp_path: Path, cluster: ControlPlane) -> Path:
    file = tmp_path / "platform.yaml"
    file.write_text(yaml.safe_dump_all(whole([pool()], cluster.server)))
    return file


@pytest.fixture
def kubelet(api: Api) -> Iterator[SmallKubelet]:
    made = SmallKubelet(api, speed=60)
    yield made
    made.stop()


@pytest.fixture
def log_kubelet(tmp_path: Path) -> Iterator[LogKubelet]:
    made = LogKubelet(*self_signed(tmp_path))
    yield made
    made.close()


def started(api: Api, namespace: str, name: str, ranks: int) -> list[str]:
    """Start a held job as the engine would; the names of its pods by rank, when they run."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    freed = {"metadata": {"labels": {names.HELD_BY: None}}, "spec": {"suspend": False}}
    eventually(lambda: api.get(path), what="the job is there")
    api.patch(path, freed)

    def running() -> list[str]:
        pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
        by_rank = {
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]: pod["metadata"][
                "name"
            ]
            for pod in pods
            if pod["status"].get("phase") == "Running"
        }
        return [by_rank[key] for key in sorted(by_rank)] if len(by_rank) == ranks else []

    return eventually(running, timeout_s=60, what="its pods run")


def test_the_logs_of_all_ranks_are_one_stream_and_a_broken_connection_loses_no_line(
    api: Api, user: User, documents: Path, kubelet: SmallKubelet, log_kubelet: LogKubelet
) -> None:
    for number in range(2):
        kubelet.join(f"node-{number}", f"aws:///us-east-1a/i-{number:017x}", {names.LABEL_POOL: "gpu"}, [])
        room = {"cpu": "191", "memory": "1900Gi", "pods": "110", names.NVIDIA_GPU: "8", names.EFA: "32"}
        kubelet.report(f"node-{number}", room)
        reach = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": log_kubelet.port}},
        }
        api.patch(f"/api/v1/nodes/node-{number}/status", {"status": reach}, STRATEGIC)
    following = user.begin(
        "run",
        "-f",
        str(documents),
        "--image",
        IMAGE,
        "--name",
        "two",
        "--nodes",
        "2",
        "--follow",
        "--",
        "train",
    )
    zero, one = started(api, user.namespace, "two", 2)
    log_kubelet.cut[one] = 2
    log_kubelet.write(zero, "loss 3.0", "")
    log_kubelet.write(one, "ready", "step 1")
    time.sleep(1.1)  # lines of one second come twice when a connection is opened again
    log_kubelet.write(one, "step 2")
    log_kubelet.write(zero, "loss 2.5")
    eventually(lambda: [pod for pod, _ in log_kubelet.asked].count(one) >= 2, what="it is asked again")
    for pod in (zero, one):
        log_kubelet.write(pod, "bye")
        log_kubelet.ended.add(pod)
        kubelet.end(user.namespace, pod, "Succeeded")
    out, err = following.communicate(timeout=60)
    assert following.returncode == 0, err
    assert "two is done" in err
    lines = out.splitlines()[1:]
    assert [line for line in lines if line.startswith("[0]")] == [
        "[0] loss 3.0",
        "[0] ",
        "[0] loss 2.5",
        "[0] bye",
    ]
    assert [line for line in lines if line.startswith("[1]")] == [
        "[1] ready",
        "[1] step 1",
        "[1] step 2",
        "[1] bye",
    ]

    # Afterwards: in the order of time, one rank, the last lines.
    all_ranks = [line.partition("] ")[2] for line in user("logs", "two").stdout.splitlines()]
    assert all_ranks == ["loss 3.0", "", "ready", "step 1", "step 2", "loss 2.5", "bye", "bye"]
    assert user("logs", "two", "--rank", "1").stdout.splitlines() == ["ready", "step 1", "step 2", "bye"]
    as_json = [json.loads(line) for line in user("logs", "two", "--json", "--tail", "1").stdout.splitlines()]
    assert {line["rank"] for line in as_json} == {0, 1}
    assert log_kubelet.asked[-1][1]["tailLines"] == "1"
    assert "has the ranks 0 to 1" in user("logs", "two", "--rank", "2", code=2).stderr
    assert user.row("two")["state"] == "done"


def test_a_job_that_fails_says_so_and_so_does_the_exit_code(
    api: Api, user: User, documents: Path, kubelet: SmallKubelet
) -> None:
    kubelet.join("node-0", "aws:///us-east-1a/i-0", {names.LABEL_POOL: "gpu"}, [])
    kubelet.report("node-0", {"cpu": "191", "memory": "1900Gi", "pods": "110", names.NVIDIA_GPU: "8"})
    waiting = user.begin("run", "-f", str(documents), "--image", IMAGE, "--name", "breaks", "--wait")
    (pod,) = started(api, user.namespace, "breaks", 1)
    kubelet.end(user.namespace, pod, "Failed")
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert "breaks failed. Job has reached the specified backoff limit." in err
    assert user.row("breaks")["code"] == "BackoffLimitExceeded"


def test_what_the_api_server_takes_is_what_is_printed_and_a_dry_run_creates_nothing(
    api: Api, user: User, documents: Path, kubectl: Kubectl
) -> None:
    options = (
        "-f", str(documents), "--image", IMAGE, "--name", "all", "--nodes", "2", "--duration", "6h", "--resumable",
        "--checkpoint-time", "2m", "--time-limit", "8h", "--env", "A=1", "--secret", "wandb", "--team", "nlp",
        "--volume", "checkpoints:/checkpoints", "--priority", "system-node-critical", "--overflow",
    )  # fmt: skip
    printed = user("run", *options, "--dry-run", "--", "torchrun", "train.py")
    job, service = yaml.safe_load_all(printed.stdout)
    assert (job["kind"], service["kind"]) == ("Job", "Service")
    assert job["spec"]["suspend"] is True
    assert "nothing was created" in printed.stderr
    assert api.items(f"/apis/batch/v1/namespaces/{user.namespace}/jobs") == []
    rendered = user("render", *options, "--", "torchrun", "train.py").stdout
    applied = kubectl.as_user(user.kubeconfig)(
        "create", "--validate=strict", "-n", user.namespace, "-f", "-", stdin=rendered
    )
    assert "job.batch/all created" in applied
    again = user("run", *options, code=2).stderr
    assert "has a Job all already; choose another --name, or stop it first: tidemill job stop all" in again


def test_pools_of_the_cluster_are_used_where_the_user_may_read_them(
    cluster: ControlPlane, api: Api, user: User, kubectl: Kubectl
) -> None:
    run = ("run", "--image", IMAGE, "--nodes", "2", "--dry-run")
    assert "the pools cannot be read" in user(*run, code=2).stderr
    typed = (*run, "--instance-type", "p5.48xlarge")
    assert "vpc.amazonaws.com/efa: '32'" in user(*typed).stdout
    kubectl.apply(*definitions())
    for each in definitions():
        kubectl("wait", "--for=condition=Established", "crd", each["metadata"]["name"], "--timeout=30s")
    kubectl.apply(*whole([pool()], cluster.server))
    assert "the pools cannot be read" in user(*run, code=2).stderr, "nobody lets them"
    assert "PriorityClass" not in user(*typed, "--priority", "nope").stderr, (
        "nobody lets them read those either"
    )
    roles = manifests(Role.USERS)
    kubectl.apply(*roles)
    try:
        eventually(lambda: user(*run, code=None).returncode == 0, timeout_s=60, what="they are read")
        assert "tidemill.dev/pool: gpu" in user(*run).stdout
        assert "there is no pool 'gpus'; did you mean 'gpu'?" in user(*run, "--pool", "gpus", code=2).stderr
        assert "there is no PriorityClass 'nope'" in user(*run, "--priority", "nope", code=2).stderr
    finally:
        kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(roles))
    assert "JobSet is not installed" in user(*typed, "--jobset", code=2).stderr


def test_a_job_set_is_made_where_it_is_installed(
    cluster: ControlPlane, api: Api, ours: str, documents: Path
) -> None:
    """With the CRD as its project publishes it, and strict field validation. Its own controller is not there."""
    define_custom_resources(api)
    env = clean_environment() | {"KUBECONFIG": str(cluster.kubeconfig)}

    def job(verb: str, *arguments: str) -> str:
        command = (*TIDEMILL, "job", verb, "-n", ours, *arguments)
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout

    job(
        "run",
        "-f",
        str(documents),
        "--image",
        IMAGE,
        "--name",
        "set",
        "--nodes",
        "2",
        "--jobset",
        "--retries",
        "2",
    )
    (made,) = api.items(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{ours}/jobsets")
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"][names.HELD_BY] == names.HELD_BY_US
    (row,) = json.loads(job("list", "--json"))["jobs"]
    assert (row["kind"], row["state"], row["nodes"], row["gpus"]) == ("JobSet", "waiting", 2, 16)
    assert job("stop", "set") == "set is stopped\n"
    assert api.items(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{ours}/jobsets") == []
