"""Which groups should exist, and with what in them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.provision.documents import IMAGE, booted, documents
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.nodes import Instance, InstanceState, Node
from tidemill.model.purchases import LaunchIntent
from tidemill.ports.compute import TemplateVersion
from tidemill.provision import asg, managed
from tidemill.provision.asg import DOWN, UP
from tidemill.provision.group_spec import (
    GroupKey,
    GroupSpec,
    TemplateInputs,
    group_name,
    is_for_a_reservation,
    template_digest,
    template_inputs_of,
)
from tidemill.provision.images import PretendImages
from tidemill.provision.launch_template import template_name
from tidemill.provision.wanted_groups import hourly_group, remaining_allowances, wanted_groups
from tidemill.spec import Spec

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
START = datetime(2026, 11, 17, 11, 30, tzinfo=UTC)
END = datetime(2026, 11, 19, 11, 30, tzinfo=UTC)
CR = "cr-0a1b2c3d4e5f60718"


def block(**given: Any) -> Reservation:
    settings: dict[str, Any] = {
        "id": CR, "kind": SourceKind.BLOCK, "instance_type": "p5.48xlarge", "zone": "us-east-1a", "count": 2,
        "available": 0, "state": ReservationState.SCHEDULED, "start": START, "end": END, "owner": "tides",
        "pool": "train",
    }  # fmt: skip
    return Reservation(**settings | given)


def one(spec: Spec, *reservations: Reservation, now: datetime = NOW) -> GroupSpec:
    found = wanted_groups(spec, reservations or (block(),), now, template_inputs_of(spec, PretendImages()))
    assert not found.problems
    (group,) = found.groups
    return group


def version_of(group: GroupSpec) -> TemplateVersion:
    return TemplateVersion("lt-1", group.template.name, 3)


def node(number: int, **given: Any) -> Node:
    settings: dict[str, Any] = {
        "id": f"i-{number}", "instance_type": "p5.48xlarge", "zone": "us-east-1a",
        "source": Source(SourceKind.BLOCK, CR), "state": InstanceState.RUNNING, "launched_at": NOW,
        "owner": "tides", "pool": "train",
    }  # fmt: skip
    return Node(Instance(**settings | given), None)


# --- Auto Scaling groups ------------------------------------------------------------------------------


@pytest.mark.requirement("SM-1")
@pytest.mark.requirement("SM-2")
def test_a_self_managed_group_has_the_block_s_zone_the_two_tags_and_all_seven_fields():
    group = one(documents(provisioner="asg"))
    assert group.name == f"tides-train-{CR}"
    assert group.subnets == ("subnet-0a1a1a1a", "subnet-0a2a2a2a")
    assert group.maximum == 2
    tags = dict(group.tags)
    assert tags["Name"] == f"ml-tides-train-{CR}-Node"
    assert tags["kubernetes.io/cluster/ml"] == "owned"
    assert (tags["deployment"], tags["tidemill.dev/pool"], tags["tidemill.dev/provisioner"]) == (
        "tides", "train", "asg",
    )  # fmt: skip
    seven = {"InstanceMarketOptions", "CapacityReservationSpecification", "IamInstanceProfile", "ImageId",
             "InstanceType", "SecurityGroupIds", "UserData"}  # fmt: skip
    assert seven <= group.template.data.keys()


@pytest.mark.requirement("SM-4")
def test_a_group_goes_up_at_the_start_and_to_0_before_the_deadline():
    up, down = one(documents(provisioner="asg")).schedules
    assert (up.name, up.desired) == (UP, 2)
    assert START <= up.at <= START + timedelta(minutes=2)
    assert (down.name, down.desired, down.minimum) == (DOWN, 0, 0)
    kill = END - timedelta(minutes=30)
    assert down.at + timedelta(seconds=asg.HOOK.heartbeat_s) <= kill  # EC2 does not cut the hook short
    assert END - down.at == timedelta(minutes=41)


@pytest.mark.requirement("SM-4")
def test_schedules_follow_the_paid_end():
    later = END + timedelta(days=1)
    (_, down) = one(documents(provisioner="asg"), block(end=later)).schedules
    (_, pending) = one(documents(provisioner="asg"), block(extension_pending_to=later)).schedules
    assert down.at - pending.at == timedelta(days=1)


@pytest.mark.requirement("SM-4")
def test_nothing_is_scheduled_in_the_past():
    spec = documents(provisioner="asg")
    active = block(state=ReservationState.ACTIVE)
    assert [schedule.name for schedule in one(spec, active, now=START + timedelta(hours=1)).schedules] == [
        DOWN
    ]
    assert one(spec, active, now=END - timedelta(minutes=41)).schedules == ()


@pytest.mark.requirement("CB-15")
def test_the_group_of_an_ultraserver_goes_down_before_its_hook_would_be_cut_short():
    spec = documents(provisioner="asg", requirements={"instanceTypes": ["p6e-gb200.36xlarge"]})
    of = block(instance_type="p6e-gb200.36xlarge", ultraserver=True)
    (_, down) = one(spec, of).schedules
    assert END - down.at == timedelta(minutes=71)


@pytest.mark.parametrize(("warm", "limit", "size"), [(True, 4, 2), (1, 4, 1), (False, 4, 0), (True, 1, 1)])
def test_no_schedule_brings_up_more_than_is_kept_warm_or_allowed(warm: Any, limit: int, size: int):
    spec = documents(provisioner="asg", warm=warm, limits={"nodes": limit})
    ups = [schedule.desired for schedule in one(spec).schedules if schedule.name == UP]
    assert ups == ([size] if size else [])


def test_no_schedule_brings_up_more_than_the_limits_leave():
    spec = documents(provisioner="asg", limits={"nodes": 4})
    gone = node(9, state=InstanceState.TERMINATED)
    intent = LaunchIntent(
        "ti-1", "train", Source(SourceKind.BLOCK, "cr-x"), "p5.48xlarge", "us-east-1a", 2, "asg", NOW
    )
    room = remaining_allowances(spec, [node(1), node(2, intent_id="ti-1"), gone], [intent])
    found = wanted_groups(spec, [block()], NOW, template_inputs_of(spec, PretendImages()), room)
    assert found.groups[0].schedules[0].desired == 1  # two run, one more of the intent's is on its way


def test_a_block_that_two_pools_may_use_has_no_schedule_that_brings_it_up():
    spec = documents(provisioner="asg")
    spec.pools["other"] = spec.pools["train"].model_copy(
        update={"metadata": spec.pools["train"].metadata.model_copy(update={"name": "other"})}
    )
    found = wanted_groups(spec, [block(pool="")], NOW, template_inputs_of(spec, PretendImages()))
    assert [[schedule.name for schedule in group.schedules] for group in found.groups] == [[DOWN], [DOWN]]


def test_the_terminate_hook_continues_when_its_heartbeat_ends():
    hook = one(documents(provisioner="asg")).hook
    assert hook is not None
    assert hook.result == "CONTINUE"
    assert 30 <= hook.heartbeat_s <= 7200


# --- EKS node groups ----------------------------------------------------------------------------------


@pytest.mark.requirement("MG-1")
@pytest.mark.requirement("MG-7")
def test_a_node_group_on_a_block_is_what_eks_accepts():
    group = one(documents(provisioner="managed"))
    shape = managed.shape(group, version_of(group))
    assert shape.capacity_type == "CAPACITY_BLOCK"
    assert not shape.repair  # the engine mends
    assert shape.instance_types == ()
    assert not {"SubnetId", "IamInstanceProfile"} & group.template.data.keys()
    assert group.template.data["InstanceType"] == "p5.48xlarge"
    assert group.schedules == ()  # EKS has its own
    assert group.hook is None
    assert group.deadline == END - timedelta(minutes=40)
    spelled = {tag["Key"] for tag in group.template.data["TagSpecifications"][0]["Tags"]}
    assert {"deployment", "tidemill.dev/pool", "tidemill.dev/provisioner"} <= spelled


@pytest.mark.parametrize("provisioner", ["asg", "managed"])
def test_a_group_for_admitted_pods_only_has_another_template_and_its_nodes_the_taint(provisioner: str):
    usual = one(documents(provisioner=provisioner))
    held = one(documents(provisioner=provisioner, admittedPodsOnly=True))
    assert template_digest(held.template) != template_digest(usual.template)
    assert "tidemill.dev/held" in booted(held.template)
    assert "tidemill.dev/held" not in booted(usual.template)


@pytest.mark.parametrize("held", [False, True])
def test_where_eks_brings_the_image_the_taint_is_the_node_group_s(held: bool):
    spec = documents(provisioner="managed", admittedPodsOnly=held)
    (group,) = wanted_groups(spec, [block()], NOW, lambda pool, kind: TemplateInputs("")).groups
    taints = managed.shape(group, version_of(group)).taints
    assert (("tidemill.dev/held", "", "NoSchedule") in taints) is held


@pytest.mark.requirement("MG-3")
@pytest.mark.parametrize(
    ("kind", "capacity_type"),
    [("block", "CAPACITY_BLOCK"), ("odcr", "ON_DEMAND"), ("spot", "SPOT"), ("on-demand", "ON_DEMAND")],
)
def test_each_kind_of_source_has_its_capacity_type(kind: str, capacity_type: str):
    assert managed.capacity_type(Source(SourceKind(kind), "")) == capacity_type


@pytest.mark.requirement("MG-3")
def test_there_is_one_node_group_for_each_block_reservation_and_hourly_kind_of_a_pool():
    sources = [{"type": kind} for kind in ("block", "odcr")]
    sources += [{"type": kind, "maxHourlyUsd": 500, "maxMonthlyUsd": 5000} for kind in ("spot", "on-demand")]
    spec = documents(provisioner="managed", sources=sources)
    standing = block(id="cr-o", kind=SourceKind.ODCR, end=None, state=ReservationState.ACTIVE)
    inputs = template_inputs_of(spec, PretendImages())
    found = wanted_groups(spec, [block(id="cr-a"), block(id="cr-b"), standing], NOW, inputs)
    assert not found.problems
    pool = spec.pools["train"]
    hourly = [
        hourly_group(spec, pool, GroupKey("train", Source(kind), "p5.48xlarge", "us-east-1a"), inputs)
        for kind in (SourceKind.SPOT, SourceKind.ON_DEMAND)
    ]
    groups = [*found.groups, *hourly]
    assert len({group.name for group in groups}) == 5
    shapes = [managed.shape(group, version_of(group)) for group in groups]
    assert [(group.key.source.label, shape.capacity_type) for group, shape in zip(groups, shapes, strict=True)] == [
        ("cr-a", "CAPACITY_BLOCK"), ("cr-b", "CAPACITY_BLOCK"), ("cr-o", "ON_DEMAND"), ("spot", "SPOT"),
        ("on-demand", "ON_DEMAND"),
    ]  # fmt: skip


def test_without_an_image_the_node_group_has_an_ami_type():
    spec = documents(provisioner="managed")
    (group,) = wanted_groups(spec, [block()], NOW, lambda pool, kind: TemplateInputs("")).groups
    assert group.ami_type == "AL2023_x86_64_NVIDIA"
    (group,) = wanted_groups(spec, [block()], NOW, lambda pool, kind: TemplateInputs(IMAGE)).groups
    assert group.ami_type == ""


# --- which ones ---------------------------------------------------------------------------------------


def test_native_pools_and_blocks_of_others_have_no_groups():
    assert not wanted_groups(
        documents(), [block()], NOW, template_inputs_of(documents(), PretendImages())
    ).groups
    spec = documents(provisioner="asg")
    for stranger in (block(owner="others"), block(pool="other"), block(state=ReservationState.EXPIRED),
                     block(state=ReservationState.PAYMENT_PENDING), block(instance_type="p4d.24xlarge")):  # fmt: skip
        assert not wanted_groups(spec, [stranger], NOW, template_inputs_of(spec, PretendImages())).groups


@pytest.mark.requirement("TR-10")
def test_a_block_in_a_zone_without_subnets_is_a_problem():
    spec = documents(provisioner="asg")
    found = wanted_groups(
        spec, [block(zone="us-east-1c"), block(id="cr-0b")], NOW, template_inputs_of(spec, PretendImages())
    )
    assert [group.key.source.id for group in found.groups] == ["cr-0b"]
    ((about, sentence),) = found.problems
    assert about == CR
    assert "no subnets in us-east-1c" in sentence


def test_an_hourly_group_is_as_large_as_its_pool_may_become():
    spec = documents(provisioner="asg", sources=[{"type": "spot"}], limits={"gpus": 30, "nodes": 8})
    place = GroupKey("train", Source(SourceKind.SPOT), "p5.48xlarge", "us-east-1b")
    group = hourly_group(spec, spec.pools["train"], place, template_inputs_of(spec, PretendImages()))
    assert (group.maximum, group.subnets, group.deadline) == (3, ("subnet-0b1b1b1b",), None)
    assert group.name == "tides-train-spot-p5-48xlarge-us-east-1b"
    assert asg.shape(group, version_of(group)).maximum == 3


def test_only_a_name_that_ends_in_a_reservation_id_is_for_a_reservation():
    """A pool's own name may look like it; what it launches by the hour from stays."""
    source = Source(SourceKind.BLOCK, CR)
    assert is_for_a_reservation(
        group_name("mill", GroupKey("my-cr-pool", source, "p5.48xlarge", "us-east-1a"))
    )
    hourly = GroupKey("my-cr-pool", Source(SourceKind.SPOT), "p5.48xlarge", "us-east-1a")
    assert not is_for_a_reservation(group_name("mill", hourly))
    spec = documents(provisioner="asg")
    assert is_for_a_reservation(template_name(spec, spec.pools["train"], "p5.48xlarge", source))


def test_names_fit_eks_and_stay_unique():
    source = Source(SourceKind.BLOCK, CR)
    names = {
        group_name("a-deployment-with-a-very-long-name", GroupKey(pool, source, "p5.48xlarge", "us-east-1a"))
        for pool in ("a-pool-with-a-long-name-as-well", "a-pool-with-a-long-name-too")
    }
    assert len(names) == 2
    assert all(len(name) <= 63 and name.endswith(CR) for name in names)
