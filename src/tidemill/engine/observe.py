"""Ports -> World: one look at everything, joined up per node.

What cannot be read just now is replaced by what was last read, and said so: drains and terminations go on
from the last known facts, while nothing new is bought or launched.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.engine.joined_nodes import JoinedNodes
from tidemill.engine.ownership import snapshot_of, unread_of_ours, with_true_owners
from tidemill.model.capacity import LIVE_STATES, Reservation
from tidemill.model.changes import changed_span
from tidemill.model.errors import PortError, Refused, label
from tidemill.model.nodes import Instance, Node, Overhead
from tidemill.model.offers import Extension, ExtensionSearch, OfferSearch
from tidemill.model.pods import DisruptionBudget, LetGo, Pod, PodShape, TakenBack, Workload, daemon_requests
from tidemill.model.purchases import Adoption, BlockUse, LaunchIntent, Pause, PurchaseIntent, Spending
from tidemill.model.world import World
from tidemill.ports import Clock, Cloud, Cluster, ClusterView, Ledger

log = logging.getLogger("tidemill.engine.observe")

# A list that leaves out a block for longer than this is believed.
BELIEVED_FOR = timedelta(hours=1)
_MAX_SHAPES = 100_000


@dataclass(frozen=True, slots=True)
class _Books:
    launches: tuple[LaunchIntent, ...]
    purchases: tuple[PurchaseIntent, ...]
    adoptions: tuple[Adoption, ...]
    spending: Spending
    pause: Pause | None = None

    def sharing(self, last: _Books) -> _Books:
        """With the very same lists as last time where nothing in them changed."""
        return _Books(
            last.launches if self.launches == last.launches else self.launches,
            last.purchases if self.purchases == last.purchases else self.purchases,
            last.adoptions if self.adoptions == last.adoptions else self.adoptions,
            self.spending,
            self.pause,
        )


def budgets(
    written: tuple[DisruptionBudget, ...], workloads: Iterable[Workload]
) -> tuple[DisruptionBudget, ...]:
    """Disruption budgets, and the minimum of services that only their annotation gives one."""
    guarded = {one.workload for one in written}
    asked = tuple(
        DisruptionBudget(
            workload.name, workload.min_available, max(0, workload.ready - workload.min_available)
        )
        for workload in workloads
        if workload.min_available and workload.replicas and workload.name not in guarded
    )
    return written + asked if asked else written


class _Shapes:
    """Equal pod shapes become one object, so that `decide` may tell classes of pods apart by identity.

    Adapters need not notice which templates are alike. A pod whose shape is the first of its kind passes as it is;
    another is given the first one's shape, and stays the same object as long as the adapter's pod does.
    """

    def __init__(self) -> None:
        self._first: dict[PodShape, PodShape] = {}
        # By identity: every shape that was seen (kept alive: its identity is its own), and the first like it.
        self._known: dict[int, tuple[PodShape, PodShape]] = {}
        # Of the last reading: by identity of the adapter's pod, it and what is passed on; and the same by node.
        self._given: dict[int, tuple[Pod, Pod]] = {}
        self._by_node: dict[str, tuple[tuple[Pod, ...], tuple[Pod, ...]]] = {}
        self._of: tuple[Pod, ...] = ()
        self._pods: tuple[Pod, ...] = ()

    def pods(self, view: ClusterView) -> tuple[tuple[Pod, ...], Mapping[str, tuple[Pod, ...]]]:
        """The pods of a reading, and the same by node."""
        if view.pods is not self._of:
            self._read(view.pods)
        if self._pods is view.pods:
            return view.pods, view.pods_by_node
        self._by_node = {name: self._on(name, bound) for name, bound in view.pods_by_node.items()}
        return self._pods, {name: passed for name, (_, passed) in self._by_node.items()}

    def _read(self, pods: tuple[Pod, ...]) -> None:
        known, first = self._known, self._first
        if len(known) > _MAX_SHAPES:  # mostly of pods that are gone; the others are learned again
            known.clear()
            first.clear()
        alike, fresh = True, pods
        if self._pods is self._of and known:  # all of them were; those that were there before are again
            start, _, stop = changed_span(self._of, pods)
            fresh = pods[start:stop]
        for pod in fresh:
            shape = pod.shape
            pair = known.get(id(shape))
            if pair is None:
                pair = known[id(shape)] = (shape, first.setdefault(shape, shape))
            alike = alike and pair[1] is shape
        self._of = pods
        if alike:
            self._pods, self._given, self._by_node = pods, {}, {}
            return
        before, self._given = self._given, {}
        for pod in pods:
            given = before.get(id(pod))
            if given is None or given[0] is not pod:
                shape = known[id(pod.shape)][1]
                given = (pod, pod if shape is pod.shape else replace(pod, shape=shape))
            self._given[id(pod)] = given
        self._pods = tuple(self._given[id(pod)][1] for pod in pods)

    def _on(self, node: str, bound: tuple[Pod, ...]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        known = self._by_node.get(node)
        if known is not None and known[0] is bound:
            return known
        return bound, tuple(self._given[id(pod)][1] for pod in bound)


class Observer:
    """Remembers the last reading only to survive a failing call and to keep unchanged objects identical."""

    def __init__(
        self, clock: Clock, cloud: Cloud, cluster: Cluster, ledger: Ledger, deployment: str,
        documents_since: datetime | None = None,
    ) -> None:  # fmt: skip
        self._clock, self._cloud, self._cluster, self._ledger = clock, cloud, cluster, ledger
        self._deployment, self._documents_since = deployment, documents_since
        self._reservations: Sequence[Reservation] | None = None
        self._unread: tuple[Reservation, ...] = ()
        self._extensions: Sequence[Extension] = ()
        self._instances: Sequence[Instance] | None = None
        self._books: _Books | None = None
        self._ours_from: tuple[Sequence[Reservation], tuple[PurchaseIntent, ...], tuple[Adoption, ...]] | None
        self._ours_from = None
        self._ours: tuple[Reservation, ...] = ()
        self._lives: dict[str, tuple[datetime, Reservation]] = {}  # when each was last shown
        self._joined = JoinedNodes(deployment)
        self._guarded_from: tuple[object, object] = (None, None)
        self._budgets: tuple[DisruptionBudget, ...] = ()
        self._overheads = Overheads()
        self._shapes = _Shapes()

    def awaits_listing(self, now: datetime) -> bool:
        """A node has just joined, and AWS's list of instances does not have it yet."""
        return self._joined.awaits_listing(now)

    def look(
        self,
        searches: Iterable[OfferSearch] = (),
        extension_searches: Iterable[ExtensionSearch] = (),
        uses: tuple[BlockUse, ...] = (),
        taken_back: Iterable[TakenBack] = (),
        let_go: Iterable[LetGo] = (),
    ) -> World:
        """Raises Retryable only if the cluster, or at the very first look AWS or the ledger, cannot be read."""
        view = self._cluster.view()
        pods, pods_by_node = self._shapes.pods(view)
        cloud_ok = self._read_cloud()
        ledger_ok = self._read_ledger()
        assert self._instances is not None and self._books is not None
        books = self._books
        return World(
            now=self._clock.now(),
            reservations=self._claim(),
            unread=unread_of_ours(self._unread, books.purchases, books.adoptions, self._deployment),
            nodes=self._join(self._instances, view),
            pods=pods,
            budgets=self._guard(view),
            workloads=view.workloads,
            daemons=view.daemons,
            launches=self._of_these_documents(books.launches),
            purchases=books.purchases,
            searches=tuple(searches),
            extensions=tuple(self._extensions),
            extension_searches=tuple(extension_searches),
            uses=uses,
            spending=books.spending,
            overheads=self._overheads.known,
            taken_back=tuple(taken_back),
            let_go=tuple(let_go),
            pause=books.pause,
            ledger_ok=ledger_ok,
            cloud_ok=cloud_ok,
            pods_by_node=pods_by_node,
        )

    def _of_these_documents(self, launches: tuple[LaunchIntent, ...]) -> tuple[LaunchIntent, ...]:
        """Without those that were refused for documents that have changed since: nobody backs off for them."""
        since = self._documents_since
        if since is None:
            return launches
        return tuple(
            launch
            for launch in launches
            if launch.failure != label(Refused()) or (launch.state_at or launch.written_at) >= since
        )

    def _read_cloud(self) -> bool:
        try:
            read = self._cloud.reservations(), self._cloud.instances(), self._cloud.extensions()
            self._instances, self._extensions = read[1:]
            self._unread = tuple(one for one in read[0] if one.unread)
            readable = tuple(one for one in read[0] if not one.unread) if self._unread else read[0]
            self._reservations = self._with_missing(readable)
        except PortError:
            if self._instances is None:
                raise
            return False
        return True

    def _read_ledger(self) -> bool:
        try:
            ledger, last, now = self._ledger, self._books, self._clock.now()
            read = _Books(
                ledger.launches(),
                ledger.purchases(),
                ledger.adoptions(),
                ledger.spending(now),
                ledger.pause(),
            )
            self._books = read if last is None else read.sharing(last)
        except PortError:
            if self._books is None:
                raise
            return False
        return True

    def _with_missing(self, listed: Sequence[Reservation]) -> Sequence[Reservation]:
        """A block does not vanish: one that lives and is missing from a list is there, and the list is wrong. One whose
        record cannot be read any more is there for certain, as it was last read."""
        now = self._clock.now()
        for one in listed:
            if one.state in LIVE_STATES and (one.end is None or now < one.end):
                self._lives[one.id] = now, one
            else:
                self._lives.pop(one.id, None)
        shown, unread = {one.id for one in listed}, {one.id for one in self._unread}
        if self._lives.keys() <= shown:
            return listed
        self._lives = {
            id_: seen
            for id_, seen in self._lives.items()
            if (now - seen[0] < BELIEVED_FOR or id_ in unread) and (seen[1].end is None or now < seen[1].end)
        }
        left_out = (replace(one, listed=False) for id_, (_, one) in self._lives.items() if id_ not in shown)
        return (*listed, *left_out)

    def _claim(self) -> tuple[Reservation, ...]:
        """The same tuple as long as nothing about it changed."""
        assert self._reservations is not None and self._books is not None
        of = (self._reservations, self._books.purchases, self._books.adoptions)
        now = self._clock.now()
        over = any(not our.listed and our.end is not None and our.end <= now for our in self._ours)
        if (
            self._ours_from is None
            or of[0] is not self._ours_from[0]
            or of[1:] != self._ours_from[1:]
            or over
        ):
            self._remember(of[0])
            of = (self._reservations, self._books.purchases, self._books.adoptions)
            self._ours_from, self._ours = of, with_true_owners(*of, self._deployment, now)
        return self._ours

    def _remember(self, listed: Iterable[Reservation]) -> None:
        """What AWS shows of adopted blocks is kept, for an engine that starts while a list leaves them out."""
        assert self._books is not None
        known = {adoption.reservation_id: adoption.shown for adoption in self._books.adoptions}
        news = {one.id: snapshot_of(one, known[one.id]) for one in listed if one.id in known and one.listed}
        news = {id_: shown for id_, shown in news.items() if shown != known[id_]}
        if not news:
            return
        try:
            for id_, shown in news.items():
                self._ledger.remember(id_, shown)
            self._books = replace(self._books, adoptions=self._ledger.adoptions())
        except PortError as error:  # nothing is bought without the ledger either
            log.warning("cannot remember %s, next time again: %s", ", ".join(news), error)

    def _guard(self, view: ClusterView) -> tuple[DisruptionBudget, ...]:
        """The same tuple as long as nothing about it changed."""
        of = (view.budgets, view.workloads)
        if self._guarded_from[0] is not of[0] or self._guarded_from[1] is not of[1]:
            self._guarded_from, self._budgets = of, budgets(*of)
        return self._budgets

    def _join(self, instances: Sequence[Instance], view: ClusterView) -> tuple[Node, ...]:
        now = self._clock.now()
        joined = self._joined.join(instances, view.nodes, now)
        self._overheads.note(joined.changed, joined.gone, view.pods_by_node, now)
        return joined.nodes


_Kind = tuple[str, str]  # pool, instance type


class Overheads:
    def __init__(self) -> None:
        self._known: dict[_Kind, Overhead] = {}
        self._measured: dict[str, _Kind] = {}  # by node, while it is there
        self._answer: tuple[Overhead, ...] = ()

    def note(
        self,
        changed: Iterable[Node],
        gone: Iterable[str],
        bound: Mapping[str, tuple[Pod, ...]],
        now: datetime,
    ) -> None:
        """`changed`: nodes that are not as they were at the last look; `gone`: those that are no longer listed."""
        before = dict(self._known)
        for key in gone:
            self._leaves(key, now)
        for node in changed:
            instance, kube = node.instance, node.kube
            if instance is None or not instance.pool:
                continue
            if kube is None or not kube.ready:
                self._leaves(node.key, now)
                continue
            taken = daemon_requests(bound.get(kube.name, ()))
            if taken:
                kind = self._measured[node.key] = (instance.pool, instance.instance_type)
                self._known[kind] = Overhead(*kind, tuple(sorted(taken.items())), now)
        if self._known != before:
            self._answer = tuple(self._known[kind] for kind in sorted(self._known))

    def _leaves(self, key: str, now: datetime) -> None:
        kind = self._measured.pop(key, None)
        if kind is not None:
            last = self._known[kind]
            self._known[kind] = Overhead(*kind, last.taken, now)

    @property
    def known(self) -> tuple[Overhead, ...]:
        return self._answer
