"""Karpenter's objects for a pool and its blocks: what they select, what they leave alone, and how they move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.provision.documents import documents
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.errors import SpecError
from tidemill.provision.karpenter.objects import karpenter_objects

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
OURS = (("deployment", "tides"), ("tidemill.dev/pool", "train"))
OVERFLOW = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 200, "maxMonthlyUsd": 9000}]


def pool(version="1.8.2", *, node_class=None, platform=None, static=False, auto_mode=False, **spec):
    karpenter = {"autoMode": True} if auto_mode else {"version": version, "staticCapacity": static}
    found = documents(
        provisioner="karpenter",
        platform={"karpenter": karpenter, **(platform or {})},
        node_class=node_class,
        **spec,
    )
    return found, found.pools["train"]


def block(name="cr-a", *, tags=OURS, state=ReservationState.ACTIVE, ends_in=timedelta(days=3), **more):
    facts = {
        "kind": SourceKind.BLOCK, "instance_type": "p5.48xlarge", "zone": "us-east-1a", "count": 4, "available": 4,
        "start": NOW - timedelta(days=1), "owner": "tides", "pool": "train",
    }  # fmt: skip
    return Reservation(id=name, state=state, end=NOW + ends_in, tags=tags, **(facts | more))


def made(pair, blocks=None, now=NOW):
    """By kind and name: the specs."""
    found = karpenter_objects(*pair, blocks, now)
    return {(object_["kind"], object_["metadata"]["name"]): object_["spec"] for object_ in found.objects}


def required(node_pool):
    return {each["key"]: each["values"] for each in node_pool["template"]["spec"]["requirements"]}


@pytest.mark.requirement("KP-1")
def test_a_block_pool_selects_its_blocks_by_tag():
    found = made(pool())
    assert found["EC2NodeClass", "train"]["capacityReservationSelectorTerms"] == [{"tags": dict(OURS)}]
    assert required(found["NodePool", "train"]) == {
        "karpenter.sh/capacity-type": ["reserved"],
        "karpenter.k8s.aws/capacity-reservation-type": ["capacity-block"],
        "node.kubernetes.io/instance-type": ["p5.48xlarge"],
    }
    assert found["NodePool", "train"]["template"]["spec"]["nodeClassRef"] == {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "train",
    }


@pytest.mark.requirement("KP-1")
@pytest.mark.requirement("KP-7")
@pytest.mark.requirement("TR-3")
@pytest.mark.requirement("CB-18")
def test_a_pinned_pool_selects_by_id_and_what_is_bought_for_it_and_is_warned_about_without_a_plan():
    pair = pool(sources=[{"type": "block", "ids": ["cr-a", "cr-b"]}])
    bought = {"deployment": "tides", "tidemill.dev/pool": "train", "tidemill.dev/intent": "*"}
    assert made(pair)["EC2NodeClass", "train"]["capacityReservationSelectorTerms"] == [
        {"id": "cr-a"},
        {"id": "cr-b"},
        {"tags": bought},
    ]
    assert any(
        "TR-3" in sentence and "tags" in sentence for sentence in karpenter_objects(*pair, None).warnings
    )
    assert not karpenter_objects(*pool(), None).warnings
    only = karpenter_objects(*pool(), None, only=("cr-x",))
    assert only.objects[0]["spec"]["capacityReservationSelectorTerms"] == [{"id": "cr-x"}]
    assert any("TR-3" in sentence for sentence in only.warnings)


@pytest.mark.requirement("CB-18")
def test_a_pinned_pool_selects_a_successor_that_was_bought_for_it_and_no_block_of_others():
    pinned = pool(sources=[{"type": "block", "ids": ["cr-a"]}], limits={"nodes": 8})
    tags = (*OURS, ("tidemill.dev/intent", "pi-1"))
    new, adopted = block("cr-b", tags=tags), block("cr-c", tags=OURS)
    stranger = block("cr-d", tags=tags, owner="somebody")
    found = made(pinned, [block("cr-a", tags=()), new, adopted, stranger])
    assert found["EC2NodeClass", "train"]["capacityReservationSelectorTerms"] == [
        {"id": "cr-a"},
        {"id": "cr-b"},
    ]
    assert [name for kind, name in found if kind == "NodePool"] == ["train-cr-a", "train-cr-b"]


@pytest.mark.requirement("KP-1")
def test_each_block_has_a_node_pool_that_pods_can_be_pinned_to():
    found = made(pool(), [block("cr-a")])
    own = found["NodePool", "train-cr-a"]
    assert required(own)["karpenter.k8s.aws/capacity-reservation-id"] == ["cr-a"]
    assert required(own)["topology.kubernetes.io/zone"] == ["us-east-1a"]
    assert own["template"]["metadata"]["labels"]["tidemill.dev/source"] == "cr-a"
    assert own["limits"] == {"cpu": "768", "nvidia.com/gpu": "32"}
    assert own["template"]["spec"]["startupTaints"] == [
        {"key": "tidemill.dev/starting", "effect": "NoSchedule"}
    ]


@pytest.mark.requirement("KP-4")
@pytest.mark.requirement("TR-4")
@pytest.mark.requirement("TR-5")
def test_prepaid_nodes_are_never_consolidated_never_expired_and_drained_in_ten_minutes():
    pair = pool(disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"})
    for found in (made(pair)["NodePool", "train"], made(pair, [block("cr-a")])["NodePool", "train-cr-a"]):
        assert found["disruption"]["consolidationPolicy"] == "WhenEmpty"
        assert found["disruption"]["consolidateAfter"] == "Never"
        assert found["template"]["spec"]["expireAfter"] == "Never"
        assert found["template"]["spec"]["terminationGracePeriod"] == "10m"


def test_a_pool_may_say_that_prepaid_nodes_are_consolidated():
    asked = {
        "consolidateBlocks": True,
        "consolidateAfter": "2d",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
    }
    disruption = made(pool(disruption=asked))["NodePool", "train"]["disruption"]
    assert disruption["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
    assert disruption["consolidateAfter"] == "48h"


@pytest.mark.requirement("KP-4")
@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ([], [{"nodes": "10%"}]),  # Karpenter's own default, which any budget of ours would replace
        ([{"nodes": "1", "reasons": ["Empty"]}], [{"nodes": "1", "reasons": ("Empty",)}]),
    ],
)
def test_prepaid_nodes_are_never_replaced_because_they_drifted(asked, kept):
    pair = pool(disruption={"budgets": asked}, sources=OVERFLOW)
    for found in (made(pair)["NodePool", "train"], made(pair, [block("cr-a")])["NodePool", "train-cr-a"]):
        assert found["disruption"]["budgets"] == [*kept, {"nodes": "0", "reasons": ["Drifted"]}]
    by_the_hour = made(pair)["NodePool", "train-on-demand"]["disruption"]
    assert {"nodes": "0", "reasons": ["Drifted"]} not in by_the_hour.get("budgets", [])


def test_budgets_are_written_in_hours_and_minutes():
    asked = {"nodes": "1", "schedule": "0 9 * * *", "duration": "1d2h30s"}
    own, *_ = made(pool(disruption={"budgets": [asked]}))["NodePool", "train"]["disruption"]["budgets"]
    assert own == {"nodes": "1", "schedule": "0 9 * * *", "duration": "26h1m"}


@pytest.mark.requirement("KP-2")
def test_the_fall_back_has_a_lower_weight_and_no_reservation():
    found = made(pool(sources=OVERFLOW))
    assert required(found["NodePool", "train-on-demand"])["karpenter.sh/capacity-type"] == ["on-demand"]
    assert found["NodePool", "train-on-demand"]["weight"] < found["NodePool", "train"]["weight"]
    assert "capacityReservationSelectorTerms" not in found["EC2NodeClass", "train-hourly"]
    assert (
        found["NodePool", "train-on-demand"]["template"]["metadata"]["labels"]["tidemill.dev/source"]
        == "on-demand"
    )
    assert found["NodePool", "train-on-demand"]["disruption"]["consolidateAfter"] == "5m"


@pytest.mark.requirement("KP-2")
def test_the_fall_back_cannot_cost_more_an_hour_than_its_cap():
    found = made(pool(sources=OVERFLOW))
    p5 = documents().catalog.types["p5.48xlarge"]
    cpus = int(found["NodePool", "train-on-demand"]["limits"]["cpu"])
    assert cpus // p5.vcpus * p5.on_demand_usd_h <= 200
    assert cpus // p5.vcpus == 3


@pytest.mark.parametrize("weight", [0, 1, 2, 100])
def test_weights_are_what_karpenter_accepts(weight):
    pools = [
        spec for (kind, _), spec in made(pool(sources=OVERFLOW, weight=weight)).items() if kind == "NodePool"
    ]
    assert pools
    for spec in pools:
        assert 1 <= spec.get("weight", 1) <= 100


@pytest.mark.requirement("KP-3")
def test_in_auto_mode_the_node_class_is_eks_own():
    found = made(pool(auto_mode=True, node_class={"blockDeviceMappings": [
        {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "500Gi"}}]}), [block("cr-a"), block("cr-b")])  # fmt: skip
    own = found["NodeClass", "train-cr-a"]
    assert own["capacityReservationSelectorTerms"] == [{"id": "cr-a"}]
    assert own["ephemeralStorage"] == {"size": "500Gi"}
    assert not {"amiSelectorTerms", "userData", "kubelet", "metadataOptions"} & own.keys()
    template = found["NodePool", "train-cr-a"]["template"]["spec"]
    assert template["nodeClassRef"] == {
        "group": "eks.amazonaws.com",
        "kind": "NodeClass",
        "name": "train-cr-a",
    }
    assert template["expireAfter"] == "504h"


@pytest.mark.requirement("KP-3")
def test_a_block_longer_than_an_auto_mode_node_is_warned_about():
    found = karpenter_objects(*pool(auto_mode=True), [block("cr-a", ends_in=timedelta(days=28))], NOW)
    assert any("21 days" in sentence for sentence in found.warnings)


@pytest.mark.requirement("KP-5")
@pytest.mark.parametrize("version", ["1.5.9", "1.0.0", "0.37"])
def test_a_karpenter_without_block_support_is_refused_with_the_reason(version):
    with pytest.raises(SpecError, match=rf"Karpenter {version} does not support Capacity Blocks.*1\.6"):
        karpenter_objects(*pool(version), None)


@pytest.mark.requirement("KP-5")
@pytest.mark.parametrize("version", ["1.6.0", "v1.6", "1.10.1", "2.0.0"])
def test_a_karpenter_with_block_support_is_accepted(version):
    assert karpenter_objects(*pool(version), None).objects


@pytest.mark.requirement("KP-5")
def test_an_unknown_karpenter_version_is_refused():
    spec = documents(provisioner="karpenter")
    with pytest.raises(SpecError, match=r"set karpenter\.version"):
        karpenter_objects(spec, spec.pools["train"], None)


@pytest.mark.requirement("KP-6")
@pytest.mark.requirement("CB-18")
def test_at_the_hand_over_the_selector_moves_to_the_successor():
    pinned = pool(sources=[{"type": "block", "ids": ["cr-a", "cr-b"]}], limits={"nodes": 8})
    old, new = block("cr-a", tags=()), block("cr-b", tags=(), start=NOW, ends_in=timedelta(days=6))

    def selected(now):
        found = made(pinned, [old, new], now)
        return found["EC2NodeClass", "train"]["capacityReservationSelectorTerms"], [
            n for k, n in found if k == "NodePool"
        ]

    assert selected(NOW) == ([{"id": "cr-a"}, {"id": "cr-b"}], ["train-cr-a", "train-cr-b"])
    just_before = NOW + timedelta(days=3, minutes=-41)
    assert selected(just_before)[0] == [{"id": "cr-a"}, {"id": "cr-b"}]
    assert selected(just_before + timedelta(minutes=1)) == ([{"id": "cr-b"}], ["train-cr-b"])


@pytest.mark.requirement("KP-6")
def test_selected_by_tag_a_successor_changes_nothing_in_the_node_class():
    found = [
        made(pool(), blocks)["EC2NodeClass", "train"]
        for blocks in ([block("cr-a")], [block("cr-a"), block("cr-b")])
    ]
    assert found[0] == found[1]
    assert found[0]["capacityReservationSelectorTerms"] == [{"tags": dict(OURS)}]


def test_a_block_without_matching_tags_is_selected_by_id():
    terms = made(pool(), [block("cr-a"), block("cr-x", tags=())])["EC2NodeClass", "train"]
    assert terms["capacityReservationSelectorTerms"] == [{"tags": dict(OURS)}, {"id": "cr-x"}]


def test_blocks_of_others_are_not_selected():
    assert made(pool(), [block("cr-a", owner="somebody")]) == {}


def test_together_the_node_pools_keep_to_the_pools_limits():
    found = made(pool(limits={"nodes": 6}), [block("cr-a"), block("cr-b")])
    assert found["NodePool", "train-cr-a"]["limits"]["cpu"] == str(4 * 192)
    assert found["NodePool", "train-cr-b"]["limits"]["cpu"] == str(2 * 192)


def test_a_pool_without_limits_launches_nothing():
    assert made(pool(limits=None))["NodePool", "train"]["limits"] == {"cpu": "0"}
    assert made(pool(limits=None), [block("cr-a")])["NodePool", "train-cr-a"]["limits"]["cpu"] == "0"


@pytest.mark.requirement("KP-8")
def test_a_warm_pool_is_static_capacity_where_karpenter_can():
    warm = pool("1.8.0", static=True, warm=True)
    active, coming = block("cr-a"), block("cr-b", state=ReservationState.SCHEDULED)
    found = made(pool("1.8.0", static=True, warm=True, limits={"nodes": 8}), [active, coming])
    assert found["NodePool", "train-cr-a-warm"]["replicas"] == 4
    assert found["NodePool", "train-cr-b-warm"]["replicas"] == 0
    assert found["NodePool", "train-cr-a-warm"]["limits"] == {"nodes": "4"}
    assert "weight" not in found["NodePool", "train-cr-a-warm"]
    assert made(pool("1.8.0", static=True, warm=2), [active])["NodePool", "train-cr-a-warm"]["replicas"] == 2
    assert not karpenter_objects(*warm, [active], NOW).warnings


@pytest.mark.requirement("KP-8")
@pytest.mark.parametrize(("version", "static"), [("1.8.0", False), ("1.7.9", True)])
def test_a_warm_pool_that_karpenter_does_not_support_is_warned_about(version, static):
    pair = pool(version, static=static, warm=True)
    found = karpenter_objects(*pair, [block("cr-a")], NOW)
    way_out = "karpenter.staticCapacity" if version == "1.8.0" else "upgrade it to 1.8"
    assert any(way_out in sentence for sentence in found.warnings)
    assert all("replicas" not in object_["spec"] for object_ in found.objects)


@pytest.mark.requirement("KP-9")
def test_warm_nodes_carry_their_network_interfaces():
    own = made(pool("1.11.0", static=True, warm=True, node_class={"efa": True}), [block("cr-a")])[
        "EC2NodeClass", "train"
    ]
    assert len(own["networkInterfaces"]) == 33
    assert own["networkInterfaces"][:2] == [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]


@pytest.mark.requirement("KP-9")
def test_nodes_for_pods_get_their_interfaces_from_karpenter():
    assert "networkInterfaces" not in made(pool("1.11.0", node_class={"efa": True}))["EC2NodeClass", "train"]
    old = pool("1.10.0", static=True, warm=True, node_class={"efa": True})
    assert "networkInterfaces" not in made(old)["EC2NodeClass", "train"]
    assert any("have no EFA" in sentence for sentence in karpenter_objects(*old, None).warnings)


@pytest.mark.requirement("TR-14")
def test_ultraservers_with_karpenter_are_warned_about():
    pair = pool(requirements={"instanceTypes": ["p6e-gb200.36xlarge"]})
    assert any("TR-14" in sentence for sentence in karpenter_objects(*pair, None).warnings)


@pytest.mark.requirement("TR-15")
def test_an_old_karpenter_selects_two_blocks_of_one_kind_by_id():
    found = karpenter_objects(*pool("1.7.0"), [block("cr-a"), block("cr-b")], NOW)
    classes = [
        object_["spec"]["capacityReservationSelectorTerms"]
        for object_ in found.objects
        if object_["kind"] == "EC2NodeClass"
    ]
    assert classes == [[{"id": "cr-a"}], [{"id": "cr-b"}]]
    assert any("TR-15" in sentence for sentence in found.warnings)
    newer = karpenter_objects(*pool("1.8.0"), [block("cr-a"), block("cr-b")], NOW)
    assert not newer.warnings


@pytest.mark.requirement("TR-15")
@pytest.mark.parametrize("version", ["1.6.0", "1.7.9", "1.8.0"])
def test_a_successor_gives_a_running_block_no_other_node_class(version):
    successor = block("cr-b", state=ReservationState.SCHEDULED, start=NOW + timedelta(days=2))
    alone, beside = (
        made(pool(version, limits={"nodes": 8}), blocks)["NodePool", "train-cr-a"]
        for blocks in ([block("cr-a")], [block("cr-a"), successor])
    )
    assert alone == beside


def test_a_node_class_has_the_boot_settings_of_the_documents():
    given = {
        "maxPods": 60,
        "instanceStorePolicy": "RAID0",
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "500Gi", "kmsKeyID": "k"}}],
        "userData": "#!/bin/sh\necho hello\n",
    }
    own = made(pool(node_class=given))["EC2NodeClass", "train"]
    assert own["role"] == "ml-node"
    assert own["amiSelectorTerms"] == [{"alias": "al2023@v20261101"}]
    assert own["kubelet"] == {"maxPods": 60}
    assert own["instanceStorePolicy"] == "RAID0"
    assert own["blockDeviceMappings"][0]["ebs"]["volumeSize"] == "500Gi"
    assert own["blockDeviceMappings"][0]["ebs"]["kmsKeyID"] == "k"
    assert own["metadataOptions"] == {"httpTokens": "required", "httpPutResponseHopLimit": 2}
    assert "echo hello" in own["userData"]
    assert "shutdownGracePeriod" in own["userData"]
    assert "apiServerEndpoint" not in own["userData"]
    assert own["tags"]["deployment"] == "tides"
    assert not any(key.startswith("kubernetes.io/cluster") for key in own["tags"])


def test_a_new_end_of_a_block_makes_no_node_drift():
    before, after = (made(pool(), [block("cr-a", ends_in=timedelta(days=days))]) for days in (3, 10))
    assert before == after


def test_settings_that_karpenter_does_not_support_are_an_error():
    with pytest.raises(SpecError, match="accepts no existing launch template"):
        karpenter_objects(*pool(node_class={"launchTemplate": {"id": "lt-0abc"}}), None)
    with pytest.raises(SpecError, match="nodeRole is not set"):
        karpenter_objects(*pool(platform={"nodeRole": ""}), None)
    native = documents(platform={"karpenter": {"version": "1.8.0"}})
    with pytest.raises(SpecError, match="not 'karpenter'"):
        karpenter_objects(native, native.pools["train"], None)


def test_without_security_groups_the_clusters_own_is_found_by_its_tag():
    own = made(pool(platform={"securityGroups": []}))["EC2NodeClass", "train"]
    assert own["securityGroupSelectorTerms"] == [{"tags": {"kubernetes.io/cluster/ml": "owned"}}]


@pytest.mark.requirement("KP-8")
@pytest.mark.parametrize(("warm", "replicas"), [(True, 4), (2, 2)])
def test_a_warm_static_pool_shows_its_replicas_without_knowing_its_blocks(warm, replicas):
    shown = made(pool("1.8.0", static=True, warm=warm, limits={"nodes": 4}))
    own = shown["NodePool", "train-warm"]
    assert (own["replicas"], own["limits"]) == (replicas, {"nodes": "4"})
    assert "replicas" not in made(pool("1.8.0", static=True, warm=False))["NodePool", "train"]


def test_without_an_engine_nodes_have_no_startup_taint_of_ours():
    spec, own = pool(startupTaints=[{"key": "driver", "effect": "NoSchedule"}])
    for engine in (True, False):
        found = karpenter_objects(spec, own, None, engine=engine)
        (node_pool,) = [one for one in found.objects if one["kind"] == "NodePool"]
        taints = {one["key"] for one in node_pool["spec"]["template"]["spec"]["startupTaints"]}
        assert taints == ({"driver", "tidemill.dev/starting"} if engine else {"driver"})
    bare, own = pool()
    (node_pool,) = [
        one for one in karpenter_objects(bare, own, None, engine=False).objects if one["kind"] == "NodePool"
    ]
    assert "startupTaints" not in node_pool["spec"]["template"]["spec"]
