"""What an engine that changes nothing would have done, saved and held, beside a set-up that somebody else runs.

A wish that the engine has tick after tick is one wish: it lasts from the first tick that had it to the last. What the
other set-up did meanwhile is seen in the world: a pod that started all the same, a node that went all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tidemill.catalog import Catalog
from tidemill.model.capacity import SourceKind
from tidemill.model.nodes import INSTANCE_UP_STATES
from tidemill.model.plan import (
    Action,
    Admit,
    Evict,
    ForceDelete,
    Launch,
    Plan,
    ProposePurchase,
    StartDrain,
    Terminate,
)
from tidemill.model.reasons import DrainKind, DrainReason, LaunchReason, TerminateReason
from tidemill.model.world import World
from tidemill.wording import sentence

_ENDED_AFTER = timedelta(minutes=2)  # a wish that is not heard of for so long is over
# Drains that are the engine's own choice and end in the node's end. Nothing is drained here, so the end never comes up.
_GIVEN_UP = frozenset({DrainKind.EMPTY, DrainKind.UNDERUTILIZED, DrainKind.MAKES_WAY})
_MOST = 5_000  # wishes that are kept; more are counted only


@dataclass(frozen=True, slots=True)
class WishedLaunch:
    pool: str
    instance_type: str
    source: str
    count: int
    usd_h: float | None  # of all of them, as the catalog has it; 0 on what is prepaid; None: no price known
    reason: str
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class WishedEnd:
    """A node that it would have ended."""

    node: str
    instance_type: str
    reason: str
    first: datetime
    last: datetime  # it was still there then, and still not needed
    usd: float | None  # what it cost from the first wish to the last, by the catalog; None: no price is known


@dataclass(frozen=True, slots=True)
class WishedDrain:
    node: str
    reason: str
    first: datetime
    pods: int  # there at the first wish


@dataclass(frozen=True, slots=True)
class WishedPurchase:
    pool: str
    window: str
    most_usd: int
    first: datetime


@dataclass(frozen=True, slots=True)
class HeldPods:
    reason: str
    pods: int


@dataclass(frozen=True, slots=True)
class ShadowReport:
    since: datetime
    until: datetime
    ticks: int
    assumed_nodes: int  # nodes of others that were taken for its own
    assumed_blocks: tuple[str, ...]
    launches: tuple[WishedLaunch, ...]
    ends: tuple[WishedEnd, ...]
    drains: tuple[WishedDrain, ...]
    purchases: tuple[WishedPurchase, ...]
    evicted_pods: int
    admitted_pods: int
    held: tuple[HeldPods, ...]  # pods that wait at the end, by why
    most_waiting: int
    other_actions: tuple[tuple[str, int], ...]
    left_out: int  # wishes beyond what is kept
    saved_usd: float  # of the nodes that it would have ended, as far as a price is known
    unpriced: int  # of those: nodes without a known price


@dataclass(slots=True)
class _Wish:
    first: datetime
    last: datetime
    action: Action
    pods: int = 0


@dataclass(slots=True)
class ShadowTally:
    """Fills tick by tick; `report` reads it, `restart` begins the next span."""

    catalog: Catalog
    since: datetime | None = None
    until: datetime | None = None
    ticks: int = 0
    left_out: int = 0
    most_waiting: int = 0
    _wishes: dict[tuple[str, ...], _Wish] = field(default_factory=dict)
    _ended: list[_Wish] = field(default_factory=list)
    _held: Counter[str] = field(default_factory=Counter)
    _types: dict[str, tuple[str, bool]] = field(
        default_factory=dict
    )  # by instance: its type, paid by the hour
    assumed_nodes: int = 0
    assumed_blocks: tuple[str, ...] = ()

    def note(self, world: World, plan: Plan) -> None:
        now = self.until = world.now
        self.since = self.since or now
        self.ticks += 1
        self.most_waiting = max(self.most_waiting, len(plan.unmet))
        self._held = Counter(sentence(one.reason) for one in plan.unmet)
        there = {name for node in world.nodes for name in (node.key, node.name)}
        for node in world.nodes:
            if node.instance is not None and node.instance.state in INSTANCE_UP_STATES:
                by_hour = node.instance.source.kind not in (SourceKind.BLOCK, SourceKind.ODCR)
                self._types[node.key] = self._types[node.name] = node.instance.instance_type, by_hour
        for action in plan.actions:
            self._wish(action, now, world)
        for key, wish in list(self._wishes.items()):
            given_up = _node_given_up(wish.action)
            if (given_up and given_up not in there) or now - wish.last > _ENDED_AFTER:
                self._ended.append(self._wishes.pop(key))

    def _wish(self, action: Action, now: datetime, world: World) -> None:
        key = _key(action)
        if (known := self._wishes.get(key)) is not None:
            known.last = now
            return
        if len(self._wishes) + len(self._ended) >= _MOST:
            self.left_out += 1
            return
        wish = self._wishes[key] = _Wish(now, now, action)
        if isinstance(action, StartDrain):
            bound = world.pods_by_node.get(action.node, ())
            wish.pods = sum(not pod.daemon for pod in bound)

    def restart(self) -> None:
        """The next span; what is still wished for goes on in it."""
        self.since, self.ticks, self.left_out, self.most_waiting = self.until, 0, 0, 0
        self._ended.clear()
        for wish in self._wishes.values():
            wish.first = self.until or wish.first

    def report(self) -> ShadowReport:
        assert self.since is not None and self.until is not None, "no tick yet"
        wishes = sorted((*self._ended, *self._wishes.values()), key=lambda wish: wish.first)
        ends = tuple(self._end(wish, node) for wish in wishes if (node := _node_given_up(wish.action)))
        priced = [one.usd for one in ends if one.usd is not None]
        shown = (Terminate, Launch, StartDrain, ProposePurchase, Evict, ForceDelete, Admit)
        others = Counter(type(wish.action).__name__ for wish in wishes if not isinstance(wish.action, shown))
        return ShadowReport(
            since=self.since,
            until=self.until,
            ticks=self.ticks,
            assumed_nodes=self.assumed_nodes,
            assumed_blocks=self.assumed_blocks,
            launches=tuple(
                _merged(self._launch(w, one) for w in wishes if isinstance(one := w.action, Launch))
            ),
            ends=ends,
            drains=tuple(
                WishedDrain(one.node, _said(one.reason), wish.first, wish.pods)
                for wish in wishes
                if isinstance(one := wish.action, StartDrain) and one.reason.kind not in _GIVEN_UP
            ),
            purchases=tuple(
                WishedPurchase(
                    one.intent.pool, one.intent.window, one.intent.envelope.max_fee_usd, wish.first
                )
                for wish in wishes
                if isinstance(one := wish.action, ProposePurchase)
            ),
            evicted_pods=len({w.action.pod for w in wishes if isinstance(w.action, Evict | ForceDelete)}),
            admitted_pods=len({pod for w in wishes if isinstance(w.action, Admit) for pod in w.action.pods}),
            held=tuple(HeldPods(why, count) for why, count in self._held.most_common()),
            most_waiting=self.most_waiting,
            other_actions=tuple(sorted(others.items())),
            left_out=self.left_out,
            saved_usd=round(sum(priced), 2),
            unpriced=len(ends) - len(priced),
        )

    def _end(self, wish: _Wish, node: str) -> WishedEnd:
        kind, by_hour = self._types.get(node, ("", True))
        found = self.catalog.types.get(kind)
        usd_h = 0.0 if not by_hour else None if found is None else found.on_demand_usd_h
        lasted_h = (wish.last - wish.first).total_seconds() / 3600
        usd = None if usd_h is None else round(usd_h * lasted_h, 4)
        assert isinstance(wish.action, Terminate | StartDrain)
        return WishedEnd(node, kind, _said(wish.action.reason), wish.first, wish.last, usd)

    def _launch(self, wish: _Wish, action: Launch) -> WishedLaunch:
        intent = action.intent
        found = self.catalog.types.get(intent.instance_type)
        usd_h: float | None = 0.0
        if intent.source.kind in (SourceKind.SPOT, SourceKind.ON_DEMAND):
            price = None if found is None else found.on_demand_usd_h
            usd_h = None if price is None else price * intent.count
        return WishedLaunch(
            intent.pool, intent.instance_type, intent.source.label, intent.count, usd_h, _said(action.reason),
            wish.first, wish.last,
        )  # fmt: skip


def _node_given_up(action: Action) -> str:
    """The node that it would have ended of its own choice; empty: it is another wish."""
    match action:
        case Terminate():
            return action.instance_id
        case StartDrain() if action.reason.kind in _GIVEN_UP:
            return action.node
    return ""


def _said(reason: DrainReason | LaunchReason | TerminateReason) -> str:
    return sentence(reason)


def _merged(launches: Iterable[WishedLaunch]) -> list[WishedLaunch]:
    """A wish with another count, for the same first pod, is the same wish as it grew: the largest is kept."""
    found: dict[tuple[str, str, str, str], WishedLaunch] = {}
    for one in launches:
        key = one.pool, one.instance_type, one.source, one.reason
        known = found.get(key)
        if known is None:
            found[key] = one
        else:
            larger = one if one.count > known.count else known
            found[key] = replace(larger, first=min(one.first, known.first), last=max(one.last, known.last))
    return list(found.values())


def _key(action: Action) -> tuple[str, ...]:
    """The same wish at two ticks has the same key. Ids of intents are new at every tick."""
    kind = type(action).__name__
    match action:
        case Launch(intent=intent, reason=reason):
            return kind, intent.pool, intent.instance_type, intent.source.label, sentence(reason)
        case ProposePurchase(intent=intent):
            return kind, intent.pool, intent.plan, intent.window
        case _:
            about = ("pod", "node", "instance_id", "workload", "pods", "intent_id", "query")
            return (kind, *(str(getattr(action, name)) for name in about if hasattr(action, name)))
