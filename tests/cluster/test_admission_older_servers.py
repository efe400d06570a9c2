"""An API server of Kubernetes 1.34, as 1.37 emulates it: no policies, and Jobs that open less easily."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.api import ApiError, eventually
from controlplane.components import API_SERVER, COMPONENTS, CONTROLLER_MANAGER, SCHEDULER, Options
from controlplane.start import ControlPlane
from tests.cluster.admission_ways import created, path_of, wait_until_held, webhook_serving
from tests.cluster.kube_stage import KubeStage
from tests.kube.admission import objects
from tests.kube.admission.objects import MANAGED
from tidemill.cli import main
from tidemill.kube.api import Call
from tidemill.model.errors import Retryable
from tidemill.spec import names

AS_BEFORE = ("--emulated-version=1.34",)
FIRST, SECOND = "cr-0aaaaaaaaaaaaaaa1", "cr-0aaaaaaaaaaaaaaa2"


@pytest.fixture(scope="module")
def older_server(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    components = [each for each in COMPONENTS if each != SCHEDULER]
    arguments = dict.fromkeys((API_SERVER, CONTROLLER_MANAGER), AS_BEFORE)
    folder = tmp_path_factory.mktemp("older")
    with ControlPlane(folder, Options(components=components, arguments=arguments)) as plane:
        eventually(
            lambda: plane.admin().get("/api/v1/namespaces/default/serviceaccounts/default"), what="ready"
        )
        yield plane


@pytest.fixture
def older(older_server: ControlPlane) -> Iterator[KubeStage]:
    with closing(KubeStage(older_server, "default")) as stage:
        yield stage


@pytest.mark.requirement("PE-17")
def test_a_gang_that_ran_is_admitted_to_another_source_on_an_older_server(older: KubeStage) -> None:
    job = path_of("Job", "default", older.job("gang", pods=2, gang=True).rpartition("/")[2])

    def pinned_to() -> list[str]:
        pods = older.api.items(path_of("Pod", "default"))
        live = [pod["spec"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return [spec.get("nodeSelector", {}).get(names.LABEL_SOURCE, "") for spec in live]

    def shown() -> list[str]:
        return [pod.uid for pod in older.cluster.view().pods if pod.gated]

    older.until(lambda: len(shown()) == 2, "the pods of the held Job are shown")
    older.cluster.admit(shown(), FIRST, None)
    older.until(lambda: pinned_to() == [FIRST, FIRST], "it runs on the first source")
    older.until(lambda: older.api.get(job)["status"].get("active") == 2, "its controller has counted them")
    live = older.until(
        lambda: [p for p in older.cluster.view().pods if "." not in p.uid], "its pods are seen"
    )
    older.cluster.delete(live[0].uid, 0, disruption=True)
    older.until(lambda: len(shown()) == 2 and not pinned_to(), "the whole gang is held again")

    closed = {"spec": {"template": {"spec": {"nodeSelector": {names.LABEL_SOURCE: SECOND}}}}}
    with pytest.raises(ApiError, match="immutable"):  # so it is an older server
        older.api.patch(job, closed)
    older.until(lambda: admitted(older, shown()), "it is admitted once it has stopped")
    older.until(lambda: pinned_to() == [SECOND, SECOND], "it runs on the second source")
    assert Call("patch", "batch", "jobs", "status") in older.kube_api.calls
    assert not older.api.get(job)["status"].get("failed")


def test_there_the_webhook_holds_and_policies_are_refused(
    older_server: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api, kube = older_server.admin(), ("--kubeconfig", str(older_server.kubeconfig))
    assert api.get("/version")["emulationMinor"] == "34"
    assert main(["admission", "install", *kube]) == 2
    assert "add --service or --webhook" in capsys.readouterr().err
    api.create("/api/v1/namespaces", {"metadata": {"name": "ours", "labels": {MANAGED: "true"}}})
    with webhook_serving(tmp_path) as (url, _):
        assert (
            main(["admission", "install", *kube, "--webhook", url, "--ca-file", str(tmp_path / "server.crt")])
            == 0
        )
        wait_until_held(api, "ours")
        capsys.readouterr()
        assert main(["admission", "status", *kube, "--json"]) == 0
        status = json.loads(capsys.readouterr().out)
        assert (status["serves_policies"], status["installed"], status["outdated"]) == (
            False,
            ["webhook"],
            [],
        )
    assert main(["admission", "uninstall", *kube]) == 0
    eventually(
        lambda: not created(api, objects.job(), "ours", dryRun="All")["spec"]["suspend"], what="held no more"
    )


def admitted(stage: KubeStage, pods: list[str]) -> bool:
    try:
        stage.cluster.admit(pods, SECOND, None)
    except Retryable:
        return False
    return True
