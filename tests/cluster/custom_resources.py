"""The CRDs of JobSet, PyTorchJob and others as their projects publish them, from their Go modules."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import Api, eventually
from controlplane.build import CannotBuild, find_go

PUBLISHED = {
    "jobsets": ("sigs.k8s.io/jobset@v0.12.0", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    "pytorchjobs": (
        "github.com/kubeflow/training-operator@v1.9.2",
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    ),
}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define_custom_resources(api: Api) -> None:
    """Create both CRDs and wait until they are served. Without Go, or without its modules, the test is skipped."""
    for plural in PUBLISHED:
        define(api, yaml.safe_load(published_file(*PUBLISHED[plural]).read_text()))


def define(api: Api, definition: dict[str, Any]) -> None:
    """Create one CRD, and wait until it is served."""
    definition.pop("status", None)
    api.create(_DEFINITIONS, definition)
    group, version = definition["spec"]["group"], definition["spec"]["versions"][0]["name"]
    plural = definition["spec"]["names"]["plural"]
    eventually(partial(_is_served, api, f"/apis/{group}/{version}/{plural}"), what=f"{plural} are served")


def _is_served(api: Api, path: str) -> bool:
    return "items" in api.get(path)


def published_file(module: str, file: str) -> Path:
    """A file of a Go module. Without Go, or without the module, the test is skipped."""
    try:
        go = find_go()
    except CannotBuild as error:
        return _missing(str(error))
    with tempfile.TemporaryDirectory() as empty:
        answer = subprocess.run(
            (go.binary, "mod", "download", "-json", module), cwd=empty, capture_output=True, text=True, check=False,
            timeout=300, env=os.environ | {"GOTOOLCHAIN": go.toolchain, "GOWORK": "off", "GOFLAGS": ""},
        )  # fmt: skip
    if answer.returncode:
        return _missing(f"{module}: {answer.stdout} {answer.stderr}")
    return Path(json.loads(answer.stdout)["Dir"]) / file


def _missing(why: str) -> Path:
    told = f"CRDs that other projects publish cannot be had: {why}"
    if os.environ.get("TIDEMILL_REQUIRE_ALL") == "1":
        pytest.fail(told, pytrace=False)
    pytest.skip(told)
