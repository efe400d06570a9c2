"""The account through boto3, on the wire: what the contract does not tell of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.aws.wired import Wired
from tests.sim.account import GB200, ON_DEMAND, OWNER, P5, SPOT, ZONES, tags
from tidemill import catalog
from tidemill.aws.account import AwsAccount
from tidemill.aws.region_check import check_region
from tidemill.model.capacity import ReservationState
from tidemill.model.errors import (
    NoCapacity,
    NotAllowed,
    OutcomeUnknown,
    Refused,
    Retryable,
    SpecError,
    Throttled,
)
from tidemill.model.nodes import InstanceState
from tidemill.model.offers import ExtensionQuery
from tidemill.model.reasons import InstanceEnd, InstanceEndKind
from tidemill.spec import names
from tidemill.spec.platform import Platform

MINUTE = timedelta(minutes=1)


def look(wired: Wired) -> tuple[int, int]:
    """As the engine looks at everything in a tick: how many instances it saw, and how many calls it took."""
    before = wired.aws.rate_limits.calls.total()
    _, found, _ = wired.cloud.reservations(), wired.cloud.instances(), wired.cloud.extensions()
    return len(found), wired.aws.rate_limits.calls.total() - before


def struck(wired: Wired, times: int) -> int:
    """How often a fault that was armed for so many calls has struck: how many calls arrived."""
    return times - sum(one.left or 0 for one in wired.server.wire.faults._armed)


# --- few calls ----------------------------------------------------------------------------------------


def test_reading_two_thousand_instances_takes_at_most_a_dozen_calls(wired: Wired):
    for name in "abcdefghij":
        block = wired.account.block(name=name, count=50)
        wired.account.launch(block.source, count=50)
    wired.account.launch(ON_DEMAND, count=1400)
    wired.account.launch(SPOT, count=100)
    wired.let_pass(5 * MINUTE)
    found, calls = look(wired)
    assert found == 2000
    assert calls <= 12, wired.aws.rate_limits.calls


def test_a_list_of_instances_serves_for_a_few_seconds_unless_something_changed(wired: Wired):
    kept = AwsAccount(wired.aws, wired, catalog.load(), owner=OWNER, instances_kept=timedelta(seconds=5))

    def lists() -> int:
        before = wired.aws.rate_limits.calls["DescribeInstances"]
        kept.instances()
        return wired.aws.rate_limits.calls["DescribeInstances"] - before

    assert [lists(), lists()] == [1, 0]
    wired.let_pass(timedelta(seconds=5))
    assert [lists(), lists()] == [1, 0]
    (id_,) = wired.cloud.launch(wired.account.intent(ON_DEMAND, pool="train"), tags())
    assert [lists(), lists()] == [1, 0]
    wired.cloud.terminate(id_)
    assert [lists(), lists()] == [1, 0]
    wired.aws.note_change()  # AWS sent an event
    assert [lists(), lists()] == [1, 0]
    wired.fault("throttle", action="DescribeInstances", count=9)
    wired.let_pass(timedelta(seconds=5))
    with pytest.raises(Throttled):
        kept.instances()
    wired.fault("clear")
    assert lists() == 1  # what was read before the failure is not used


def test_a_second_read_before_a_purchase_reads_again(wired: Wired):
    wired.account.cloud.show_purchases_late(timedelta(0))
    look(wired)
    block = wired.account.block()
    assert [reservation.id for reservation in wired.cloud.reservations()] == [block.id]
    assert wired.cloud.extensions() == ()  # read along with the reservations
    wired.account.cloud.extend(block.id, timedelta(days=1))
    (told,) = wired.cloud.extensions()  # not a moment later, and asked anew
    assert told.reservation_id == block.id
    assert wired.cloud.reservations()[0].extension_pending_to == told.end


def test_extensions_read_with_the_reservations_are_not_used_when_they_are_old(wired: Wired):
    wired.account.cloud.show_purchases_late(timedelta(0))
    block = wired.account.block()
    wired.cloud.reservations()
    wired.account.cloud.extend(block.id, timedelta(days=1))
    wired.let_pass(MINUTE)
    assert len(wired.cloud.extensions()) == 1


# --- what there is ------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-17")
def test_instances_of_others_are_listed_only_if_they_run_on_a_reservation(wired: Wired):
    block = wired.account.block(count=4)
    (stranger,) = wired.account.cloud.add_foreign_instance(block.id)
    wired.account.cloud.launch(wired.account.intent(ON_DEMAND), ((names.TAG_OWNER, "somebody-else"),))
    (ours,) = wired.account.launch(block.source)
    wired.let_pass(2 * MINUTE)
    wired.cloud.reservations()
    found = {instance.id: instance for instance in wired.cloud.instances()}
    assert set(found) == {ours, stranger}
    assert (found[ours].owner, found[stranger].owner) == (OWNER, "")
    assert found[stranger].source == block.source


@pytest.mark.requirement("PE-17")
def test_retirements_and_spot_interruptions_set_the_end_of_an_instance(wired: Wired):
    (kept,) = wired.account.launch(ON_DEMAND)
    (spot,) = wired.account.launch(SPOT)
    wired.let_pass(2 * MINUTE)
    wired.account.cloud.retire(kept)
    wired.account.cloud.interrupt_spot(spot)
    found = {instance.id: instance for instance in wired.cloud.instances()}
    assert found[kept].ends_at == wired.now() + timedelta(hours=24)
    assert found[kept].ends_why == InstanceEnd(InstanceEndKind.RETIREMENT)
    assert found[spot].ends_at == wired.now() + 2 * MINUTE
    assert found[spot].ends_why == InstanceEnd(InstanceEndKind.SPOT_INTERRUPTION)


def test_terminated_instances_stay_listed_for_a_while(wired: Wired):
    (id_,) = wired.account.launch(ON_DEMAND)
    wired.let_pass(2 * MINUTE)
    wired.cloud.terminate(id_)
    wired.let_pass(10 * MINUTE)
    assert [(instance.id, instance.state) for instance in wired.cloud.instances()] == [
        (id_, InstanceState.TERMINATED)
    ]
    wired.let_pass(timedelta(hours=2))
    assert wired.cloud.instances() == ()


# --- buying -------------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-3")
def test_a_block_carries_every_tag_and_what_it_cost(wired: Wired):
    offer = wired.cloud.search_offers(wired.account.query())[0]
    more = (*tags(intent="p-1"), ("cost-centre", "ml"))
    (bought,) = wired.cloud.purchase(offer.id, more)
    wired.let_pass(10 * MINUTE)
    (seen,) = wired.cloud.reservations()
    assert dict(seen.tags) | dict(more) == dict(seen.tags)
    assert (bought.fee_usd, seen.fee_usd) == (offer.fee_usd, offer.fee_usd)


@pytest.mark.requirement("CB-15")
def test_one_purchase_of_ultraservers_gives_several_blocks_with_their_shares_of_the_fee(wired: Wired):
    offer = wired.cloud.search_offers(wired.account.query(instance_type=GB200, count=18 * 2))[0]
    assert (offer.ultraserver, offer.count) == (True, 36)
    bought = wired.cloud.purchase(offer.id, tags(intent="p-1"))
    assert len({one.id for one in bought}) == 2
    wired.let_pass(10 * MINUTE)
    seen = wired.cloud.reservations()
    assert {one.id for one in seen} == {one.id for one in bought}
    assert all((one.ultraserver, one.count, one.intent_id) == (True, 18, "p-1") for one in seen)
    assert offer.fee_usd <= sum(one.fee_usd for one in seen) <= offer.fee_usd + 1


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("fault", ["lost-answer", "lost-request", "internal-error", "unavailable"])
def test_a_purchase_that_is_not_answered_is_unknown_and_is_called_exactly_once(wired: Wired, fault: str):
    offer = wired.cloud.search_offers(wired.account.query())[0]
    wired.fault(fault, action="PurchaseCapacityBlock", times=9)
    with pytest.raises(OutcomeUnknown):
        wired.cloud.purchase(offer.id, tags(intent="p-1"))
    assert struck(wired, 9) == 1
    arrived = 1 if fault == "lost-answer" else 0
    assert len(wired.account.cloud.purchases) == arrived
    wired.fault("clear")
    wired.let_pass(10 * MINUTE)
    assert (
        len([reservation for reservation in wired.cloud.reservations() if reservation.intent_id == "p-1"])
        == arrived
    )


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("fault", ["lost-answer", "internal-error"])
def test_an_extension_that_is_not_answered_is_unknown_and_is_called_exactly_once(wired: Wired, fault: str):
    block = wired.account.block()
    (offer,) = wired.cloud.search_extensions(ExtensionQuery(block.id, timedelta(days=1)))
    wired.fault(fault, action="PurchaseCapacityBlockExtension", times=9)
    with pytest.raises(OutcomeUnknown):
        wired.cloud.purchase_extension(offer.id, block.id)
    assert struck(wired, 9) == 1
    assert len(wired.account.cloud.bought_extensions) == (1 if fault == "lost-answer" else 0)


@pytest.mark.requirement("CB-4")
def test_a_purchase_that_is_throttled_was_certainly_not_made_and_is_not_tried_again(wired: Wired):
    offer = wired.cloud.search_offers(wired.account.query())[0]
    wired.fault("throttle", action="PurchaseCapacityBlock", times=9)
    with pytest.raises(Throttled):
        wired.cloud.purchase(offer.id, tags(intent="p-1"))
    assert struck(wired, 9) == 1
    assert wired.account.cloud.purchases == []


@pytest.mark.requirement("CB-5")
def test_a_failed_payment_shows_as_payment_failed(wired: Wired):
    offer = wired.cloud.search_offers(wired.account.query(earliest_start=wired.now() + timedelta(days=1)))[0]
    wired.fault("payment-fails")
    wired.cloud.purchase(offer.id, tags(intent="p-1"))
    wired.let_pass(timedelta(hours=13))
    assert wired.cloud.reservations()[0].state is ReservationState.PAYMENT_FAILED


def test_buying_an_offer_that_is_gone_raises_no_capacity(wired: Wired):
    offer = wired.cloud.search_offers(wired.account.query())[0]
    wired.let_pass(timedelta(days=3))
    with pytest.raises(NoCapacity):
        wired.cloud.purchase(offer.id, tags(intent="p-1"))


def test_offers_of_other_zones_are_left_out(wired: Wired):
    found = wired.cloud.search_offers(wired.account.query(zones=(ZONES[1],)))
    assert {one.zone for one in found} == {ZONES[1]}


def test_an_impossible_extension_is_refused_with_the_message_of_ec2(wired: Wired):
    block = wired.account.block()
    wired.let_pass(timedelta(days=1, hours=23, minutes=30))
    with pytest.raises(Refused, match="1 hour before its end"):
        wired.cloud.search_extensions(ExtensionQuery(block.id, timedelta(days=1)))


# --- trouble ------------------------------------------------------------------------------------------


def test_a_read_that_fails_once_is_tried_again_by_itself(wired: Wired):
    wired.account.block()
    wired.fault("unavailable", action="DescribeCapacityReservations", times=1)
    assert len(wired.cloud.reservations()) == 1


def test_a_read_that_keeps_failing_is_retryable_and_a_throttled_one_is_throttled(wired: Wired):
    wired.fault("unavailable", action="DescribeCapacityReservations", times=9)
    with pytest.raises(Retryable):
        wired.cloud.reservations()
    wired.fault("clear")
    wired.fault("throttle", times=9)
    with pytest.raises(Throttled):
        wired.cloud.extensions()


def test_where_ec2_sells_no_blocks_everything_else_works(wired: Wired):
    wired.fault(
        "error", action="DescribeCapacityBlockExtensionHistory", code="UnsupportedOperation", status=400, times=9,
        message="The functionality you requested is not available in this region.",
    )  # fmt: skip
    odcr = wired.account.block(type="odcr", name="o", duration="1d")
    assert [reservation.id for reservation in wired.cloud.reservations()] == [odcr.id]
    assert wired.cloud.extensions() == ()


def test_a_missing_permission_for_the_history_is_not_an_empty_history(wired: Wired):
    wired.fault(
        "error",
        action="DescribeCapacityBlockExtensionHistory",
        code="UnauthorizedOperation",
        status=403,
        times=9,
    )
    with pytest.raises(NotAllowed, match="ec2:DescribeCapacityBlockExtensionHistory"):
        wired.cloud.reservations()


@pytest.mark.requirement("CB-17")
def test_a_reservation_shared_by_another_account_is_not_tagged(wired: Wired):
    block = wired.account.block()
    wired.cloud.reservations()
    wired.direct._accounts[block.id] = "999999999999"
    with pytest.raises(Refused, match="belongs to account 999999999999"):
        wired.cloud.tag_reservation(block.id, ((names.TAG_POOL, "train"),))
    assert wired.aws.rate_limits.calls["CreateTags"] == 0


def test_a_launch_whose_answer_is_lost_is_found_by_repeating_it(wired: Wired):
    block = wired.account.block(count=4)
    intent = wired.account.intent(block.source, count=2)
    wired.fault("lost-answer", action="RunInstances")
    with pytest.raises(OutcomeUnknown):  # a launch is called once: what repeats it knows its token
        wired.cloud.launch(intent, tags(intent=intent.id))
    assert wired.aws.rate_limits.calls["RunInstances"] == 1
    ids = wired.cloud.launch(intent, tags(intent=intent.id))
    assert len(ids) == 2
    assert len(wired.account.cloud.instance_histories) == 2


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("fault", ["lost-answer", "lost-request", "unavailable", "throttle"])
@pytest.mark.parametrize("action", ["DescribeLaunchTemplates", "CreateLaunchTemplate", "RunInstances"])
def test_a_launch_that_fails_at_any_step_and_is_repeated_gives_the_same_instances(
    wired: Wired, fault: str, action: str
):
    block = wired.account.block(count=4)
    intent = wired.account.intent(block.source, count=2)
    wired.fault(fault, action=action, times=4)  # more often than the SDK tries
    for _ in range(6):
        try:
            ids = wired.cloud.launch(intent, tags(intent=intent.id))
            break
        except Retryable:
            continue
    assert len(ids) == 2
    assert set(wired.account.cloud.instance_histories) == set(ids)
    assert len(wired.compute.templates()) == 1


def test_a_repeated_launch_whose_template_changed_gives_the_first_instances(wired: Wired):
    block = wired.account.block(count=4)
    intent = wired.account.intent(block.source, count=2)
    ids = wired.cloud.launch(intent, tags(intent=intent.id))
    wired.account.cloud.extend(block.id, timedelta(days=1))
    wired.let_pass(20 * MINUTE)
    wired.cloud.reservations()  # its deadline is another now, and so is what its nodes are told at boot
    assert wired.cloud.launch(intent, tags(intent=intent.id)) == ids
    assert len(wired.account.cloud.instance_histories) == 2


def test_a_launch_without_its_pool_or_subnet_is_refused(wired: Wired):
    block = wired.account.block()
    for intent in (
        wired.account.intent(block.source, pool="gone"),
        wired.account.intent(ON_DEMAND, zone="us-east-1f"),
        replace(wired.account.intent(block.source), provisioner="somehow"),
    ):
        with pytest.raises((NoCapacity, Refused)):
            wired.cloud.launch(intent, tags(intent=intent.id))
    assert wired.account.cloud.instance_histories == {}
    assert P5 in wired.spec.catalog.types


@pytest.mark.requirement("CB-4")
def test_the_region_is_that_of_the_platforms_subnets_or_nothing_is_bound_to_it(wired: Wired):
    """A filter on ids that are not there answers with an empty list, as a wrong region does."""
    check_region(wired.aws, wired.spec.platform)
    some = replaced_subnets(wired, [wired.server.wire.network.subnets[0].id, "subnet-0ff"])
    check_region(wired.aws, some)
    with pytest.raises(SpecError, match=r"none of its subnets \(subnet-0ff\) is in us-east-1"):
        check_region(wired.aws, replaced_subnets(wired, ["subnet-0ff"]))


def replaced_subnets(wired: Wired, ids: list[str]) -> Platform:
    platform = wired.spec.platform
    changed = platform.spec.model_copy(update={"subnets": {"us-east-1a": ids}})
    return platform.model_copy(update={"spec": changed})
