"""Karpenter's objects become documents; fields that are not imported get a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.provision.documents import documents
from tidemill.cli import main
from tidemill.provision.karpenter.objects import karpenter_objects
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.importers.karpenter import import_karpenter
from tidemill.spec.node_class import NodeClass
from tidemill.spec.read import load

NODE_CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: gpu}
spec:
  amiSelectorTerms: [{alias: al2023@v20260714}]
  role: ml-node
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
  capacityReservationSelectorTerms: [{tags: {team: ml}}]
  instanceStorePolicy: RAID0
  kubelet: {maxPods: 60}
  blockDeviceMappings:
    - deviceName: /dev/xvda
      ebs: {volumeSize: 500Gi, volumeType: gp3, encrypted: true}
"""
NODE_POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: train}
spec:
  template:
    metadata:
      labels: {tier: train}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [reserved]}
        - {key: karpenter.k8s.aws/capacity-reservation-type, operator: In, values: [capacity-block]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}
      expireAfter: Never
      terminationGracePeriod: 10m
      taints: [{key: nvidia.com/gpu, value: "true", effect: NoSchedule}]
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
  limits: {cpu: 768, nvidia.com/gpu: 32}
  weight: 50
"""


@pytest.fixture
def imported(tmp_path: Path):
    def run(*texts: str):
        path = tmp_path / "karpenter.yaml"
        path.write_text("---\n".join(texts))
        return import_karpenter([path])

    return run


def told(result) -> list[str]:
    return [problem.code for problem in result.problems]


def made(result) -> dict[str, Any]:
    assert result.text, result.problems
    return {each["kind"]: each["spec"] for each in yaml.safe_load_all(result.text)}


def test_a_node_pool_and_its_node_class_are_imported(imported):
    found = made(imported(NODE_CLASS, NODE_POOL))
    assert found["ComputePool"] == {
        "nodeClassName": "gpu",
        "provisioner": "karpenter",
        "sources": [{"type": "block", "tags": {"team": "ml"}}],
        "requirements": {"instanceTypes": ["p5.48xlarge"]},
        "labels": {"tier": "train"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
        "limits": {"cpu": "768", "gpus": 32},
        "disruption": {"consolidationPolicy": "Never"},
        "weight": 50,
    }
    assert found["NodeClass"] == {
        "amiSelectorTerms": [{"alias": "al2023@v20260714"}],
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {"volumeSize": "500Gi", "volumeType": "gp3", "encrypted": True},
            }
        ],
        "instanceStorePolicy": "RAID0",
        "role": "ml-node",
        "maxPods": 60,
    }


def test_fields_that_are_not_imported_get_a_warning_at_their_line(imported):
    problems = imported(NODE_CLASS + "  detailedMonitoring: true\n", NODE_POOL).problems
    lines = {problem.line: problem.message for problem in problems}
    assert "is not carried over; set subnets in the Platform document" in lines[7]
    assert "(subnet-1)" in lines[7]
    assert "set securityGroups" in lines[8]
    assert lines[15] == "EC2NodeClass gpu: spec.detailedMonitoring is not carried over"
    assert all(problem.severity == "warning" for problem in problems)


def test_the_imported_documents_are_valid_with_a_platform(imported, tmp_path):
    platform = (
        "apiVersion: tidemill.dev/v1alpha1\nkind: Platform\nmetadata: {name: prod}\nspec:\n  region: us-east-1\n"
        "  deployment: prod\n  cluster: {name: ml}\n  subnets: {us-east-1a: [subnet-1]}\n"
        '  karpenter: {version: "1.8.0"}\n'
    )
    (tmp_path / "platform.yaml").write_text(platform)
    (tmp_path / "pools.yaml").write_text(imported(NODE_CLASS, NODE_POOL).text)
    assert load([tmp_path / "platform.yaml", tmp_path / "pools.yaml"]).problems == ()


@pytest.mark.requirement("TR-4")
@pytest.mark.parametrize("written", ["", "terminationGracePeriod: 1h", "terminationGracePeriod: 48h"])
def test_warns_of_a_drain_that_takes_longer_than_the_block_allows(imported, written):
    pool = NODE_POOL.replace("terminationGracePeriod: 10m", written)
    assert "TR-4" in told(imported(NODE_CLASS, pool))
    assert "TR-4" not in told(imported(NODE_CLASS, NODE_POOL))


@pytest.mark.requirement("TR-5")
@pytest.mark.parametrize("written", ["consolidateAfter: 30s", "budgets: []"])
def test_warns_of_consolidation_of_prepaid_nodes_in_a_node_pool(imported, written):
    pool = NODE_POOL.replace("consolidateAfter: Never", written)
    result = imported(NODE_CLASS, pool)
    assert "TR-5" in told(result)
    assert "TR-5" not in told(imported(NODE_CLASS, NODE_POOL))
    assert "consolidateBlocks" not in result.text


@pytest.mark.requirement("TR-3")
def test_a_pin_to_reservation_ids_is_imported_with_a_warning(imported):
    result = imported(NODE_CLASS.replace("{tags: {team: ml}}", "{id: cr-0a1}, {id: cr-0b2}"), NODE_POOL)
    assert made(result)["ComputePool"]["sources"] == [{"type": "block", "ids": ["cr-0a1", "cr-0b2"]}]
    assert "TR-3" in told(result)


@pytest.mark.requirement("KP-8")
def test_a_tag_selector_beside_ids_becomes_a_source_of_its_own(imported):
    """Karpenter takes what any term selects."""
    terms = "{id: cr-0a1}, {tags: {team: ml}}, {tags: {team: ops}, ownerID: '1'}"
    result = imported(NODE_CLASS.replace("{tags: {team: ml}}", terms), NODE_POOL)
    assert made(result)["ComputePool"]["sources"] == [
        {"type": "block", "ids": ["cr-0a1"]},
        {"type": "block", "tags": {"team": "ml"}},
        {"type": "block", "tags": {"team": "ops"}},
    ]
    assert any("ownerID of a selector" in problem.message for problem in result.problems)


CPU_POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements:
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
        - {key: karpenter.sh/capacity-type, operator: NotIn, values: [spot, reserved]}
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r, z]}
        - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["2"]}
        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["4", "8", "16"]}
        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["8", "16", "32"]}
  limits: {cpu: 1000}
"""


@pytest.mark.requirement("KP-8")
def test_a_pool_of_types_without_accelerators_is_imported(imported):
    """With every requirement, two of one key included; a category that the catalog lacks is named."""
    result = imported(NODE_CLASS, CPU_POOL)
    pool = made(result)["ComputePool"]
    assert pool["requirements"] == {
        "arch": "amd64", "instanceCategories": ["c", "m", "r"], "minGeneration": 3, "cpuSizes": [8, 16],
    }  # fmt: skip
    assert pool["sources"] == [{"type": "on-demand"}]
    assert "the catalog has no z of karpenter.k8s.aws/instance-category" in " ".join(
        problem.message for problem in result.problems
    )


@pytest.mark.requirement("KP-8")
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (CPU_POOL.replace("[c, m, r, z]", "[z, hpc]"), "the catalog has none of z, hpc"),
        (
            CPU_POOL.replace("kubernetes.io/arch", "kubernetes.io/os").replace("amd64", "windows"),
            "Windows nodes",
        ),
        (CPU_POOL.replace("[spot, reserved]", "[spot, reserved, on-demand]"), "allows no capacity type"),
        (CPU_POOL.replace("{cpu: 1000}", "7"), "must be a mapping"),
    ],
)
def test_what_cannot_be_imported_is_left_out_and_the_rest_is_written(imported, changed, sentence):
    result = imported(NODE_CLASS, NODE_POOL, changed)
    assert made(result)["ComputePool"]["nodeClassName"] == "gpu"
    assert "name: train" in result.text
    assert "name: general" not in result.text
    assert result.left_out == ("NodePool general",)
    assert sentence in " ".join(problem.message for problem in result.problems if problem.severity == "error")


def requiring(*requirements: str) -> str:
    return CPU_POOL.replace(
        CPU_POOL[CPU_POOL.index("        - {key: kubernetes.io/arch") : CPU_POOL.index("  limits")],
        "".join(f"        - {{{one}}}\n" for one in requirements),
    )


@pytest.mark.requirement("KP-8")
def test_requirements_on_gpus_do_not_widen_to_every_type(imported):
    """Our documents have no field for them: the types that meet them are listed."""
    result = imported(
        NODE_CLASS,
        requiring(
            "key: karpenter.k8s.aws/instance-gpu-manufacturer, operator: In, values: [nvidia]",
            "key: karpenter.k8s.aws/instance-gpu-name, operator: In, values: [a10g, l4]",
            "key: karpenter.k8s.aws/instance-gpu-count, operator: Gt, values: ['4']",
        ),
    )
    assert made(result)["ComputePool"]["requirements"] == {"instanceTypes": ["g5.48xlarge", "g6.48xlarge"]}
    assert "instance-gpu-count Gt 4 is carried over as the 2 instance types of the catalog" in " ".join(
        problem.message for problem in result.problems
    )


@pytest.mark.requirement("KP-8")
def test_bounds_on_cpus_and_categories_that_are_left_out_are_carried_over(imported):
    result = imported(
        NODE_CLASS,
        requiring(
            "key: karpenter.k8s.aws/instance-category, operator: NotIn, values: [t, g, p, trn]",
            "key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: ['31']",
            "key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: ['65']",
        ),
    )
    assert not [one for one in result.problems if "requirement" in one.message]
    assert made(result)["ComputePool"]["requirements"] == {
        "instanceCategories": ["c", "m", "r"], "cpuSizes": [32, 36, 48, 64],
    }  # fmt: skip


@pytest.mark.requirement("KP-8")
def test_a_requirement_that_hundreds_of_types_meet_is_named_and_not_listed(imported):
    sizes = "key: karpenter.k8s.aws/instance-size, operator: NotIn, values: [nano, micro]"
    result = imported(NODE_CLASS, requiring(sizes))
    assert "instanceTypes" not in made(result)["ComputePool"]["requirements"]
    assert "instance-size NotIn nano, micro is not carried over" in " ".join(
        one.message for one in result.problems
    )


@pytest.mark.requirement("KP-8")
def test_a_pool_that_no_type_meets_is_left_out(imported):
    wanted = "key: karpenter.k8s.aws/instance-gpu-name, operator: In, values: [t4]"
    result = imported(NODE_CLASS, requiring(wanted))
    assert result.left_out == ("NodePool general",)
    assert "no instance type of the catalog meets it" in " ".join(one.message for one in result.problems)


@pytest.mark.requirement("KP-8")
def test_what_two_sources_share_is_written_twice_and_without_anchors(imported):
    terms = "{id: cr-0a1}, {instanceMatchCriteria: targeted}"
    any_kind = NODE_POOL.replace("capacity-block", "default, capacity-block")
    result = imported(NODE_CLASS.replace("{tags: {team: ml}}", terms), any_kind)
    assert result.text.count("- cr-0a1") == 2
    assert "&id" not in result.text
    assert "a selector of reservations without id and tags is not carried over" in " ".join(
        one.message for one in result.problems
    )


def test_a_pool_that_names_no_types_is_imported_with_every_category(imported):
    """Without names our pools have types with accelerators; Karpenter's have all."""
    pool = NODE_POOL.replace(
        "{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}", ""
    )
    assert "    - t\n" in imported(NODE_CLASS, pool.replace("        - \n", "")).text


@pytest.mark.requirement("TR-8")
def test_warns_of_an_imported_image_that_is_not_pinned(imported):
    assert "TR-8" in told(imported(NODE_CLASS.replace("v20260714", "latest"), NODE_POOL))


def test_on_demand_beside_blocks_is_imported_with_caps_of_zero(imported):
    result = imported(NODE_CLASS, NODE_POOL.replace("[reserved]", "[reserved, spot, on-demand]"))
    assert [source["type"] for source in made(result)["ComputePool"]["sources"]] == [
        "block",
        "spot",
        "on-demand",
    ]
    assert made(result)["ComputePool"]["sources"][1]["maxHourlyUsd"] == 0
    assert "overflow-cap" in told(result)


def test_without_a_capacity_type_the_source_is_on_demand(imported):
    lines = NODE_POOL.splitlines(keepends=True)
    bare = "".join(line for line in lines if "capacity-" not in line)
    assert made(imported(NODE_CLASS, bare))["ComputePool"]["sources"] == [{"type": "on-demand"}]


def test_requirements_that_we_have_are_imported(imported):
    more = """\
        - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["4"]}
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["192"]}
        - {key: kubernetes.io/os, operator: In, values: [linux]}
        - {key: karpenter.k8s.aws/instance-gpu-name, operator: In, values: [h100]}
      expireAfter: 720h
"""
    result = imported(NODE_CLASS, NODE_POOL.replace("      expireAfter: Never\n", more))
    assert made(result)["ComputePool"]["requirements"] == {
        "instanceTypes": ["p5.48xlarge"],
        "minGeneration": 5,
        "arch": "amd64",
        "cpuSizes": [192],
    }
    sentences = [problem.message for problem in result.problems]
    assert any("instance-gpu-name In h100 is carried over as the instance type" in said for said in sentences)
    assert any("expireAfter 720h" in sentence for sentence in sentences)
    assert not any("kubernetes.io/os" in sentence for sentence in sentences)


def test_a_list_from_kubectl_is_read(imported):
    items = [yaml.safe_load(NODE_CLASS), yaml.safe_load(NODE_POOL)]
    for each in items:
        each["status"] = {"conditions": []}
        each["metadata"] |= {"uid": "x", "resourceVersion": "1"}
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    assert set(made(imported(listed))) == {"NodeClass", "ComputePool"}


@pytest.mark.parametrize("static", [False, True])
def test_rendered_karpenter_objects_can_be_imported_again(imported, static):
    karpenter = {"version": "1.11.0", "staticCapacity": static}
    more = {"warm": True} if static else {}
    given_ = documents(
        provisioner="karpenter", platform={"karpenter": karpenter}, node_class={"maxPods": 60}, **more
    )
    rendered = karpenter_objects(given_, given_.pools["train"], None).objects
    result = imported(*(yaml.safe_dump(dict(each)) for each in rendered))
    back = [each for each in yaml.safe_load_all(result.text) if each["kind"] == "ComputePool"]
    pool = ComputePool.model_validate(back[0])
    assert pool.spec.requirements == given_.pools["train"].spec.requirements
    assert pool.spec.sources[0].tags == {"deployment": "tides", "tidemill.dev/pool": "train"}
    assert not {"TR-3", "TR-4", "TR-5"} & set(told(result))


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ((NODE_CLASS.replace("/v1", "/v1beta1"),), "cannot be read; convert it to"),
        (
            (NODE_CLASS.replace("{alias: al2023@v20260714}", "{name: my-image}"),),
            "names no image by alias or id",
        ),
        (("kind: Deployment\napiVersion: apps/v1\n",), "is neither a NodePool nor a node class"),
        (
            (NODE_POOL.replace("  limits: {cpu: 768, nvidia.com/gpu: 32}", "  limits: 7"),),
            "must be a mapping",
        ),
    ],
)
def test_objects_that_cannot_be_read_are_errors_and_nothing_is_written(imported, texts, sentence):
    result = imported(*texts)
    assert not result.text
    assert any(sentence in problem.message for problem in result.problems)


_LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["In", "Never", "reserved"])
)
_KEY = st.sampled_from(
    ["spec", "template", "metadata", "labels", "requirements", "key", "operator", "values", "nodeClassRef", "name",
     "limits", "cpu", "disruption", "budgets", "taints", "amiSelectorTerms", "alias", "id", "kubelet", "maxPods",
     "blockDeviceMappings", "ebs", "capacityReservationSelectorTerms", "tags", "weight", "replicas"]
)  # fmt: skip
_ANY = st.recursive(
    _LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEY, inner, max_size=4), max_leaves=30
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150)
@given(spec=_ANY, name=_LEAF, kind=st.sampled_from(["NodePool", "EC2NodeClass", "NodeClass"]))
def test_no_content_makes_the_import_raise(tmp_path, spec, name, kind):
    version = {
        "NodePool": "karpenter.sh/v1",
        "EC2NodeClass": "karpenter.k8s.aws/v1",
        "NodeClass": "eks.amazonaws.com/v1",
    }
    path = tmp_path / "any.yaml"
    document = {"apiVersion": version[kind], "kind": kind, "metadata": {"name": name}, "spec": spec}
    path.write_text(yaml.safe_dump(document))
    result = import_karpenter([path])
    assert result.text or result.problems


def test_the_command_writes_documents_to_stdout_and_warnings_to_stderr(tmp_path, capsys):
    source, target = tmp_path / "k.yaml", tmp_path / "pools.yaml"
    source.write_text(f"{NODE_CLASS}---\n{NODE_POOL}")
    assert main(["import", "karpenter", str(source), "-o", str(target)]) == 0
    assert "set subnets in the Platform document" in capsys.readouterr().err
    kinds = [each["kind"] for each in yaml.safe_load_all(target.read_text())]
    assert kinds == ["NodeClass", "ComputePool"]
    NodeClass.model_validate(next(yaml.safe_load_all(target.read_text())))
    source.write_text(f"{NODE_CLASS}---\n{NODE_POOL}---\n{CPU_POOL.replace('c, m, r, z', 'z')}")
    assert main(["import", "karpenter", str(source), "-o", str(target)]) == 2
    assert "left out for the errors above: NodePool general; the rest is written" in capsys.readouterr().err
    assert "name: train" in target.read_text()
    source.write_text("kind: Deployment\n")
    assert main(["import", "karpenter", str(source)]) == 2
