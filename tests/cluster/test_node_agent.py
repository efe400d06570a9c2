"""The deadline agent on a real API server: its rights, and a block that ends while the controller is away (CB-16)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import Api, ApiError, eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.agents import Agents, ClockServer, PatientKubelet, add_node, holds_for, pod_on
from tests.cluster.programs import Kubectl
from tidemill.engine.clock import WallClock
from tidemill.kube.api import KubeApi
from tidemill.kube.connect import connect
from tidemill.model.errors import NotAllowed, Refused
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.node.agent import CALLS, Agent
from tidemill.node.deadline_agent import SPARE
from tidemill.spec import names
from tidemill.spec.units import format_instant

pytestmark = pytest.mark.requirement("CB-16")
Client = Callable[[Path], KubeApi]
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def agents(cluster: ControlPlane, api: Api, kubectl: Kubectl, processes: Processes) -> Agents:
    return Agents(cluster, api, kubectl, processes)


@pytest.fixture
def client() -> Iterator[Client]:
    opened: list[KubeApi] = []

    def open_client(kubeconfig: Path) -> KubeApi:
        opened.append(connect(str(kubeconfig)))
        return opened[-1]

    yield open_client
    for one in opened:
        one.close()


# --- its rights ---------------------------------------------------------------------------------------


def test_the_policies_have_no_type_errors(api: Api, agents: Agents):
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    for kind in ("nodes", "pods"):
        seen = api.get(f"{path}/tidemill-node-agent-{kind}")
        assert seen["status"]["typeChecking"] == {}


def test_an_agent_can_write_nothing_of_another_node(api: Api, agents: Agents, client: Client, namespace: str):
    for node in ("node-a", "node-b"):
        add_node(api, node)
        api.create(f"/api/v1/namespaces/{namespace}/pods", pod_on(node, f"on-{node}"))
    ours = client(agents.token("node-a"))

    def patch(path: str, body: bytes, kind: str = "application/merge-patch+json") -> bytes:
        return ours.send("PATCH", path, body, content_type=kind)

    target = b'{"status":{"conditions":[{"type":"DisruptionTarget","status":"True"}]}}'
    agent = b'{"metadata":{"annotations":{"tidemill.dev/deadline-agent":"1"}}}'
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for write in (
        lambda: ours.send("DELETE", f"{pods}/on-node-b"),
        lambda: patch(f"{pods}/on-node-b/status", target, STRATEGIC),
        lambda: patch("/api/v1/nodes/node-b", agent),
        # ... and of its own node only what is its own:
        lambda: patch("/api/v1/nodes/node-a", b'{"metadata":{"annotations":{"tidemill.dev/ends-at":"x"}}}'),
        lambda: patch("/api/v1/nodes/node-a", b'{"metadata":{"labels":{"a":"b"}}}'),
        lambda: patch("/api/v1/nodes/node-a", b'{"spec":{"unschedulable":true}}'),
        lambda: patch("/api/v1/nodes/node-a", b'{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}'),
        lambda: patch(f"{pods}/on-node-a/status", b'{"status":{"phase":"Succeeded"}}', STRATEGIC),
        lambda: ours.send("DELETE", "/api/v1/nodes/node-a"),
        lambda: ours.send("POST", f"{pods}/on-node-a/eviction", b"{}"),
        lambda: ours.get("/api/v1/namespaces/kube-system/secrets"),
    ):
        assert _refused(write)
    patch("/api/v1/nodes/node-a", agent)
    patch(f"{pods}/on-node-a/status", target, STRATEGIC)
    ours.send("DELETE", f"{pods}/on-node-a")
    assert "deletionTimestamp" in api.get(f"{pods}/on-node-a")["metadata"]
    assert "deletionTimestamp" not in api.get(f"{pods}/on-node-b")["metadata"]


def _refused(write: Any) -> bool:
    try:
        write()
    except (NotAllowed, Refused):
        return True
    return False


def test_a_token_that_is_bound_to_no_pod_may_write_nothing(
    cluster: ControlPlane, api: Api, agents: Agents, client: Client, namespace: str
):
    add_node(api, "node-a")
    api.create(f"/api/v1/namespaces/{namespace}/pods", pod_on("node-a", "work"))
    theirs = client(cluster.service_account("tidemill-system", "tidemill-node-agent"))
    path = f"/api/v1/namespaces/{namespace}/pods/work"
    with pytest.raises(Refused, match="the token names no node"):
        theirs.send("DELETE", path)


def test_an_agent_with_the_token_of_another_node_stops_nobody(api: Api, agents: Agents, namespace: str):
    add_node(api, "node-a")
    add_node(api, "node-b", ends_at=datetime.now(UTC) + timedelta(seconds=40))
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, pod_on("node-b", "work"))
    name = agents.start("node-b", token_of="node-a")
    eventually(lambda: "cannot delete" in agents.said(name) or "deleted without" in agents.said(name))
    assert "the pod is on another node" in agents.said(name)
    assert "deletionTimestamp" not in api.get(f"{path}/work")["metadata"]


def test_it_makes_the_calls_that_its_role_declares_and_no_others(
    api: Api, agents: Agents, client: Client, namespace: str
):
    """In this process, so that the calls can be counted; with the DaemonSet's own token."""
    add_node(api, "node-a", ends_at=datetime.now(UTC) + timedelta(seconds=60))
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, pod_on("node-a", "work", 30))
    ours = client(agents.token("node-a"))
    stop, agent = threading.Event(), Agent(ours, "node-a", WallClock())
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        eventually(lambda: "deletionTimestamp" in api.get(f"{path}/work")["metadata"])
        made = lambda: {(call.verb, call.group, _full(call)) for call in ours.calls}  # noqa: E731
        eventually(lambda: made() == set(CALLS), what=f"{set(CALLS)} were made")
    finally:
        stop.set()
        agent.wake()
        thread.join(10)


def _full(call: Any) -> str:
    return f"{call.resource}/{call.subresource}" if call.subresource else call.resource


# --- a block that ends without the controller ---------------------------------------------------------

SPEED = 60.0


@pytest.fixture
def clock() -> Iterator[ClockServer]:
    served = ClockServer(datetime(2026, 11, 20, 9, 0, tzinfo=UTC), SPEED)
    yield served
    served.close()


@pytest.fixture
def kubelet(cluster: ControlPlane, clock: ClockServer) -> Iterator[PatientKubelet]:
    running = PatientKubelet(cluster.admin(), clock.clock)
    yield running
    running.close()


def job(name: str, grace_s: int) -> dict[str, Any]:
    """Its back-off limit is zero: one failure that counts ends it."""
    template = pod_on("", "", grace_s)["spec"] | {"restartPolicy": "Never"}
    del template["nodeName"]
    spared = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [spared]},
            "template": {"spec": template},
        },
    }


def test_nobody_drains_and_every_pod_gets_its_whole_grace_from_the_agent(
    api: Api, agents: Agents, clock: ClockServer, kubelet: PatientKubelet, namespace: str
):
    """Half an hour before the end of a block nobody is there but the agents of its two nodes."""
    ends_at = (clock.clock.now() + timedelta(minutes=30)).replace(microsecond=0)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for node in ("node-a", "node-b"):
        add_node(api, node, ends_at=clock.clock.to_wall(ends_at))
        for grace_s in (60, 600):
            api.create(pods, pod_on(node, f"{node}-{grace_s}", grace_s))
    api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", job("train", 300))
    running = [agents.start(node, clock=clock.url) for node in ("node-a", "node-b")]
    eventually(lambda: len(kubelet.running()) == 5, what="five pods run")
    assert not kubelet.ended
    eventually(lambda: len(kubelet.ended) == 5, timeout_s=60, what="all pods are gone")

    train = next(name for name in kubelet.ended if name.startswith("train"))
    graces = {"node-a-60": 60, "node-b-60": 60, "node-a-600": 600, "node-b-600": 600, train: 300}
    for name, (told, given, gone) in kubelet.ended.items():
        assert given == timedelta(seconds=graces[name]), "the whole grace"
        assert gone <= ends_at, f"{name} was there at the end"
        # As late as its own grace allows; told is when the kubelet noticed.
        assert told >= ends_at - given - SPARE
    for node in ("node-a", "node-b"):
        _closed(api, node, clock, ends_at)
    # The Job's new pod waits for another node: the failure did not count.
    found = api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/train")["status"]
    assert not any(one["type"] == "Failed" for one in found.get("conditions") or ())
    assert found.get("failed", 0) == 0
    eventually(lambda: _waiting(api, pods), what="the Job made another pod, which nobody places")
    for name in running:
        assert "Traceback" not in agents.said(name)


def _waiting(api: Api, pods: str) -> bool:
    left = api.items(pods)
    return len(left) == 1 and not left[0]["spec"].get("nodeName") and left[0]["status"]["phase"] == "Pending"


def _closed(api: Api, node: str, clock: ClockServer, ends_at: datetime) -> None:
    seen = api.get(f"/api/v1/nodes/{node}")
    taint = next(one for one in seen["spec"]["taints"] if one["key"] == names.TAINT_DRAINING)
    assert taint["value"] == DrainKind.SOURCE_ENDS.value
    annotations = seen["metadata"]["annotations"]
    facts = {
        key.removeprefix(names.DRAIN_REASON): value
        for key, value in annotations.items()
        if key.startswith(names.DRAIN_REASON)
    }
    reason = DrainReason.from_annotations(taint["value"], facts)
    assert reason is not None
    assert reason.at is not None
    assert clock.clock.from_wall(reason.at) == ends_at
    assert reason.name == "cr-1"


def test_an_end_that_moves_is_followed_and_an_api_server_that_restarts_is_waited_for(
    cluster: ControlPlane,
    api: Api,
    agents: Agents,
    clock: ClockServer,
    kubelet: PatientKubelet,
    namespace: str,
):
    """Without an annotation the file of the boot counts; then the engine moves the end, then the API server goes."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    boot = cluster.folder / "ends-at"
    boot.write_text(format_instant(clock.clock.now() + timedelta(minutes=12)))
    add_node(api, "node-a")
    api.create(pods, pod_on("node-a", "work", 300))
    name = agents.start("node-a", clock=clock.url, boot_file=boot)

    def known() -> Any:
        return api.get("/api/v1/nodes/node-a")["metadata"].get("annotations", {}).get(names.AGENT_ENDS_AT)

    eventually(known, what="the agent says what it goes by")
    moved = (clock.clock.now() + timedelta(minutes=40)).replace(microsecond=0)
    wall = format_instant(clock.clock.to_wall(moved))
    api.patch("/api/v1/nodes/node-a", {"metadata": {"annotations": {names.ENDS_AT: wall}}})
    eventually(lambda: known() == wall, what="the agent follows the end that moved")
    holds_for(
        lambda: "deletionTimestamp" not in api.get(f"{pods}/work")["metadata"], 12
    )  # 12 virtual minutes
    cluster.restart("kube-apiserver", down_s=2)
    eventually(lambda: "work" in kubelet.ended, timeout_s=60, what="the pod is gone")
    told, given, gone = kubelet.ended["work"]
    assert given == timedelta(seconds=300)
    assert moved - given - SPARE <= told
    assert gone <= moved
    assert "going on with what was known last" in agents.said(name)


def test_it_ends_cleanly(api: Api, agents: Agents, processes: Processes):
    add_node(api, "node-a", ends_at=datetime.now(UTC) + timedelta(hours=2))
    name = agents.start("node-a")
    eventually(lambda: names.DEADLINE_AGENT in api.get("/api/v1/nodes/node-a")["metadata"]["annotations"])
    assert processes.stop(name) == 0
    assert "Traceback" not in agents.said(name)


def test_the_server_refuses_what_the_tests_rely_on(api: Api):
    """A pod's own delete is refused for a wrong uid: the agent never deletes a pod of the same name."""
    add_node(api, "node-a")
    api.create("/api/v1/namespaces/default/pods", pod_on("node-a", "work"))
    with pytest.raises(ApiError) as caught:
        api.call("DELETE", "/api/v1/namespaces/default/pods/work", {"preconditions": {"uid": "another"}})
    assert caught.value.status == 409
