"""Traps that documents show: each is reported by its id, with its position and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, PLATFORM, joined, messages, plan, pool, window
from tidemill.spec.read import load

KARPENTER = pool("provisioner: karpenter", "sources: [{type: block}]")


def platform(*lines: str) -> str:
    return PLATFORM + "".join(f"  {line}\n" for line in lines)


def codes(loaded):
    return [(each.code, each.severity) for each in loaded.problems]


@pytest.mark.requirement("KP-5")
def test_refuses_a_karpenter_version_without_block_support(read: Reader) -> None:
    (problem,) = read(joined(platform('karpenter: {version: "1.5.4"}'), NODE_CLASS, KARPENTER)).problems
    assert (problem.code, problem.severity, problem.line) == ("karpenter", "error", 8)
    assert "upgrade it to 1.6 or later" in problem.message


@pytest.mark.requirement("KP-5")
def test_warns_where_the_karpenter_version_is_not_given(read: Reader) -> None:
    assert codes(read(joined(PLATFORM, NODE_CLASS, KARPENTER))) == [("karpenter", "warning")]
    assert codes(read(joined(platform("karpenter: {autoMode: true}"), NODE_CLASS, KARPENTER))) == []
    assert codes(read(joined(platform('karpenter: {version: "1.6.0"}'), NODE_CLASS, KARPENTER))) == []
    assert codes(read(joined(PLATFORM, NODE_CLASS, pool("sources: [{type: block}]")))) == []


def test_refuses_nodes_for_admitted_pods_in_a_karpenter_pool(read: Reader) -> None:
    held = pool("provisioner: karpenter", "sources: [{type: block}]", "admittedPodsOnly: true")
    (problem,) = read(joined(platform('karpenter: {version: "1.8.0"}'), NODE_CLASS, held)).problems
    assert (problem.code, problem.severity) == ("karpenter", "error")
    assert "remove it, or use another provisioner" in problem.message
    native = pool("sources: [{type: block}]", "admittedPodsOnly: true")
    assert codes(read(joined(PLATFORM, NODE_CLASS, native))) == []


@pytest.mark.requirement("TR-14")
def test_warns_of_ultraservers_in_a_karpenter_pool(tmp_path: Path) -> None:
    lines = ("provisioner: karpenter", "sources: [{type: block}]")
    written = joined(
        platform('karpenter: {version: "1.8.0"}'), NODE_CLASS, pool(*lines, types="[p6e-gb200.36xlarge]")
    )
    (tmp_path / "all.yaml").write_text(written.replace("kind:", "apiVersion: tidemill.dev/v1alpha1\nkind:"))
    (problem,) = load([tmp_path / "all.yaml"]).problems  # against the catalog that ships
    assert (problem.code, problem.severity) == ("TR-14", "warning")
    assert "'native' or 'asg'" in problem.message


@pytest.mark.requirement("TR-15")
def test_warns_of_two_blocks_at_once_under_one_tag_on_an_old_karpenter(read: Reader) -> None:
    first = window(name="a", start="2026-11-16T11:30:00Z", end="2026-11-20T11:30:00Z")
    beside = window(name="b", start="2026-11-19T11:30:00Z", end="2026-11-24T11:30:00Z")
    after = window(name="b", start="2026-11-20T11:30:00Z", end="2026-11-24T11:30:00Z")

    def told(version: str, *windows: str, of: str = KARPENTER) -> list[str]:
        written = joined(platform(f'karpenter: {{version: "{version}"}}'), NODE_CLASS, of, plan(*windows))
        return [each.code for each in read(written).problems if each.code == "TR-15"]

    assert told("1.7.0", first, beside) == ["TR-15"]
    assert told("1.7.0", first, after) == []
    assert told("1.8.0", first, beside) == []
    pinned = pool("provisioner: karpenter", "sources: [{type: block, ids: [cr-1]}]")
    assert told("1.7.0", first, beside, of=pinned) == []


@pytest.mark.requirement("TR-5")
def test_warns_of_consolidation_of_prepaid_nodes(read: Reader) -> None:
    taken = pool("sources: [{type: block}]", "disruption: {consolidateBlocks: true}")
    (problem,) = read(joined(PLATFORM, NODE_CLASS, taken)).problems
    assert (problem.code, problem.severity, problem.line) == ("TR-5", "warning", 21)
    by_the_hour = pool("sources: [{type: on-demand}]", "disruption: {consolidateBlocks: true}")
    assert codes(read(joined(PLATFORM, NODE_CLASS, by_the_hour))) == []


@pytest.mark.requirement("TR-10")
def test_refuses_a_subnet_that_is_said_to_be_in_two_zones(read: Reader) -> None:
    twice = PLATFORM.replace("[subnet-0a1]", "[subnet-0a1], us-east-1b: [subnet-0b1, subnet-0a1]")
    (problem,) = read(joined(twice)).problems
    assert (problem.code, problem.severity) == ("TR-10", "error")
    assert problem.message.startswith("subnet subnet-0a1 is listed for us-east-1a and for us-east-1b")


@pytest.mark.requirement("AE-12")
def test_warns_of_an_image_with_an_old_driver(read: Reader) -> None:
    def told(alias: str, of: str = pool()) -> list[str]:
        node_class = NODE_CLASS.replace("bottlerocket@v1.52.0", alias)
        return [each.message for each in read(joined(PLATFORM, node_class, of)).problems]

    (sentence,) = told("al2023@v20250228")
    assert "560.35.05" in sentence
    assert "570.172.08" in sentence
    assert told("al2023@v20250920") == []
    assert told("al2023@v20991231") == []
    assert told("bottlerocket@v1.52.0") == []


def test_warns_of_an_unknown_image_family(read: Reader) -> None:
    node_class = NODE_CLASS.replace("bottlerocket@v1.52.0", "windows2022@v1")
    assert codes(read(joined(PLATFORM, node_class, pool()))) == [("ami-family", "warning")]


def test_warns_of_a_label_that_keeps_the_kubelet_from_starting(read: Reader) -> None:
    labelled = pool("labels: {node-role.kubernetes.io/gpu: 'true', team: ml, node.kubernetes.io/x: y}")
    (problem,) = read(joined(PLATFORM, NODE_CLASS, labelled)).problems
    assert (problem.code, problem.severity) == ("label", "warning")
    assert "node-role.kubernetes.io/gpu" in problem.message


@pytest.mark.requirement("TR-10")
def test_a_region_without_any_of_the_zones_is_an_error_and_with_some_a_warning(read: Reader) -> None:
    """A mistyped region must not become that of a ledger."""
    (error,) = read(PLATFORM.replace("region: us-east-1", "region: us-east-2")).errors
    assert (
        "no zone with subnets is in us-east-2 (us-east-1a): the region or the zones are mistyped"
        in error.message
    )
    both = PLATFORM.replace("[subnet-0a1]}", "[subnet-0a1], us-west-2a: [subnet-0w1]}")
    (warning,) = messages(read(both))
    assert "zone 'us-west-2a' is not in region us-east-1" in warning
