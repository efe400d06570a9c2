"""The simulated AWS: `ports.Cloud` in memory, in virtual time, seeded.

The first methods are the port. Below them are what a scenario does to the account (what exists beforehand, what people
do; faults are in `faulty_account`) and the state that reports and invariants read. It knows nothing of Kubernetes: a
simulated cluster listens through `on_instance`. Each part has its own module: market, purchases, extensions,
reservations, on_demand_reservations, launches, instances, scaling_groups, node_groups, block_end, faults, events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.catalog import Catalog
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.errors import Gone, NoCapacity, NotAllowed, Refused
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, Offer, OfferQuery
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.cloud.block_end import BlockEnd
from tidemill.sim.cloud.events import BlockEvents, Events
from tidemill.sim.cloud.extensions import ExtensionPurchase, ExtensionPurchases
from tidemill.sim.cloud.faults import ArmedFaults
from tidemill.sim.cloud.faulty_account import FaultyAccount
from tidemill.sim.cloud.instances import InstanceHistory, Instances
from tidemill.sim.cloud.launches import Launches, RefusedLaunch, spot_usd_h
from tidemill.sim.cloud.market import OfferMarket, OtherRegions
from tidemill.sim.cloud.node_groups import NodeGroups
from tidemill.sim.cloud.on_demand_reservations import OnDemandReservations
from tidemill.sim.cloud.purchases import BlockPurchases, Purchase
from tidemill.sim.cloud.reservations import Reservations, owned_reservation
from tidemill.sim.cloud.scaling_groups import ScalingGroups
from tidemill.sim.timeline import Journal, Timeline
from tidemill.sim.wakes import Wakes
from tidemill.spec import names
from tidemill.spec.scenario import Market, OwnedReservation

# The account number of AWS's own examples, which nobody owns.
SIM_ENGINE = "arn:aws:sts::123456789012:assumed-role/tidemill-engine/rehearsal"


class SimCloud(FaultyAccount):
    def __init__(
        self,
        timeline: Timeline,
        journal: Journal,
        catalog: Catalog,
        *,
        seed: int,
        zones: Sequence[str],
        market: Market,
        wake: Callable[[str], None],
        identity: str = SIM_ENGINE,
    ) -> None:
        self._timeline = timeline
        self.journal = journal
        self.catalog = self._catalog = catalog
        self.seed = self._seed = seed
        self.zones = tuple(zones)
        self._identity = identity
        self._faults = ArmedFaults()
        self._wakes = Wakes(timeline, wake)
        self._reservations = Reservations(timeline, journal, self._wakes, self._faults)
        self._instances = Instances(timeline, journal, self._wakes, seed=seed)
        self._market = OfferMarket(
            catalog, seed=seed, zones=zones, market=market, held=self._reservations.coming_blocks
        )
        self._other_regions = OtherRegions(catalog, seed=seed, market=market)
        self._purchases = BlockPurchases(
            timeline, journal, catalog, seed=seed, market=self._market, reservations=self._reservations,
            faults=self._faults,
        )  # fmt: skip
        self._extensions = ExtensionPurchases(
            timeline, catalog, seed=seed, market=self._market, reservations=self._reservations, faults=self._faults
        )  # fmt: skip
        self._launches = Launches(
            timeline, catalog, seed=seed, zones=zones, market=market, reservations=self._reservations,
            instances=self._instances, faults=self._faults,
        )  # fmt: skip
        self.events = Events()
        self.groups = ScalingGroups(
            timeline,
            journal,
            self._wakes,
            self.events,
            seed=seed,
            launches=self._launches,
            instances=self._instances,
        )
        self.node_groups = NodeGroups(
            timeline, journal, self._wakes, seed=seed, groups=self.groups, reservations=self._reservations
        )
        self._block_end = BlockEnd(timeline, journal, self._reservations, self._instances, self.groups)
        self._reservations.on_end_set.append(self._block_end.follow)
        BlockEvents(timeline, self.events, self._reservations, self._instances)
        self.on_demand_reservations = OnDemandReservations(
            timeline, catalog, seed=seed, market=market, reservations=self._reservations, instances=self._instances,
        )  # fmt: skip
        self._instances.on_slot_clean.append(self._slot_clean)
        self._foreign = 0
        self.shared_by: dict[
            str, str
        ] = {}  # by reservation: the account that owns it, where that is another one

    # --- the port -----------------------------------------------------------------------------------

    def reservations(self) -> tuple[Reservation, ...]:
        self._faults.check_throttle(self._timeline.now())
        return self._reservations.listed()

    def instances(self) -> tuple[Instance, ...]:
        self._faults.check_throttle(self._timeline.now())
        return self._instances.listed()

    def search_offers(self, query: OfferQuery) -> tuple[Offer, ...]:
        """SpecError: a duration or count that EC2 does not sell."""
        now = self._timeline.now()
        self._faults.check_throttle(now)
        return self._market.search(query, now)

    def search_offers_in(self, region: str, query: OfferQuery) -> tuple[Offer, ...]:
        """Of another region. NotAllowed: the account may not use it."""
        now = self._timeline.now()
        self._faults.check_throttle(now)
        return self._other_regions.search(region, query, now)

    def purchase(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        self._faults.check_throttle(self._timeline.now())
        self._faults.check_request("purchase")
        bought = self._purchases.buy(offer_id, tags)
        self._faults.check_timeout("purchase")
        return bought

    def search_extensions(self, query: ExtensionQuery) -> tuple[ExtensionOffer, ...]:
        self._faults.check_throttle(self._timeline.now())
        return self._extensions.search(query)

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        self._faults.check_throttle(self._timeline.now())
        self._faults.check_request("extension")
        bought = self._extensions.buy(offer_id, reservation_id)
        self._faults.check_timeout("extension")
        return bought

    def extensions(self) -> tuple[Extension, ...]:
        self._faults.check_throttle(self._timeline.now())
        return self._extensions.history()

    def tag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        self._faults.check_throttle(self._timeline.now())
        self._check_ours_to_tag(reservation_id)
        self._reservations.tag(reservation_id, tags)

    def untag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        self._faults.check_throttle(self._timeline.now())
        self._check_ours_to_tag(reservation_id)
        self._reservations.untag(reservation_id, tags)

    def identity(self) -> str:
        return self._identity

    def launch(
        self, intent: LaunchIntent, tags: Pairs, minimum: int = 1, *, fills_open: bool = False
    ) -> tuple[str, ...]:
        """As in the port; and NoCapacity where there are fewer free than the minimum."""
        self._faults.check_throttle(self._timeline.now())
        self._faults.check_request("launch")
        ids = self._launches.launch(intent, tags, minimum, fills_open=fills_open)
        self._faults.check_timeout("launch")
        return ids

    def terminate(self, instance_id: str, *, by: str = "engine", why: str = "terminate call") -> None:
        self._faults.check_throttle(self._timeline.now())
        history = self._instances.instance_histories.get(instance_id)
        if history is None or self._instances.forgotten(history):
            raise Gone(f"there is no instance {instance_id}", code="InvalidInstanceID.NotFound")
        self._instances.shut_down(instance_id, by=by, why=why)

    def console_output(self, instance_id: str) -> str:
        """Some lines that a machine prints as it boots. What goes wrong inside of it is not simulated."""
        self._faults.check_throttle(self._timeline.now())
        history = self._instances.instance_histories.get(instance_id)
        if history is None or self._instances.forgotten(history):
            raise Gone(f"there is no instance {instance_id}", code="InvalidInstanceID.NotFound")
        if history.now.state is InstanceState.PENDING:
            return ""
        return (
            f"[    0.000000] Linux version 6.12 (simulated)\n[    4.180213] cloud-init: {instance_id} is up\n"
        )

    # --- what AWS's own calls can do besides --------------------------------------------------------

    def receive(self) -> None:
        """A call of Auto Scaling or EKS arrives; it can be throttled."""
        self._faults.check_throttle(self._timeline.now())

    def tag_instance(self, instance_id: str, tags: Pairs) -> None:
        """These are its tags from now on. Gone: there is no such instance any more."""
        self._faults.check_throttle(self._timeline.now())
        history = self._instances.instance_histories.get(instance_id)
        if history is None or self._instances.forgotten(history):
            raise Gone(f"there is no instance {instance_id}", code="InvalidInstanceID.NotFound")
        self._instances.tag(instance_id, tags)

    # --- what exists beforehand ---------------------------------------------------------------------

    def add_reservation(
        self, owned: OwnedReservation, *, owner: str, shared_by: str = "", begun: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> str:  # fmt: skip
        """A block or on-demand reservation of the scenario, counted from when that begun (None: now); returns its
        `cr-` id. `shared_by`: it belongs to that account, which shares it with this one. `ends_at`: off the grid."""
        reservation = owned_reservation(
            owned, self._catalog, owner=owner, seed=self._seed, now=begun or self._timeline.now()
        )
        if ends_at is not None:
            reservation = replace(reservation, end=ends_at)
        self._reservations.open(reservation, name=owned.name, delivered=owned.delivered)
        if shared_by:
            self.shared_by[reservation.id] = shared_by
        return reservation.id

    def restore_reservation(self, reservation: Reservation) -> None:
        """One as AWS showed it before the simulation began."""
        begun = reservation.start <= self._timeline.now()
        state = ReservationState.SCHEDULED
        self._reservations.open(replace(reservation, state=state, available=0, listed=True))
        if not begun:
            return
        fresh = self._reservations.get(reservation.id)
        assert fresh is not None and fresh.state is ReservationState.ACTIVE

    def restore_instance(self, instance: Instance) -> bool:
        """One that ran before the simulation began. False: its reservation has no slot for it."""
        usd_h = 0.0
        if instance.source.id:
            held = self._reservations.get(instance.source.id)
            if held is None or held.available < 1:
                return False
            self._reservations.take(instance.source.id, 1)
        else:
            kind = self._catalog.types.get(instance.instance_type)
            spot = instance.source.kind is SourceKind.SPOT
            usd_h = 0.0 if kind is None else (spot_usd_h(kind) if spot else kind.on_demand_usd_h) or 0.0
        tags = {
            names.TAG_OWNER: instance.owner, names.TAG_POOL: instance.pool, names.TAG_INTENT: instance.intent_id,
            names.TAG_PROVISIONER: instance.provisioner,
        }  # fmt: skip
        self._instances.restore(instance, usd_h, tuple(sorted(tags.items())))
        return True

    def _check_ours_to_tag(self, reservation_id: str) -> None:
        if account := self.shared_by.get(reservation_id):
            raise NotAllowed(
                f"{reservation_id} belongs to the account that shares it, {account}: only that one changes it",
                code="UnauthorizedOperation",
            )

    def add_foreign_instance(self, reservation: str, n: int = 1) -> tuple[str, ...]:
        """Somebody else launches on a reservation (by id or name): without our owner tag, on real slots."""
        target = self._reservations.get(reservation)
        if target is None:
            raise NoCapacity(f"there is no reservation '{reservation}'")
        self._foreign += 1
        intent = LaunchIntent(
            id=f"foreign-{self._foreign}",
            pool="",
            source=target.source,
            instance_type=target.instance_type,
            zone=target.zone,
            count=n,
            provisioner="",
            written_at=self._timeline.now(),
        )
        return self._launches.launch(intent, ())

    # --- what people do -----------------------------------------------------------------------------

    def extend(
        self,
        block: str,
        by: timedelta,
        *,
        payment_succeeds: bool = True,
        settles_after: timedelta = timedelta(minutes=10),
    ) -> None:
        """An operator extends a block, by id or name. Refused: the rule of EC2 that forbids it."""
        target = self._reservations.get(block)
        if target is None:
            raise Refused(f"there is no block '{block}'")
        self._extensions.by_hand(target, by, pays=payment_succeeds, settles_after=settles_after)

    def boot_at_once(self, *, yes: bool = True) -> None:
        """Instances launched from now on run, and are listed, a second later, for those who wait in real time."""
        self._instances.boot_at_once = yes

    def leave_to_karpenter(self) -> None:
        """Karpenter itself is a client: the account ends none of its nodes in its name."""
        self._block_end.scales_down.pop("karpenter", None)

    # --- the truth ----------------------------------------------------------------------------------

    @property
    def on_instance(self) -> list[Callable[[Instance], None]]:
        """Called with the new Instance when it is running, shutting down, terminated."""
        return self._instances.on_instance

    @property
    def names(self) -> dict[str, str]:
        """What the scenario calls a reservation -> its id."""
        return self._reservations.names

    @property
    def purchases(self) -> list[Purchase]:
        return self._purchases.purchases

    @property
    def bought_extensions(self) -> list[ExtensionPurchase]:
        return self._extensions.bought

    @property
    def instance_histories(self) -> dict[str, InstanceHistory]:
        """Every instance there ever was, by id."""
        return self._instances.instance_histories

    def alive(self) -> Iterator[InstanceHistory]:
        """Pending and running, in the order they were launched."""
        return self._instances.alive()

    @property
    def changes(self) -> tuple[int, int]:
        """Counters of reservation and instance changes: equal means nothing changed."""
        return self._reservations.version, self._instances.version

    @property
    def refused_launches(self) -> list[RefusedLaunch]:
        return self._launches.refused

    def all_reservations(self) -> tuple[Reservation, ...]:
        """All reservations ever, as they are now, listed or not. The same tuple until something changes."""
        return self._reservations.everything()

    def reservation(self, id_or_name: str) -> Reservation | None:
        return self._reservations.get(id_or_name)

    def sale(self, reservation_id: str) -> tuple[datetime, int]:
        """When a reservation was made, and how many instances were bought."""
        return self._reservations.sale(reservation_id)

    def used(self, reservation_id: str) -> int:
        """Instances on it that are not terminated, those of other owners included."""
        reservation = self._reservations.get(reservation_id)
        return (
            0
            if reservation is None
            else self._instances.live_at[reservation.source, reservation.instance_type, reservation.zone]
        )

    def hourly_usd(self) -> dict[SourceKind, float]:
        """Paid by the second up to now: spot, on-demand, and reservations whether used or not."""
        now = self._timeline.now()
        return {kind: meter.usd(now) for kind, meter in self._instances.meters.items()}

    # --- between the parts --------------------------------------------------------------------------

    def _slot_clean(self, instance: Instance) -> None:
        if instance.source.id:
            self._reservations.give_back(instance.source.id)
