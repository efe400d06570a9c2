"""Traps in an account: each is found where it exists and only there, and says what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.surveys import P5, action, at, block, group, machine, node_group, survey, tagged
from tidemill.catalog import load
from tidemill.model.capacity import ReservationState, SourceKind
from tidemill.ports.compute import Hook
from tidemill.report.account_traps import Trap, traps
from tidemill.report.survey import GroupTarget, Survey

CALM = action("47h")  # an hour before the end of the usual block
EKS = "Amazon EKS Node Group Capacity Scaledown Before Reservation End"


def found(told: Survey) -> dict[str, Trap]:
    return {trap.code: trap for trap in traps(told, load())}


def test_a_healthy_account_has_no_traps():
    calm = group(schedules=(CALM,), members=("i-1", "i-2"))
    assert found(survey(block(), machines=(machine(), machine("i-2")), groups=(calm,))) == {}


def test_every_trap_says_what_to_do():
    troubled = survey(
        block(available=1), groups=(group(hooks=(), subnets=("subnet-b",)),), machines=(machine("i-9"),)
    )
    assert len(traps(troubled, load())) == 5
    assert all(trap.fix and trap.what and trap.about for trap in traps(troubled, load()))


# --- groups -------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-22")
def test_a_group_without_a_scale_down_outlives_its_block():
    trap = found(survey(block(), groups=(group(),)))["outlives-block"]
    assert "still has size 1 when EC2 terminates the instances of cr-1 at 2026-11-18 11:00" in trap.what
    # Ten minutes for the hook and five to spare before 11:00.
    assert "--start-time 2026-11-18T10:45:00Z --min-size 0 --desired-capacity 0" in trap.fix


@pytest.mark.parametrize("when", ["47h", "2820m"])
def test_a_group_at_zero_half_an_hour_before_the_end_is_no_trap(when: str):
    assert "outlives-block" not in found(survey(block(), groups=(group(schedules=(action(when),)),)))


def test_a_group_that_scales_down_at_the_kill_time_is_a_trap():
    late = action("2850m")  # 47.5 h: the very minute in which EC2 begins
    assert "outlives-block" in found(survey(block(), groups=(group(schedules=(late,)),)))


def test_unreadable_schedules_give_no_trap():
    assert "outlives-block" not in found(survey(block(), groups=(group(schedules=None),)))


@pytest.mark.requirement("MG-2")
def test_eks_own_action_is_in_time_on_a_block_and_too_late_on_an_ultraserver():
    theirs = action("2840m", name=EKS, by_eks=True)  # 40 minutes before the end
    assert found(survey(block(), groups=(node_group(schedules=(theirs,)),))) == {}
    trap = found(survey(block(ultraserver=True), groups=(node_group(schedules=(theirs,)),)))["TR-14"]
    assert "EC2 starts to terminate UltraServer cr-1 at 2026-11-18 10:30, before that" in trap.what


@pytest.mark.requirement("MG-2")
def test_an_eks_action_that_did_not_follow_an_extension_is_a_trap():
    behind = action("20h", name=EKS, by_eks=True)
    trap = found(survey(block(), groups=(node_group(schedules=(behind,)),)))["eks-action-behind"]
    assert "to 0 at 2026-11-17 07:30, but cr-1 lasts until 2026-11-18 11:30" in trap.what
    assert "only EKS can move its action" in trap.fix


def test_a_group_without_a_terminate_hook_is_a_trap():
    assert "no-terminate-hook" in found(survey(block(), groups=(group(hooks=(), schedules=(CALM,)),)))
    assert "no-terminate-hook" not in found(survey(block(), groups=(group(hooks=None, schedules=(CALM,)),)))
    assert "no-terminate-hook" not in found(survey(block(), groups=(node_group(schedules=(CALM,)),)))


def test_a_hook_longer_than_the_time_left_is_a_trap():
    half_an_hour = {"hooks": (Hook("drain", 1801),), "schedules": (CALM,)}
    trap = found(survey(block(), groups=(group(**half_an_hour),)))["hook-too-long"]
    assert "EC2 terminates the instances 30m later in any case" in trap.what
    assert found(survey(block(), groups=(group(**half_an_hour | {"hooks": (Hook("drain", 1800),)}),))) == {}


@pytest.mark.requirement("TR-10")
def test_subnets_outside_the_zone_of_the_block_are_a_trap():
    wide = group(subnets=("subnet-a", "subnet-b"), schedules=(CALM,))
    trap = found(survey(block(), groups=(wide,)))["TR-10"]
    assert "subnet-b (us-east-1b)" in trap.what
    assert "subnet-a" not in trap.what
    assert "subnets in us-east-1a only" in trap.fix
    unknown = group(subnets=("subnet-z",), schedules=(CALM,))
    assert found(survey(block(), groups=(unknown,))) == {}, "a subnet nobody could read is not judged"


@pytest.mark.parametrize(
    ("aim", "why"),
    [
        (GroupTarget(("cr-1",), (), (P5,)), "but not InstanceMarketOptions.MarketType capacity-block"),
        (
            GroupTarget(("cr-1",), ("capacity-block",), (P5,), "its mixed instances policy"),
            "its mixed instances policy",
        ),
    ],
)
def test_a_group_that_may_launch_outside_the_block_is_a_trap(aim: GroupTarget, why: str):
    assert (
        why in found(survey(block(), groups=(group(target=aim, schedules=(CALM,)),)))["launches-beside"].what
    )


def test_an_on_demand_reservation_needs_no_market_type():
    odcr = block(kind=SourceKind.ODCR)
    assert found(survey(odcr, groups=(group(target=GroupTarget(("cr-1",), (), (P5,))),))) == {}


@pytest.mark.parametrize("state", [ReservationState.EXPIRED, ReservationState.PAYMENT_FAILED])
def test_a_group_on_a_block_that_is_over_is_a_trap(state: ReservationState):
    assert "block-is-gone" in found(survey(block(state=state), groups=(group(),)))
    assert "block-is-gone" not in found(survey(block(state=state), groups=(group(desired=0),)))


def test_a_group_on_a_missing_block_is_a_trap_unless_reservations_are_unreadable():
    assert "block-is-gone" in found(survey(groups=(group(),)))
    assert found(replace(survey(groups=(group(),)), reservations=None)) == {}


# --- reservations -------------------------------------------------------------------------------------


def test_open_and_failed_payments_are_traps():
    assert "payment-pending" in found(survey(block(state=ReservationState.PAYMENT_PENDING)))
    assert "payment-failed" in found(survey(block(state=ReservationState.PAYMENT_FAILED)))


def test_an_unpaid_extension_is_a_trap():
    trap = found(survey(block(extension_pending_to=at("3d"))))["extension-pending"]
    assert "the block still ends at 2026-11-18 11:30" in trap.what


def test_a_block_that_ends_within_a_day_needs_a_successor():
    assert "ends-without-successor" not in found(survey(block(ends_in="25h")))
    alone = found(survey(block(ends_in="5h")))["ends-without-successor"]
    assert "no instances of its type are reserved after that" in alone.what
    assert "tidemill extend cr-1 --by 1d until 2026-11-16 15:30" in alone.fix
    late = found(survey(block(ends_in="30m")))["ends-without-successor"]
    assert late.fix.startswith("it is too late to extend")


def test_only_usable_reservations_that_last_longer_count_as_successors():
    ending = block(ends_in="5h", count=4)
    enough = block("cr-2", count=4, start=at("5h"), state=ReservationState.SCHEDULED)
    assert "ends-without-successor" not in found(survey(ending, enough))
    for other, words in (
        (replace(enough, count=3), "only 3 instances of its type are reserved after that"),
        (replace(enough, owner="quarry"), "no instances of its type"),
        (replace(enough, instance_type="p4d.24xlarge"), "no instances of its type"),
        (replace(enough, start=at("6h")), "no instances of its type"),
        (replace(enough, state=ReservationState.PAYMENT_FAILED), "no instances of its type"),
    ):
        assert words in found(survey(ending, other))["ends-without-successor"].what


@pytest.mark.requirement("PE-22")
def test_unused_slots_are_priced_by_the_fee_or_the_list_price():
    paid = block(available=1, fee_usd=7200)  # 2 instances for 72 hours: 50 dollars an hour each
    assert (
        "1 of 2 x p5.48xlarge on cr-1 are paid for and not used, $50.00 an hour"
        in found(survey(paid))["idle"].what
    )
    listed = found(survey(block(available=2)))["idle"]
    assert f"${2 * load().types[P5].block_usd_h:,.2f} an hour" in listed.what
    assert "tidemill adopt cr-1" in listed.fix
    assert "adopt" not in found(survey(block(available=2, owner="mill")))["idle"].fix
    odcr = found(survey(block(available=1, kind=SourceKind.ODCR)))["idle"]
    assert f"${load().types[P5].on_demand_usd_h:,.2f} an hour" in odcr.what
    unknown = found(survey(block(available=1, instance_type="x9.huge")))["idle"]
    assert "$" not in unknown.what
    assert "idle" not in found(survey(block(available=1, state=ReservationState.SCHEDULED)))


@pytest.mark.requirement("TR-14")
def test_karpenter_is_too_late_on_an_ultraserver():
    node = tagged("i-1", {"karpenter.sh/nodepool": "gpu"})
    trap = found(survey(block(ultraserver=True), machines=(node,)))["TR-14"]
    assert "at 2026-11-18 10:50" in trap.what
    assert "at 2026-11-18 10:30, before that" in trap.what
    assert found(survey(block(), machines=(node,))) == {}


def test_instances_without_an_owner_are_a_trap():
    trap = found(survey(block(), machines=(machine("i-7"),)))["nobody-drains"]
    assert "nobody manages i-7" in trap.what
    member = group(members=("i-7",), schedules=(CALM,))
    assert found(survey(block(), machines=(machine("i-7"),), groups=(member,))) == {}
