"""NVIDIA's own chart, as its Go module ships it, with our values: rendered, and accepted by a real API server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.build import CannotBuild, find_go
from tests.cluster.programs import Kubectl
from tests.deploy.helm import helm
from tests.render.device_pools import cluster
from tidemill.render.device_plugins import NVIDIA_VERSION, device_plugins

MODULE = f"github.com/NVIDIA/k8s-device-plugin@v{NVIDIA_VERSION}"
HOW_TO_GET_IT = f"no chart of NVIDIA's device plugin: go mod download {MODULE}"


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From the module cache, or the module proxy."""
    try:
        go = find_go()
        done = subprocess.run(
            (str(go.binary), "mod", "download", "-json", MODULE),
            capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path_factory.mktemp("module"),
            env={**os.environ, "GOTOOLCHAIN": go.toolchain},
        )  # fmt: skip
        told = json.loads(done.stdout) if done.returncode == 0 else {}
    except (CannotBuild, OSError, subprocess.TimeoutExpired):
        told = {}
    if "Dir" not in told:
        if os.environ.get("TIDEMILL_REQUIRE_ALL") == "1":
            pytest.fail(HOW_TO_GET_IT)
        pytest.skip(HOW_TO_GET_IT)
    return Path(told["Dir"]) / "deployments" / "helm" / "nvidia-device-plugin"


@pytest.mark.requirement("PE-12", "TR-6", "TR-7")
def test_nvidias_chart_with_our_values_is_what_we_mean(chart: Path, kubectl: Kubectl, tmp_path: Path) -> None:
    (plugin,) = [each for each in device_plugins(cluster()) if each.name == "nvidia-device-plugin"]
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(dict(plugin.values)))
    where = ("--namespace", plugin.namespace)
    text = helm("template", plugin.name, str(chart), *where, "-f", str(values), "--kube-version", "1.36.0")
    objects: list[dict[str, Any]] = [each for each in yaml.safe_load_all(text) if each]
    daemons = [
        each for each in objects if each["kind"] == "DaemonSet" and "mps" not in each["metadata"]["name"]
    ]
    (daemon,) = daemons
    pod = daemon["spec"]["template"]["spec"]
    assert pod["affinity"] == plugin.values["affinity"]
    assert pod["tolerations"] == plugin.values["tolerations"]
    environment = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert environment["MOFED_ENABLED"] == "false"
    kubectl("create", "namespace", plugin.namespace)
    for each in objects:
        kubectl(
            "apply", "--server-side", "--dry-run=server", "--validate=strict", *where, "-f", "-",
            stdin=yaml.safe_dump(each),
        )  # fmt: skip
