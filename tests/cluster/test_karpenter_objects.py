"""Every kind of object that we render for Karpenter, taken by Karpenter's own CRDs with strict field validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import Api
from tests.cluster.documents import NODE_CLASS, document, platform, pool
from tests.cluster.peers import define_karpenters_objects
from tests.cluster.programs import Kubectl
from tidemill.cli import main

BLOCKS, PIN = [{"type": "block"}], "cr-0123456789abcdef0"
OVERFLOW = {"maxHourlyUsd": 100, "maxMonthlyUsd": 1000}
SPOT, ON_DEMAND = {"type": "spot", **OVERFLOW}, {"type": "on-demand", **OVERFLOW}
STATIC = {"version": "1.11.0", "staticCapacity": True}
RICH = document(
    "NodeClass", "gpu", amiSelectorTerms=[{"alias": "bottlerocket@v1.50.0"}], maxPods=50,
    instanceStorePolicy="RAID0", userData="[settings.kernel]\nlockdown = 'none'\n",
    blockDeviceMappings=[{"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "100Gi", "volumeType": "gp3"}}],
)  # fmt: skip
EFA = document("NodeClass", "gpu", amiSelectorTerms=[{"alias": "al2023@v20261101"}], efa=True)


class Rendering:
    """`tidemill render karpenter`: what it prints, and what it warns of."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._file, self._capsys = folder / "platform.yaml", capsys

    def __call__(self, documents: list[dict[str, Any]], *options: str) -> tuple[str, str]:
        self._file.write_text(yaml.safe_dump_all(documents))
        code = main(["render", "karpenter", str(self._file), *options])
        said = self._capsys.readouterr()
        assert code == 0, said.err
        return said.out, said.err


def karpenter(version: dict[str, Any], node_class: dict[str, Any] = NODE_CLASS, **more: Any) -> list[Any]:
    return [platform(karpenter=version), node_class, pool(provisioner="karpenter", **more)]


CASES = {
    "by tag": (karpenter({"version": "1.14.1"}), ()),
    "by id": (karpenter({"version": "1.14.1"}), ("--reservation", PIN)),
    "pinned": (karpenter({"version": "1.14.1"}, sources=[{"type": "block", "ids": [PIN]}]), ()),
    "with fall-backs": (
        karpenter({"version": "1.8.2"}, sources=[*BLOCKS, SPOT, ON_DEMAND]),
        (),
    ),
    "reserved on demand": (karpenter({"version": "1.6.1"}, sources=[{"type": "odcr"}]), ()),
    "warm": (karpenter({"version": "1.8.2", "staticCapacity": True}, warm=True), ()),
    "warm with EFA": (karpenter(STATIC, EFA, warm=2), ()),
    "a rich node class": (karpenter({"version": "1.14.1"}, RICH, startupTaints=[{"key": "a/agent-not-ready"}]), ()),
    "without an engine": (karpenter({"version": "1.14.1"}), ("--no-engine",)),
    "disruption": (
        karpenter(
            {"version": "1.14.1"},
            disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "2d",
                        "budgets": [{"nodes": "10%", "schedule": "0 9 * * *", "duration": "8h"}]},
            sources=[{"type": "on-demand"}], requirements={"instanceCategories": ["g"], "minGeneration": 5},
        ),
        (),
    ),
}  # fmt: skip


@pytest.mark.requirement("KP-1", "KP-2", "KP-4", "KP-7", "KP-8", "KP-9")
def test_the_crds_of_karpenter_take_all_that_we_render(
    api: Api, kubectl: Kubectl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    define_karpenters_objects(api)
    rendered = Rendering(tmp_path, capsys)
    taken: dict[str, list[Any]] = {}
    for name, (documents, options) in CASES.items():
        text, warned = rendered(documents, *options)
        strictly = (
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-o",
            "json",
            "-f",
            "-",
        )
        answer = kubectl(*strictly, stdin=text)
        taken[name] = list(concatenated(answer))
        kinds = [one["kind"] for one in taken[name]]
        assert {"EC2NodeClass", "NodePool"} == set(kinds), name
        assert ("TR-3" in warned or "pinned" in warned or PIN in warned) == (name in ("by id", "pinned")), (
            warned
        )
    weights = {one["metadata"]["name"]: one["spec"].get("weight") for one in pools(taken["with fall-backs"])}
    assert weights["gpu"] > weights["gpu-spot"] > weights["gpu-on-demand"]
    assert [one["spec"]["replicas"] for one in pools(taken["warm"])] == [8]
    (efa,) = [one for one in taken["warm with EFA"] if one["kind"] == "EC2NodeClass"]
    assert sum(card["interfaceType"] == "efa-only" for card in efa["spec"]["networkInterfaces"]) == 32
    (blocks,) = pools(taken["by tag"])
    assert blocks["spec"]["disruption"]["consolidateAfter"] == "Never"
    assert blocks["spec"]["template"]["spec"]["terminationGracePeriod"] == "10m"
    text, _ = rendered(CASES["by tag"][0])
    wrong = text.replace("consolidateAfter:", "consolidateAftr:")
    assert "consolidateAftr" in kubectl(*strictly, stdin=wrong, fails=True), "validation is strict"


def pools(objects: list[Any]) -> list[Any]:
    return [one for one in objects if one["kind"] == "NodePool"]


def concatenated(text: str) -> Any:
    """kubectl prints one object after the other, or a List."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        found, at = decoder.raw_decode(text, at)
        yield from found["items"] if found["kind"] == "List" else [found]
        at += len(text[at:]) - len(text[at:].lstrip())
