"""Whether a launch call gives instances: its source, the slots that are free, the intent's id as its token.

EC2 never falls back from one source to another by itself, and neither does this; but what names no reservation takes
the slots of open ones first, unless it opts out, as the engine's launches do. Refusals are recorded with their
reason, to show engines that ask for more than there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidemill.catalog import Catalog, InstanceType
from tidemill.model.capacity import NOT_STARTED_STATES, ReservationState, Source, SourceKind
from tidemill.model.errors import NoCapacity
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.cloud.faults import ArmedFaults
from tidemill.sim.cloud.instances import Instances, with_tags
from tidemill.sim.cloud.reservations import Reservations
from tidemill.sim.timeline import Timeline, seeded_id
from tidemill.spec.scenario import Market

# EC2's code for a block that has not begun; for one that is over none is documented.
_NOT_YET = "InvalidCapacityReservationState.PendingActivation"
# Spot prices move by the minute and the catalog seldom has one. 0.4 of on-demand is on the high side of what
# accelerated types usually cost, so a rehearsal rather overstates the bill than understates it.
SPOT_FRACTION = 0.4


def spot_usd_h(kind: InstanceType) -> float | None:
    if kind.spot_usd_h is not None:
        return kind.spot_usd_h
    return None if kind.on_demand_usd_h is None else kind.on_demand_usd_h * SPOT_FRACTION


@dataclass(frozen=True, slots=True)
class RefusedLaunch:
    at: datetime
    intent: LaunchIntent
    why: str


class Launches:
    def __init__(
        self,
        timeline: Timeline,
        catalog: Catalog,
        *,
        seed: int,
        zones: Sequence[str],
        market: Market,
        reservations: Reservations,
        instances: Instances,
        faults: ArmedFaults,
    ) -> None:
        self._timeline = timeline
        self._catalog = catalog
        self._seed = seed
        self._zones = frozenset(zones)
        self._market = market
        self._reservations = reservations
        self._instances = instances
        self._faults = faults
        self._by_token: dict[str, tuple[str, ...]] = {}
        self.refused: list[RefusedLaunch] = []

    def launch(
        self, intent: LaunchIntent, tags: Pairs, minimum: int = 1, *, fills_open: bool = False
    ) -> tuple[str, ...]:
        """The same intent again gives the same ids and starts nothing. Fewer than the minimum are not started."""
        if intent.id in self._by_token:
            return self._by_token[intent.id]
        try:
            self._faults.check_launch(self._timeline.now(), self._fault_targets(intent))
            open_slots = self._open_slots(intent) if fills_open else []
            count = min(intent.count, len(open_slots) + self._free(intent, len(open_slots)))
            minimum = max(minimum, intent.least)
            if count < minimum:
                raise NoCapacity(
                    f"{intent.source.label} has {count} free of the {minimum} asked for at least",
                    code="ReservationCapacityExceeded"
                    if intent.source.id
                    else "InsufficientInstanceCapacity",
                )
        except NoCapacity as refusal:
            self.refused.append(RefusedLaunch(self._timeline.now(), intent, str(refusal)))
            raise
        sources = [*open_slots, *[intent.source] * count][:count]
        ids = self._start(intent, sources, tags)
        self._by_token[intent.id] = ids
        return ids

    def _start(self, intent: LaunchIntent, sources: Sequence[Source], tags: Pairs) -> tuple[str, ...]:
        for id_, count in Counter(source.id for source in sources if source.id).items():
            self._reservations.take(id_, count)
        usd_h = self.usd_h(intent) or 0.0
        ids = tuple(seeded_id("i", self._seed, intent.id, str(index)) for index in range(len(sources)))
        for instance_id, source in zip(ids, sources, strict=True):
            instance = Instance(
                id=instance_id,
                instance_type=intent.instance_type,
                zone=intent.zone,
                source=source,
                state=InstanceState.PENDING,
                launched_at=self._timeline.now(),
            )
            self._instances.start(
                with_tags(instance, tags),
                0.0 if source.id else usd_h,
                token=intent.id,
                tags=tuple(sorted(tags)),
            )
        return ids

    def usd_h(self, intent: LaunchIntent) -> float | None:
        """By the hour, where that is how it is paid; None where the catalog knows no price."""
        kind = self._catalog.types.get(intent.instance_type)
        match intent.source.kind:
            case SourceKind.BLOCK | SourceKind.ODCR:
                return 0.0
            case SourceKind.SPOT:
                return None if kind is None else spot_usd_h(kind)
            case SourceKind.ON_DEMAND:
                return None if kind is None else kind.on_demand_usd_h

    def _open_slots(self, intent: LaunchIntent) -> list[Source]:
        return [
            found.source
            for found in self._reservations.open_to_all(intent.instance_type, intent.zone)
            for _ in range(found.available)
        ]

    def _free(self, intent: LaunchIntent, besides: int = 0) -> int:
        """At least one, else NoCapacity; none is enough besides others."""
        if intent.zone not in self._zones:
            raise NoCapacity(f"there is no zone {intent.zone} in this account", code="InvalidParameterValue")
        if intent.source.kind in (SourceKind.BLOCK, SourceKind.ODCR):
            return self._free_in_reservation(intent)
        if self.usd_h(intent) is None:
            raise NoCapacity(
                f"{intent.instance_type} is not sold as {intent.source.kind.value}", code="Unsupported"
            )
        spot = intent.source.kind is SourceKind.SPOT
        ceiling = (self._market.spot if spot else self._market.on_demand).get(intent.instance_type)
        if ceiling is None:  # plenty
            return intent.count
        free = ceiling - self._instances.live_at[intent.source, intent.instance_type, intent.zone]
        if free < 1 and not besides:
            where = f"{intent.source.kind.value} {intent.instance_type} in {intent.zone}"
            raise NoCapacity(f"no {where}", code="InsufficientInstanceCapacity")
        return max(0, free)

    def _free_in_reservation(self, intent: LaunchIntent) -> int:
        reservation = self._reservations.get(intent.source.id)
        if reservation is None or reservation.source != intent.source:
            raise NoCapacity(
                f"there is no reservation {intent.source.label}", code="InvalidCapacityReservationId.NotFound"
            )
        if (reservation.instance_type, reservation.zone) != (intent.instance_type, intent.zone):
            raise NoCapacity(
                f"{reservation.id} holds {reservation.instance_type} in {reservation.zone}, "
                f"not {intent.instance_type} in {intent.zone}",
                code="CapacityReservationMismatch",
            )
        if reservation.state is not ReservationState.ACTIVE:
            early = reservation.state in NOT_STARTED_STATES
            code = _NOT_YET if early else "ReservationCapacityExceeded"
            raise NoCapacity(f"{reservation.id} is {reservation.state.value}, not active", code=code)
        if reservation.available < 1:
            raise NoCapacity(f"{reservation.id} has no free slot", code="ReservationCapacityExceeded")
        return reservation.available

    def _fault_targets(self, intent: LaunchIntent) -> tuple[str, ...]:
        """Every name a fault may use for this launch."""
        own = (intent.pool, intent.instance_type, intent.zone, intent.source.label, intent.source.kind.value)
        return own + (self._reservations.fault_targets(intent.source.id) if intent.source.id else ())
