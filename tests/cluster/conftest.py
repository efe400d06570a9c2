"""The real tier: a control plane for each worker, an empty cluster for each test.

Every test in this folder has the marker `cluster`: `make test-cluster` runs them. Without Go they are skipped with the
line that says how to get it; where nothing may be skipped (TIDEMILL_REQUIRE_ALL=1) they fail with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import Api, eventually
from controlplane.build import CannotBuild, build, find_go
from controlplane.build import binaries as built
from controlplane.clean import clean
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.programs import Kubectl, SimulatedAws
from tests.cluster.stage import Stage
from tidemill.spec import names


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("cluster")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Here and not in a fixture: skipped in one place, all of them are one line of the summary."""
    if missing := _missing():
        if os.environ.get("TIDEMILL_REQUIRE_ALL") == "1":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)


@cache
def _missing() -> str:
    """Why there is no control plane and none can be built."""
    try:
        if built() is None:
            find_go()
    except CannotBuild as error:
        return f"`make test-cluster` builds a real control plane, once: {error}"
    return ""


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The folder with etcd, kube-apiserver and the others."""
    return build()


@pytest.fixture(scope="session")
def control_plane(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One for all tests of a worker. Ask for `cluster`, which is empty; pytest keeps the logs of the last runs."""
    folder = tmp_path_factory.mktemp("controlplane")
    try:
        with ControlPlane(folder) as plane:
            yield plane
    finally:
        shutil.rmtree(folder / "etcd", ignore_errors=True)


@pytest.fixture
def cluster(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with nothing in it: what an earlier test left is deleted, what it stopped runs again."""
    for component in control_plane.processes.pids():
        if control_plane.processes.alive(component):
            control_plane.processes.resume(component)
        else:
            control_plane.processes.start_again(component)
            control_plane.wait_for(component)
    clean(control_plane.admin())
    return control_plane


@pytest.fixture
def api(cluster: ControlPlane) -> Api:
    """An administrator's client that shares nothing with the adapter: for a test to look from outside."""
    return cluster.admin()


@pytest.fixture
def make_namespace(api: Api) -> Callable[..., str]:
    """A namespace with a name that was never used, and these labels; it takes pods when this returns."""

    def make(name: str = "", **labels: str) -> str:
        name = name or f"test-{secrets.token_hex(4)}"
        api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        # After the API server was away kube-controller-manager backs off for up to a minute.
        eventually(lambda: api.get(account), timeout_s=120, what=f"{name} has a ServiceAccount")
        return name

    return make


@pytest.fixture
def namespace(make_namespace: Callable[..., str]) -> str:
    return make_namespace()


@pytest.fixture
def kubectl(cluster: ControlPlane) -> Kubectl:
    return Kubectl(cluster.binaries / "kubectl", cluster.kubeconfig)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes of this test, by name; their output is in `<tmp_path>/log`. They end with it."""
    with contextlib.closing(Processes(tmp_path / "log")) as started:
        yield started


@pytest.fixture
def sim_aws(cluster: ControlPlane, processes: Processes) -> Callable[..., SimulatedAws]:
    """Starts `tidemill sim aws` whose instances join this cluster; the arguments are added to its command line."""

    def start(*arguments: str, name: str = "sim-aws") -> SimulatedAws:
        return SimulatedAws.start(processes, name, cluster, arguments)

    return start


@pytest.fixture
def stage(cluster: ControlPlane, processes: Processes, tmp_path: Path) -> Callable[..., Stage]:
    """Opens a deployment: documents, and the options of `Stage.open`."""

    def make(*documents: dict[str, Any], **options: Any) -> Stage:
        return Stage.open(cluster, processes, tmp_path, documents, **options)

    return make


@pytest.fixture
def ours(make_namespace: Callable[..., str]) -> str:
    """A namespace whose workloads Tidemill holds."""
    return make_namespace(**{names.MANAGED: "true"})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure says where the logs of the control plane are, and which of its components had ended."""
    report = yield
    plane: Any = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and isinstance(plane, ControlPlane):
        lines = [f"logs: {plane.processes.logs}"]
        lines += [f"{name} had ended:\n{plane.processes.tail(name)}" for name in plane.processes.ended()]
        report.sections.append(("control plane", "\n".join(lines)))
    return report
