"""What Prometheus is told, in a registry of its own. Every label has few values: kinds, phases, pools, blocks.

Most figures are read off a tick. Those that need a walk over all nodes are renewed every few seconds at most, in the
thread of the ticks: the core is not made for two threads.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tidemill import __version__
from tidemill.controller.loop import TickReport
from tidemill.decide.read_models import DecisionContext, Memory, NodeView, Phase
from tidemill.engine.loop import Tick
from tidemill.model.capacity import SourceKind
from tidemill.model.errors import PortError, TidemillError, label
from tidemill.model.plan import Launch
from tidemill.model.purchases import BlockHours
from tidemill.model.reasons import LaunchKind
from tidemill.model.world import World
from tidemill.report.pods import gpus

# A walk over the nodes takes milliseconds for hundreds of them; Prometheus asks every 15 to 60 s.
RENEW_EVERY_S = 5.0
HOURS_EVERY_S = 60.0
# A fleet has a handful of pools and blocks. Above this the rest is not shown one by one.
MOST_BLOCKS = 200
UNMET_CODES = ("starting", "launching", "held", "no-capacity", "limit", "impossible", "budget", "gang")

_FAST = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
_MINUTES = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 2400, 3600, 7200)


class HoursBook(Protocol):
    """What of a ledger the hours are read from."""

    def block_hours(self) -> tuple[BlockHours, ...]: ...


@dataclass(frozen=True, slots=True)
class Defined:
    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


class Metrics:
    """A reporter of ticks. Durations of pods, nodes and blocks are of the engine's clock, the others of wall time."""

    def __init__(
        self,
        hours: HoursBook | None = None,
        *,
        dry_run: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = CollectorRegistry()
        self._hours, self._dry_run, self._now_s = hours, dry_run, now_s
        self._renewed_s = self._hours_s = float("-inf")
        self._memory = Memory()
        # By node: its phase, and since when; None: since before the first look.
        self._phases: dict[str, tuple[Phase, datetime | None]] = {}
        self._has_looked = False
        self._defined: list[Defined] = []
        self._define_loop()
        self._define_fleet()
        self._define_money_and_cluster()
        self._define_recording()

    def defined(self) -> tuple[Defined, ...]:
        """Every metric there is, for the reference."""
        return tuple(self._defined)

    def _named(
        self, name: str, kind: str, help_: str, labels: Iterable[str]
    ) -> tuple[str, str, tuple[str, ...]]:
        one = Defined(f"tidemill_{name}", kind, tuple(labels), help_)
        self._defined.append(one)
        return one.name, help_, one.labels

    def _gauge(self, name: str, help_: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(*self._named(name, "gauge", help_, labels), registry=self.registry)

    def _counter(self, name: str, help_: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(*self._named(name, "counter", help_, labels), registry=self.registry)

    def _histogram(
        self, name: str, help_: str, labels: Iterable[str], buckets: tuple[float, ...]
    ) -> Histogram:
        named = self._named(name, "histogram", help_, labels)
        return Histogram(*named, registry=self.registry, buckets=buckets)

    def _define_loop(self) -> None:
        self._build = self._gauge("build_info", "Always 1; the version is its label.", ["version"])
        self._build.labels(__version__).set(1)
        self._tick_s = self._histogram("tick_seconds", "How long a whole tick took.", (), _FAST)
        self._observe_s = self._histogram("observe_seconds", "How long the ports were read.", (), _FAST)
        self._decide_s = self._histogram("decide_seconds", "How long a decision took.", (), _FAST)
        self._act_s = self._histogram(
            "act_seconds", "How long the actions of a tick took together.", (), _FAST
        )
        self._planner_s = self._histogram(
            "planner_seconds", "How long a round of the purchase planner took.", (), _FAST
        )
        self._ticks = self._counter(
            "ticks", "Ticks, by what came of them: ok, blind (nothing seen), failed.", ["result"]
        )
        self._last_tick = self._gauge(
            "last_tick_timestamp_seconds", "When the last tick ended that saw the world."
        )
        self._actions = self._counter(
            "actions", "Actions, by kind and error class; empty: done.", ["kind", "error"]
        )
        self._errors = self._counter("errors", "Errors of ticks and actions, by class.", ["class"])
        self._cloud_ok = self._gauge("cloud_visible", "1: AWS could be read at the last tick.")
        self._ledger_ok = self._gauge("ledger_visible", "1: the ledger could be read at the last tick.")
        self._paused = self._gauge("paused", "1: somebody paused the engine.")
        self._documents_ok = self._gauge(
            "documents_good", "1: the newest version of the documents is the one in use."
        )

    def _define_fleet(self) -> None:
        self._queue = self._gauge("pods_waiting", "Pods that wait, by why.", ["reason"])
        self._oldest_s = self._gauge("pods_waiting_oldest_seconds", "How long the oldest of them has waited.")
        self._to_launch_s = self._histogram(
            "pending_to_launch_seconds",
            "From a pod's creation to the decision to launch for it, of a launch's first pod.",
            ["pool"], _MINUTES,
        )  # fmt: skip
        self._nodes = self._gauge("nodes", "Nodes, by pool and phase.", ["pool", "phase"])
        self._phase_s = self._histogram(
            "node_phase_seconds", "How long nodes were in a phase they left.", ["phase"], _MINUTES
        )
        self._gpus = self._gauge(
            "gpus",
            "Accelerators of nodes that are ready, by pool; used: a pod is on them.",
            ["pool", "state"],
        )
        self._deadline_s = self._gauge(
            "block_seconds_to_deadline",
            "Until its nodes must be empty; negative: that is over.",
            ["block", "pool"],
        )
        self._end_s = self._gauge("block_seconds_to_end", "Until the block ends.", ["block", "pool"])

    def _define_money_and_cluster(self) -> None:
        self._fees = self._gauge("month_fees_usd", "Fees of blocks in this calendar month (UTC).")
        self._hourly = self._gauge(
            "month_hourly_usd", "Instances paid by the hour in this month.", ["pool", "kind"]
        )
        self._budget = self._gauge("month_budget_usd", "The Platform's budget for a month.")
        self._gpu_hours = self._gauge(
            "block_gpu_hours",
            "Accelerator hours of blocks since the ledger began, used and idle.",
            ["pool", "state"],
        )
        self._lag_s = self._gauge(
            "reflector_lag_seconds", "How long ago a watch was last heard of.", ["kind"]
        )
        self.synced = self._gauge("cluster_synced", "1: every kind was listed.")
        self.leads = self._gauge("leader", "1: this process holds the lease.")
        self.lease_left_s = self._gauge("lease_seconds_left", "How much of the lease is left.")
        self.epoch = self._gauge("ledger_epoch", "The epoch of this process in the ledger; 0: none.")
        self._events = self._gauge("events", "Kubernetes Events since the start: sent, dropped.", ["result"])

    def _define_recording(self) -> None:
        self._recorded = self._gauge("recording_ticks", "Ticks since the start: kept, lost.", ["result"])
        self._recording_bytes = self._gauge("recording_bytes", "What the recording takes on its disk.")
        self._recording_good = self._gauge("recording_good", "1: the last tick could be recorded.")

    # --- a tick -------------------------------------------------------------------------------------

    def report(self, report: TickReport) -> None:
        self._tick_s.observe(report.took_s)
        tick = report.tick
        if tick is None:
            self._ticks.labels("failed" if report.error is not None else "blind").inc()
            if report.error is not None:
                self._errors.labels(_class(report.error)).inc()
            return
        self._ticks.labels("ok").inc()
        self._last_tick.set_to_current_time()
        self._observe_s.observe(tick.times.observe_s)
        self._decide_s.observe(tick.times.decide_s)
        self._act_s.observe(tick.times.act_s)
        self._cloud_ok.set(tick.world.cloud_ok)
        self._ledger_ok.set(tick.world.ledger_ok)
        self._paused.set(tick.world.pause is not None)
        self._count_actions(tick)
        self._show_queue(tick)
        self._show_money(report, tick.world)
        now_s = self._now_s()
        if now_s - self._renewed_s >= RENEW_EVERY_S:
            self._renewed_s = now_s
            self._show_nodes(DecisionContext(report.spec, tick.world, self._memory))
        if self._hours is not None and now_s - self._hours_s >= HOURS_EVERY_S:
            self._hours_s = now_s
            self._show_hours(self._hours)

    def _count_actions(self, tick: Tick) -> None:
        for outcome in tick.outcomes:
            error = outcome.error
            if self._dry_run:
                error = "dry-run" if error else ""
            self._actions.labels(type(outcome.action).__name__, error).inc()
            if outcome.failed and not self._dry_run:
                self._errors.labels(error).inc()

    def _show_queue(self, tick: Tick) -> None:
        codes = Counts[str](unmet.code for unmet in tick.plan.unmet)
        for code in UNMET_CODES:
            self._queue.labels(code).set(codes[code])
        launched = {
            one.action.reason.name: one.action.intent.pool
            for one in tick.outcomes
            if isinstance(one.action, Launch)
            and not one.error
            and one.action.reason.kind is LaunchKind.PODS_WAIT
        }
        oldest_s = 0.0
        waiting = {unmet.pod for unmet in tick.plan.unmet}
        for pod in tick.world.pods if waiting or launched else ():
            waited_s = max(0.0, (tick.world.now - pod.created_at).total_seconds())
            if pod.uid in waiting:
                oldest_s = max(oldest_s, waited_s)
            if pod.full_name in launched:
                self._to_launch_s.labels(launched[pod.full_name]).observe(waited_s)
        self._oldest_s.set(oldest_s)

    def _show_money(self, report: TickReport, world: World) -> None:
        spending = world.spending
        self._fees.set(spending.fees_usd)
        self._budget.set(report.spec.platform.spec.budget.monthly_usd or 0)
        self._hourly.clear()
        for (pool, kind), usd in spending.hourly_usd:
            self._hourly.labels(pool, kind).set(usd)

    # --- nodes and blocks ---------------------------------------------------------------------------

    def _show_nodes(self, context: DecisionContext) -> None:
        views = [view for view in context.views if view.node.instance is not None]
        self._follow_phases(context, views)
        phases = Counts((_pool(view), view.phase) for view in views)
        self._nodes.clear()
        for (pool, phase), count in phases.items():
            if phase is not Phase.GONE:
                self._nodes.labels(pool, phase.value).set(count)
        self._show_gpus(context, views)
        self._deadline_s.clear()
        self._end_s.clear()
        blocks = [
            block
            for block in context.world.reservations
            if block.kind is SourceKind.BLOCK and block.owner == context.owner and block.end is not None
            and block.end > context.now - timedelta(hours=1)
        ]  # fmt: skip
        for block in sorted(blocks, key=lambda block: (block.end, block.id))[:MOST_BLOCKS]:
            deadlines = [view.deadline for view in views if view.source == block.source and view.deadline]
            if deadlines:
                left = min(deadlines) - context.now
                self._deadline_s.labels(block.id, block.pool).set(left.total_seconds())
            if block.end is not None:
                self._end_s.labels(block.id, block.pool).set((block.end - context.now).total_seconds())

    def _show_gpus(self, context: DecisionContext, views: list[NodeView]) -> None:
        totals: Counts[tuple[str, str]] = Counts()
        for view in views:
            assert view.node.instance is not None
            kind = context.spec.catalog.types.get(view.node.instance.instance_type)
            if kind is None or view.phase is not Phase.READY:
                continue
            used = sum(gpus(pod.shape) for pod in view.pods)
            totals[_pool(view), "used"] += used
            totals[_pool(view), "idle"] += max(0, kind.gpus - used)
        self._gpus.clear()
        for (pool, state), count in totals.items():
            self._gpus.labels(pool, state).set(count)

    def _follow_phases(self, context: DecisionContext, views: list[NodeView]) -> None:
        """A phase that was under way at the first look began before it: its length is not known."""
        before, self._phases = self._phases, {}
        for view in views:
            since = context.now if self._has_looked else None
            phase, began = before.get(view.node.key, (view.phase, since))
            if phase is view.phase:
                since = began
            elif began is not None:
                self._phase_s.labels(phase.value).observe((context.now - began).total_seconds())
            if view.phase is not Phase.GONE:
                self._phases[view.node.key] = view.phase, since
        self._has_looked = True

    def _show_hours(self, book: HoursBook) -> None:
        try:
            hours = book.block_hours()
        except PortError:
            return  # shown again when the ledger is back
        sums: dict[str, tuple[float, float]] = {}
        for hour in hours:
            used_h, held_h = sums.get(hour.pool, (0.0, 0.0))
            sums[hour.pool] = used_h + hour.used_h, held_h + hour.held_h
        for pool, (used_h, held_h) in sums.items():
            self._gpu_hours.labels(pool, "used").set(used_h)
            self._gpu_hours.labels(pool, "idle").set(max(0.0, held_h - used_h))

    # --- beside the ticks ---------------------------------------------------------------------------

    def read_hours_from(self, book: HoursBook) -> None:
        self._hours = book

    def planner_took(self, seconds: float) -> None:
        self._planner_s.observe(seconds)

    def show_lags(self, lags: Mapping[str, float]) -> None:
        for kind, lag_s in lags.items():
            self._lag_s.labels(kind).set(lag_s)

    def show_events(self, sent: int, dropped: int) -> None:
        self._events.labels("sent").set(sent)
        self._events.labels("dropped").set(dropped)

    def show_recording(self, kept: int, lost: int, bytes_used: int, *, good: bool) -> None:
        self._recorded.labels("kept").set(kept)
        self._recorded.labels("lost").set(lost)
        self._recording_bytes.set(bytes_used)
        self._recording_good.set(good)

    def documents_good(self, good: bool) -> None:
        self._documents_ok.set(good)


def _pool(view: NodeView) -> str:
    return view.node.instance.pool if view.node.instance is not None else ""


def _class(error: BaseException) -> str:
    """Our errors have a label; a bug is a bug, whatever its class: the names of those are without number."""
    return label(error) if isinstance(error, TidemillError) else "bug"
