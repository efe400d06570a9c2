"""What is true now: one frozen snapshot, `now` included.

`observe` builds it from the ports, `decide` reads nothing else. Facts only: no rule lives here, and
nothing here knows where a fact came from. Objects are shared between snapshots when nothing about them
changed, so identity may be used as a cheap "is it still the same?".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.model.capacity import Reservation
from tidemill.model.nodes import Node, Overhead
from tidemill.model.offers import Extension, ExtensionSearch, OfferSearch
from tidemill.model.planner_result import PlannerResult
from tidemill.model.pods import DisruptionBudget, LetGo, Pod, PodShape, TakenBack, Workload
from tidemill.model.purchases import NOTHING_SPENT, BlockUse, LaunchIntent, Pause, PurchaseIntent, Spending


@dataclass(frozen=True, slots=True)
class World:
    """Everything `decide` may know."""

    now: datetime
    reservations: tuple[Reservation, ...] = ()
    unread: tuple[Reservation, ...] = ()  # that may be ours, and of which little more than the id is known
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    workloads: tuple[Workload, ...] = ()
    daemons: tuple[PodShape, ...] = ()  # of DaemonSets, for pools that have no node to measure
    launches: tuple[
        LaunchIntent, ...
    ] = ()  # open ones, those that failed in the last hour; what came short or never became Ready in a day
    purchases: tuple[PurchaseIntent, ...] = ()
    searches: tuple[OfferSearch, ...] = ()
    extensions: tuple[Extension, ...] = ()
    extension_searches: tuple[ExtensionSearch, ...] = ()
    uses: tuple[BlockUse, ...] = ()
    planner_result: PlannerResult | None = None  # the newest of the purchase planner
    spending: Spending = NOTHING_SPENT
    overheads: tuple[Overhead, ...] = ()
    taken_back: tuple[TakenBack, ...] = ()  # lately, as far as this engine knows
    let_go: tuple[LetGo, ...] = ()  # likewise
    # Pools whose nodes somebody else drains or scales, and who: nothing is launched there, and nothing consolidated.
    refused_pools: tuple[tuple[str, str], ...] = ()
    pause: Pause | None = None  # set: only what a deadline forces goes on
    ledger_ok: bool = True  # False: no purchases and no new launches; drains and terminations go on
    cloud_ok: bool = True  # False: reservations and instances are the last known ones, likewise
    pods_by_node: Mapping[str, tuple[Pod, ...]] = field(
        default_factory=dict
    )  # index of `pods`, bound ones only
