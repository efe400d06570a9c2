"""What a kubelet would do for the pods of the chart: run their command lines, on this machine.

kube-scheduler binds them to a node whose kubelet only reports them as running. So each container's own command and
arguments are started as a process here, with its environment, its volumes as folders, and a token of its pod's
ServiceAccount: roles and arguments of the chart are what is proved. Two things differ: the port of the metrics is any
free one, and AWS is the simulated account.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.api import Api, eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.controller import Controller
from tests.deploy.helm import CHART, HELM

NAMESPACE = "tidemill-system"
_ENTRY_POINTS = {"tidemill": (sys.executable, "-m", "tidemill")}


@dataclass
class Helm:
    """`helm` on the cluster."""

    kubeconfig: Path

    def command(self, verb: str, *arguments: str) -> tuple[str, ...]:
        return (
            str(HELM), verb, "tidemill", *arguments, "--namespace", NAMESPACE, "--kubeconfig", str(self.kubeconfig),
        )  # fmt: skip

    def __call__(self, verb: str, *arguments: str) -> str:
        done = subprocess.run(
            self.command(verb, *arguments), capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"helm {verb}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, *arguments: str) -> str:
        return self("install", str(CHART), "--create-namespace", *arguments)

    def upgrade(self, *arguments: str) -> str:
        return self("upgrade", str(CHART), *arguments)


@dataclass
class ChartPods:
    """The pods of the release that run here, by name."""

    cluster: ControlPlane
    processes: Processes
    folder: Path
    environment: Mapping[str, str]
    running: dict[str, str] = field(default_factory=dict)  # uid -> name of the process

    @property
    def api(self) -> Api:
        return self.cluster.admin()

    def claim(self, name: str) -> Path:
        """The folder of a PersistentVolumeClaim: it outlives pods."""
        path = self.folder / "claims" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def provide_volume(self) -> None:
        """For the one claim of the chart; there is no provisioner here."""
        spec = {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(self.claim("tidemill-ledger"))},
        }  # fmt: skip
        self.api.create("/api/v1/persistentvolumes", {"metadata": {"name": "ledger"}, "spec": spec})

    def pods(self, app: str) -> list[dict[str, Any]]:
        return self.api.items(
            f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"app.kubernetes.io/name={app}"
        )

    def sync(self, app: str) -> list[str]:
        """Start pods of the app that are new and bound, stop those that are to go: names of the processes that run."""
        found = {
            pod["metadata"]["uid"]: pod
            for pod in self.pods(app)
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        }
        for uid in [uid for uid, name in self.running.items() if name.startswith(app) and uid not in found]:
            self.processes.stop(self.running.pop(uid), ending_s=60)
        for uid, pod in found.items():
            if uid not in self.running:
                (container,) = pod["spec"]["containers"]
                command, environment = self._translated(pod, container)
                self.processes.start(pod["metadata"]["name"], command, env=environment)
                self.running[uid] = pod["metadata"]["name"]
        return [name for name in self.running.values() if name.startswith(app)]

    def controller(self, app: str = "tidemill-controller", *, count: int = 1) -> Controller:
        """The process of a Deployment that has begun to run all its pods."""

        def all_run() -> list[str]:
            names = self.sync(app)
            return names if len(names) == count else []

        names = eventually(all_run, timeout_s=180, what=f"{app} runs")
        return Controller(sorted(names)[-1], self.processes)

    def run_to_end(self, app: str) -> None:
        """The containers of a Job's pod, one after the other, each as its pod; then the pod has succeeded."""
        (pod,) = eventually(lambda: self.pods(app), timeout_s=60, what=f"{app} has a pod")
        eventually(lambda: self.pods(app)[0]["spec"].get("nodeName"), what=f"{app} is bound")
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            command, environment = self._translated(pod, container)
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0, f"{container['name']}: {done.stdout}{done.stderr}"
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
        self.api.patch(path, {"status": {"phase": "Succeeded"}})

    def _translated(
        self, pod: Mapping[str, Any], container: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        folders = self._folders(pod, container)
        words = [*container["command"][1:], *container["args"]]
        if "--metrics-addr" in words:
            words[words.index("--metrics-addr") + 1] = "127.0.0.1:0"
        for inside, outside in folders.items():
            words = [word.replace(inside, str(outside)) for word in words]
        given = {each["name"]: each["value"] for each in container.get("env", ())}
        kubeconfig = self._kubeconfig(pod)
        return (
            (*_ENTRY_POINTS[container["command"][0]], *words),
            {**self.environment, **given, "KUBECONFIG": str(kubeconfig)},
        )

    def _kubeconfig(self, pod: Mapping[str, Any]) -> Path:
        meta = pod["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        asked = {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
        account = pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        return self.cluster.kubeconfig_with_token(self.api.create(path, asked)["status"]["token"])

    def _folders(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, Path]:
        """Folders here, by where the container mounts them. Its token is not one of them."""
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        found: dict[str, Path] = {}
        for mount in container.get("volumeMounts", ()):
            if mount["mountPath"].startswith("/var/run/secrets/") or mount["mountPath"] == "/tmp":
                continue
            found[mount["mountPath"]] = self._folder(pod, volumes[mount["name"]])
        return found

    def _folder(self, pod: Mapping[str, Any], volume: Mapping[str, Any]) -> Path:
        if "persistentVolumeClaim" in volume:
            return self.claim(volume["persistentVolumeClaim"]["claimName"])
        path: Path = self.folder / pod["metadata"]["name"] / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        root = f"/api/v1/namespaces/{NAMESPACE}"
        if "configMap" in volume:
            for name, text in self.api.get(f"{root}/configmaps/{volume['configMap']['name']}")[
                "data"
            ].items():
                (path / name).write_text(text)
        elif "secret" in volume:
            data = self.api.get(f"{root}/secrets/{volume['secret']['secretName']}")["data"]
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in data]
            for item in items:
                (path / item["path"]).write_bytes(base64.b64decode(data[item["key"]]))
        return path
