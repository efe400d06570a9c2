"""Deadline agents of the tests: nodes with their end, the DaemonSet's own pods and tokens, agents as processes."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from controlplane.api import Api, ApiError, eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.programs import TIDEMILL, Kubectl, clean_environment
from tidemill.engine.clock import FasterClock
from tidemill.kube.api import MERGE_PATCH, KubeApi
from tidemill.kube.connect import connect
from tidemill.kube.rbac import NAMESPACE
from tidemill.model.errors import Refused
from tidemill.render.node_agent import NAME, node_agent_objects
from tidemill.spec import names
from tidemill.spec.units import format_instant

ROOM = {"cpu": "64", "memory": "512Gi", "pods": "110"}


def add_node(api: Api, name: str, ends_at: datetime | None = None, **labels: str) -> None:
    annotations = {names.ENDS_AT: format_instant(ends_at)} if ends_at is not None else {}
    api.create(
        "/api/v1/nodes",
        {
            "metadata": {
                "name": name,
                "labels": labels or {names.LABEL_POOL: "gpu", names.LABEL_SOURCE: "cr-1"},
                "annotations": annotations,
            }
        },
    )
    ready = {"type": "Ready", "status": "True", "reason": "Test"}
    status = {"capacity": ROOM, "allocatable": ROOM, "conditions": [ready]}
    api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def _is_refused(api: KubeApi, method: str, path: str) -> bool:
    patch = b'{"metadata":{"annotations":{"a":"b"}}}' if method == "PATCH" else None
    try:
        api.send(method, path, patch, content_type=MERGE_PATCH, params={"dryRun": "All"})
    except Refused as error:
        return "names no node" in str(error)
    return False


def pod_on(node: str, name: str, grace_s: int = 30, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": "c", "image": "none"}],
            **spec,
        },
    }


class Agents:
    """The rendered objects, applied; agents run as processes with the tokens of the DaemonSet's own pods."""

    def __init__(self, plane: ControlPlane, api: Api, kubectl: Kubectl, processes: Processes) -> None:
        self._plane, self._api, self._processes = plane, api, processes
        kubectl.apply(*node_agent_objects("tidemill:test"))
        self._wait_for_policies()

    def _wait_for_policies(self) -> None:
        """The API server takes a moment until it enforces what it stored: dry runs until both refuse."""
        add_node(self._api, "canary", role="canary")  # no node of ours: no agent runs there
        self._api.create("/api/v1/namespaces/default/pods", pod_on("canary", "canary"))
        with closing(connect(str(self._plane.service_account(NAMESPACE, NAME)))) as unbound:
            for method, path in (
                ("PATCH", "/api/v1/nodes/canary"),
                ("DELETE", "/api/v1/namespaces/default/pods/canary"),
            ):
                eventually(partial(_is_refused, unbound, method, path), what=f"{method} {path} is refused")
        self._api.delete("/api/v1/namespaces/default/pods/canary", gracePeriodSeconds=0)
        self._api.delete("/api/v1/nodes/canary")

    def token(self, node: str) -> Path:
        """A kubeconfig with the token that the kubelet of this node would mount into the agent's pod."""
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"

        def own() -> Any:
            on_node = self._api.items(pods, fieldSelector=f"spec.nodeName={node}")
            return on_node[0]["metadata"] if on_node else None

        pod = eventually(own, what=f"the DaemonSet has a pod on {node}")
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
        asked = {"spec": {"boundObjectRef": bound, "expirationSeconds": 3600}}
        answer = self._api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}/token", asked)
        return self._plane.kubeconfig_with_token(answer["status"]["token"])

    def start(self, node: str, *, token_of: str = "", clock: str = "", boot_file: Path | None = None) -> str:
        """The agent of `node` as a process, with the token of the agent of `token_of`; its name among the processes."""
        name = f"agent-{node}-{secrets.token_hex(2)}"
        command = [
            *TIDEMILL,
            "node",
            "agent",
            "--node",
            node,
            "--kubeconfig",
            str(self.token(token_of or node)),
        ]
        if clock:
            command += ["--simulated-clock", clock]
        if boot_file is not None:
            command += ["--boot-file", str(boot_file)]
        self._processes.start(name, command, env=clean_environment())
        return name

    def follow(self, clock: str, stop: threading.Event) -> None:
        """As the kubelets would: an agent for every pod of the DaemonSet that is bound, until stopped."""
        started: set[str] = set()
        while not stop.wait(0.5):
            with suppress(ApiError, OSError, HTTPException):
                for pod in self._api.items(f"/api/v1/namespaces/{NAMESPACE}/pods"):
                    node = pod["spec"].get("nodeName", "")
                    if (
                        node
                        and node not in started
                        and pod["metadata"]["labels"].get("app.kubernetes.io/name") == NAME
                    ):
                        self.start(node, clock=clock)
                        started.add(node)

    def said(self, name: str) -> str:
        return (self._processes.logs / f"{name}.log").read_text()


class ClockServer:
    """`/tidemill/clock`, as a simulated AWS serves it: time that runs `speed` times as fast from now on."""

    def __init__(self, anchor: datetime, speed: float) -> None:
        self.clock = FasterClock(anchor, datetime.now(UTC), speed)
        clock = self.clock

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wall = datetime.now(UTC)
                exactly = clock.from_wall(wall).isoformat()
                told = {"now": exactly, "exactly": exactly, "wall": wall.isoformat(), "speed": clock.speed}
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(told).encode())

            def log_message(self, *said: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class PatientKubelet:
    """Runs every pod until it is told to stop, then takes the whole grace and fails, as a busy training job does.

    Grace is the engine's: divided by the speed. `ended` has, for each pod, when it was told, the grace it was given
    and when it was gone, all in the engine's time.
    """

    def __init__(self, api: Api, clock: FasterClock) -> None:
        self._api, self._clock = api, clock
        self._stop = threading.Event()
        self._leaving: dict[str, tuple[datetime, float]] = {}
        self.ended: dict[str, tuple[datetime, timedelta, datetime]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def running(self) -> list[str]:
        return [name for _, name, _ in self._pods() if name not in self.ended]

    def _pods(self) -> list[tuple[str, str, dict[str, Any]]]:
        found = self._api.items("/api/v1/pods")
        return [
            (f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}",
             str(pod["metadata"]["name"]), pod)
            for pod in found if pod["metadata"]["namespace"] != NAMESPACE and pod["spec"].get("nodeName")
        ]  # fmt: skip

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            with suppress(ApiError, OSError, HTTPException):  # a pod that is gone, a server that restarts
                for path, name, pod in self._pods():
                    self._serve(path, name, pod)

    def _serve(self, path: str, name: str, pod: dict[str, Any]) -> None:
        phase = pod.get("status", {}).get("phase")
        if phase == "Pending":
            self._api.patch(f"{path}/status", _status("Running", pod))
        if "deletionTimestamp" not in pod["metadata"] or phase not in ("Running", "Pending"):
            return
        if name not in self._leaving:
            # Kubernetes stamps the request plus the grace, as if the grace were wall time.
            given_s = pod["metadata"]["deletionGracePeriodSeconds"]
            ends = time.monotonic() + self._clock.wall_seconds(timedelta(seconds=given_s))
            self._leaving[name] = (self._clock.now(), ends)
        told, ends = self._leaving[name]
        if time.monotonic() >= ends:
            given = timedelta(seconds=pod["metadata"]["deletionGracePeriodSeconds"])
            self._api.patch(f"{path}/status", _status("Failed", pod))
            self._api.delete(path, gracePeriodSeconds=0)
            self.ended[name] = (told, given, self._clock.now())


def _status(phase: str, pod: dict[str, Any]) -> dict[str, Any]:
    """A merge patch replaces lists, so that conditions of others are written again."""
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    others = [one for one in pod.get("status", {}).get("conditions") or () if one["type"] != "Ready"]
    status: dict[str, Any] = {"phase": phase, "conditions": [*others, ready]}
    if phase == "Failed":
        ended = {"terminated": {"exitCode": 137, "reason": "Error"}}
        status["containerStatuses"] = [
            {"name": "c", "image": "none", "imageID": "", "restartCount": 0, "ready": False, "state": ended}
        ]
    return {"status": status}


def holds_for(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert holds()
        time.sleep(0.05)
