"""On-demand capacity reservations (ODCRs) of the simulated account: made, changed, cancelled, and billed by the hour.

They cost what their instances would, used or not. When one ends, its instances run on and are billed by themselves.
An open one (EC2's default) is filled by launches that name no reservation; instances that run already when it is made
stay where they are, where EC2 would count them in.
"""

from __future__ import annotations

from datetime import datetime

from tidemill.catalog import Catalog
from tidemill.model.capacity import LIVE_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.errors import Gone, NoCapacity, Refused
from tidemill.model.labels import Pairs
from tidemill.sim.cloud.instances import Instances
from tidemill.sim.cloud.reservations import Reservations
from tidemill.sim.timeline import Timeline, seeded_id
from tidemill.spec import names
from tidemill.spec.scenario import Market


class OnDemandReservations:
    def __init__(
        self,
        timeline: Timeline,
        catalog: Catalog,
        *,
        seed: int,
        market: Market,
        reservations: Reservations,
        instances: Instances,
    ) -> None:
        self._timeline, self._catalog, self._seed, self._market = timeline, catalog, seed, market
        self._reservations, self._instances = reservations, instances
        self._made: dict[str, str] = {}  # client token -> reservation
        reservations.on_active.append(self._bill)
        reservations.on_expired.append(self._end)

    def create(
        self,
        instance_type: str,
        zone: str,
        count: int,
        *,
        end: datetime | None,
        tags: Pairs,
        token: str,
        open_to_all: bool = False,
    ) -> Reservation:
        """The same token gives the same one. NoCapacity: the market has not that many."""
        if (known := self._reservations.get(self._made.get(token, ""))) is not None:
            return known
        self._check_market(instance_type, zone, count)
        told = dict(tags)
        reservation = Reservation(
            id=seeded_id("cr", self._seed, "odcr", token),
            kind=SourceKind.ODCR,
            instance_type=instance_type,
            zone=zone,
            count=count,
            available=0,
            state=ReservationState.SCHEDULED,
            start=self._timeline.now(),
            end=end,
            owner=told.get(names.TAG_OWNER, ""),
            pool=told.get(names.TAG_POOL, ""),
            intent_id=told.get(names.TAG_INTENT, ""),
            tags=tuple(sorted(told.items())),
        )
        self._made[token] = reservation.id
        self._reservations.open(reservation)
        if open_to_all:
            self._reservations.make_open_to_all(reservation.id)
        return self._found(reservation.id)

    def modify(
        self, reservation_id: str, *, count: int | None, end: datetime | None, unlimited: bool
    ) -> None:
        """Refused: fewer than run on it, or it is over."""
        before = self._found(reservation_id)
        wanted = before.count if count is None else count
        if wanted < before.count - before.available:
            raise Refused(f"{reservation_id}: {before.count - before.available} instances run on it")
        if wanted > before.count:
            self._check_market(before.instance_type, before.zone, wanted - before.count)
        self._stop_meter(before)
        new_end = None if unlimited else before.end if end is None else end
        self._bill(self._reservations.resize(reservation_id, wanted, new_end))

    def is_open_to_all(self, reservation_id: str) -> bool:
        return self._reservations.is_open_to_all(reservation_id)

    def cancel(self, reservation_id: str) -> None:
        self._found(reservation_id)
        self._reservations.cancel(reservation_id)

    def _found(self, reservation_id: str) -> Reservation:
        found = self._reservations.get(reservation_id)
        if found is None or found.kind is not SourceKind.ODCR or found.state not in LIVE_STATES:
            raise Gone(
                f"there is no on-demand reservation {reservation_id}",
                code="InvalidCapacityReservationId.NotFound",
            )
        return found

    def _check_market(self, instance_type: str, zone: str, count: int) -> None:
        kind = self._catalog.types.get(instance_type)
        if kind is None or kind.on_demand_usd_h is None:
            raise NoCapacity(f"{instance_type} is not sold on demand", code="Unsupported")
        ceiling = self._market.on_demand.get(instance_type)
        if ceiling is None:
            return
        taken = sum(
            found.count
            for found in self._reservations.everything()
            if (found.kind, found.instance_type, found.zone) == (SourceKind.ODCR, instance_type, zone)
            and found.state in LIVE_STATES
        )
        taken += sum(
            count
            for (source, of_type, where), count in self._instances.live_at.items()
            if (source.kind, of_type, where) == (SourceKind.ON_DEMAND, instance_type, zone)
        )
        if taken + count > ceiling:
            raise NoCapacity(
                f"no {count} x {instance_type} on demand in {zone}", code="InsufficientInstanceCapacity"
            )

    # --- billing ------------------------------------------------------------------------------------

    def _bill(self, reservation: Reservation) -> None:
        if reservation.kind is SourceKind.ODCR:
            self._instances.meters[SourceKind.ODCR].start(self._usd_h(reservation), self._timeline.now())

    def _stop_meter(self, reservation: Reservation) -> None:
        self._instances.meters[SourceKind.ODCR].stop(self._usd_h(reservation), self._timeline.now())

    def _end(self, reservation: Reservation) -> None:
        """Its instances run on and are billed as on-demand ones."""
        if reservation.kind is not SourceKind.ODCR:
            return
        self._stop_meter(reservation)
        usd_h = self._catalog.types[reservation.instance_type].on_demand_usd_h or 0.0
        for history in self._instances.on(reservation.source):
            self._instances.bill_by_the_hour(history, usd_h)

    def _usd_h(self, reservation: Reservation) -> float:
        return reservation.count * (self._catalog.types[reservation.instance_type].on_demand_usd_h or 0.0)
