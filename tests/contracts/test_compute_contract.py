"""What every implementation of `ports.Compute` must do: in process, and through boto3 on the wire.

A new implementation joins by adding a backend. The tests speak to the compute through the protocol alone; only time and
what other people do come from the backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import boto3
import pytest

from tests.aws.wired import Wired, wired
from tests.sim.account import OWNER, P5, ZONES, Account, tags
from tests.sim.scaling import template_data
from tidemill.aws.compute import AwsCompute
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import EKS_SCALE_DOWN_ACTION
from tidemill.model.errors import Gone, NoCapacity, Refused
from tidemill.model.nodes import InstanceState
from tidemill.ports.compute import (
    Compute,
    Group,
    GroupShape,
    Hook,
    LaunchRequest,
    NodeGroup,
    NodeGroupShape,
    Schedule,
    Template,
    TemplateVersion,
)
from tidemill.sim.cloud.compute import SimCompute
from tidemill.spec.units import parse_duration

ROLE = "arn:aws:iam::123456789012:role/node"
HOOK = Hook("drain", 1800)


class Backend:
    def __init__(self, account: Account, compute: Compute, image: str, subnets: dict[str, str]) -> None:
        self.account, self.compute, self._image = account, compute, image
        self.subnets = subnets  # one in each zone

    def let_pass(self, written: str) -> None:
        self.account.wait(written)

    def now(self) -> datetime:
        return self.account.now

    def template(self, block: Reservation | None, **data: Any) -> Template:
        given = template_data(block, ImageId=self._image) | data
        return Template("mill-train", given, tags())


class InProcess(Backend):
    def __init__(self) -> None:
        account, subnets = Account(), {zone: f"subnet-0{zone[-1]}1" for zone in ZONES}
        by_zone = {zone: [id_] for zone, id_ in subnets.items()}
        compute: Compute = SimCompute(account.cloud, account.timeline, OWNER, by_zone)
        super().__init__(account, compute, "ami-0a1b2c3d4e5f60718", subnets)


class OnTheWire(Backend):
    def __init__(self, there: Wired) -> None:
        self._there, network = there, there.server.wire.network
        subnets = {zone: network.in_zone(zone).id for zone in ZONES}
        boto3.client("eks").create_cluster(
            name="ml", roleArn=ROLE, resourcesVpcConfig={"subnetIds": list(subnets.values())}
        )
        for name in ("a", "b"):
            boto3.client("ec2").create_key_pair(KeyName=name)
        compute: Compute = AwsCompute(there.aws, OWNER, "ml")
        super().__init__(there.account, compute, network.images["x86_64"], subnets)

    def let_pass(self, written: str) -> None:
        self._there.let_pass(parse_duration(written))


@pytest.fixture(params=["in process", "on the wire"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    if request.param == "in process":
        yield InProcess()
        return
    with wired(monkeypatch) as there:
        yield OnTheWire(there)


def put(backend: Backend, block: Reservation | None = None, **data: Any) -> TemplateVersion:
    return backend.compute.put_template(backend.template(block, **data))


def shape(backend: Backend, block: Reservation | None, **given: Any) -> GroupShape:
    made = GroupShape(
        "mill-train-a", put(backend, block), (backend.subnets[ZONES[0]],), 4,
        tuple(sorted((*tags(provisioner="asg"), ("Name", "ml-a-Node")))), HOOK,
    )  # fmt: skip
    return replace(made, **given)


def node_shape(backend: Backend, block: Reservation | None, **given: Any) -> NodeGroupShape:
    made = NodeGroupShape(
        "mill-train-a", "CAPACITY_BLOCK" if block is not None else "ON_DEMAND", put(backend, block),
        (backend.subnets[ZONES[0]],), ROLE, 4, labels=(("tier", "train"),),
        taints=(("nvidia.com/gpu", "true", "NoSchedule"),), tags=tuple(sorted(tags(provisioner="managed"))),
    )  # fmt: skip
    return replace(made, **given)


def group(backend: Backend) -> Group:
    (one,) = backend.compute.groups()
    return one


def node_group(backend: Backend) -> NodeGroup:
    (one,) = backend.compute.node_groups()
    return one


# --- templates and launches ---------------------------------------------------------------------------


def test_a_template_is_found_by_its_content_and_changed_by_a_version(backend: Backend):
    first = put(backend, KeyName="a")
    assert put(backend, KeyName="a") == first
    second = put(backend, KeyName="b")
    assert (second.id, second.name, second.version) == (first.id, first.name, 2)
    assert list(backend.compute.templates()) == [second]
    backend.compute.delete_template(first.name)
    assert not backend.compute.templates()
    with pytest.raises(Gone):
        backend.compute.delete_template(first.name)


def test_a_launch_request_uses_its_template_and_repeated_gives_the_same_instances(backend: Backend):
    block = backend.account.block(count=3)
    order = LaunchRequest(
        "ti-1",
        put(backend, block),
        block.source,
        P5,
        ZONES[0],
        (backend.subnets[ZONES[0]],),
        2,
        tags(intent="ti-1"),
    )
    ids = list(backend.compute.run(order))
    assert len(ids) == 2
    assert list(backend.compute.run(order)) == ids
    assert len(backend.compute.run(replace(order, token="ti-2"))) == 1  # fewer is an answer
    with pytest.raises(NoCapacity):
        backend.compute.run(replace(order, token="ti-3"))
    backend.let_pass("2m")
    backend.compute.terminate(ids[0])
    assert backend.account.states(ids[:1]) == {InstanceState.SHUTTING_DOWN}
    with pytest.raises(Gone):
        backend.compute.terminate("i-00000000000000000")


# --- groups -------------------------------------------------------------------------------------------


@pytest.mark.requirement("SM-2")
@pytest.mark.requirement("SM-3")
def test_a_group_is_created_empty_and_reads_back_as_it_was_put(backend: Backend):
    wanted = shape(backend, backend.account.block())
    backend.compute.put_group(wanted)
    found = group(backend)
    assert found.shape == wanted
    assert (found.minimum, found.desired, found.members, found.launch_error) == (0, 0, (), None)
    backend.compute.put_group(wanted)  # again: nothing changes
    assert group(backend) == found


@pytest.mark.requirement("SM-5")
def test_a_size_brings_tagged_members_and_a_changed_shape_keeps_the_size(backend: Backend):
    block = backend.account.block(count=3)
    wanted = shape(backend, block)
    backend.compute.put_group(wanted)
    backend.compute.resize(wanted.name, 2)
    backend.let_pass("2m")
    assert [member.state for member in group(backend).members] == ["InService", "InService"]
    for instance in backend.account.cloud.instances():
        assert (instance.owner, instance.pool, instance.provisioner) == (OWNER, "train", "asg")
    newer = replace(wanted, template=put(backend, block, KeyName="b"), maximum=3)
    backend.compute.put_group(newer)
    found = group(backend)
    assert (found.shape, found.desired, len(found.members)) == (newer, 2, 2)


def test_a_group_that_shrinks_ends_instances_by_its_policy(backend: Backend):
    wanted = replace(shape(backend, backend.account.block(count=2)), policies=("NewestInstance",), hook=None)
    backend.compute.put_group(wanted)
    backend.compute.resize(wanted.name, 1)
    backend.let_pass("2m")
    backend.compute.resize(wanted.name, 2)
    backend.let_pass("2m")
    oldest = group(backend).members[0]
    backend.compute.resize(wanted.name, 1)
    backend.let_pass("10m")
    assert group(backend).members == (oldest,)


def test_a_group_that_does_not_replace_lists_dead_instances_until_they_are_terminated(backend: Backend):
    wanted = replace(
        shape(backend, backend.account.block(count=2)), suspended=("AZRebalance", "ReplaceUnhealthy")
    )
    backend.compute.put_group(wanted)
    assert group(backend).shape == wanted
    backend.compute.resize(wanted.name, 2)
    backend.let_pass("2m")
    died = backend.account.cloud.kill_instance()
    assert died is not None
    backend.let_pass("10m")
    found = {member.instance_id: member for member in group(backend).members}
    assert len(found) == group(backend).desired == 2
    assert [one.instance_id for one in found.values() if not one.healthy] == [died]
    backend.compute.terminate_in_group(died)
    backend.let_pass("10m")
    (left,) = group(backend).members
    assert (left, group(backend).desired) == (found[left.instance_id], 1)


def test_a_group_that_cannot_launch_says_why(backend: Backend):
    backend.compute.put_group(shape(backend, backend.account.block(start="1d")))
    backend.compute.resize("mill-train-a", 1)
    backend.let_pass("10m")
    assert "is scheduled, not active" in (group(backend).launch_error or "")


def test_a_size_above_the_maximum_is_refused_and_a_missing_group_is_gone(backend: Backend):
    backend.compute.put_group(shape(backend, backend.account.block()))
    with pytest.raises(Refused):
        backend.compute.resize("mill-train-a", 5)
    with pytest.raises(Gone):
        backend.compute.resize("nobody", 1)


@pytest.mark.requirement("SM-7")
def test_a_named_member_waits_in_the_hook_and_is_released(backend: Backend):
    backend.compute.put_group(shape(backend, backend.account.block()))
    backend.compute.resize("mill-train-a", 2)
    backend.let_pass("2m")
    keeps, goes = (member.instance_id for member in group(backend).members)
    backend.compute.terminate_in_group(goes)
    backend.compute.terminate_in_group(goes)  # asked twice: counted once
    at = backend.now()
    backend.let_pass("5m")
    found = group(backend)
    assert found.desired == 1
    (waiting,) = [member for member in found.members if member.waits]
    assert (waiting.instance_id, waiting.waits_since) == (goes, at)
    backend.compute.release("mill-train-a", HOOK.name, goes)
    backend.let_pass("5m")
    assert [member.instance_id for member in group(backend).members] == [keeps]
    with pytest.raises(Gone):
        backend.compute.release("mill-train-a", HOOK.name, goes)
    with pytest.raises(Gone):
        backend.compute.terminate_in_group(goes)


@pytest.mark.requirement("SM-4")
def test_schedules_are_put_moved_and_deleted(backend: Backend):
    backend.compute.put_group(shape(backend, backend.account.block()))
    up = Schedule("up", backend.now() + timedelta(hours=1), 2)
    down = Schedule("down", backend.now() + timedelta(hours=5), 0, 0)
    for one in (up, down):
        backend.compute.put_schedule("mill-train-a", one)
    assert group(backend).schedules == (up, down)
    moved = replace(down, at=down.at + timedelta(hours=1))
    backend.compute.put_schedule("mill-train-a", moved)
    backend.compute.delete_schedule("mill-train-a", "up")
    assert group(backend).schedules == (moved,)
    with pytest.raises(Gone):
        backend.compute.delete_schedule("mill-train-a", "up")
    with pytest.raises(Refused, match="past"):
        backend.compute.put_schedule("mill-train-a", replace(up, at=backend.now() - timedelta(minutes=1)))


def test_a_group_is_deleted_only_when_it_is_empty(backend: Backend):
    backend.compute.put_group(shape(backend, backend.account.block(), hook=None))
    backend.compute.resize("mill-train-a", 1)
    backend.let_pass("2m")
    with pytest.raises(Refused):
        backend.compute.delete_group("mill-train-a")
    backend.compute.terminate_in_group(group(backend).members[0].instance_id)
    backend.let_pass("5m")
    backend.compute.delete_group("mill-train-a")
    assert not backend.compute.groups()


@pytest.mark.requirement("PE-23")
def test_groups_of_others_are_neither_listed_nor_changed(backend: Backend):
    block = backend.account.block()
    backend.compute.put_group(shape(backend, block))
    backend.compute.resize("mill-train-a", 1)
    backend.let_pass("2m")
    (member,) = group(backend).members
    backend.account.cloud.groups.set_tags("mill-train-a", (("deployment", "others"),), ())
    assert not backend.compute.groups()
    for change in (
        lambda: backend.compute.resize("mill-train-a", 0),
        lambda: backend.compute.put_group(shape(backend, block)),
        lambda: backend.compute.terminate_in_group(member.instance_id),
        lambda: backend.compute.delete_group("mill-train-a"),
    ):
        with pytest.raises(Refused):
            change()
    assert backend.account.states([member.instance_id]) == {InstanceState.RUNNING}


# --- node groups --------------------------------------------------------------------------------------


@pytest.mark.requirement("MG-1")
@pytest.mark.requirement("MG-2")
def test_a_node_group_is_created_empty_with_the_action_of_eks(backend: Backend):
    block = backend.account.block()
    assert block.end is not None
    wanted = node_shape(backend, block)
    backend.compute.put_node_group(wanted)
    made = node_group(backend)
    assert (made.shape, made.status, made.desired) == (wanted, "CREATING", 0)
    behind = group(backend)
    assert (behind.shape.name, behind.node_group) == (made.group, wanted.name)
    assert behind.schedules == (
        Schedule(EKS_SCALE_DOWN_ACTION, block.end - timedelta(minutes=40), 0, 0, by_eks=True),
    )
    backend.let_pass("5m")
    assert node_group(backend).status == "ACTIVE"
    backend.compute.resize_node_group(wanted.name, 2)
    backend.let_pass("2m")
    assert node_group(backend).desired == 2
    assert [member.state for member in group(backend).members] == ["InService", "InService"]


@pytest.mark.requirement("MG-4")
def test_a_named_member_of_a_node_group_is_terminated_too(backend: Backend):
    backend.compute.put_node_group(node_shape(backend, backend.account.block()))
    backend.let_pass("5m")
    backend.compute.resize_node_group("mill-train-a", 2)
    backend.let_pass("2m")
    goes = group(backend).members[0].instance_id
    backend.compute.terminate_in_group(goes)
    backend.let_pass("5m")
    assert node_group(backend).desired == 1
    assert goes not in [member.instance_id for member in group(backend).members]


@pytest.mark.requirement("TR-10")
@pytest.mark.parametrize("wrong", ["zone", "market"])
def test_what_eks_rejects_is_refused(backend: Backend, wrong: str):
    block = backend.account.block()
    given = node_shape(backend, block)
    if wrong == "zone":
        given = replace(given, subnets=(backend.subnets[ZONES[1]],))
    else:
        given = replace(given, template=put(backend, None))
    with pytest.raises(Refused):
        backend.compute.put_node_group(given)
    assert not backend.compute.node_groups()


@pytest.mark.requirement("MG-7")
def test_a_node_group_is_changed_where_eks_allows_it(backend: Backend):
    block = backend.account.block()
    wanted = node_shape(backend, block, repair=True)
    backend.compute.put_node_group(wanted)
    backend.let_pass("5m")
    changed = replace(
        wanted, labels=(("tier", "serve"),), taints=(("team", "a", "NoExecute"),), maximum=2, repair=False
    )
    backend.compute.put_node_group(changed)
    backend.let_pass("5m")
    assert node_group(backend).shape == changed
    newer = replace(changed, template=put(backend, block, KeyName="b"))
    backend.compute.put_node_group(newer)
    backend.let_pass("5m")
    assert node_group(backend).shape == newer
    with pytest.raises(Refused):
        backend.compute.put_node_group(replace(newer, subnets=(backend.subnets[ZONES[1]],)))


@pytest.mark.requirement("MG-4")
def test_a_new_template_is_refused_while_the_block_has_nodes(backend: Backend):
    block = backend.account.block()
    wanted = node_shape(backend, block)
    backend.compute.put_node_group(wanted)
    backend.let_pass("5m")
    backend.compute.resize_node_group(wanted.name, 1)
    backend.let_pass("2m")
    with pytest.raises(Refused):
        backend.compute.put_node_group(replace(wanted, template=put(backend, block, KeyName="b")))


def test_deleting_a_node_group_ends_its_nodes(backend: Backend):
    backend.compute.put_node_group(node_shape(backend, backend.account.block()))
    backend.let_pass("5m")
    backend.compute.resize_node_group("mill-train-a", 1)
    backend.let_pass("2m")
    backend.compute.delete_node_group("mill-train-a")
    backend.let_pass("10m")
    assert not backend.compute.node_groups()
    assert not backend.compute.groups()
    with pytest.raises(Gone):
        backend.compute.delete_node_group("mill-train-a")


@pytest.mark.requirement("SM-6")
def test_letting_nodes_join_twice_changes_nothing(backend: Backend):
    backend.compute.let_nodes_join(ROLE)
    backend.compute.let_nodes_join(ROLE)
    assert backend.account.cloud.node_groups.access_entries == {ROLE: "EC2_LINUX"}
