"""The documents as objects of the cluster: what the API server refuses, what the engine makes of the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.vopr.generate import generate
from controlplane.api import Api, eventually
from controlplane.start import ControlPlane
from tests.cluster.documents import by_the_hour, platform, pool, whole
from tests.cluster.objects import create, job, job_is_complete
from tests.cluster.programs import Kubectl
from tests.cluster.stage import OWN_NAMESPACE, Stage
from tidemill.kube.own_objects import DOCUMENTS
from tidemill.spec.crds import GROUP, definitions
from tidemill.spec.read import load, load_objects

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
BAD_FOLDER = ROOT / "examples" / "bad"
BAD = sorted(BAD_FOLDER.glob("*.yaml"))


class _TextInstants(yaml.SafeLoader):
    """As kubectl reads YAML: instants stay text."""


_TextInstants.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents_of(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.load_all(text, _TextInstants) if one and one["kind"] in DOCUMENTS]


@pytest.fixture
def kinds(cluster: ControlPlane, kubectl: Kubectl) -> None:
    kubectl.apply(*definitions())
    for each in definitions():
        kubectl("wait", "--for=condition=Established", "crd", each["metadata"]["name"], "--timeout=30s")


def refused(api: Api, document: dict[str, Any]) -> str:
    """What the API server says of it with strict field validation, without creating it; empty: it would be created."""
    plural = {each["spec"]["names"]["kind"]: each["spec"]["names"]["plural"] for each in definitions()}
    path = f"/apis/{GROUP}/v1alpha1/{plural[document['kind']]}"
    try:
        api.call("POST", path, document, params={"dryRun": "All", "fieldValidation": "Strict"})
    except Exception as error:
        return str(error)
    return ""


def test_every_example_is_taken_by_the_api_server(kinds: None, api: Api):
    for file in EXAMPLES:
        for document in documents_of(file.read_text()):
            assert refused(api, document) == "", (file.name, document["metadata"])


def test_what_the_reader_accepts_the_api_server_accepts(kinds: None, api: Api):
    """Platforms that nobody wrote."""
    taken = 0
    for seed in range(120):
        things = [one for one in generate(seed) if one["kind"] in DOCUMENTS]
        if load_objects(things).errors:
            continue
        for document in things:
            assert refused(api, document) == "", (seed, document)
            taken += 1
    assert taken > 300


# Which of the wrong examples the API server itself refuses, and which only the status can tell of: those need the other
# documents or the catalog. The rest are about a Scenario, which is no object of a cluster, or about the text of a file,
# which kubectl refuses before it sends anything.
REFUSED = {
    "missing-key": "region",
    "negative-limit": "limits.cpu",
    "overflow-without-cap": "overflow by the hour has no cap: set 'maxHourlyUsd' and 'maxMonthlyUsd'",
    "too-many-instances": "EC2 sells at most 64 instances in one block",
    "unknown-key": "instanceFamilys",
}
IN_STATUS = ("missing-node-class", "pool-without-limits", "unknown-instance-type")
OF_SCENARIOS = (
    "block-of-180-days",
    "dangling-names",
    "never-reached",
    "unplayable-jobs",
    "wrong-units",
    "zone-without-subnets",
)
OF_THE_TEXT = ("bare-words", "duplicate-key", "syntax", "unknown-kind")


def test_every_bad_example_is_refused_or_told_in_the_words_of_validate(kinds: None, api: Api):
    assert sorted((*REFUSED, *IN_STATUS, *OF_SCENARIOS, *OF_THE_TEXT)) == [file.stem for file in BAD]
    for name, why in REFUSED.items():
        answers = [refused(api, thing) for thing in documents_of((BAD_FOLDER / f"{name}.yaml").read_text())]
        assert any(why in answer for answer in answers), (name, answers)
    for name in IN_STATUS:
        file = BAD_FOLDER / f"{name}.yaml"
        things = documents_of(file.read_text())
        assert not any(refused(api, thing) for thing in things), name
        of_objects = {problem.message for problem in load_objects(things).problems}
        assert of_objects == {problem.message for problem in load([file]).problems}, name


def train() -> dict[str, Any]:
    return by_the_hour("train", limits={"nodes": 4})


@pytest.mark.requirement("PE-21")
def test_an_engine_works_by_the_objects_and_says_in_their_status_what_it_knows(
    kinds: None, stage: Callable[..., Stage], api: Api, namespace: str, kubectl: Kubectl
):
    scene = stage(train(), speed=60, admission=False)
    kubectl("apply", "-f", "-", stdin=scene.tidemill("rbac", "controller", "--json"))
    kubectl("apply", "-f", "-", stdin=scene.tidemill("rbac", "documents", "--json"))
    config = scene.cluster.service_account(OWN_NAMESPACE, "tidemill-controller")
    controller = scene.run("run", "--from-cluster", kubeconfig=config)
    controller.wait_for("waiting for what is away")  # there is no Platform yet
    kubectl.apply(*whole([train()], scene.cluster.server))
    controller.wait_for("this process leads")
    create(api, namespace, job("train", parallelism=2, gpus=2, lasts="30m"))

    def shown() -> Any:
        told = kubectl.json("get", "computepool", "train").get("status", {})
        return told if told.get("gpusUsed") == 4 else None

    told = eventually(shown, timeout_s=120, what="the status shows the Job's GPUs")
    assert told["gpus"] == "4/4"
    assert told["nodes"]["ready"] == 1
    assert [(one["type"], one["status"]) for one in told["conditions"]] == [("Accepted", "True")]
    lines = kubectl("get", "computepools").splitlines()
    assert lines[0].split()[:2] == ["NAME", "GPUS"]
    assert lines[1].split()[:2] == ["train", "4/4"]
    assert "does not allow" not in controller.log()

    # A version that refers to nothing: told, and the last good one stays while others' changes are taken.
    wrong = train()
    wrong["spec"]["nodeClassName"] = "nope"
    kubectl.apply(wrong)

    def accepted(kind: str, name: str) -> dict[str, Any]:
        conditions = kubectl.json("get", kind, name)["status"]["conditions"]
        return next(one for one in conditions if one["type"] == "Accepted")

    eventually(lambda: accepted("computepool", "train")["status"] == "False", what="it is told")
    condition = accepted("computepool", "train")
    assert condition["message"] == "no NodeClass is named 'nope'; valid: gpu; the last good version is used"
    assert condition["observedGeneration"] == 2
    events = kubectl("get", "events", "-A")
    assert "Invalid" in events
    assert "computepool/train" in events
    richer = platform(scene.cluster.server, budget={"monthlyUsd": 123})
    kubectl.apply(richer)
    eventually(
        lambda: kubectl.json("get", "platform", "real")["status"].get("budgetUsd") == 123, what="taken"
    )
    kubectl.apply(train())
    eventually(lambda: accepted("computepool", "train")["status"] == "True", what="it is right again")
    eventually(lambda: job_is_complete(api, namespace, "train"), timeout_s=180, what="the Job completes")


@pytest.mark.requirement("PE-21")
def test_blocks_are_objects_too(kinds: None, stage: Callable[..., Stage], kubectl: Kubectl):
    scene = stage(pool("gpu"), speed=60, admission=False)
    block = scene.buy(2, ends="2026-11-18T11:30:00Z")
    kubectl.apply(*whole([pool("gpu")], scene.cluster.server))
    scene.run("run", "--from-cluster").wait_for("this process leads")

    def shown() -> Any:
        found = json.loads(kubectl("get", "capacityblocks", "-o", "json"))["items"]
        return found[0] if found and found[0].get("status") else None

    told = eventually(shown, timeout_s=60, what="the block is an object")
    assert told["metadata"]["name"] == told["spec"]["reservationId"] == block
    assert told["status"]["count"] == 2
    assert told["status"]["pool"] == "gpu"
    assert block in kubectl("get", "tmblock")
