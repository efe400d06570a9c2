"""Ryvn blueprints become documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.documents import NODE_CLASS
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.importers.ryvn import import_ryvn
from tidemill.spec.node_class import NodeClass
from tidemill.spec.read import load

EBS_CLASS = """\
gpu-node-class:
  amiSelectorTerms:
    - alias: bottlerocket@v1.52.0
  blockDeviceMappings:
    # Root volume
    - deviceName: /dev/xvda
      ebs:
        volumeSize: 32Gi
        volumeType: gp3
        encrypted: true
    # Data volume — size this for your dataset + model weights + checkpoints
    - deviceName: /dev/xvdb
      ebs:
        volumeSize: 2000Gi
        volumeType: gp3
        encrypted: true
"""
NVME_CLASS = """\
gpu-node-class:
  amiSelectorTerms:
    - alias: bottlerocket@v1.52.0
  instanceStorePolicy: "RAID0"
  blockDeviceMappings:
    - deviceName: /dev/xvda
      ebs:
        volumeSize: 32Gi
        volumeType: gp3
        encrypted: true
"""
ONE_NODE_POOL = """\
gpu-training:
  nodeClassName: gpu-node-class
  requirements:
    instanceCategories:
      - "p"
    instanceFamilies:
      - "p5"
    arch: "amd64"
    hypervisor: "nitro"
    minGeneration: 4
  labels:
    workload-type: gpu-training
  taints:
    - key: nvidia.com/gpu
      value: "true"
      effect: NoSchedule
  limits:
    cpu: 192
  disruption:
    consolidationPolicy: "WhenEmpty"
    consolidateAfter: "5m"
"""
EIGHT_NODE_POOL = ONE_NODE_POOL.replace("cpu: 192", "cpu: 1536    # Up to 8x p5.48xlarge nodes").replace(
    '"5m"', '"30m"'
)

VOLUME = {"volumeType": "gp3", "encrypted": True}
ROOT_VOLUME = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "32Gi", **VOLUME}}
DATA_VOLUME = {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "2000Gi", **VOLUME}}
IMAGE = {"amiSelectorTerms": [{"alias": "bottlerocket@v1.52.0"}]}


def node_class(**settings: object) -> NodeClass:
    return NodeClass.model_validate({"metadata": {"name": "gpu-node-class"}, "spec": {**IMAGE, **settings}})


def training_pool(cpu: int, consolidate_after: str) -> ComputePool:
    return ComputePool.model_validate(
        {
            "metadata": {"name": "gpu-training"},
            "spec": {
                "nodeClassName": "gpu-node-class",
                "requirements": {
                    "instanceCategories": ["p"],
                    "instanceFamilies": ["p5"],
                    "arch": "amd64",
                    "hypervisor": "nitro",
                    "minGeneration": 4,
                },
                "labels": {"workload-type": "gpu-training"},
                "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
                "limits": {"cpu": cpu},
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": consolidate_after},
            },
        }
    )


EBS_MODEL = node_class(blockDeviceMappings=[ROOT_VOLUME, DATA_VOLUME])
NVME_MODEL = node_class(instanceStorePolicy="RAID0", blockDeviceMappings=[ROOT_VOLUME])


def files(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"{letter}.yaml" for letter, _ in zip("abc", texts, strict=False)]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


@pytest.mark.requirement("PE-1")
@pytest.mark.requirement("PE-2")
@pytest.mark.parametrize(("class_text", "class_model"), [(EBS_CLASS, EBS_MODEL), (NVME_CLASS, NVME_MODEL)])
@pytest.mark.parametrize(
    ("pool_text", "pool_model"),
    [(ONE_NODE_POOL, training_pool(192, "5m")), (EIGHT_NODE_POOL, training_pool(1536, "30m"))],
)
@pytest.mark.parametrize("arrangement", ["two files", "pool first", "one file", "one file, two documents"])
def test_blueprints_become_equivalent_documents_that_validate(
    tmp_path: Path,
    class_text: str,
    class_model: NodeClass,
    pool_text: str,
    pool_model: ComputePool,
    arrangement: str,
) -> None:
    texts = {
        "two files": [class_text, pool_text],
        "pool first": [pool_text, class_text],
        "one file": [pool_text + class_text],
        "one file, two documents": [f"{class_text}---\n{pool_text}"],
    }[arrangement]
    imported = import_ryvn(files(tmp_path, *texts))
    assert imported.problems == ()
    out = tmp_path / "out.yaml"
    out.write_text(imported.text)
    loaded = load([out])
    assert loaded.problems == ()
    assert [document.model for document in loaded.documents] == [class_model, pool_model]


def test_the_output_says_where_it_came_from_and_keeps_what_was_written(tmp_path: Path) -> None:
    text = import_ryvn(files(tmp_path, EBS_CLASS, ONE_NODE_POOL)).text
    assert text.startswith("# Imported from the Ryvn blueprint in a.yaml, b.yaml.\n---\napiVersion: ")
    assert "    cpu: 192\n" in text
    assert "    value: 'true'\n" in text


def test_unknown_keys_get_the_same_positioned_errors(tmp_path: Path) -> None:
    imported = import_ryvn(
        files(tmp_path, EBS_CLASS, ONE_NODE_POOL.replace("instanceFamilies", "instanceFamilys"))
    )
    (problem,) = imported.problems
    assert str(problem) == (
        f"{tmp_path}/b.yaml:6:5: unknown key 'instanceFamilys' in ComputePool.spec.requirements;"
        " did you mean 'instanceFamilies'?"
    )
    assert imported.text == ""


def test_a_misspelled_required_key_is_reported_for_the_right_kind(tmp_path: Path) -> None:
    (problem, second) = import_ryvn(
        files(tmp_path, EBS_CLASS.replace("amiSelectorTerms", "amiSelectorTerm"))
    ).problems
    assert problem.message == "missing key 'amiSelectorTerms' in NodeClass.spec"
    assert second.message.endswith("did you mean 'amiSelectorTerms'?")


def test_a_pool_imported_without_its_node_class_gets_a_warning(tmp_path: Path) -> None:
    imported = import_ryvn(files(tmp_path, ONE_NODE_POOL))
    assert imported.text
    (problem,) = imported.problems
    assert (problem.severity, problem.line, problem.column) == ("warning", 2, 18)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "a blueprint is a map from names to the settings of node classes or pools"),
        (
            "a: 3\n",
            "'a' is neither a node class (it has no 'amiSelectorTerms') nor a pool",
        ),
        ("a: [\n", "not valid YAML"),
        (
            "a: {nodeClassName: x, limits: {cpu: 1, cpu: 2}}\n",
            "duplicate key 'cpu' in a.limits; first given at 1:32",
        ),
        ("A_b: {amiSelectorTerms: [{id: ami-1}]}\n", "metadata.name: 'A_b' is not a name"),
        (NODE_CLASS, "'kind' is neither"),
        ("", "has no document in it"),
    ],
)
def test_a_file_that_is_not_a_blueprint_is_reported(tmp_path: Path, text: str, message: str) -> None:
    imported = import_ryvn(files(tmp_path, text))
    assert any(problem.message.startswith(message) for problem in imported.problems)
    assert imported.text == ""


def test_a_name_defined_in_two_files_is_refused(tmp_path: Path) -> None:
    (problem,) = import_ryvn(files(tmp_path, EBS_CLASS, NVME_CLASS)).problems
    assert problem.message.startswith("NodeClass 'gpu-node-class' is already defined at")
