"""`ports.Account` over boto3: reservations, instances, offers and purchases of one account in one region.

Reads cost few calls: a look at everything shares what one list needs of another, and each reading is handed out once,
so that whoever asks again, before money leaves for example, gets a fresh one. Unchanged objects keep their identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from tidemill.aws.errors import CallKind
from tidemill.aws.fields import Reader, Unreadable, id_of
from tidemill.aws.instances import (
    ENDING_EVENTS,
    ENDING_SPOT,
    event_ending,
    is_over,
    is_readable,
    read_instance,
    spot_ending,
)
from tidemill.aws.offers import blocks_of, read_extension, read_extension_offer, read_offer, search_parameters
from tidemill.aws.reservations import read_reservation, recently_listed, tag_list, with_extensions
from tidemill.aws.session import Aws
from tidemill.catalog import Catalog
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.errors import NotAllowed, OutcomeUnknown, Refused, Retryable
from tidemill.model.labels import Pairs
from tidemill.model.nodes import INSTANCE_UP_STATES, Instance
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, Offer, OfferQuery
from tidemill.model.reasons import InstanceEnd
from tidemill.ports import Clock
from tidemill.spec import names

T = TypeVar("T")


class IdentityCache(Generic[T]):
    """Answers with the objects of before, and with the very tuple, as far as they are equal."""

    def __init__(self, key: Callable[[T], str]) -> None:
        self._key = key
        self._before: tuple[T, ...] = ()
        self._by_key: dict[str, T] = {}

    def __call__(self, found: Iterable[T]) -> tuple[T, ...]:
        by_key = {}
        for one in found:
            before = self._by_key.get(self._key(one))
            by_key[self._key(one)] = before if before is not None and before == one else one
        now = tuple(by_key.values())
        if len(now) != len(self._before) or any(
            one is not old for one, old in zip(now, self._before, strict=True)
        ):
            self._before = now
        self._by_key = by_key
        return self._before


class OneTimeCache(Generic[T]):
    """A reading that came along with another one. It is handed out once, and not when it is old."""

    def __init__(self, for_at_most: timedelta) -> None:
        self._for = for_at_most
        self._held: tuple[datetime, T] | None = None

    def put(self, what: T, at: datetime) -> None:
        self._held = at, what

    def take(self, now: datetime) -> T | None:
        held, self._held = self._held, None
        return held[1] if held is not None and now - held[0] <= self._for else None


# The most EC2 gives in one page, and the most values it takes in one filter.
PAGE = 1000
_MOST_VALUES = 200
_PLATFORM = "Linux/UNIX"
# One look at everything takes a few seconds; what is older belongs to another look.
_ONE_LOOK = timedelta(seconds=30)
# For so long an extension bought here counts, though the history does not show it: a second one must not be tried.
_HISTORY_LAG = timedelta(minutes=10)
_NO_SENSE = "it was bought, and the answer makes no sense"
_MOST_OFFERS = 6
_FEES_REMEMBERED = 1000


class AwsAccount:
    def __init__(self, aws: Aws, clock: Clock, catalog: Catalog, *, owner: str) -> None:
        """`owner` is the deployment: the value of the owner tag."""
        self._aws, self._clock, self._catalog, self._owner = aws, clock, catalog, owner
        self._reader = Reader()
        self._same_reservations = IdentityCache[Reservation](lambda one: one.id)
        self._same_instances = IdentityCache[Instance](lambda one: one.id)
        self._history = OneTimeCache[tuple[Extension, ...]](_ONE_LOOK)
        self._seen: tuple[Reservation, ...] | None = None
        self._accounts: dict[str, str] = {}  # reservation -> the account it belongs to
        self._fees: dict[str, tuple[int, int]] = {}  # offer -> its fee, and how many blocks it makes
        self._just_bought: dict[str, Extension] = {}  # extensions the history may not show yet
        self._who = ""

    # --- reading --------------------------------------------------------------------------------------

    def reservations(self) -> tuple[Reservation, ...]:
        records = list(self._pages("DescribeCapacityReservations", "CapacityReservations", MaxResults=PAGE))
        self._accounts = {
            str(record.get("CapacityReservationId")): str(record.get("OwnerId") or "")
            for record in records
            if isinstance(record, Mapping)
        }
        found = self._reader.each("reservation", records, self._reservation)
        history = self._read_history()
        self._history.put(history, self._clock.now())
        told = recently_listed(with_extensions(found, history), self._clock.now())
        self._seen = self._same_reservations(told)
        return self._seen

    def extensions(self) -> tuple[Extension, ...]:
        held = self._history.take(self._clock.now())
        return self._read_history() if held is None else held

    def instances(self) -> tuple[Instance, ...]:
        """Retryable: one of ours cannot be understood. Taken for gone, it would be launched again."""
        records = list(self._instances_where(f"tag:{names.TAG_OWNER}", [self._owner]))
        records = [record for record in records if not (is_over(record) and not is_readable(record))]
        ours = self._reader.each("instance", records, read_instance)
        if len(ours) < len(records):
            lost = len(records) - len(ours)
            raise Retryable(
                f"DescribeInstances: what AWS says of {lost} instances of ours cannot be understood"
            )
        strangers = self._reader.each("instance", self._on_reservations(), read_instance)
        once = {one.id: one for one in (*strangers, *ours)}
        return self._same_instances(self._with_endings(list(once.values())))

    def identity(self) -> str:
        arn = self._aws.read("sts", "GetCallerIdentity").get("Arn")
        if not isinstance(arn, str) or arn.count(":") < 5:
            raise Retryable(f"GetCallerIdentity: AWS named nobody ({arn!r})")
        self._who = arn
        return arn

    # --- offers and purchases -------------------------------------------------------------------------

    def search_offers(self, query: OfferQuery) -> tuple[Offer, ...]:
        """SpecError: a duration or count that EC2 does not sell; Refused: EC2's own no to the question."""
        given = search_parameters(query, self._catalog)
        records = list(
            self._pages(
                "DescribeCapacityBlockOfferings", "CapacityBlockOfferings", CallKind.QUESTION, **given
            )
        )
        offers = [
            record
            for record in self._reader.each("offer", records, self._priced)
            if record.instance_type == query.instance_type and (not query.zones or record.zone in query.zones)
        ]
        return tuple(sorted(offers, key=lambda offer: (offer.fee_usd, offer.start, offer.id))[:_MOST_OFFERS])

    def purchase(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        fee_usd, blocks = self._fees.get(offer_id, (0, 1))
        share_usd = -(-fee_usd // blocks)  # rounded up: the tag is the same on each of its blocks
        marks = (*tags, (names.TAG_FEE, str(share_usd))) if fee_usd else tags
        answer = self._aws.call(
            "ec2",
            "PurchaseCapacityBlock",
            CallKind.PURCHASE,
            CapacityBlockOfferingId=offer_id,
            InstancePlatform=_PLATFORM,
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": tag_list(marks)}],
        )
        try:
            return self._bought(answer, share_usd)
        except Exception as error:  # whatever is wrong with the answer, the money is spent
            raise OutcomeUnknown(f"PurchaseCapacityBlock: {_NO_SENSE}: {error!r}") from error

    def search_extensions(self, query: ExtensionQuery) -> tuple[ExtensionOffer, ...]:
        records = self._pages(
            "DescribeCapacityBlockExtensionOfferings",
            "CapacityBlockExtensionOfferings",
            CallKind.QUESTION,
            CapacityReservationId=query.reservation_id,
            CapacityBlockExtensionDurationHours=query.duration // timedelta(hours=1),
        )
        found = self._reader.each(
            "extension offer", records, lambda one: read_extension_offer(one, query.reservation_id)
        )
        return tuple(sorted(found, key=lambda one: (one.fee_usd, one.id)))

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        answer = self._aws.call(
            "ec2",
            "PurchaseCapacityBlockExtension",
            CallKind.PURCHASE,
            CapacityBlockExtensionOfferingId=offer_id,
            CapacityReservationId=reservation_id,
        )
        try:
            found = [read_extension(one) for one in answer["CapacityBlockExtensions"]]
            mine = [one for one in found if one.offer_id == offer_id] or found
            self._just_bought[offer_id] = mine[-1]
            return mine[-1]
        except Exception as error:  # whatever is wrong with the answer, the money is spent
            raise OutcomeUnknown(f"PurchaseCapacityBlockExtension: {_NO_SENSE}: {error!r}") from error

    def tag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        if reservation_id not in self._accounts:
            self.reservations()
        theirs, ours = self._accounts.get(reservation_id, ""), (self._who or self.identity()).split(":")[4]
        if theirs and theirs != ours:
            raise Refused(
                f"{reservation_id} belongs to account {theirs}, which shares it: it is not ours to tag"
            )
        self._aws.call("ec2", "CreateTags", CallKind.CHANGE, Resources=[reservation_id], Tags=tag_list(tags))

    # --- the parts of a reading -----------------------------------------------------------------------

    def _pages(self, operation: str, key: str, kind: CallKind = CallKind.READ, **given: Any) -> Iterator[Any]:
        return self._aws.pages("ec2", operation, key, kind=kind, **given)

    def _reservation(self, record: Mapping[str, Any]) -> Reservation:
        return read_reservation(record, self._catalog, self._reader.log_once)

    def _read_history(self) -> tuple[Extension, ...]:
        found = self._reader.each("extension", self._history_records(), read_extension)
        listed, since = {one.offer_id for one in found}, self._clock.now() - _HISTORY_LAG
        self._just_bought = {
            id_: one for id_, one in self._just_bought.items() if id_ not in listed and one.asked_at > since
        }
        return (*found, *self._just_bought.values())

    def _history_records(self) -> list[Any]:
        """None in a region where EC2 sells no blocks and does not know the call: other pools must work there."""
        operation, key = "DescribeCapacityBlockExtensionHistory", "CapacityBlockExtensions"
        try:
            return list(self._pages(operation, key, CallKind.QUESTION, MaxResults=PAGE))
        except NotAllowed:
            raise
        except Refused as no:
            self._reader.log_once(f"no history of extensions: {no}")
            return []

    def _priced(self, record: Mapping[str, Any]) -> Offer:
        found = read_offer(record)
        while len(self._fees) >= _FEES_REMEMBERED:
            del self._fees[next(iter(self._fees))]
        self._fees[found.id] = found.fee_usd, blocks_of(record)
        return found

    def _bought(self, answer: Mapping[str, Any], share_usd: int) -> tuple[Reservation, ...]:
        record = answer.get("CapacityReservation")
        if not isinstance(record, Mapping):
            raise Unreadable(f"field CapacityReservation: expected a record, got {record!r}")
        first = replace(self._reservation(record), fee_usd=share_usd)
        ids = {first.id: None}
        for block in answer.get("CapacityBlocks") or ():
            for id_ in block.get("CapacityReservationIds") or ():
                ids[id_of({"CapacityReservationId": id_}, "CapacityReservationId", "cr-")] = None
        return tuple(replace(first, id=id_) for id_ in ids)

    def _on_reservations(self) -> Iterator[Any]:
        """Strangers hold slots too. Ours are among them again, which costs less than reading them one by one."""
        seen = self.reservations() if self._seen is None else self._seen
        ids = [one.id for one in seen if one.available < one.count and one.start <= self._clock.now()]
        for first in range(0, len(ids), _MOST_VALUES):
            yield from self._instances_where("capacity-reservation-id", ids[first : first + _MOST_VALUES])

    def _instances_where(self, filter_: str, values: list[str]) -> Iterator[Any]:
        filters = [{"Name": filter_, "Values": values}]
        for group in self._pages("DescribeInstances", "Reservations", MaxResults=PAGE, Filters=filters):
            held = group.get("Instances") if isinstance(group, Mapping) else None
            if not isinstance(held, list):
                raise Retryable(
                    "DescribeInstances: AWS answered with something that is not a list of instances"
                )
            yield from held

    def _with_endings(self, found: list[Instance]) -> list[Instance]:
        filters = [{"Name": "event.code", "Values": list(ENDING_EVENTS)}]
        records = self._pages("DescribeInstanceStatus", "InstanceStatuses", MaxResults=PAGE, Filters=filters)
        endings = [record for record in self._reader.each("status of", records, event_ending) if record]
        if any(one.source.kind is SourceKind.SPOT and one.state in INSTANCE_UP_STATES for one in found):
            filters = [{"Name": "status-code", "Values": list(ENDING_SPOT)}]
            marked = self._pages("DescribeSpotInstanceRequests", "SpotInstanceRequests", Filters=filters)
            endings += [one for one in self._reader.each("spot request of", marked, spot_ending) if one]
        soonest = {
            ending.instance_id: ending for ending in sorted(endings, key=lambda one: one.at, reverse=True)
        }
        return [
            replace(one, ends_at=end.at, ends_why=InstanceEnd(end.kind))
            if (end := soonest.get(one.id))
            else one
            for one in found
        ]
