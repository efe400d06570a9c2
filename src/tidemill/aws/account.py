"""`ports.Account` over boto3: reservations, instances, offers and purchases of one account in one region.

A tick costs few calls: reading the reservations also reads the extension history, which `extensions` returns once. Any
later call, such as the one before a purchase, reads again. Unchanged objects keep their identity from tick to tick. A
controller that ticks every second may let a list of instances serve for a few: two thousand of them take a second of
CPU, and EC2 shows a change seconds late anyway.
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
from tidemill.aws.offers import (
    blocks_of,
    read_extension,
    read_extension_offer,
    read_extensions,
    read_offer,
    search_parameters,
)
from tidemill.aws.reservations import (
    PLATFORM,
    read_each,
    read_reservation,
    recently_listed,
    tag_list,
    with_extensions,
)
from tidemill.aws.session import Aws
from tidemill.catalog import Catalog
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.ec2_facts import MAX_OFFERS
from tidemill.model.errors import NotAllowed, OutcomeUnknown, Refused, Retryable, SpecError
from tidemill.model.labels import Pairs
from tidemill.model.nodes import INSTANCE_UP_STATES, Instance
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, Offer, OfferQuery
from tidemill.model.reasons import InstanceEnd
from tidemill.ports import Clock
from tidemill.spec import names

T = TypeVar("T")


class IdentityCache(Generic[T]):
    """Returns the objects of the last time where they are equal, and the same tuple where all are."""

    def __init__(self, key: Callable[[T], str]) -> None:
        self._key = key
        self._before: tuple[T, ...] = ()
        self._by_key: dict[str, T] = {}

    def __call__(self, found: Iterable[T]) -> tuple[T, ...]:
        by_key = {}
        for fresh in found:
            before = self._by_key.get(self._key(fresh))
            by_key[self._key(fresh)] = before if before is not None and before == fresh else fresh
        now = tuple(by_key.values())
        if len(now) != len(self._before) or any(
            new is not old for new, old in zip(now, self._before, strict=True)
        ):
            self._before = now
        self._by_key = by_key
        return self._before


class OneTimeCache(Generic[T]):
    """A value that was read together with another one. It is returned once, and only while it is fresh."""

    def __init__(self, fresh_for: timedelta) -> None:
        self._fresh_for = fresh_for
        self._stored: tuple[datetime, T] | None = None

    def put(self, value: T, at: datetime) -> None:
        self._stored = at, value

    def take(self, now: datetime) -> T | None:
        stored, self._stored = self._stored, None
        return stored[1] if stored is not None and now - stored[0] <= self._fresh_for else None


# The most records that EC2 returns in one page, and the most values it accepts in one filter.
PAGE = 1000
_MOST_VALUES = 200
# Reading everything for one tick takes a few seconds; what is older belongs to another tick.
_ONE_TICK = timedelta(seconds=30)
# So long an extension bought here counts although the history does not list it: it must not be bought twice.
_HISTORY_LAG = timedelta(minutes=10)
_BOUGHT_BUT_UNREADABLE = "it was bought, but the answer cannot be read"
_FEES_REMEMBERED = 1000


class AwsAccount:
    def __init__(
        self, aws: Aws, clock: Clock, catalog: Catalog, *, owner: str, instances_kept: timedelta = timedelta(0)
    ) -> None:  # fmt: skip
        """`owner`: the deployment, the value of the owner tag. `instances_kept`: so long a list of instances serves,
        unless something was changed through `aws` or AWS told of a change."""
        self._aws, self._clock, self._catalog, self._owner = aws, clock, catalog, owner
        self._reader = Reader()
        self._same_reservations = IdentityCache[Reservation](lambda reservation: reservation.id)
        self._same_instances = IdentityCache[Instance](lambda instance: instance.id)
        self._history = OneTimeCache[tuple[Extension, ...]](_ONE_TICK)
        self._seen: tuple[Reservation, ...] | None = None
        self._accounts: dict[str, str] = {}  # reservation -> the account it belongs to
        self._fees: dict[str, tuple[int, int]] = {}  # offer -> its fee, and how many blocks it makes
        self._just_bought: dict[str, Extension] = {}  # extensions the history may not show yet
        self._who = ""
        self._instances_kept = instances_kept
        self._listed: tuple[datetime, int, tuple[Instance, ...]] | None = None  # when, after how many changes

    # --- reading --------------------------------------------------------------------------------------

    def reservations(self) -> tuple[Reservation, ...]:
        records = list(self._pages("DescribeCapacityReservations", "CapacityReservations", MaxResults=PAGE))
        self._accounts = {
            str(record.get("CapacityReservationId")): str(record.get("OwnerId") or "")
            for record in records
            if isinstance(record, Mapping)
        }
        found = read_each(records, self._catalog, self._reader.log_once)
        history = self._read_history()
        self._history.put(history, self._clock.now())
        recent = recently_listed(with_extensions(found, history), self._clock.now())
        self._seen = self._same_reservations(recent)
        return self._seen

    def extensions(self) -> tuple[Extension, ...]:
        held = self._history.take(self._clock.now())
        return self._read_history() if held is None else held

    def instances(self) -> tuple[Instance, ...]:
        """Retryable: one of ours cannot be read. If it counted as gone, the engine would launch it again."""
        if not self._instances_kept:
            return self._list_instances()
        changes = self._aws.change_count
        if self._listed is not None:
            at, before, found = self._listed
            if before == changes and timedelta(0) <= self._clock.now() - at < self._instances_kept:
                return found
        self._listed = None
        listed = self._list_instances()
        self._listed = self._clock.now(), changes, listed
        return listed

    def _list_instances(self) -> tuple[Instance, ...]:
        records = list(self._instances_where(f"tag:{names.TAG_OWNER}", [self._owner]))
        records = [record for record in records if not (is_over(record) and not is_readable(record))]
        ours = self._reader.each("instance", records, read_instance)
        if len(ours) < len(records):
            lost = len(records) - len(ours)
            raise Retryable(f"DescribeInstances: the records of {lost} instances of ours cannot be read")
        others = self._reader.each("instance", self._on_reservations(), read_instance)
        by_id = {instance.id: instance for instance in (*others, *ours)}
        return self._same_instances(self._with_endings(list(by_id.values())))

    def identity(self) -> str:
        arn = self._aws.read("sts", "GetCallerIdentity").get("Arn")
        if not isinstance(arn, str) or arn.count(":") < 5:
            raise Retryable(f"GetCallerIdentity: AWS returned no ARN ({arn!r})")
        self._who = arn
        return arn

    # --- offers and purchases -------------------------------------------------------------------------

    def search_offers(self, query: OfferQuery) -> tuple[Offer, ...]:
        """SpecError: a duration or count that EC2 does not sell. Refused: EC2 refuses the search."""
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
        return tuple(sorted(offers, key=lambda offer: (offer.fee_usd, offer.start, offer.id))[:MAX_OFFERS])

    def purchase(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        fee_usd, blocks = self._fees.get(offer_id, (0, 1))
        share_usd = -(-fee_usd // blocks)  # rounded up: the tag is the same on each of its blocks
        all_tags = (*tags, (names.TAG_FEE, str(share_usd))) if fee_usd else tags
        answer = self._aws.call(
            "ec2",
            "PurchaseCapacityBlock",
            CallKind.PURCHASE,
            CapacityBlockOfferingId=offer_id,
            InstancePlatform=PLATFORM,
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": tag_list(all_tags)}],
        )
        try:
            return self._bought(answer, share_usd)
        except Exception as error:  # whatever is wrong with the answer, the money is spent
            raise OutcomeUnknown(f"PurchaseCapacityBlock: {_BOUGHT_BUT_UNREADABLE}: {error!r}") from error

    def search_extensions(self, query: ExtensionQuery) -> tuple[ExtensionOffer, ...]:
        records = self._pages(
            "DescribeCapacityBlockExtensionOfferings",
            "CapacityBlockExtensionOfferings",
            CallKind.QUESTION,
            CapacityReservationId=query.reservation_id,
            CapacityBlockExtensionDurationHours=query.duration // timedelta(hours=1),
        )
        found = self._reader.each(
            "extension offer", records, lambda record: read_extension_offer(record, query.reservation_id)
        )
        return tuple(sorted(found, key=lambda offer: (offer.fee_usd, offer.id)))

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        answer = self._aws.call(
            "ec2",
            "PurchaseCapacityBlockExtension",
            CallKind.PURCHASE,
            CapacityBlockExtensionOfferingId=offer_id,
            CapacityReservationId=reservation_id,
        )
        try:
            found = [read_extension(record) for record in answer["CapacityBlockExtensions"]]
            mine = [extension for extension in found if extension.offer_id == offer_id] or found
            self._just_bought[offer_id] = mine[-1]
            return mine[-1]
        except Exception as error:  # whatever is wrong with the answer, the money is spent
            raise OutcomeUnknown(
                f"PurchaseCapacityBlockExtension: {_BOUGHT_BUT_UNREADABLE}: {error!r}"
            ) from error

    def tag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        self._check_ours_to_tag(reservation_id)
        self._aws.call("ec2", "CreateTags", CallKind.CHANGE, Resources=[reservation_id], Tags=tag_list(tags))

    def untag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        if not tags:
            raise SpecError("no tags to remove; EC2 would remove all of them")
        self._check_ours_to_tag(reservation_id)
        self._aws.call("ec2", "DeleteTags", CallKind.CHANGE, Resources=[reservation_id], Tags=tag_list(tags))

    # --- helpers --------------------------------------------------------------------------------------

    def _check_ours_to_tag(self, reservation_id: str) -> None:
        if reservation_id not in self._accounts:
            self.reservations()
        theirs, ours = self._accounts.get(reservation_id, ""), (self._who or self.identity()).split(":")[4]
        if theirs and theirs != ours:
            raise Refused(
                f"{reservation_id} belongs to account {theirs}, which shares it: only that account can tag it"
            )

    def _pages(self, operation: str, key: str, kind: CallKind = CallKind.READ, **given: Any) -> Iterator[Any]:
        return self._aws.pages("ec2", operation, key, kind=kind, **given)

    def _reservation(self, record: Mapping[str, Any]) -> Reservation:
        return read_reservation(record, self._catalog, self._reader.log_once)

    def _read_history(self) -> tuple[Extension, ...]:
        records, log = self._history_records(), self._reader.log_once
        found = read_extensions(records, self._clock.now(), log)
        listed, since = {extension.offer_id for extension in found}, self._clock.now() - _HISTORY_LAG
        self._just_bought = {
            offer_id: extension
            for offer_id, extension in self._just_bought.items()
            if offer_id not in listed and extension.asked_at > since
        }
        return (*found, *self._just_bought.values())

    def _history_records(self) -> list[Any]:
        """None in a region where EC2 sells no blocks and does not have the call: other pools must work there."""
        operation, key = "DescribeCapacityBlockExtensionHistory", "CapacityBlockExtensions"
        try:
            return list(self._pages(operation, key, CallKind.QUESTION, MaxResults=PAGE))
        except NotAllowed:
            raise
        except Refused as refusal:
            self._reader.log_once(f"no history of extensions: {refusal}")
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
        """Instances of others hold slots too. Ours are listed again, which costs less than reading them one by one."""
        seen = self.reservations() if self._seen is None else self._seen
        now = self._clock.now()
        ids = [
            block.id
            for block in seen
            if (block.available < block.count or block.unread)
            and block.start <= now
            and block.id.startswith("cr-")
        ]
        for first in range(0, len(ids), _MOST_VALUES):
            yield from self._instances_where("capacity-reservation-id", ids[first : first + _MOST_VALUES])

    def _instances_where(self, filter_: str, values: list[str]) -> Iterator[Any]:
        filters = [{"Name": filter_, "Values": values}]
        for group in self._pages("DescribeInstances", "Reservations", MaxResults=PAGE, Filters=filters):
            held = group.get("Instances") if isinstance(group, Mapping) else None
            if not isinstance(held, list):
                raise Retryable("DescribeInstances: AWS did not answer with a list of instances")
            yield from held

    def _with_endings(self, found: list[Instance]) -> list[Instance]:
        filters = [{"Name": "event.code", "Values": list(ENDING_EVENTS)}]
        records = self._pages("DescribeInstanceStatus", "InstanceStatuses", MaxResults=PAGE, Filters=filters)
        endings = [record for record in self._reader.each("status of", records, event_ending) if record]
        if any(
            instance.source.kind is SourceKind.SPOT and instance.state in INSTANCE_UP_STATES
            for instance in found
        ):
            filters = [{"Name": "status-code", "Values": list(ENDING_SPOT)}]
            marked = self._pages("DescribeSpotInstanceRequests", "SpotInstanceRequests", Filters=filters)
            endings += [
                ending for ending in self._reader.each("spot request of", marked, spot_ending) if ending
            ]
        soonest = {
            ending.instance_id: ending
            for ending in sorted(endings, key=lambda ending: ending.at, reverse=True)
        }
        return [
            replace(instance, ends_at=end.at, ends_why=InstanceEnd(end.kind))
            if (end := soonest.get(instance.id))
            else instance
            for instance in found
        ]
