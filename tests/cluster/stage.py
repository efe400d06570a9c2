"""One deployment on the real control plane: documents, the simulated AWS, a ledger, controllers.

Everything runs in processes of its own, as in production: `tidemill sim aws` (which boots nodes and runs pods),
`tidemill run`, and the control plane. The test only makes objects with kubectl's API and looks from outside.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from controlplane.api import Api, eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.account import Account
from tests.cluster.controller import Controller
from tests.cluster.documents import whole
from tests.cluster.objects import condition, create, job, job_is_complete, taints
from tests.cluster.programs import TIDEMILL, SimulatedAws
from tidemill.spec import names

START = "2026-11-18T08:00:00Z"
OWN_NAMESPACE = "tidemill-system"
LEASE_S = 15


@dataclass
class Stage:
    cluster: ControlPlane
    processes: Processes
    account: Account
    files: Path
    ledger: str
    running: set[str] = field(default_factory=set)  # controllers that must not end by themselves

    @classmethod
    def open(
        cls, cluster: ControlPlane, processes: Processes, folder: Path, documents: Sequence[Mapping[str, Any]], *,
        speed: float = 30.0, start: str = START, ledger: str = "", admission: bool = True, boots: bool = True,
        boot: str = "usual",
    ) -> Stage:  # fmt: skip
        """Speed 0: time stands still until somebody says another. `start`: of the account's time; empty: now.
        `boots`: instances join the cluster as nodes; `boot`: as fast as on EC2 (`usual`), or `fast`."""
        files = folder / "platform.yaml"
        files.write_text(yaml.safe_dump_all(whole(documents, cluster.server)))
        begins = ("--start", start) if start else ()
        aws = SimulatedAws.start(
            processes,
            "sim-aws",
            cluster if boots else None,
            ("-f", str(files), "--speed", "0", "--boot", boot, *begins),
        )
        account = Account(aws, cluster.admin())
        stage = cls(cluster, processes, account, files, ledger or f"sqlite:///{folder}/ledger.db")
        if speed:
            account.speed(speed)
        stage.api().create("/api/v1/namespaces", {"metadata": {"name": OWN_NAMESPACE}})
        if admission:
            stage.tidemill("admission", "install", "--kubeconfig", str(cluster.kubeconfig))
            stage.wait_until_held()
        return stage

    def write(self, *documents: Mapping[str, Any]) -> None:
        """Other documents from now on; those of the account stay."""
        self.files.write_text(yaml.safe_dump_all(whole(documents, self.cluster.server)))

    def wait_until_held(self) -> None:
        """The API server learns of new policies within a second or so: what is made before is not held."""
        api, name = self.api(), "held-probe"
        api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": {names.MANAGED: "true"}}})

        def held() -> bool:
            made = api.call(
                "POST", f"/apis/batch/v1/namespaces/{name}/jobs", job("probe"), params={"dryRun": "All"}
            )
            return bool(made["spec"].get("suspend"))

        eventually(held, timeout_s=90, what="the policies are in force")

    # --- programs -----------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        return self.account.aws.environment

    def run(self, name: str = "controller", *arguments: str, kubeconfig: Path | None = None) -> Controller:
        """Start a controller."""
        command = self.run_command(*arguments, kubeconfig=kubeconfig)
        self.processes.start(name, command, env=self.environment)
        self.running.add(name)
        return self.controller(name)

    def run_command(
        self, *arguments: str, kubeconfig: Path | None = None, lease_s: float = LEASE_S
    ) -> tuple[str, ...]:
        documents = () if "--from-cluster" in arguments else ("-f", str(self.files))
        return (
            *TIDEMILL, "run", *documents, "--aws", "--ledger", self.ledger, "--log-format", "json",
            "--kubeconfig", str(kubeconfig or self.cluster.kubeconfig), "--metrics-addr", "127.0.0.1:0",
            "--lease-namespace", OWN_NAMESPACE, "--lease-duration", f"{lease_s:g}s", "--verbose", *arguments,
        )  # fmt: skip

    def run_to_end(
        self, *arguments: str, kubeconfig: Path | None = None, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """A controller that ends by itself, or cannot begin."""
        return self._ended(self.run_command(*arguments, kubeconfig=kubeconfig), timeout_s=timeout_s)

    def stop(self, name: str = "controller") -> int:
        """SIGTERM; its exit code."""
        self.running.discard(name)
        return self.processes.stop(name, ending_s=30)

    def kill(self, name: str = "controller") -> None:
        self.running.discard(name)
        self.processes.kill(name)

    def tidemill(self, *arguments: str, code: int | None = 0, env: Mapping[str, str] | None = None) -> str:
        """Another verb, to its end: what it printed. It knows the ledger and the cluster."""
        done = self._ended((*TIDEMILL, *arguments), env=env)
        assert code is None or done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def _ended(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        known = {"TIDEMILL_LEDGER": self.ledger, "KUBECONFIG": str(self.cluster.kubeconfig)}
        return subprocess.run(
            command, env={**(env or self.environment), **known}, capture_output=True, text=True, check=False,
            timeout=timeout_s,
        )  # fmt: skip

    def controller(self, name: str = "controller") -> Controller:
        return Controller(name, self.processes)

    def log(self, name: str = "controller") -> str:
        return self.controller(name).log()

    def buy(self, count: int, ends: str, pool: str = "gpu") -> str:
        """A block that a person bought by hand, and adopted: its id."""
        block = self.account.purchase(count, ends)
        # EC2 lists a block some minutes after its purchase, by a clock that must run.
        eventually(lambda: self.account.is_listed(block), timeout_s=60, what=f"{block} is listed")
        self.adopt(block, pool)
        return block

    def adopt(self, block: str, pool: str = "gpu") -> None:
        self.tidemill("adopt", block, "--pool", pool, "--yes", "--aws", "-f", str(self.files))

    # --- the cluster, from outside ------------------------------------------------------------------

    def api(self) -> Api:
        return self.cluster.admin()

    def create(self, namespace: str, *objects: Mapping[str, Any]) -> None:
        create(self.api(), namespace, *objects)

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        return self.api().items(f"/api/v1/namespaces/{namespace}/pods")

    def nodes(self) -> list[dict[str, Any]]:
        return self.api().items("/api/v1/nodes")

    def job(self, namespace: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api().get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
        return found

    def is_complete(self, namespace: str, job: str) -> bool:
        return job_is_complete(self.api(), namespace, job)

    def open_nodes(self, source: str = "") -> list[dict[str, Any]]:
        """Nodes of a source that take pods: Ready, and neither starting nor draining."""
        return [
            node
            for node in self.nodes()
            if source in ("", node["metadata"]["labels"][names.LABEL_SOURCE])
            and condition(node["status"].get("conditions"), "Ready") == "True"
            and not taints(node) & {names.TAINT_STARTUP, names.TAINT_DRAINING}
        ]

    def source_of(self, pod: Mapping[str, Any]) -> str:
        node = self.api().get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
        return str(node["metadata"]["labels"][names.LABEL_SOURCE])

    def sources_of(self, namespace: str, job: str) -> set[str]:
        """Where the pods of a Job were pinned."""
        pods = self.api().items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"job-name={job}")
        return {pod["spec"]["nodeSelector"][names.LABEL_SOURCE] for pod in pods}

    def sources_running(self, namespace: str) -> set[str]:
        """Of the nodes whose pods run."""
        running = [pod for pod in self.pods(namespace) if pod["status"]["phase"] == "Running"]
        return {self.source_of(pod) for pod in running if "deletionTimestamp" not in pod["metadata"]}

    def eventually(self, look: Callable[[], Any], what: str, *, timeout_s: float = 60.0) -> Any:
        """As `controlplane.api.eventually`, but a controller that ended fails at once."""

        def alive() -> Any:
            for name in self.running - {name for name in self.running if self.processes.alive(name)}:
                raise AssertionError(f"{name} ended: {self.processes.tail(name, 40)}")
            return look()

        try:
            return eventually(alive, timeout_s=timeout_s, every_s=0.2, what=what)
        except TimeoutError as error:
            raise AssertionError(f"{error}; it is {self.account.now()} there\n{self.log()[-3000:]}") from None
