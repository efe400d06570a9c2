"""A reservation whose record lacks a field, or has one that nobody knows: it is there, and it is a doubt (CB-4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.aws import answers
from tests.aws.test_command_line import AUTO, WISH, AwsOffice, _minutes
from tests.aws.wired import Wired
from tests.engine.ports import TinyCluster
from tests.sim.account import OWNER, START, ZONES
from tidemill import catalog
from tidemill.aws.reservations import read_each
from tidemill.engine.observe import Observer
from tidemill.engine.ownership import unread_of_ours, with_true_owners
from tidemill.sim.wire import ec2_extensions, ec2_reservations
from tidemill.store.memory import MemoryLedger

# A field is missing (None), or has a value that this version does not know.
STRANGE: dict[str, dict[str, Any]] = {
    "no type": {"InstanceType": None},
    "no zone": {"AvailabilityZone": None},
    "no end": {"EndDate": None},
    "no start": {"StartDate": None, "CreateDate": None},
    "no count": {"TotalInstanceCount": None},
    "an unknown kind": {"ReservationType": "capacity-block-flex"},
}


@pytest.fixture
def office(tmp_path: Path, wired: Wired) -> AwsOffice:
    made = AwsOffice(tmp_path)
    made.write(mode="auto", approval=AUTO, subnets={zone: [f"subnet-{zone}"] for zone in ZONES})
    return made


@pytest.fixture(params=STRANGE)
def strange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """From when it is called on, EC2 writes reservations strangely."""
    written = ec2_reservations.as_aws

    def begin() -> None:
        def as_aws(*given: Any) -> dict[str, Any]:
            record = written(*given) | STRANGE[request.param]
            return {key: value for key, value in record.items() if value is not None}

        monkeypatch.setattr(ec2_reservations, "as_aws", as_aws)

    return begin


@pytest.mark.requirement("CB-4")
def test_settle_finds_it_by_its_tag_and_takes_no_no(wired: Wired, office: AwsOffice, strange: Any):
    offer = office.offer(*WISH)
    wired.fault("lost-answer", action="PurchaseCapacityBlock")
    assert office("buy", offer["id"], "--yes").code == 4
    (intent,) = office.purchases()
    strange()
    wired.let_pass(_minutes(90))
    told = office("settle", intent["id"], "--not-bought", "--note", "I do not see it", "--yes")
    assert (told.code, office.state(intent["id"])) == (0, "confirmed")
    assert office.purchases()[0]["reservation_ids"] == [wired.account.cloud.purchases[0].reservation_ids[0]]


@pytest.mark.requirement("CB-4")
def test_nothing_is_bought_beside_it_also_from_another_ledger(wired: Wired, office: AwsOffice, strange: Any):
    assert office("buy", office.offer(*WISH)["id"], "--yes").code == 0
    wired.let_pass(_minutes(10))
    strange()
    (block,) = office.blocks()
    office.ledger = f"sqlite:///{office.folder / 'second.db'}"
    told = office("buy", office.offer(*WISH)["id"], "--yes")
    assert told.code == 1
    assert f"AWS lists {block['id']}" in told.err
    assert "cannot be read" in told.err
    assert len(wired.account.cloud.purchases) == 1


@pytest.mark.requirement("CB-4")
@pytest.mark.requirement("CB-17")
def test_it_is_listed_and_rebuilt_and_said_to_be_in_doubt(wired: Wired, office: AwsOffice, strange: Any):
    assert office("buy", office.offer(*WISH)["id"], "--yes").code == 0
    wired.let_pass(_minutes(10))
    strange()
    (block,) = office.blocks()
    assert (block["held"], bool(block["unread"])) == ("bought", True)
    assert "nothing is bought beside it" in block["next"]
    assert block["id"][:8] in office("blocks").out
    again = f"sqlite:///{office.folder / 'again.db'}"
    told = office("ledger", "rebuild", again, "--yes", "--json")
    assert told.code == 4
    assert f"{block['id']} cannot be read" in told.err
    office.ledger = again
    (purchase,) = office.purchases()
    assert (purchase["reservation_ids"], purchase["fee_usd"]) == (
        [block["id"]],
        wired.account.cloud.purchases[0].fee_usd,
    )
    shown = office("inspect")
    assert f"reservation {block['id']} of deployment" in shown.out + shown.err
    assert f"There, but their records cannot be read: {block['id']}" in shown.out
    assert "AWS shows no block" not in shown.out
    assert "No trap found in what could be read." in shown.out


STRANGE_EXTENSION: dict[str, dict[str, Any]] = {
    "an unknown status": {"CapacityBlockExtensionStatus": "payment-deferred"},
    "no end": {"CapacityBlockExtensionEndDate": None},
    "no date": {"CapacityBlockExtensionPurchaseDate": None},
    "another currency": {"CurrencyCode": "EUR"},
}


@pytest.mark.requirement("CB-4")
@pytest.mark.requirement("CB-6")
@pytest.mark.parametrize("how", STRANGE_EXTENSION)
def test_an_extension_whose_record_cannot_be_read_is_not_bought_twice(
    wired: Wired, office: AwsOffice, monkeypatch: pytest.MonkeyPatch, how: str
):
    assert office("buy", office.offer(*WISH)["id"], "--yes").code == 0
    wired.let_pass(_minutes(10))
    (block,) = office.blocks()
    wired.fault("lost-answer", action="PurchaseCapacityBlockExtension")
    assert office("extend", block["id"], "--by", "1d", "--yes").code == 4
    intent = next(one["id"] for one in office.purchases() if one["state"] == "unknown")
    written = ec2_extensions._extension

    def as_aws(*given: Any) -> dict[str, Any]:
        record = written(*given) | STRANGE_EXTENSION[how]
        return {key: value for key, value in record.items() if value is not None}

    monkeypatch.setattr(ec2_extensions, "_extension", as_aws)
    wired.let_pass(_minutes(90))
    told = office("settle", intent, "--not-bought", "--note", "I do not see it", "--yes")
    assert (told.code, office.state(intent)) == (0, "confirmed")
    assert len(wired.account.cloud.bought_extensions) == 1


# --- the reading itself -------------------------------------------------------------------------------

FIELDS = sorted(answers.reservation_record())
ODD: tuple[Any, ...] = (None, "", 7, [], {}, "next-year", [None])


@pytest.mark.parametrize("field", FIELDS)
def test_no_field_makes_a_reservation_vanish(field: str):
    for odd in ODD:
        record = {**answers.reservation_record(), field: odd}
        (found,) = read_each([record], catalog.load(), lambda sentence: None)
        if field != "CapacityReservationId":
            assert found.id == answers.CR
        if field != "Tags":
            assert (found.owner, found.intent_id, found.tags_known) == (OWNER, "p-1", True)
        doubt = unread_of_ours([found], (), (), OWNER)
        assert bool(doubt) == bool(found.unread), (field, odd)
        assert bool(with_true_owners([found], (), (), OWNER, START)) != bool(found.unread)


def test_a_strange_reservation_of_somebody_else_stops_nothing():
    theirs = answers.reservation_record(InstanceType=None, Tags=answers.tag_list(owner="another"))
    (found,) = read_each([theirs], catalog.load(), lambda sentence: None)
    assert found.unread
    assert unread_of_ours([found], (), (), OWNER) == ()


def test_the_engine_counts_on_what_it_last_read(wired: Wired, monkeypatch: pytest.MonkeyPatch):
    """For as long as AWS lists it: its nodes keep their deadline, and nothing takes it for gone."""
    block = wired.account.block(duration="5d")
    look = Observer(wired, wired.cloud, TinyCluster(), MemoryLedger(wired, OWNER), OWNER).look
    assert [one.id for one in look().reservations] == [block.id]
    written = ec2_reservations.as_aws
    monkeypatch.setattr(
        ec2_reservations,
        "as_aws",
        lambda *given: {k: v for k, v in written(*given).items() if k != "AvailabilityZone"},
    )
    for _ in range(3):
        wired.let_pass(_minutes(59))
        world = look()
        (known,) = world.reservations
        assert (known.id, known.end, known.zone) == (block.id, block.end, block.zone)
        assert [one.id for one in world.unread] == [block.id]
