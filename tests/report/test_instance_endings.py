"""When instances will end if nobody acts, and who owns them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.surveys import MINUTE, NOW, action, at, block, group, machine, node_group, survey, tagged
from tidemill.catalog import load
from tidemill.model.capacity import SourceKind
from tidemill.model.nodes import InstanceState
from tidemill.model.reasons import InstanceEnd, InstanceEndKind
from tidemill.report.account_traps import traps
from tidemill.report.instance_endings import endings, size_at

KARPENTER = {"karpenter.sh/nodepool": "gpu"}


@pytest.mark.requirement("PE-22")
def test_instances_of_a_block_end_half_an_hour_early_and_those_of_an_ultraserver_an_hour():
    found = endings(
        survey(
            block(),
            block("cr-2", ultraserver=True),
            machines=(machine(), machine("i-2"), machine("i-3", "cr-2")),
        )
    )
    assert [(one.at, one.reservation, one.instances) for one in found] == [
        (at("2d") - 60 * MINUTE, "cr-2", ("i-3",)),
        (at("2d") - 30 * MINUTE, "cr-1", ("i-1", "i-2")),
    ]
    assert {one.why for one in found} == {"the block ends"}


@pytest.mark.requirement("PE-22")
def test_karpenter_and_groups_end_instances_before_ec2_does():
    down = action("40h", name="before-the-end")
    told = survey(
        block(),
        machines=(tagged("i-1", KARPENTER), machine("i-2")),
        groups=(group(schedules=(down,), members=("i-2",)),),
    )
    assert [(ending.at, ending.why, ending.instances) for ending in endings(told)] == [
        (at("40h"), "its group scales to 0 (before-the-end)", ("i-2",)),
        (at("2d") - 40 * MINUTE, "Karpenter deletes it", ("i-1",)),
    ]


def test_an_announced_end_counts_if_it_is_earlier():
    one = machine()
    retired = replace(
        one,
        instance=replace(one.instance, ends_at=at("5h"), ends_why=InstanceEnd(InstanceEndKind.RETIREMENT)),
    )
    (found,) = endings(survey(block(), machines=(retired,)))
    assert (found.at, found.why) == (at("5h"), "scheduled retirement")


def test_an_instance_that_shuts_down_ends_now():
    one = machine()
    going = replace(one, instance=replace(one.instance, state=InstanceState.SHUTTING_DOWN))
    told = survey(block(), machines=(going,))
    assert [(each.at, each.why) for each in endings(told)] == [(NOW, "it is shutting down")]
    assert traps(told, load()) == ()


def test_instances_outlive_an_on_demand_reservation():
    odcr = block(kind=SourceKind.ODCR)
    (found,) = endings(survey(odcr, machines=(machine(kind=SourceKind.ODCR),)))
    assert (found.at, found.why) == (None, "nothing ends it")


@pytest.mark.requirement("PE-22")
@pytest.mark.parametrize(
    ("tags", "whose"),
    [
        ({"deployment": "mill", "tidemill.dev/pool": "train"}, "ours, pool train"),
        ({"deployment": "quarry"}, "deployment quarry"),
        ({"deployment": "mill", "aws:autoscaling:groupName": "g"}, "ours"),
        ({"eks:nodegroup-name": "ng", "aws:autoscaling:groupName": "eks-ng"}, "node group ng"),
        (KARPENTER, "Karpenter, NodePool gpu"),
        ({"aws:autoscaling:groupName": "g"}, "Auto Scaling group g"),
        ({"Name": "left-over"}, "nobody (left-over)"),
        ({}, "nobody"),
    ],
)
def test_the_owner_of_an_instance_is_in_its_tags(tags: dict[str, str], whose: str):
    (found,) = endings(survey(block(), machines=(tagged("i-1", tags),)), "mill")
    assert found.whose == whose


def test_a_member_of_a_group_belongs_to_it_without_a_tag():
    told = survey(
        block(), machines=(machine(), machine("i-2")),
        groups=(group(members=("i-1",)), node_group(members=("i-2",))),
    )  # fmt: skip
    assert sorted(ending.whose for ending in endings(told)) == ["Auto Scaling group g", "node group train"]


@pytest.mark.parametrize(
    ("actions", "size", "zero"),
    [
        ((), 1, None),
        ((action("5h"),), 0, "5h"),
        ((action("5h"), action("6h", 2)), 2, None),
        ((action("5h"), action("6h", 0)), 0, "5h"),
        ((action("3d"),), 1, None),  # after the end
        ((action("5h", None, maximum=0),), 0, "5h"),
        ((action("5h", 0, minimum=1),), 1, None),  # its own minimum holds it up
        ((action("5h", 9),), 2, None),  # not above its maximum
    ],
)
def test_the_future_size_of_a_group_follows_its_scheduled_actions(actions, size, zero):
    found = size_at(group(schedules=actions), at("2d"), NOW)
    assert (found.size, found.zero_since) == (size, zero and at(zero))


def test_an_empty_group_is_at_zero_already():
    found = size_at(group(desired=0), at("2d"), NOW)
    assert (found.size, found.zero_since, found.by) == (0, NOW, "")
