"""The blocks and on-demand reservations of the simulated account: their states, their slots, who sees them.

    payment-pending -> scheduled -> active -> expired          payment-pending -> payment-failed

Frozen `Reservation` objects are replaced on change and keep their identity otherwise. What happens to the instances
when a block ends is in `block_end`, how blocks are bought in `purchases`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tidemill.catalog import Catalog
from tidemill.model.capacity import LIVE_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import terminates_before_end
from tidemill.model.errors import Gone, SpecError
from tidemill.model.labels import Pairs
from tidemill.sim.cloud.faults import ArmedFaults
from tidemill.sim.cloud.market import block_fee_usd
from tidemill.sim.timeline import Journal, Timeline, seeded_id
from tidemill.sim.wakes import Wakes
from tidemill.spec import names
from tidemill.spec.scenario import OwnedReservation, block_window
from tidemill.spec.units import format_instant

_ENDED_LISTED_FOR = timedelta(days=1)


def kill_at(reservation: Reservation) -> datetime | None:
    """When EC2 starts terminating what runs there; None where it never does (on-demand reservations)."""
    if reservation.kind is not SourceKind.BLOCK or reservation.end is None:
        return None
    return reservation.end - terminates_before_end(ultraserver=reservation.ultraserver)


@dataclass(slots=True)
class _Record:
    now: Reservation
    name: str  # what the scenario calls it; empty for what was bought in the run
    delivered: int | None  # known beforehand that fewer come
    opened_at: datetime
    bought: int
    taken: int = 0  # slots with an instance on them, or being cleaned up after one
    closed: bool = False  # EC2 is taking the instances back and launches no more
    open_to_all: bool = False  # what names no reservation may take its slots


class Reservations:
    def __init__(self, timeline: Timeline, journal: Journal, wakes: Wakes, faults: ArmedFaults) -> None:
        self._timeline = timeline
        self._journal = journal
        self._wakes = wakes
        self.version = 0  # counts changes, so that others can tell cheaply whether to look again
        self._faults = faults
        self._records: dict[str, _Record] = {}
        self._listed: dict[str, Reservation] = {}
        self._answer: tuple[Reservation, ...] | None = None
        self._everything: tuple[Reservation, ...] | None = None
        self.names: dict[str, str] = {}
        self.on_active: list[Callable[[Reservation], None]] = []
        self.on_expired: list[Callable[[Reservation], None]] = []
        self.on_end_set: list[Callable[[Reservation], None]] = []  # the end became known, or moved

    # --- reading ------------------------------------------------------------------------------------

    def listed(self) -> tuple[Reservation, ...]:
        """What a Describe call shows: not yet what was bought a moment ago, and ended ones for a day."""
        if self._answer is None:
            self._answer = tuple(self._listed.values())
        return self._answer

    def get(self, id_or_name: str) -> Reservation | None:
        record = self._records.get(self.names.get(id_or_name, id_or_name))
        return None if record is None else record.now

    def everything(self) -> tuple[Reservation, ...]:
        """All reservations ever, as they are now, in the order they were made."""
        if self._everything is None:
            self._everything = tuple(record.now for record in self._records.values())
        return self._everything

    def sale(self, reservation_id: str) -> tuple[datetime, int]:
        """When it was made, and how many instances were bought: fewer may have been delivered."""
        record = self._records[reservation_id]
        return record.opened_at, record.bought

    def open_to_all(self, instance_type: str, zone: str) -> list[Reservation]:
        """Those whose slots a launch takes that names no reservation, the oldest first."""
        return [
            record.now
            for record in self._records.values()
            if record.open_to_all
            and record.now.state is ReservationState.ACTIVE
            and (record.now.instance_type, record.now.zone) == (instance_type, zone)
        ]

    def is_open_to_all(self, reservation_id: str) -> bool:
        return self._records[reservation_id].open_to_all

    def make_open_to_all(self, reservation_id: str) -> None:
        self._records[reservation_id].open_to_all = True

    def coming_blocks(self) -> Iterator[Reservation]:
        """Blocks that hold or will hold instances: those that count on a date."""
        for record in self._records.values():
            if record.now.kind is SourceKind.BLOCK and record.now.state in LIVE_STATES:
                yield record.now

    def fault_targets(self, reservation_id: str) -> tuple[str, ...]:
        """Every name a fault may use for it."""
        record = self._records.get(reservation_id)
        if record is None:
            return (reservation_id,)
        known = record.now
        return (known.id, record.name, known.pool, known.instance_type, known.zone, known.kind.value)

    # --- coming to be -------------------------------------------------------------------------------

    def open(
        self,
        reservation: Reservation,
        *,
        name: str = "",
        delivered: int | None = None,
        seen_after: timedelta = timedelta(0),
    ) -> None:
        record = _Record(reservation, name, delivered, self._timeline.now(), reservation.count)
        self._records[reservation.id] = record
        self.version += 1
        self._everything = None
        if name:
            self.names[name] = reservation.id
        if seen_after:
            self._timeline.after(seen_after, lambda: self._list(record))
        else:
            self._list(record)
        self._follow_end(record)
        if reservation.state is ReservationState.SCHEDULED:
            self._await_start(record)

    def settle_payment(self, reservation_id: str, paid: bool) -> None:
        record = self._records[reservation_id]
        if paid:
            self._change(record, state=ReservationState.SCHEDULED)
            self._tell(record, "block-scheduled", f"paid; starts {format_instant(record.now.start)}")
            self._await_start(record)
        else:
            self._change(record, state=ReservationState.PAYMENT_FAILED)
            self._tell(record, "payment-failed", "the payment failed: the block will not come")
            self._forget_later(record)

    def tag(self, reservation_id: str, tags: Pairs) -> None:
        self._retag(reservation_id, lambda there: {**there, **dict(tags)})

    def untag(self, reservation_id: str, tags: Pairs) -> None:
        """Each only where it has this value."""
        self._retag(reservation_id, lambda there: dict(there.items() - set(tags)))

    def _retag(self, reservation_id: str, after: Callable[[dict[str, str]], dict[str, str]]) -> None:
        record = self._records.get(reservation_id)
        if record is None or reservation_id not in self._listed:
            raise Gone(
                f"there is no reservation {reservation_id}", code="InvalidCapacityReservationId.NotFound"
            )
        both = after(dict(record.now.tags))
        self._change(
            record,
            tags=tuple(sorted(both.items())),
            owner=both.get(names.TAG_OWNER, ""),
            pool=both.get(names.TAG_POOL, ""),
            intent_id=both.get(names.TAG_INTENT, ""),
        )

    # --- slots --------------------------------------------------------------------------------------

    def take(self, reservation_id: str, n: int) -> None:
        record = self._records[reservation_id]
        assert n <= record.now.available, "a launch took slots that are not there"
        record.taken += n
        self._change(record)

    def give_back(self, reservation_id: str) -> None:
        """A slot has been cleaned up and can be launched into again."""
        record = self._records[reservation_id]
        record.taken -= 1
        if self._change(record):
            self._wakes(f"slot-free {reservation_id}")

    def close(self, reservation_id: str) -> None:
        record = self._records[reservation_id]
        record.closed = True
        if self._change(record):
            self._wakes(f"block-closing {reservation_id}")

    # --- on-demand reservations are changed by hand -------------------------------------------------

    def resize(self, reservation_id: str, count: int, end: datetime | None) -> Reservation:
        record = self._records[reservation_id]
        if self._change(record, count=count, end=end):
            self._tell(record, "block-changed", f"{count} x {record.now.instance_type}")
            self._follow_end(record)
        return record.now

    def cancel(self, reservation_id: str) -> None:
        record = self._records[reservation_id]
        self._end(record, ReservationState.CANCELLED, "block-cancelled", "cancelled")

    # --- extensions ---------------------------------------------------------------------------------

    def await_extension(self, reservation_id: str, to: datetime) -> None:
        self._change(self._records[reservation_id], extension_pending_to=to)
        self._wakes(f"extension-pending {reservation_id}")

    def settle_extension(self, reservation_id: str, to: datetime, fee_usd: int, paid: bool) -> None:
        record = self._records[reservation_id]
        if not paid:
            self._change(record, extension_pending_to=None)
            end = "" if record.now.end is None else f"; it still ends {format_instant(record.now.end)}"
            self._tell(record, "extension-failed", f"the extension was not paid in time{end}")
            return
        record.closed = False
        self._change(record, end=to, extension_pending_to=None, fee_usd=record.now.fee_usd + fee_usd)
        self._tell(record, "block-extended", f"extended and paid ({fee_usd} USD); ends {format_instant(to)}")
        self._follow_end(record)

    # --- the life of one ----------------------------------------------------------------------------

    def _await_start(self, record: _Record) -> None:
        if record.now.start <= self._timeline.now():
            self._activate(record)
        else:
            self._timeline.at(record.now.start, lambda: self._activate(record))

    def _activate(self, record: _Record) -> None:
        bought = record.now.count
        missing = 0
        if record.now.kind is SourceKind.BLOCK:
            missing = self._faults.missing_at_delivery(self.fault_targets(record.now.id))
        count = max(0, min(bought, bought if record.delivered is None else record.delivered) - missing)
        self._change(record, state=ReservationState.ACTIVE, count=count)
        short = f", {bought - count} fewer than bought" if count < bought else ""
        self._tell(
            record, "block-active", f"{count} x {record.now.instance_type} in {record.now.zone}{short}"
        )
        for listener in self.on_active:
            listener(record.now)

    def _follow_end(self, record: _Record) -> None:
        end = record.now.end
        if end is None:
            return
        self._timeline.at(end, lambda: self._expire(record, end))
        for listener in self.on_end_set:
            listener(record.now)

    def _expire(self, record: _Record, end: datetime) -> None:
        # An extension may have moved the end since this was scheduled, and a failed payment has none.
        if record.now.end != end or record.now.state not in LIVE_STATES:
            return
        self._end(record, ReservationState.EXPIRED, "block-expired", "its time is over")

    def _end(self, record: _Record, state: ReservationState, event: str, text: str) -> None:
        self._change(record, state=state)
        self._tell(record, event, text)
        self._forget_later(record)
        for listener in self.on_expired:
            listener(record.now)

    def _list(self, record: _Record) -> None:
        self._listed[record.now.id] = record.now
        self._answer = None
        self._wakes(f"reservation-listed {record.now.id}")

    def _forget_later(self, record: _Record) -> None:
        def forget() -> None:
            self._listed.pop(record.now.id, None)
            self._answer = None

        self._timeline.after(_ENDED_LISTED_FOR, forget)

    def _change(self, record: _Record, **changes: Any) -> bool:
        """Replace the frozen object if anything about it is different now; `available` follows by itself."""
        state, count = changes.get("state", record.now.state), changes.get("count", record.now.count)
        open_now = state is ReservationState.ACTIVE and not record.closed
        changes["available"] = max(0, count - record.taken) if open_now else 0
        after = replace(record.now, **changes)
        if after == record.now:
            return False
        record.now = after
        self.version += 1
        self._everything = None
        if after.id in self._listed:
            self._listed[after.id] = after
            self._answer = None
        return True

    def _tell(self, record: _Record, event: str, text: str) -> None:
        if record.now.kind is SourceKind.ODCR:
            event = event.replace("block-", "odcr-")
        about = f"{record.name} ({record.now.id})" if record.name else record.now.id
        self._journal.add(event, record.now.id, text, label=about)
        self._wakes(f"{event} {record.now.id}")


def owned_reservation(
    owned: OwnedReservation, catalog: Catalog, *, owner: str, seed: int, now: datetime
) -> Reservation:
    """A reservation of the scenario as EC2 would have sold it, before its start: on the grid, with a fee and tags."""
    kind = catalog.types.get(owned.instance_type)
    if kind is None:
        raise SpecError(f"reservation {owned.name}: '{owned.instance_type}' is not in the catalog")
    block = owned.type == "block"
    start, end, fee_usd = now + owned.start, None, None
    if block:
        if owned.duration is None:
            raise SpecError(f"reservation {owned.name}: a block needs a duration")
        start, end = block_window(now, owned.start, owned.duration, owned.overlap)
        fee_usd = block_fee_usd(kind, owned.count, end - start)
    elif owned.duration is not None:
        end = start + owned.duration
    tags = {names.TAG_OWNER: owner} if owned.owned and owner else {}
    if owned.pool:
        tags[names.TAG_POOL] = owned.pool
    return Reservation(
        id=owned.id or seeded_id("cr", seed, "owned", owned.name),
        kind=SourceKind.BLOCK if block else SourceKind.ODCR,
        instance_type=owned.instance_type,
        zone=owned.zone,
        count=owned.count,
        available=0,
        state=ReservationState.SCHEDULED,
        start=start,
        end=end,
        owner=tags.get(names.TAG_OWNER, ""),
        pool=owned.pool,
        fee_usd=fee_usd or 0,
        ultraserver=block and bool(kind.ultraserver),
        tags=tuple(sorted(tags.items())),
    )
