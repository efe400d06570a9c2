"""EKS managed node groups of the simulated account: what EKS checks, adds and leaves behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sim.account import OWNER, ZONES, Account
from tests.sim.scaling import node_group_request, states, tagged, template_data
from tidemill.model.ec2_facts import EKS_SCALE_DOWN_ACTION
from tidemill.model.errors import Gone, Refused
from tidemill.model.nodes import InstanceState
from tidemill.sim.cloud.scaling_group import AutoScalingGroup


@pytest.fixture
def account() -> Account:
    return Account()


def behind(account: Account, name: str = "train-a") -> AutoScalingGroup:
    return account.cloud.groups.get(account.cloud.node_groups.get(name).group)


@pytest.mark.requirement("MG-1")
def test_a_node_group_on_a_block_is_made_empty_and_takes_a_size_once_active(account: Account):
    block = account.block()
    account.cloud.node_groups.create(node_group_request(block))
    with pytest.raises(Refused, match="CREATING"):
        account.cloud.node_groups.resize("train-a", desired=2)
    account.wait("4m")
    assert account.cloud.node_groups.get("train-a").status == "ACTIVE"
    assert not behind(account).members
    account.cloud.node_groups.resize("train-a", desired=2)
    account.wait("2m")
    assert states(behind(account)) == ["InService", "InService"]
    assert {instance.owner for instance in account.cloud.instances()} == {
        OWNER
    }  # by its template, not by its own tags


@pytest.mark.requirement("MG-1")
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"zones": (ZONES[1],)}, "Subnets must be in us-east-1a"),
        ({"zones": ZONES[:2], "subnets": ("subnet-0a1", "subnet-0b1")}, "and not in us-east-1b"),
        ({"data": template_data()}, "needs a launch template with MarketType"),
        ({"instance_types": ("p5.48xlarge",)}, "takes its InstanceType from the template"),
        ({"capacity_type": "ON_DEMAND"}, "needs CAPACITY_BLOCK"),
        ({"capacity_type": "RESERVED"}, "is unknown"),
        ({"subnets": ()}, "Subnets are required"),
    ],
)
def test_eks_rejects_what_does_not_fit_the_block(account: Account, wrong: dict[str, object], says: str):
    with pytest.raises(Refused, match=says):
        account.cloud.node_groups.create(node_group_request(account.block(), **wrong))
    assert not account.cloud.groups.all()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"SubnetId": "subnet-0a1"}, "should not specify SubnetId"),
        ({"IamInstanceProfile": {"Name": "node"}}, "should not specify IamInstanceProfile"),
        ({"InstanceType": "p4d.24xlarge"}, "holds p5.48xlarge"),
    ],
)
def test_eks_reads_the_template(account: Account, more: dict[str, object], says: str):
    block = account.block()
    with pytest.raises(Refused, match=says):
        account.cloud.node_groups.create(node_group_request(block, data=template_data(block, **more)))


@pytest.mark.requirement("MG-3")
def test_a_node_group_without_a_block_has_no_scale_down_of_eks(account: Account):
    account.cloud.node_groups.create(node_group_request(None, size=(0, 1, 4)))
    account.wait("2m")
    assert states(behind(account)) == ["InService"]
    assert not behind(account).schedules


@pytest.mark.requirement("MG-2")
def test_eks_ends_its_nodes_forty_minutes_before_the_end(account: Account):
    block = account.block()
    assert block.end is not None
    account.cloud.node_groups.create(node_group_request(block, size=(0, 2, 2)))
    (action,) = behind(account).schedules.values()
    assert (action.name, action.at) == (EKS_SCALE_DOWN_ACTION, block.end - timedelta(minutes=40))
    account.until(action.at - timedelta(seconds=1))
    assert account.states(behind(account).members) == {InstanceState.RUNNING}
    account.wait("1s")
    histories = [
        history for history in account.cloud.instance_histories.values() if history.now.source == block.source
    ]
    assert {history.ended_by for history in histories} == {"eks"}


@pytest.mark.requirement("MG-2")
@pytest.mark.parametrize("follows", [False, True])
def test_an_extension_does_not_move_the_scale_down_of_eks_unless_eks_does(account: Account, follows: bool):
    account.cloud.node_groups.follows_extensions = follows
    block = account.block()
    assert block.end is not None
    account.cloud.node_groups.create(node_group_request(block))
    account.cloud.extend("a", timedelta(days=1))
    account.wait("1h")
    (action,) = behind(account).schedules.values()
    moved = timedelta(days=1) if follows else timedelta(0)
    assert action.at == block.end + moved - timedelta(minutes=40)


@pytest.mark.requirement("MG-4")
def test_an_upgrade_on_a_block_needs_an_empty_group(account: Account):
    block = account.block()
    node_groups = account.cloud.node_groups
    node_groups.create(node_group_request(block))
    account.wait("4m")
    node_groups.resize("train-a", desired=1)
    newer = tagged(template_data(block, ImageId="ami-0new"))
    with pytest.raises(Refused, match="scale it to 0"):
        node_groups.set_template("train-a", newer, "v2")
    node_groups.resize("train-a", desired=0)
    account.wait("5m")
    node_groups.set_template("train-a", newer, "v2")
    assert node_groups.get("train-a").status == "UPDATING"
    account.wait("4m")
    assert (node_groups.get("train-a").status, behind(account).template) == ("ACTIVE", "v2")


def test_deleting_a_node_group_ends_its_nodes_and_takes_the_group_along(account: Account):
    account.cloud.node_groups.create(node_group_request(account.block(), size=(0, 2, 2)))
    account.wait("4m")
    account.cloud.node_groups.delete("train-a")
    account.wait("10m")
    assert not account.cloud.groups.all()
    assert account.states(account.cloud.instance_histories) == {InstanceState.TERMINATED}
    with pytest.raises(Gone):
        account.cloud.node_groups.get("train-a")
