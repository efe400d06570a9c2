"""What every implementation of `ports.Compute` must do: in process, and through boto3 on the wire.

A new implementation joins by adding a stage. The tests speak to the compute through the protocol alone; only time and
what other people do come from the stage.
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


class Stage:
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


class InProcess(Stage):
    def __init__(self) -> None:
        account, subnets = Account(), {zone: f"subnet-0{zone[-1]}1" for zone in ZONES}
        by_zone = {zone: [id_] for zone, id_ in subnets.items()}
        compute: Compute = SimCompute(account.cloud, account.timeline, OWNER, by_zone)
        super().__init__(account, compute, "ami-0a1b2c3d4e5f60718", subnets)


class OnTheWire(Stage):
    def __init__(self, there: Wired) -> None:
        self._there, network = there, there.server.wire.network
        subnets = {zone: network.in_zone(zone).id for zone in ZONES}
        boto3.client("eks").create_cluster(
            name="ml", roleArn=ROLE, resourcesVpcConfig={"subnetIds": list(subnets.values())}
        )
        compute: Compute = AwsCompute(there.aws, OWNER, "ml")
        super().__init__(there.account, compute, network.images["x86_64"], subnets)

    def let_pass(self, written: str) -> None:
        self._there.let_pass(parse_duration(written))


@pytest.fixture(params=["in process", "on the wire"])
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    if request.param == "in process":
        yield InProcess()
        return
    with wired(monkeypatch) as there:
        yield OnTheWire(there)


def put(stage: Stage, block: Reservation | None = None, **data: Any) -> TemplateVersion:
    return stage.compute.put_template(stage.template(block, **data))


def shape(stage: Stage, block: Reservation | None, **given: Any) -> GroupShape:
    made = GroupShape(
        "mill-train-a", put(stage, block), (stage.subnets[ZONES[0]],), 4,
        tuple(sorted((*tags(provisioner="asg"), ("Name", "ml-a-Node")))), HOOK,
    )  # fmt: skip
    return replace(made, **given)


def node_shape(stage: Stage, block: Reservation | None, **given: Any) -> NodeGroupShape:
    made = NodeGroupShape(
        "mill-train-a", "CAPACITY_BLOCK" if block is not None else "ON_DEMAND", put(stage, block),
        (stage.subnets[ZONES[0]],), ROLE, 4, labels=(("tier", "train"),),
        taints=(("nvidia.com/gpu", "true", "NoSchedule"),), tags=tuple(sorted(tags(provisioner="managed"))),
    )  # fmt: skip
    return replace(made, **given)


def group(stage: Stage) -> Group:
    (one,) = stage.compute.groups()
    return one


def node_group(stage: Stage) -> NodeGroup:
    (one,) = stage.compute.node_groups()
    return one


# --- templates and launches ---------------------------------------------------------------------------


def test_a_template_is_found_by_its_content_and_changed_by_a_version(stage: Stage):
    first = put(stage, KeyName="a")
    assert put(stage, KeyName="a") == first
    second = put(stage, KeyName="b")
    assert (second.id, second.name, second.version) == (first.id, first.name, 2)
    assert list(stage.compute.templates()) == [second]
    stage.compute.delete_template(first.name)
    assert not stage.compute.templates()
    with pytest.raises(Gone):
        stage.compute.delete_template(first.name)


def test_an_order_launches_from_its_template_and_repeated_gives_the_same(stage: Stage):
    block = stage.account.block(count=3)
    order = LaunchRequest(
        "ti-1",
        put(stage, block),
        block.source,
        P5,
        ZONES[0],
        (stage.subnets[ZONES[0]],),
        2,
        tags(intent="ti-1"),
    )
    ids = list(stage.compute.run(order))
    assert len(ids) == 2
    assert list(stage.compute.run(order)) == ids
    assert len(stage.compute.run(replace(order, token="ti-2"))) == 1  # fewer is an answer
    with pytest.raises(NoCapacity):
        stage.compute.run(replace(order, token="ti-3"))
    stage.let_pass("2m")
    stage.compute.terminate(ids[0])
    assert stage.account.states(ids[:1]) == {InstanceState.SHUTTING_DOWN}
    with pytest.raises(Gone):
        stage.compute.terminate("i-00000000000000000")


# --- groups -------------------------------------------------------------------------------------------


@pytest.mark.requirement("SM-2")
@pytest.mark.requirement("SM-3")
def test_a_group_is_made_empty_and_reads_back_as_it_was_put(stage: Stage):
    wanted = shape(stage, stage.account.block())
    stage.compute.put_group(wanted)
    found = group(stage)
    assert found.shape == wanted
    assert (found.minimum, found.desired, found.members, found.launch_error) == (0, 0, (), None)
    stage.compute.put_group(wanted)  # again: nothing changes
    assert group(stage) == found


@pytest.mark.requirement("SM-5")
def test_a_size_brings_tagged_members_and_changing_the_shape_leaves_it_alone(stage: Stage):
    block = stage.account.block(count=3)
    wanted = shape(stage, block)
    stage.compute.put_group(wanted)
    stage.compute.resize(wanted.name, 2)
    stage.let_pass("2m")
    assert [one.state for one in group(stage).members] == ["InService", "InService"]
    for one in stage.account.cloud.instances():
        assert (one.owner, one.pool, one.provisioner) == (OWNER, "train", "asg")
    newer = replace(wanted, template=put(stage, block, KeyName="b"), maximum=3)
    stage.compute.put_group(newer)
    found = group(stage)
    assert (found.shape, found.desired, len(found.members)) == (newer, 2, 2)


def test_a_group_that_is_made_smaller_ends_whom_its_policy_names(stage: Stage):
    wanted = replace(shape(stage, stage.account.block(count=2)), policies=("NewestInstance",), hook=None)
    stage.compute.put_group(wanted)
    stage.compute.resize(wanted.name, 1)
    stage.let_pass("2m")
    stage.compute.resize(wanted.name, 2)
    stage.let_pass("2m")
    oldest = group(stage).members[0]
    stage.compute.resize(wanted.name, 1)
    stage.let_pass("10m")
    assert group(stage).members == (oldest,)


def test_a_group_that_replaces_nobody_keeps_the_dead_on_its_list_until_they_are_named(stage: Stage):
    wanted = replace(
        shape(stage, stage.account.block(count=2)), suspended=("AZRebalance", "ReplaceUnhealthy")
    )
    stage.compute.put_group(wanted)
    assert group(stage).shape == wanted
    stage.compute.resize(wanted.name, 2)
    stage.let_pass("2m")
    died = stage.account.cloud.kill_instance()
    assert died is not None
    stage.let_pass("10m")
    found = {one.instance_id: one for one in group(stage).members}
    assert len(found) == group(stage).desired == 2
    assert [one.instance_id for one in found.values() if not one.healthy] == [died]
    stage.compute.terminate_in_group(died)
    stage.let_pass("10m")
    (left,) = group(stage).members
    assert (left, group(stage).desired) == (found[left.instance_id], 1)


def test_a_group_that_cannot_launch_says_why(stage: Stage):
    stage.compute.put_group(shape(stage, stage.account.block(start="1d")))
    stage.compute.resize("mill-train-a", 1)
    stage.let_pass("10m")
    assert "is scheduled, not active" in (group(stage).launch_error or "")


def test_a_size_beyond_the_largest_is_refused_and_a_group_that_is_not_there_is_gone(stage: Stage):
    stage.compute.put_group(shape(stage, stage.account.block()))
    with pytest.raises(Refused):
        stage.compute.resize("mill-train-a", 5)
    with pytest.raises(Gone):
        stage.compute.resize("nobody", 1)


@pytest.mark.requirement("SM-7")
def test_a_member_goes_by_name_waits_in_the_hook_and_is_released(stage: Stage):
    stage.compute.put_group(shape(stage, stage.account.block()))
    stage.compute.resize("mill-train-a", 2)
    stage.let_pass("2m")
    keeps, goes = (one.instance_id for one in group(stage).members)
    stage.compute.terminate_in_group(goes)
    stage.compute.terminate_in_group(goes)  # asked twice: counted once
    at = stage.now()
    stage.let_pass("5m")
    found = group(stage)
    assert found.desired == 1
    (waiting,) = [one for one in found.members if one.waits]
    assert (waiting.instance_id, waiting.waits_since) == (goes, at)
    stage.compute.release("mill-train-a", HOOK.name, goes)
    stage.let_pass("5m")
    assert [one.instance_id for one in group(stage).members] == [keeps]
    with pytest.raises(Gone):
        stage.compute.release("mill-train-a", HOOK.name, goes)
    with pytest.raises(Gone):
        stage.compute.terminate_in_group(goes)


@pytest.mark.requirement("SM-4")
def test_schedules_are_put_moved_and_deleted(stage: Stage):
    stage.compute.put_group(shape(stage, stage.account.block()))
    up = Schedule("up", stage.now() + timedelta(hours=1), 2)
    down = Schedule("down", stage.now() + timedelta(hours=5), 0, 0)
    for one in (up, down):
        stage.compute.put_schedule("mill-train-a", one)
    assert group(stage).schedules == (up, down)
    moved = replace(down, at=down.at + timedelta(hours=1))
    stage.compute.put_schedule("mill-train-a", moved)
    stage.compute.delete_schedule("mill-train-a", "up")
    assert group(stage).schedules == (moved,)
    with pytest.raises(Gone):
        stage.compute.delete_schedule("mill-train-a", "up")
    with pytest.raises(Refused, match="past"):
        stage.compute.put_schedule("mill-train-a", replace(up, at=stage.now() - timedelta(minutes=1)))


def test_a_group_is_deleted_only_when_it_is_empty(stage: Stage):
    stage.compute.put_group(shape(stage, stage.account.block(), hook=None))
    stage.compute.resize("mill-train-a", 1)
    stage.let_pass("2m")
    with pytest.raises(Refused):
        stage.compute.delete_group("mill-train-a")
    stage.compute.terminate_in_group(group(stage).members[0].instance_id)
    stage.let_pass("5m")
    stage.compute.delete_group("mill-train-a")
    assert not stage.compute.groups()


@pytest.mark.requirement("PE-23")
def test_what_is_not_ours_is_neither_listed_nor_changed(stage: Stage):
    block = stage.account.block()
    stage.compute.put_group(shape(stage, block))
    stage.compute.resize("mill-train-a", 1)
    stage.let_pass("2m")
    (member,) = group(stage).members
    stage.account.cloud.groups.set_tags("mill-train-a", (("deployment", "others"),), ())
    assert not stage.compute.groups()
    for change in (
        lambda: stage.compute.resize("mill-train-a", 0),
        lambda: stage.compute.put_group(shape(stage, block)),
        lambda: stage.compute.terminate_in_group(member.instance_id),
        lambda: stage.compute.delete_group("mill-train-a"),
    ):
        with pytest.raises(Refused):
            change()
    assert stage.account.states([member.instance_id]) == {InstanceState.RUNNING}


# --- node groups --------------------------------------------------------------------------------------


@pytest.mark.requirement("MG-1")
@pytest.mark.requirement("MG-2")
def test_a_node_group_is_made_empty_with_eks_s_own_action_behind_it(stage: Stage):
    block = stage.account.block()
    assert block.end is not None
    wanted = node_shape(stage, block)
    stage.compute.put_node_group(wanted)
    made = node_group(stage)
    assert (made.shape, made.status, made.desired) == (wanted, "CREATING", 0)
    behind = group(stage)
    assert (behind.shape.name, behind.node_group) == (made.group, wanted.name)
    assert behind.schedules == (
        Schedule(EKS_SCALE_DOWN_ACTION, block.end - timedelta(minutes=40), 0, 0, by_eks=True),
    )
    stage.let_pass("5m")
    assert node_group(stage).status == "ACTIVE"
    stage.compute.resize_node_group(wanted.name, 2)
    stage.let_pass("2m")
    assert node_group(stage).desired == 2
    assert [one.state for one in group(stage).members] == ["InService", "InService"]


@pytest.mark.requirement("MG-4")
def test_a_member_of_a_node_group_goes_by_name_too(stage: Stage):
    stage.compute.put_node_group(node_shape(stage, stage.account.block()))
    stage.let_pass("5m")
    stage.compute.resize_node_group("mill-train-a", 2)
    stage.let_pass("2m")
    goes = group(stage).members[0].instance_id
    stage.compute.terminate_in_group(goes)
    stage.let_pass("5m")
    assert node_group(stage).desired == 1
    assert goes not in [one.instance_id for one in group(stage).members]


@pytest.mark.requirement("TR-10")
@pytest.mark.parametrize("wrong", ["zone", "market"])
def test_what_eks_rejects_is_refused(stage: Stage, wrong: str):
    block = stage.account.block()
    given = node_shape(stage, block)
    if wrong == "zone":
        given = replace(given, subnets=(stage.subnets[ZONES[1]],))
    else:
        given = replace(given, template=put(stage, None))
    with pytest.raises(Refused):
        stage.compute.put_node_group(given)
    assert not stage.compute.node_groups()


@pytest.mark.requirement("MG-7")
def test_a_node_group_is_changed_where_eks_allows_it(stage: Stage):
    block = stage.account.block()
    wanted = node_shape(stage, block, repair=True)
    stage.compute.put_node_group(wanted)
    stage.let_pass("5m")
    changed = replace(
        wanted, labels=(("tier", "serve"),), taints=(("team", "a", "NoExecute"),), maximum=2, repair=False
    )
    stage.compute.put_node_group(changed)
    stage.let_pass("5m")
    assert node_group(stage).shape == changed
    newer = replace(changed, template=put(stage, block, KeyName="b"))
    stage.compute.put_node_group(newer)
    stage.let_pass("5m")
    assert node_group(stage).shape == newer
    with pytest.raises(Refused):
        stage.compute.put_node_group(replace(newer, subnets=(stage.subnets[ZONES[1]],)))


@pytest.mark.requirement("MG-4")
def test_a_new_template_is_refused_while_nodes_of_a_block_are_there(stage: Stage):
    block = stage.account.block()
    wanted = node_shape(stage, block)
    stage.compute.put_node_group(wanted)
    stage.let_pass("5m")
    stage.compute.resize_node_group(wanted.name, 1)
    stage.let_pass("2m")
    with pytest.raises(Refused):
        stage.compute.put_node_group(replace(wanted, template=put(stage, block, KeyName="b")))


def test_a_node_group_goes_with_its_nodes(stage: Stage):
    stage.compute.put_node_group(node_shape(stage, stage.account.block()))
    stage.let_pass("5m")
    stage.compute.resize_node_group("mill-train-a", 1)
    stage.let_pass("2m")
    stage.compute.delete_node_group("mill-train-a")
    stage.let_pass("10m")
    assert not stage.compute.node_groups()
    assert not stage.compute.groups()
    with pytest.raises(Gone):
        stage.compute.delete_node_group("mill-train-a")


@pytest.mark.requirement("SM-6")
def test_letting_nodes_join_twice_is_letting_them_join(stage: Stage):
    stage.compute.let_nodes_join(ROLE)
    stage.compute.let_nodes_join(ROLE)
    assert stage.account.cloud.node_groups.access_entries == {ROLE: "EC2_LINUX"}
