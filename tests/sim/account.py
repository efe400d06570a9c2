"""A simulated account with a clock, for the tests: builders with keyword overrides."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill import catalog
from tidemill.model.capacity import Reservation, Source, SourceKind
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.offers import Offer, OfferQuery
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.timeline import Journal, Timeline
from tidemill.spec import names
from tidemill.spec.scenario import Market, OwnedReservation
from tidemill.spec.units import parse_duration

START = datetime(2026, 11, 16, 11, 30, tzinfo=UTC)  # a Monday, on the grid
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
OWNER = "mill"
P5 = "p5.48xlarge"
GB200 = "p6e-gb200.36xlarge"
ON_DEMAND = Source(SourceKind.ON_DEMAND)
SPOT = Source(SourceKind.SPOT)


def tags(*, pool: str = "train", intent: str = "", provisioner: str = "native") -> Pairs:
    return (
        (names.TAG_OWNER, OWNER),
        (names.TAG_POOL, pool),
        (names.TAG_INTENT, intent),
        (names.TAG_PROVISIONER, provisioner),
    )


class Account:
    """The cloud under test, its clock, and every wake it sent."""

    def __init__(self, *, start: datetime = START, seed: int = 7, **market: Any) -> None:
        self.timeline = Timeline(start)
        self.journal = Journal(self.timeline.now)
        self.wakes: list[tuple[datetime, str]] = []
        self.cloud = SimCloud(
            self.timeline,
            self.journal,
            catalog.load(),
            seed=seed,
            zones=ZONES,
            market=Market(**market),
            wake=lambda reason: self.wakes.append((self.now, reason)),
        )
        self._intents = 0

    # --- time ---------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.timeline.now()

    def wait(self, written: str) -> None:
        self.timeline.advance(self.now + parse_duration(written))

    def until(self, when: datetime) -> None:
        self.timeline.advance(when)

    # --- doing --------------------------------------------------------------------------------------

    def block(self, **given: Any) -> Reservation:
        """A block of two p5 that lasts two days, active at once unless `start` says otherwise."""
        settings = {"name": "a", "instance_type": P5, "count": 2, "zone": ZONES[0], "duration": "2d"} | given
        return self.reservation(self.cloud.add_reservation(OwnedReservation(**settings), owner=OWNER))

    def query(self, **given: Any) -> OfferQuery:
        settings: dict[str, Any] = {
            "instance_type": P5,
            "count": 2,
            "duration": timedelta(days=2),
            "earliest_start": self.now,
            "latest_end": self.now + timedelta(days=9),
        }
        return OfferQuery(**settings | given)

    def offers(self, **given: Any) -> tuple[Offer, ...]:
        return self.cloud.search_offers(self.query(**given))

    def buy(self, intent: str = "p-1", **given: Any) -> Reservation:
        """The cheapest offer that starts tomorrow or later."""
        given = {"earliest_start": self.now + timedelta(days=1)} | given
        return self.cloud.purchase(self.offers(**given)[0].id, tags(intent=intent))[0]

    def intent(self, source: Source, **given: Any) -> LaunchIntent:
        self._intents += 1
        settings: dict[str, Any] = {
            "id": f"l-{self._intents}",
            "pool": "train",
            "source": source,
            "instance_type": P5,
            "zone": ZONES[0],
            "count": 1,
            "provisioner": "native",
            "written_at": self.now,
        }
        return LaunchIntent(**settings | given)

    def launch(self, source: Source, **given: Any) -> tuple[str, ...]:
        intent = self.intent(source, **given)
        return self.cloud.launch(
            intent, tags(pool=intent.pool, intent=intent.id, provisioner=intent.provisioner)
        )

    # --- looking ------------------------------------------------------------------------------------

    def reservation(self, id_or_name: str) -> Reservation:
        found = self.cloud.reservation(id_or_name)
        assert found is not None
        return found

    def instance(self, instance_id: str) -> Instance:
        return self.cloud.instance_histories[instance_id].now

    def states(self, ids: Iterable[str]) -> set[InstanceState]:
        return {self.instance(instance_id).state for instance_id in ids}

    def journal_lines(self, kind: str) -> list[datetime]:
        return [line.at for line in self.journal.lines if line.kind == kind]
