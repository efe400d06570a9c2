"""Programs that tests of the real tier run: kubectl, and the simulated AWS as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controlplane.api import eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane

TIDEMILL = (sys.executable, "-m", "tidemill")


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`kubectl("get", "pods")` is what it printed; a refusal is an AssertionError with its message.

    `fails`: it must fail, and what it complained of is returned; None: it may.
    """

    binary: Path
    kubeconfig: Path

    def __call__(self, *arguments: str, stdin: str = "", fails: bool | None = False) -> str:
        done = subprocess.run(
            (str(self.binary), "--kubeconfig", str(self.kubeconfig), *arguments),
            input=stdin, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert fails in (None, done.returncode != 0), (
            f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        )
        return done.stderr if fails else done.stdout

    def apply(self, *objects: Mapping[str, Any], namespace: str = "") -> str:
        where = ("-n", namespace) if namespace else ()
        return self("apply", "--server-side", *where, "-f", "-", stdin=yaml.safe_dump_all(objects))

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def as_user(self, kubeconfig: Path) -> Kubectl:
        return Kubectl(self.binary, kubeconfig)


@dataclass(frozen=True, slots=True)
class SimulatedAws:
    """`tidemill sim aws` in a process of its own: `endpoint`, and `environment` for whoever calls it."""

    name: str
    processes: Processes
    told: Mapping[str, Any]  # what it printed: endpoint, region, subnets, environment, now, speed

    @classmethod
    def start(
        cls, processes: Processes, name: str, plane: ControlPlane | None, arguments: Sequence[str]
    ) -> SimulatedAws:
        """`plane`: which its instances join as nodes; None: they boot and join nothing."""
        kube: tuple[str, ...] = ()
        if plane is not None:
            token, ca = str(plane.token_file), str(plane.ca)
            kube = ("--kube-api", plane.server, "--kube-token-file", token, "--kube-ca", ca)
        command = (*TIDEMILL, "sim", "aws", "--port", "0", "--json", *kube, *arguments)
        processes.start(name, command, env=clean_environment())
        log = processes.logs / f"{name}.log"

        def printed() -> Any:
            assert processes.alive(name), f"tidemill sim aws ended: {processes.tail(name)}"
            lines = [line for line in log.read_text().splitlines() if line.startswith('{"endpoint"')]
            return json.loads(lines[0]) if lines else None

        return cls(name, processes, eventually(printed, timeout_s=60, what="tidemill sim aws serves"))

    @property
    def endpoint(self) -> str:
        return str(self.told["endpoint"])

    @property
    def environment(self) -> dict[str, str]:
        """For a process that calls it: this account and nothing of the machine's own."""
        return {**clean_environment(), **self.told["environment"]}


def clean_environment() -> dict[str, str]:
    """Ours, without what would lead a program to another account, another cluster or other documents."""
    strange = ("AWS_", "TIDEMILL_", "KUBE")
    return {name: value for name, value in os.environ.items() if not name.startswith(strange)}
