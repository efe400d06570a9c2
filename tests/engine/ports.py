"""A small outside with real state: a cloud, a cluster and a clock, whose calls fail when they are told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.decide.builders import NOW
from tidemill.engine.act import Actor
from tidemill.engine.loop import Engine
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.errors import Gone, NoCapacity, Retryable
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance, InstanceState, Node
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, ExtensionState, Offer, OfferQuery
from tidemill.model.plan import Action, Outcome, Plan
from tidemill.model.pods import Pod
from tidemill.model.purchases import Caps, CostLine, LaunchIntent, PurchaseIntent
from tidemill.ports import ClusterView
from tidemill.sim.scenario.crash import Crashing, CrashPoints
from tidemill.spec import Spec, names
from tidemill.store.memory import MemoryLedger


class Hands:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at

    def pass_time(self, **span: float) -> None:
        self.at += timedelta(**span)


class Script:
    """Errors to come, by method: each is raised once, before the call or (a lost answer) after it."""

    def __init__(self) -> None:
        self.before: dict[str, list[Exception]] = {}
        self.after: dict[str, list[Exception]] = {}
        self.away = False

    def fail(self, method: str, error: Exception, *, after: bool = False) -> None:
        (self.after if after else self.before).setdefault(method, []).append(error)

    @contextmanager
    def around(self, method: str) -> Iterator[None]:
        if self.away:
            raise Retryable("unreachable")
        if self.before.get(method):
            raise self.before[method].pop(0)
        yield
        if self.after.get(method):
            raise self.after[method].pop(0)


class TinyCloud(Script):
    def __init__(self, clock: Hands) -> None:
        super().__init__()
        self._clock = clock
        self.held: list[Reservation] = []
        self.running: dict[str, Instance] = {}
        self.offers: list[Offer] = []
        self.purchases: list[tuple[str, Pairs]] = []
        self.more_time: list[ExtensionOffer] = []
        self.extended: list[Extension] = []
        self._by_intent: dict[str, list[str]] = {}

    def reservations(self) -> Sequence[Reservation]:
        with self.around("reservations"):
            return tuple(self.held)

    def instances(self) -> Sequence[Instance]:
        with self.around("instances"):
            return tuple(self.running.values())

    def search_offers(self, query: OfferQuery) -> Sequence[Offer]:
        with self.around("search_offers"):
            return tuple(
                offer
                for offer in self.offers
                if offer.start >= query.earliest_start and offer.end <= query.latest_end
            )

    def purchase(self, offer_id: str, tags: Pairs) -> Sequence[Reservation]:
        with self.around("purchase"):
            offer = next((offer for offer in self.offers if offer.id == offer_id), None)
            if offer is None:
                raise NoCapacity("the offer is gone")
            self.purchases.append((offer_id, tags))
            tagged = dict(tags)
            made = Reservation(
                f"cr-{len(self.purchases)}", SourceKind.BLOCK, offer.instance_type, offer.zone, offer.count,
                0, ReservationState.SCHEDULED, offer.start, offer.end, owner=tagged[names.TAG_OWNER],
                pool=tagged[names.TAG_POOL], intent_id=tagged[names.TAG_INTENT], fee_usd=offer.fee_usd,
            )  # fmt: skip
            self.held.append(made)
            return [made]

    def search_extensions(self, query: ExtensionQuery) -> Sequence[ExtensionOffer]:
        with self.around("search_extensions"):
            return tuple(
                one
                for one in self.more_time
                if one.reservation_id == query.reservation_id and one.end - one.start == query.duration
            )

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        with self.around("purchase_extension"):
            offer = next((one for one in self.more_time if one.id == offer_id), None)
            if offer is None:
                raise NoCapacity("the offer is gone")
            pending = ExtensionState.PAYMENT_PENDING
            made = Extension(offer_id, reservation_id, self._clock.now(), offer.end, offer.fee_usd, pending)
            self.extended.append(made)
            return made

    def extensions(self) -> Sequence[Extension]:
        with self.around("extensions"):
            return tuple(self.extended)

    def tag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        with self.around("tag_reservation"):
            self.held = [
                replace(one, tags=tuple(sorted({**dict(one.tags), **dict(tags)}.items())))
                if one.id == reservation_id
                else one
                for one in self.held
            ]

    def untag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        with self.around("untag_reservation"):
            self.held = [
                replace(one, tags=tuple(tag for tag in one.tags if tag not in tags))
                if one.id == reservation_id
                else one
                for one in self.held
            ]

    def identity(self) -> str:
        return "arn:aws:iam::123456789012:user/engine"

    def launch(self, intent: LaunchIntent, tags: Pairs) -> Sequence[str]:
        with self.around("launch"):
            if intent.id not in self._by_intent:
                ids = [f"i-{len(self.running) + place}" for place in range(intent.count)]
                self._by_intent[intent.id] = ids
                for one in ids:
                    self.running[one] = Instance(
                        one, intent.instance_type, intent.zone, intent.source, InstanceState.RUNNING,
                        self._clock.now(), owner=dict(tags)[names.TAG_OWNER], pool=intent.pool,
                        intent_id=intent.id, provisioner=intent.provisioner,
                    )  # fmt: skip
            return self._by_intent[intent.id]

    def terminate(self, instance_id: str) -> None:
        with self.around("terminate"):
            if instance_id not in self.running:
                raise Gone(instance_id)
            self.running[instance_id] = replace(self.running[instance_id], state=InstanceState.TERMINATED)

    def console_output(self, instance_id: str) -> str:
        with self.around("console_output"):
            return f"boot of {instance_id}\nnodeadm: Unauthorized"


class TinyCluster(Script):
    """Notes what was asked of it, in order, and keeps no rules of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.pods: list[Pod] = []
        self.asked: list[tuple[Any, ...]] = []
        self.evictable = True
        self.empty = True

    def view(self) -> ClusterView:
        with self.around("view"):
            bound: dict[str, tuple[Pod, ...]] = {}
            for pod in self.pods:
                if pod.node:
                    bound[pod.node] = (*bound.get(pod.node, ()), pod)
            kubes = tuple(node.kube for node in self.nodes if node.kube is not None)
            return ClusterView(kubes, tuple(self.pods), (), bound)

    def evict(self, pod: str) -> bool:
        with self.around("evict"):
            self.asked.append(("evict", pod))
            return self.evictable

    def is_empty(self, instance_id: str) -> bool:
        return self.empty

    def delete(self, pod: str, grace_s: int | None, *, disruption: bool) -> None:
        with self.around("delete"):
            self.asked.append(("delete", pod, grace_s, disruption))

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> None:
            with self.around(name):
                self.asked.append((name, *args))

        return call


class Books(MemoryLedger, Script):
    """The ledger in memory, which can be away."""

    def __init__(self, clock: Hands, deployment: str) -> None:
        MemoryLedger.__init__(self, clock, deployment, outlives_the_engine=True)
        Script.__init__(self)

    def launches(self) -> tuple[LaunchIntent, ...]:
        with self.around("launches"):
            return super().launches()

    def write_launch(self, intent: LaunchIntent) -> None:
        with self.around("write_launch"):
            super().write_launch(intent)

    def advance(self, before: PurchaseIntent, after: PurchaseIntent, *, caps: Caps | None = None) -> None:
        with self.around("advance"):
            super().advance(before, after, caps=caps)

    def meter(self, line: CostLine) -> None:
        with self.around("meter"):
            super().meter(line)


class Outside:
    """Everything around one engine; `crashes` strike between its calls."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.clock = Hands()
        self.cloud = TinyCloud(self.clock)
        self.cluster = TinyCluster()
        self.books = Books(self.clock, spec.platform.spec.deployment)
        self.crashes = CrashPoints()

    @property
    def _ports(self) -> tuple[Any, Any, Any, Any]:
        return (
            self.clock,
            Crashing(self.cloud, self.crashes),
            self.cluster,
            Crashing(self.books, self.crashes),
        )

    def actor(self) -> Actor:
        return Actor(self.spec, *self._ports)

    def engine(self) -> Engine:
        return Engine(self.spec, *self._ports)

    def act(self, *actions: Action) -> list[Outcome]:
        return list(self.actor().carry_out(Plan(tuple(actions))))

    def has(self, *nodes: Node) -> None:
        """These nodes are there, on both sides."""
        for node in nodes:
            self.cluster.nodes.append(node)
            if node.instance is not None:
                self.cloud.running[node.instance.id] = node.instance
