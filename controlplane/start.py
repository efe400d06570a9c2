"""One control plane on free loopback ports: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

    with ControlPlane() as plane:
        plane.kubeconfig                      # of an administrator
        plane.restart("kube-apiserver")       # faults: restart, kill, pause, compact, slow_etcd

It is ready when kube-scheduler has bound a pod. All processes end with the block, or with the process that began it.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from controlplane.api import Api, ApiError, eventually
from controlplane.build import build
from controlplane.certificates import Authority
from controlplane.components import (
    API_SERVER,
    COMPONENTS,
    CONTROLLER_MANAGER,
    ETCD,
    SCHEDULER,
    Options,
    command_lines,
    write_kubeconfig,
)
from controlplane.processes import Processes, started_at
from controlplane.proxy import CuttableProxy

_READY_S = 120.0  # ready in 10-13 s on two busy cores; a machine that is building something else takes longer
_ATTEMPTS = 3  # a port that was free may be taken before the server listens


class NotStarted(Exception):
    """A component did not start; the message has the end of its log."""


class ControlPlane:
    """A control plane in one folder: keys, logs, etcd's data. Without a folder, a temporary one that goes with it."""

    def __init__(
        self, folder: Path | None = None, options: Options | None = None, *, outlive_us: bool = False
    ) -> None:
        self.options = options or Options()
        self._temporary = folder is None
        self.folder = (folder or Path(tempfile.mkdtemp(prefix="tidemill-controlplane-"))).resolve()
        self._outlive_us = outlive_us
        self.processes = Processes(self.folder / "log", outlive_us=outlive_us)
        self.token = secrets.token_hex(16)
        self.ports: dict[str, int] = {}
        self.binaries = Path()

    # --- its life -----------------------------------------------------------------------------------

    def __enter__(self) -> ControlPlane:
        try:
            self.start()
        except BaseException:
            self.close(keep_logs=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(keep_logs=error is not None)

    def start(self) -> None:
        self.binaries = build()
        self._make_keys()
        for attempt in range(_ATTEMPTS):
            try:
                self._start_once()
                return
            except NotStarted as error:
                if "address already in use" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
                self.processes.close(kill=True)
                shutil.rmtree(self.folder / "etcd", ignore_errors=True)
                self.processes = Processes(self.folder / "log", outlive_us=self._outlive_us)

    def close(self, *, keep_logs: bool = False) -> None:
        """Kill all processes: their data goes too. Of a temporary folder nothing stays, or the logs."""
        self.processes.close(kill=True)
        if self._temporary:
            for part in self.folder.iterdir():
                if not (keep_logs and part.name == "log"):
                    shutil.rmtree(part) if part.is_dir() else part.unlink()
            if not keep_logs:
                self.folder.rmdir()

    # --- what a test asks for -----------------------------------------------------------------------

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports[API_SERVER]}"

    @property
    def ca(self) -> Path:
        return self._pki / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator (group system:masters), with a client certificate."""
        return self.folder / "kubeconfig"

    @property
    def token_file(self) -> Path:
        """The bearer token of an administrator."""
        return self.folder / "token"

    def admin(self) -> Api:
        """A client of our own for an administrator."""
        return Api(self.server, self.ca, certificate=(self._pki / "admin.crt", self._pki / "admin.key"))

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of a user with these groups and no rights but those that RBAC gives them."""
        file = "user-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)
        Authority(self._pki).client(file, name, groups)
        return self._kubeconfig(self._pki / f"{file}.conf", certificate=self._pki / file)

    def service_account(self, namespace: str, name: str, *, expires_s: int = 3600) -> Path:
        """A kubeconfig with a token of this ServiceAccount, made where it is missing."""
        admin = self.admin()
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        with contextlib.suppress(ApiError):
            admin.create(accounts, {"metadata": {"name": name}})
        asked = {"spec": {"expirationSeconds": expires_s}}
        token = admin.create(f"{accounts}/{name}/token", asked)["status"]["token"]
        return self._kubeconfig(self._pki / f"sa-{namespace}-{name}.conf", token=token)

    def kubeconfig_with_token(self, token: str, *, server: str = "") -> Path:
        """A kubeconfig with any token, good or bad, and any address."""
        name = f"token-{secrets.token_hex(4)}.conf"
        return self._kubeconfig(self._pki / name, token=token, server=server)

    @contextlib.contextmanager
    def through_proxy(self) -> Iterator[tuple[CuttableProxy, Path]]:
        """A way to the API server that can be cut, and an administrator's kubeconfig that goes that way."""
        with CuttableProxy(self.ports[API_SERVER]) as proxy:
            path = self._pki / f"proxy-{proxy.port}.conf"
            yield proxy, self._kubeconfig(path, certificate=self._pki / "admin", server=proxy.server)

    # --- faults -------------------------------------------------------------------------------------

    def restart(self, component: str, *, down_s: float = 0.0, kill: bool = False) -> None:
        """Stop one component (or kill it), leave it away for a while, start it and wait until it answers."""
        if kill:
            self.processes.kill(component)
        else:
            self.processes.stop(component)
        time.sleep(down_s)
        self.processes.start_again(component)
        self.wait_for(component)

    def wait_for(self, component: str, timeout_s: float = _READY_S) -> None:
        def answers() -> bool:
            if not self.processes.alive(component):
                raise NotStarted(f"{component} ended: {self.processes.tail(component)}")
            return self._healthy(component)

        eventually(
            answers, timeout_s=timeout_s, what=f"{component} answers; its log is in {self.processes.logs}"
        )

    def compact(self) -> int:
        """Etcd forgets everything before now; returns that revision.

        The API server answers lists and watches from its own cache and notices only after it restarts:
        `forget_history`.
        """
        revision = int(self._etcd("/v3/maintenance/status", {})["header"]["revision"])
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def forget_history(self) -> None:
        """After this every older resourceVersion is too old (410), for lists and for watches."""
        self.processes.kill(API_SERVER)  # asked to end, it takes 10 s
        self.compact()
        self.processes.start_again(API_SERVER)
        self.wait_for(API_SERVER)

    @contextlib.contextmanager
    def slow_etcd(self, *, stopped_s: float = 0.5, running_s: float = 0.1) -> Iterator[None]:
        """Etcd runs only part of the time: SIGSTOP and SIGCONT in turn."""
        over = threading.Event()

        def alternate() -> None:
            while not over.is_set():
                self.processes.pause(ETCD)
                over.wait(stopped_s)
                self.processes.resume(ETCD)
                over.wait(running_s)

        thread = threading.Thread(target=alternate, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # --- start --------------------------------------------------------------------------------------

    @property
    def _pki(self) -> Path:
        return self.folder / "pki"

    def _make_keys(self) -> None:
        authority = Authority(self._pki)
        authority.server(
            "apiserver", addresses=("127.0.0.1", "10.96.0.1"), hosts=("localhost", "kubernetes.default.svc")
        )
        authority.client("admin", "admin", ("system:masters",))
        authority.client("scheduler", "system:kube-scheduler")
        authority.client("controller-manager", "system:kube-controller-manager")
        authority.service_accounts()
        self.token_file.write_text(self.token)
        (self._pki / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')

    def _start_once(self) -> None:
        self.ports = dict(zip((*COMPONENTS, "peer"), free_ports(len(COMPONENTS) + 1), strict=True))
        self._kubeconfig(self.kubeconfig, certificate=self._pki / "admin")
        for name in ("scheduler", "controller-manager"):
            self._kubeconfig(self._pki / f"{name}.conf", certificate=self._pki / name)
        (self.folder / "etcd").mkdir(mode=0o700, exist_ok=True)
        commands = command_lines(self.options, self.folder, self.ports, self.binaries)
        for component in (ETCD, API_SERVER):
            self.processes.start(component, commands[component], cwd=self._pki)
            self.wait_for(component)
        for component in (CONTROLLER_MANAGER, SCHEDULER):
            if component in self.options.components:
                self.processes.start(component, commands[component], cwd=self._pki)
        for component in self.options.components:
            self.wait_for(component)
        for component in self.processes.ended():  # its port was taken: somebody else's answered for it
            raise NotStarted(f"{component} ended: {self.processes.tail(component)}")
        self._write_state()
        if SCHEDULER in self.options.components:
            self._bind_canary()

    def _healthy(self, component: str) -> bool:
        if component == ETCD:
            return bool(self._etcd("/v3/maintenance/status", {}))
        # The other two make certificates for themselves. Whoever took the port meanwhile may never answer.
        api = Api(
            f"https://127.0.0.1:{self.ports[component]}", self.ca, timeout_s=5, check=component == API_SERVER,
            certificate=(self._pki / "admin.crt", self._pki / "admin.key"),
        )  # fmt: skip
        with contextlib.closing(api):
            return bool(api.get("/healthz" if component == CONTROLLER_MANAGER else "/readyz") == "ok")

    def _bind_canary(self) -> None:
        """kube-scheduler binds a pod to a node: everything between them works. Both go again."""
        admin = self.admin()
        pods = "/api/v1/namespaces/kube-system/pods"
        room = {"cpu": "1", "memory": "1Gi", "pods": "1"}
        ready = {"type": "Ready", "status": "True", "reason": "Canary", "lastHeartbeatTime": _now()}
        node = {"metadata": {"name": "canary", "labels": {"canary": "true"}}}
        pod = {
            "metadata": {"name": "canary"},
            "spec": {
                "nodeSelector": {"canary": "true"},
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "canary", "image": "none"}],
                "automountServiceAccountToken": False,
            },
        }
        admin.create("/api/v1/nodes", node)
        status = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
        admin.patch("/api/v1/nodes/canary/status", status)
        # A pod is refused until kube-controller-manager has made the namespace's ServiceAccount.
        eventually(lambda: admin.create(pods, pod), timeout_s=_READY_S, what="kube-system takes a pod")
        bound = lambda: admin.get(f"{pods}/canary")["spec"].get("nodeName")  # noqa: E731
        eventually(bound, timeout_s=_READY_S, what="kube-scheduler binds a pod")
        admin.delete(f"{pods}/canary", gracePeriodSeconds=0)
        admin.delete("/api/v1/nodes/canary")

    def _kubeconfig(
        self, path: Path, *, certificate: Path | None = None, token: str = "", server: str = ""
    ) -> Path:
        return write_kubeconfig(path, server or self.server, self.ca, certificate=certificate, token=token)

    def _etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[ETCD]}{path}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def _write_state(self) -> None:
        """Who runs, for `python -m controlplane down` in another process."""
        running = {name: [pid, started_at(pid)] for name, pid in self.processes.pids().items()}
        (self.folder / "running.json").write_text(json.dumps({"ports": self.ports, "processes": running}))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now; all are held at once, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
