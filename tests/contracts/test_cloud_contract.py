"""What every implementation of `ports.Cloud` must do, whatever stands behind it.

A new implementation joins by adding a backend: something that sets up time and reservations for the
cloud it brings. The tests speak to the cloud through the port alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest

from tests.aws.wired import Wired, wired
from tests.sim.account import OWNER, P5, START, ZONES, Account, tags
from tidemill import catalog
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.errors import Gone, NoCapacity, Refused
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.offers import ExtensionQuery, ExtensionState, OfferQuery
from tidemill.model.purchases import LaunchIntent
from tidemill.ports import Cloud
from tidemill.sim.cloud.account import SimAccount
from tidemill.sim.cloud.account_file import AccountFile, AccountHistory
from tidemill.spec import names
from tidemill.spec.scenario import OwnedReservation

LAG = timedelta(seconds=90)  # the longest a read may be behind a purchase or a launch


class Backend(Protocol):
    cloud: Cloud

    def now(self) -> datetime: ...

    def let_pass(self, time: timedelta) -> None: ...

    def active_block(self, count: int) -> str:
        """A block of p5 instances in the first zone, there and tagged as ours; its id."""
        ...


class SimBackend:
    def __init__(self) -> None:
        self._account = Account()
        self.cloud: Cloud = self._account.cloud

    def now(self) -> datetime:
        return self._account.now

    def let_pass(self, time: timedelta) -> None:
        self._account.until(self.now() + time)

    def active_block(self, count: int) -> str:
        return self._account.block(count=count).id


class AccountFileBackend:
    """The simulated account in a file; whenever time has passed, another process opens it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "account.json"
        AccountFile(self._path).make(AccountHistory(START, "us-east-1", ZONES, seed=7, stands_at=START))
        self._open()

    def _open(self) -> None:
        self._account = SimAccount(self._path, catalog.load(), lambda: START)
        self.cloud: Cloud = self._account

    def now(self) -> datetime:
        return self._account.now()

    def let_pass(self, time: timedelta) -> None:
        self._account.advance(time)
        self._open()

    def active_block(self, count: int) -> str:
        owned = OwnedReservation(name="a", instance_type=P5, count=count, zone=ZONES[0], duration="2d")
        return self._account.buy_elsewhere(owned, owner=OWNER)


class WireBackend:
    """The same account behind AWS's own protocol, and the adapter and the native provisioner in front of it."""

    def __init__(self, there: Wired) -> None:
        self._there = there
        self.cloud: Cloud = there.cloud

    def now(self) -> datetime:
        return self._there.now()

    def let_pass(self, time: timedelta) -> None:
        self._there.let_pass(time)

    def active_block(self, count: int) -> str:
        return self._there.account.block(count=count).id


@pytest.fixture(params=["in process", "in a file", "on the wire"])
def backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Backend]:
    match request.param:
        case "in process":
            yield SimBackend()
        case "in a file":
            yield AccountFileBackend(tmp_path)
        case _:
            with wired(monkeypatch) as there:
                yield WireBackend(there)


def query(backend: Backend, **given: object) -> OfferQuery:
    now = backend.now()
    asked = OfferQuery(P5, 2, timedelta(days=2), now + timedelta(days=1), now + timedelta(days=9), ZONES)
    return replace(asked, **given)  # type: ignore[arg-type]


def launch(
    backend: Backend, source: Source, count: int = 1, id_: str = "l-1"
) -> tuple[LaunchIntent, list[str]]:
    intent = LaunchIntent(id_, "train", source, P5, ZONES[0], count, "native", backend.now())
    return intent, list(backend.cloud.launch(intent, tags(intent=id_)))


def reservation(backend: Backend, id_: str) -> Reservation:
    return next(one for one in backend.cloud.reservations() if one.id == id_)


def instance(backend: Backend, id_: str) -> Instance:
    return next(one for one in backend.cloud.instances() if one.id == id_)


def test_offers_are_at_most_six_cheapest_first_and_end_on_the_grid(backend: Backend):
    asked = query(backend)
    offers = backend.cloud.search_offers(asked)
    assert 1 <= len(offers) <= 6
    assert [offer.fee_usd for offer in offers] == sorted(offer.fee_usd for offer in offers)
    for offer in offers:
        assert re.match(r"cb-", offer.id)
        assert (offer.instance_type, offer.count) == (P5, 2)
        assert (offer.end.hour, offer.end.minute) == (11, 30)
        assert asked.earliest_start <= offer.start < offer.end <= asked.latest_end


def test_a_window_that_fits_nothing_gives_no_offers(backend: Backend):
    now = backend.now()
    assert not backend.cloud.search_offers(query(backend, latest_end=now + timedelta(days=1)))


def test_a_purchase_is_found_by_its_intent_with_what_was_offered(backend: Backend):
    offer = backend.cloud.search_offers(query(backend))[0]
    (bought,) = backend.cloud.purchase(offer.id, tags(intent="p-1"))
    assert bought.state in (ReservationState.PAYMENT_PENDING, ReservationState.SCHEDULED)
    backend.let_pass(LAG)
    (seen,) = [one for one in backend.cloud.reservations() if one.intent_id == "p-1"]
    assert (seen.id, seen.owner, seen.pool) == (bought.id, OWNER, "train")
    assert (seen.instance_type, seen.zone, seen.start, seen.end) == (P5, offer.zone, offer.start, offer.end)
    assert (seen.count, seen.available, seen.fee_usd) == (2, 0, offer.fee_usd)


def test_an_offer_nobody_made_cannot_be_bought(backend: Backend):
    with pytest.raises(NoCapacity):
        backend.cloud.purchase("cb-00000000000000000", tags())


def test_a_launch_gives_tagged_instances_that_come_to_run(backend: Backend):
    source = Source(SourceKind.BLOCK, backend.active_block(count=3))
    _, ids = launch(backend, source, count=2)
    assert len(set(ids)) == 2
    backend.let_pass(LAG)
    for one in (instance(backend, id_) for id_ in ids):
        assert one.state is InstanceState.RUNNING
        assert (one.instance_type, one.zone, one.source) == (P5, ZONES[0], source)
        assert (one.owner, one.pool, one.intent_id, one.provisioner) == (OWNER, "train", "l-1", "native")
    assert reservation(backend, source.id).available == 1


def test_a_repeated_launch_gives_the_same_instances(backend: Backend):
    source = Source(SourceKind.BLOCK, backend.active_block(count=4))
    intent, ids = launch(backend, source, count=2)
    assert list(backend.cloud.launch(intent, tags(intent=intent.id))) == ids
    backend.let_pass(LAG)
    assert list(backend.cloud.launch(intent, tags(intent=intent.id))) == ids
    assert len(backend.cloud.instances()) == 2


def test_fewer_instances_are_an_answer_and_none_is_no_capacity(backend: Backend):
    source = Source(SourceKind.BLOCK, backend.active_block(count=1))
    assert len(launch(backend, source, count=2)[1]) == 1
    with pytest.raises(NoCapacity):
        launch(backend, source, id_="l-2")


def test_instances_by_the_hour_need_no_reservation(backend: Backend):
    _, ids = launch(backend, Source(SourceKind.ON_DEMAND))
    backend.let_pass(LAG)
    assert instance(backend, ids[0]).source == Source(SourceKind.ON_DEMAND)


def test_terminating_works_twice_and_an_unknown_instance_is_gone(backend: Backend):
    source = Source(SourceKind.BLOCK, backend.active_block(count=1))
    _, (instance_id,) = launch(backend, source)
    backend.let_pass(LAG)
    backend.cloud.terminate(instance_id)
    backend.cloud.terminate(instance_id)
    assert instance(backend, instance_id).state in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)
    backend.let_pass(timedelta(minutes=5))
    assert instance(backend, instance_id).state is InstanceState.TERMINATED
    with pytest.raises(Gone):
        backend.cloud.terminate("i-00000000000000000")


@pytest.mark.requirement("MG-5")
def test_the_console_of_an_instance_is_read_and_that_of_an_unknown_one_is_gone(backend: Backend):
    source = Source(SourceKind.BLOCK, backend.active_block(count=1))
    _, (instance_id,) = launch(backend, source)
    backend.let_pass(timedelta(minutes=5))
    assert instance_id in backend.cloud.console_output(instance_id)
    with pytest.raises(Gone):
        backend.cloud.console_output("i-00000000000000000")


def test_an_ended_block_is_still_listed(backend: Backend):
    block_id = backend.active_block(count=1)
    backend.let_pass(timedelta(days=2, hours=1))
    assert reservation(backend, block_id).state is ReservationState.EXPIRED


@pytest.mark.requirement("CB-6")
def test_an_extension_is_found_in_the_history_by_its_offer_and_moves_the_end_when_it_is_paid(
    backend: Backend,
):
    block = reservation(backend, backend.active_block(count=2))
    (offer,) = backend.cloud.search_extensions(ExtensionQuery(block.id, timedelta(days=1)))
    assert (offer.reservation_id, offer.start, offer.end) == (
        block.id,
        block.end,
        offer.start + timedelta(days=1),
    )
    bought = backend.cloud.purchase_extension(offer.id, block.id)
    assert (bought.offer_id, bought.fee_usd, bought.end) == (offer.id, offer.fee_usd, offer.end)
    waiting = reservation(backend, block.id)
    assert (waiting.end, waiting.extension_pending_to) == (block.end, offer.end)
    backend.let_pass(timedelta(minutes=10))
    (told,) = [extension for extension in backend.cloud.extensions() if extension.offer_id == offer.id]
    assert (told.state, told.reservation_id) == (ExtensionState.PAYMENT_SUCCEEDED, block.id)
    paid = reservation(backend, block.id)
    assert (paid.end, paid.extension_pending_to) == (offer.end, None)


@pytest.mark.requirement("CB-6")
def test_a_second_extension_is_refused_while_one_waits_for_its_payment(backend: Backend):
    block_id = backend.active_block(count=2)
    query = ExtensionQuery(block_id, timedelta(days=1))
    (offer,) = backend.cloud.search_extensions(query)
    backend.cloud.purchase_extension(offer.id, block_id)
    backend.let_pass(timedelta(seconds=30))
    with pytest.raises(Refused, match="pending"):
        backend.cloud.search_extensions(query)


def test_an_extension_nobody_offered_cannot_be_bought(backend: Backend):
    block_id = backend.active_block(count=2)
    with pytest.raises(NoCapacity):
        backend.cloud.purchase_extension("cbe-00000000000000000", block_id)


@pytest.mark.requirement("CB-17")
def test_tags_are_set_and_can_be_set_again_and_a_reservation_that_is_not_there_is_gone(backend: Backend):
    block_id = backend.active_block(count=1)
    for pool in ("train", "serve", "serve"):
        backend.cloud.tag_reservation(block_id, ((names.TAG_POOL, pool),))
    found = reservation(backend, block_id)
    assert (found.owner, found.pool) == (OWNER, "serve")
    with pytest.raises(Gone):
        backend.cloud.tag_reservation("cr-00000000000000000", ((names.TAG_POOL, "train"),))


@pytest.mark.requirement("CB-17")
def test_a_tag_is_removed_where_it_has_the_value_that_is_named_and_again_without_harm(backend: Backend):
    block_id = backend.active_block(count=1)
    backend.cloud.tag_reservation(block_id, ((names.TAG_POOL, "train"),))
    backend.cloud.untag_reservation(block_id, ((names.TAG_POOL, "serve"), (names.TAG_OWNER, OWNER)))
    found = reservation(backend, block_id)
    assert (found.owner, found.pool) == ("", "train")
    assert names.TAG_OWNER not in dict(found.tags)
    for _ in range(2):
        backend.cloud.untag_reservation(block_id, ((names.TAG_POOL, "train"),))
    assert not {names.TAG_OWNER, names.TAG_POOL} & set(dict(reservation(backend, block_id).tags))
    with pytest.raises(Gone):
        backend.cloud.untag_reservation("cr-00000000000000000", ((names.TAG_POOL, "train"),))


def test_a_block_that_has_not_begun_gives_nothing(backend: Backend):
    offer = backend.cloud.search_offers(query(backend))[0]
    (bought,) = backend.cloud.purchase(offer.id, tags(intent="p-1"))
    backend.let_pass(timedelta(minutes=10))
    seen = reservation(backend, bought.id)
    assert (seen.state, seen.count, seen.available) == (ReservationState.SCHEDULED, 2, 0)
    intent = LaunchIntent("l-1", "train", bought.source, P5, offer.zone, 1, "native", backend.now())
    with pytest.raises(NoCapacity):
        backend.cloud.launch(intent, tags(intent="l-1"))


def test_spot_instances_need_no_reservation(backend: Backend):
    _, ids = launch(backend, Source(SourceKind.SPOT))
    backend.let_pass(LAG)
    assert instance(backend, ids[0]).source == Source(SourceKind.SPOT)


def test_unchanged_objects_are_the_same_at_the_next_read(backend: Backend):
    source = Source(SourceKind.BLOCK, backend.active_block(count=2))
    launch(backend, source, count=2)
    backend.let_pass(timedelta(minutes=5))
    assert backend.cloud.instances() is backend.cloud.instances()
    assert backend.cloud.reservations() is backend.cloud.reservations()


def test_the_caller_is_named_by_aws(backend: Backend):
    assert re.match(r"arn:aws:(sts|iam)::\d{12}:", backend.cloud.identity())


def test_calling_purchase_twice_buys_twice(backend: Backend):
    offer = backend.cloud.search_offers(query(backend, count=1))[0]
    first = backend.cloud.purchase(offer.id, tags(intent="p-1"))
    again = backend.cloud.search_offers(query(backend, count=1))
    same = [one for one in again if (one.zone, one.start, one.end) == (offer.zone, offer.start, offer.end)]
    second = backend.cloud.purchase(same[0].id, tags(intent="p-1"))
    assert {one.id for one in first}.isdisjoint(one.id for one in second)
