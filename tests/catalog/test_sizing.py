"""What pods may use of a node, to the MiB, and the requests of a pod that uses a whole node."""

from __future__ import annotations

import pytest

from tidemill.catalog import load
from tidemill.catalog.sizing import GIB, MIB, allocatable_mib, kube_reserved_milli, whole_node_request
from tidemill.model.resources import amount

TYPES = tuple(kind for kind in load().types.values() if kind.accelerator is not None)


@pytest.mark.parametrize(
    ("name", "cpu_milli", "memory_mib", "pods"),
    [  # Karpenter's published reference
        ("p5.48xlarge", 191_450, 1_938_410, 100),
        ("p4d.24xlarge", 95_690, 1_082_712, 737),
        ("p5.4xlarge", 15_890, 240_830, 118),
        ("p6-b300.48xlarge", 191_450, 3_877_198, 198),
        ("g6.xlarge", 3_920, 14_162, 58),
        ("g6.48xlarge", 191_450, 718_987, 737),
        ("g5.48xlarge", 191_450, 723_299, 345),
        ("g6e.12xlarge", 47_810, 360_157, 292),
        ("trn1.32xlarge", 127_610, 481_894, 247),
    ],
)
def test_allocatable_is_what_karpenter_computes(name, cpu_milli, memory_mib, pods):
    offered = load().types[name].allocatable
    assert amount(offered, "cpu") == cpu_milli
    assert amount(offered, "memory") == memory_mib * MIB
    assert amount(offered, "pods") == pods


def test_allocatable_lists_accelerators_and_efa_sorted_by_name():
    assert [name for name, _ in load().types["p5.48xlarge"].allocatable] == [
        "cpu",
        "memory",
        "nvidia.com/gpu",
        "pods",
        "vpc.amazonaws.com/efa",
    ]


def test_a_type_without_efa_lists_none():
    assert "vpc.amazonaws.com/efa" not in dict(load().types["g6.xlarge"].allocatable)


def test_arm_instances_have_less_allocatable_memory():
    assert allocatable_mib(983_040, arch="amd64", max_pods=110) > allocatable_mib(
        983_040, arch="arm64", max_pods=110
    )


@pytest.mark.parametrize(
    ("capacity_milli", "reserved"), [(1000, 60), (2000, 70), (4000, 80), (8000, 90), (500, 30)]
)
def test_the_reserved_share_of_cpu_shrinks_with_size(capacity_milli, reserved):
    assert kube_reserved_milli(capacity_milli) == reserved


@pytest.mark.requirement("PE-14")
def test_a_whole_p5_node_is_180_cpus_and_1700_gib():
    request = whole_node_request(load().types["p5.48xlarge"])
    assert request == (("cpu", 180_000), ("memory", 1700 * GIB), ("nvidia.com/gpu", 8))


@pytest.mark.requirement("PE-14")
@pytest.mark.parametrize("instance_type", TYPES, ids=lambda t: t.name)
def test_a_whole_node_request_leaves_room_for_daemons_and_little_else(instance_type):
    request, offered = whole_node_request(instance_type), instance_type.allocatable
    assert amount(request, "cpu") <= amount(offered, "cpu") - 500
    assert amount(request, "memory") <= amount(offered, "memory") * 9 // 10
    assert amount(request, "cpu") >= 0.85 * amount(offered, "cpu")
    assert amount(request, "memory") >= 0.8 * amount(offered, "memory")


@pytest.mark.requirement("PE-14")
def test_a_whole_node_request_of_a_type_without_accelerators_asks_for_cpu_and_memory():
    for kind in load().types.values():
        if kind.accelerator is None and kind.vcpus >= 4 and kind.memory_mib >= 8192:
            request, offered = whole_node_request(kind), kind.allocatable
            assert [name for name, _ in request] == ["cpu", "memory"]
            assert 0.85 * amount(offered, "cpu") <= amount(request, "cpu") <= amount(offered, "cpu") - 500
            assert (
                0.75 * amount(offered, "memory")
                <= amount(request, "memory")
                <= amount(offered, "memory") * 0.9
            )


@pytest.mark.requirement("PE-14")
@pytest.mark.parametrize("instance_type", TYPES, ids=lambda t: t.name)
def test_a_whole_node_request_takes_every_accelerator_and_asks_for_no_efa(instance_type):
    request = dict(whole_node_request(instance_type))
    assert request.pop(instance_type.accelerator.resource) == instance_type.gpus
    assert set(request) == {"cpu", "memory"}
