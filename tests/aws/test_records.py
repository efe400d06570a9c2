"""From EC2's records to the engine's objects: pure, and nothing is guessed."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.aws import answers
from tests.aws.answers import CR, INSTANCE
from tests.sim.account import GB200, OWNER, P5, START, ZONES
from tidemill import catalog
from tidemill.aws.fields import Reader, Unreadable
from tidemill.aws.instances import event_ending, has_owner_tag, read_instance, spot_ending
from tidemill.aws.offers import blocks_of, read_extension, read_extension_offer, read_offer, search_parameters
from tidemill.aws.reservations import read_reservation, recently_listed, with_extensions
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.errors import SpecError
from tidemill.model.nodes import InstanceState
from tidemill.model.offers import ExtensionState, OfferQuery
from tidemill.model.reasons import InstanceEndKind

CATALOG = catalog.load()


def read(**given: Any) -> Reservation:
    return read_reservation(answers.reservation_record(**given), CATALOG, lambda sentence: None)


# --- reservations -------------------------------------------------------------------------------------


def test_an_active_block_is_read_completely():
    block = read()
    assert (block.id, block.kind, block.state) == (CR, SourceKind.BLOCK, ReservationState.ACTIVE)
    assert (block.count, block.available, block.fee_usd) == (2, 1, 6656)
    assert (block.owner, block.pool, block.intent_id) == (OWNER, "train", "p-1")
    assert (block.start, block.end) == (START, START + timedelta(days=2))


@pytest.mark.requirement("CB-5")
def test_a_scheduled_block_has_its_future_count_and_none_available():
    tags = answers.tag_list(owner=OWNER, to_come="16")
    block = read(State="scheduled", TotalInstanceCount=0, AvailableInstanceCount=0, Tags=tags)
    assert (block.count, block.available) == (16, 0)


def test_a_short_delivery_has_the_delivered_count():
    assert (
        read(TotalInstanceCount=14, AvailableInstanceCount=14, Tags=answers.tag_list(to_come="16")).count
        == 14
    )


@pytest.mark.requirement("CB-5")
@pytest.mark.parametrize("state", [one.value for one in ReservationState])
def test_every_state_of_a_block_is_known(state: str):
    assert read(State=state).state.value == state


@pytest.mark.parametrize("state", ["blocked", "", 7, {}, "ACTIVE"])
def test_a_block_in_an_unknown_state_counts_as_bought_and_takes_no_launch(state: Any):
    said: list[str] = []
    block = read_reservation(answers.reservation_record(State=state), CATALOG, said.append)
    assert block.state is ReservationState.PAYMENT_PENDING
    assert block.available == 0
    assert "in the unknown state" in said[0]


@pytest.mark.parametrize(
    ("state", "is_read_as"),
    [
        ("pending", "scheduled"),
        ("assessing", "payment-pending"),
        ("unsupported", "failed"),
        ("cancelling", "cancelled"),
    ],
)
def test_states_of_on_demand_reservations_are_mapped(state: str, is_read_as: str):
    assert read(ReservationType="default", State=state).state.value == is_read_as


def test_an_on_demand_reservation_may_have_no_end():
    odcr = read(ReservationType=None, EndDateType="unlimited", EndDate=None)
    assert (odcr.kind, odcr.end) == (SourceKind.ODCR, None)


def test_a_reservation_that_takes_no_launch_has_none_available():
    assert read(InstancePlatform="Windows").available == 0
    assert read(LaunchStatus="unlaunchable").available == 0


@pytest.mark.requirement("CB-15")
def test_an_ultraserver_block_is_recognised_by_its_type():
    assert read(InstanceType=GB200).ultraserver
    assert not read().ultraserver


@pytest.mark.parametrize(
    "wrong",
    [
        {"CapacityReservationId": None},
        {"CapacityReservationId": "i-123"},
        {"CapacityReservationId": "cr-1\n2"},
        {"InstanceType": 3},
        {"AvailabilityZone": ""},
        {"TotalInstanceCount": "2"},
        {"TotalInstanceCount": -1},
        {"TotalInstanceCount": True},
        {"EndDate": None},
        {"EndDate": "2026-11-18"},
        {"EndDate": (START).replace(tzinfo=None)},
        {"ReservationType": "next-year"},
        {"Tags": "owner"},
        {"Tags": [3]},
    ],
)
def test_an_incomplete_reservation_is_unreadable(wrong: dict[str, Any]):
    with pytest.raises(Unreadable):
        read(**wrong)


@pytest.mark.parametrize("written", ["-5", "1e9", "6656.0", "٣", "9" * 30, ""])
def test_an_invalid_fee_tag_counts_as_0(written: str):
    assert read(Tags=answers.tag_list(fee=written)).fee_usd == 0


@pytest.mark.requirement("CB-7")
def test_a_pending_extension_moves_no_end_and_a_paid_one_adds_its_fee():
    block, paid = read(), read_extension(answers.extension_record())
    waits = read_extension(answers.extension_record(CapacityBlockExtensionStatus="payment-pending"))
    (one,) = with_extensions([block], [waits])
    assert (one.end, one.extension_pending_to) == (block.end, START + timedelta(days=3))
    (two,) = with_extensions([block], [paid])
    assert (two.extension_pending_to, two.fee_usd) == (None, 6656 + 1813)
    (three,) = with_extensions([block], [replace(paid, reservation_id="cr-another")])
    assert three is block


def test_ended_reservations_are_listed_for_a_day():
    ended = read(State="expired")
    assert ended.end is not None
    assert recently_listed([ended], ended.end + timedelta(hours=23)) == (ended,)
    assert recently_listed([ended], ended.end + timedelta(hours=25)) == ()
    assert recently_listed([read()], ended.end + timedelta(days=9))  # late to expire is not gone


# --- instances ----------------------------------------------------------------------------------------


def test_an_instance_is_read_completely():
    one = read_instance(answers.instance_record())
    assert (one.id, one.instance_type, one.zone, one.state) == (INSTANCE, P5, ZONES[0], InstanceState.RUNNING)
    assert one.source == Source(SourceKind.BLOCK, CR)
    assert (one.owner, one.pool, one.intent_id, one.provisioner) == (OWNER, "train", "l-1", "native")


@pytest.mark.requirement("CB-14")
@pytest.mark.requirement("PE-23")
@pytest.mark.parametrize(
    "own",
    [
        {"deployment": OWNER},
        {"deployment": OWNER, "tidemill.dev/pool": "train"},
        {"deployment": OWNER, "tidemill.dev/provisioner": "native"},
        {"deployment": OWNER, "tidemill.dev/pool": "", "tidemill.dev/provisioner": "native"},
    ],
)
def test_the_deployment_tag_alone_does_not_make_an_instance_ours(own: dict[str, str]):
    """Companies tag all sorts of things with it; what we end carries what only a provisioner of ours writes."""
    record = answers.instance_record(Tags=answers.tag_list(**own))
    assert read_instance(record).owner == ""
    assert not has_owner_tag(record, OWNER)


@pytest.mark.parametrize(
    ("lifecycle", "reserved", "source"),
    [
        ("spot", None, Source(SourceKind.SPOT)),
        (None, CR, Source(SourceKind.ODCR, CR)),
        (None, None, Source(SourceKind.ON_DEMAND)),
        ("capacity-block", CR, Source(SourceKind.BLOCK, CR)),
        ("interruptible-capacity-reservation", CR, Source(SourceKind.ODCR, CR)),
        ("scheduled", None, Source(SourceKind.ON_DEMAND)),
    ],
)
def test_the_source_of_an_instance_is_read(lifecycle: str | None, reserved: str | None, source: Source):
    assert (
        read_instance(
            answers.instance_record(InstanceLifecycle=lifecycle, CapacityReservationId=reserved)
        ).source
        == source
    )


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down"])
def test_a_stopped_instance_counts_as_shutting_down(state: str):
    assert read_instance(answers.instance_record(State={"Name": state})).state is InstanceState.SHUTTING_DOWN


@pytest.mark.parametrize(
    "wrong",
    [
        {"State": {"Name": "dreaming"}},
        {"State": None},
        {"Placement": "us-east-1a"},
        {"InstanceLifecycle": "borrowed"},
        {"CapacityReservationId": None},
        {"LaunchTime": "today"},
        {"InstanceId": "../../etc"},
    ],
)
def test_an_incomplete_instance_is_unreadable(wrong: dict[str, Any]):
    with pytest.raises(Unreadable):
        read_instance(answers.instance_record(**wrong))


@pytest.mark.requirement("PE-17")
def test_the_earliest_announced_end_counts_and_reboots_and_completed_events_do_not():
    sooner = START + timedelta(hours=3)
    found = event_ending(
        answers.status_record(
            answers.event(), answers.event("instance-stop", NotBefore=sooner), answers.event("system-reboot")
        )
    )
    assert found == (INSTANCE, sooner, InstanceEndKind.STOP)
    over = answers.event(Description="[Completed] The instance was retired")
    assert event_ending(answers.status_record(over, answers.event("instance-reboot"))) is None
    assert event_ending(answers.status_record()) is None
    with pytest.raises(Unreadable):
        event_ending(answers.status_record(answers.event("instance-sublimation")))


@pytest.mark.requirement("PE-17")
def test_a_marked_spot_request_ends_two_minutes_later():
    found = spot_ending(answers.spot_record())
    assert found is not None
    assert found.at == answers.spot_record()["Status"]["UpdateTime"] + timedelta(minutes=2)
    assert spot_ending(answers.spot_record(Status={"Code": "fulfilled"})) is None


# --- offers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "usd"), [("3625", 3625), ("3625.0", 3625), ("3625.01", 3626), ("0", 0)])
def test_a_fee_is_never_taken_for_less_than_it_is(written: str, usd: int):
    assert read_offer(answers.offer_record(UpfrontFee=written)).fee_usd == usd


@pytest.mark.parametrize(
    "wrong",
    [
        {"UpfrontFee": "NaN"},
        {"UpfrontFee": "-1"},
        {"UpfrontFee": "Infinity"},
        {"UpfrontFee": "1e400"},
        {"UpfrontFee": None},
        {"CurrencyCode": "EUR"},
        {"CurrencyCode": None},
        {"EndDate": START},
        {"InstanceCount": 0},
        {"CapacityBlockOfferingId": "cbe-1"},
    ],
)
def test_an_unreadable_offer_is_left_out(wrong: dict[str, Any]):
    with pytest.raises(Unreadable):
        read_offer(answers.offer_record(**wrong))


def test_an_extension_with_an_unknown_status_is_unreadable():
    assert read_extension(answers.extension_record()).state is ExtensionState.PAYMENT_SUCCEEDED
    with pytest.raises(Unreadable):
        read_extension(answers.extension_record(CapacityBlockExtensionStatus="payment-postponed"))


def test_an_extension_offer_begins_at_the_end_of_the_block():
    found = read_extension_offer(answers.extension_record(), CR)
    assert (found.reservation_id, found.start, found.end) == (
        CR,
        START + timedelta(days=2),
        START + timedelta(days=3),
    )


def query(**given: Any) -> OfferQuery:
    return replace(OfferQuery(P5, 2, timedelta(days=2), START, START + timedelta(days=9)), **given)


@pytest.mark.requirement("CB-15")
def test_ultraservers_are_searched_by_ultraserver_type():
    given = search_parameters(query(instance_type=GB200, count=36), CATALOG)
    assert (given["UltraserverType"], given["UltraserverCount"]) == ("u-p6e-gb200x72", 2)
    assert "InstanceType" not in given
    assert search_parameters(query(instance_type=GB200, count=27), CATALOG)["UltraserverCount"] == 3
    with pytest.raises(SpecError, match="multiple of 9"):
        search_parameters(query(instance_type=GB200, count=4), CATALOG)
    record = answers.offer_record(
        InstanceType=GB200, UltraserverType="u-p6e-gb200x72", UltraserverCount=2, InstanceCount=None
    )
    assert (read_offer(record).count, read_offer(record).ultraserver, blocks_of(record)) == (36, True, 2)


@pytest.mark.requirement("CB-2")
def test_a_search_for_what_ec2_does_not_sell_is_a_spec_error():
    with pytest.raises(SpecError, match="175d and 182d"):
        search_parameters(query(duration=timedelta(days=180)), CATALOG)
    with pytest.raises(SpecError, match="1 to 64"):
        search_parameters(query(count=65), CATALOG)


# --- what cannot be read ------------------------------------------------------------------------------


def test_an_unreadable_record_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture):
    reader = Reader()
    records = [
        answers.offer_record(),
        answers.offer_record(UpfrontFee="lots"),
        "junk",
        answers.offer_record(UpfrontFee="lots"),
    ]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert len(reader.each("offer", records, read_offer)) == 1
    assert len(caplog.records) == 2


def test_a_hostile_string_does_not_break_the_log_into_lines(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        Reader().each(
            "offer",
            [answers.offer_record(InstanceType="p5\n2026-01-01 ERROR all is lost\x1b[31m")],
            read_offer,
        )
    assert all(one.isprintable() for one in caplog.records[0].getMessage())
