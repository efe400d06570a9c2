"""A rehearsal: the engine, unmodified, on a simulated AWS and a simulated cluster, in virtual time.

It builds the simulated account and cluster, schedules the scenario, wakes the engine at an event or at its own
`wake_at`, crashes and restarts it where the scenario says so, and checks the invariants at every step.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from tidemill.decide import Memory
from tidemill.decide import decide as the_decision
from tidemill.engine.loop import AFTER_FAILING, Decide, Engine, Tick
from tidemill.engine.planner_runner import InlineExecutor, PlannerExecutor
from tidemill.model.errors import InvariantViolated, Refused
from tidemill.model.plan import Action, Plan
from tidemill.model.purchases import Adoption, PurchaseState
from tidemill.model.world import World
from tidemill.ports import Cloud, Cluster, Ledger
from tidemill.ports.compute import Compute
from tidemill.provision.group_reconciler import uses_groups
from tidemill.provision.karpenter.reconciler import KarpenterReconciler, karpenter_pools
from tidemill.provision.provisioned_cloud import PlannedChange, ProvisionedCloud, Reconcilers, ends_of
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cloud.compute import SimCompute
from tidemill.sim.cluster.cluster import SimCluster
from tidemill.sim.invariants import Invariants, Truth
from tidemill.sim.invariants.truth import Violation
from tidemill.sim.karpenter.controller import SimKarpenter, bootable
from tidemill.sim.scenario.crash import Crashing, CrashPoints, EngineCrashed
from tidemill.sim.scenario.initial_state import Beginning, NotCarriedOver, begin_with
from tidemill.sim.scenario.reason_history import ReasonHistory
from tidemill.sim.scenario.recorder import AlertRecorder, GpuRecorder
from tidemill.sim.scenario.script import schedule_scenario
from tidemill.sim.timeline import Journal, Timeline
from tidemill.spec import Spec
from tidemill.spec.node_class import AmiTerm
from tidemill.spec.scenario import OwnedReservation, Scenario, block_window
from tidemill.spec.units import format_instant
from tidemill.store.decisions import record_verdict
from tidemill.store.memory import MemoryLedger
from tidemill.wording import sentence

_COLLECT_EVERY = 20_000  # new objects
RESTART_AFTER = timedelta(seconds=30)  # a crashed controller's pod is running again by then


@dataclass(frozen=True, slots=True)
class Done:
    """One action the engine took, with its error. Two runs are compared by this sequence."""

    at: datetime
    action: Action
    error: str


class Rehearsal:
    def __init__(
        self,
        spec: Spec,
        scenario: Scenario,
        seed: int,
        *,
        decide: Decide = the_decision,
        every_second: bool = False,
        verbose: bool = False,
        cloud: Callable[..., SimCloud] = SimCloud,
        planner_executor: Callable[[], PlannerExecutor] = InlineExecutor,
        through: Callable[[Rehearsal], ProvisionedCloud] | None = None,
        suspended_jobs: bool = False,
        initial: Beginning | None = None,
    ) -> None:
        """`through`: how the engine reaches the account, such as over the wire; None: in process. `suspended_jobs`:
        Jobs are held by suspension, as in a real cluster. `initial`: what is there when it begins."""
        self.spec, self.scenario, self.seed = spec, scenario, seed
        self.start = scenario.spec.start
        self.end = self.start + scenario.spec.duration
        self.timeline = Timeline(self.start)
        self.journal = Journal(self.timeline.now)
        self._decide, self._every_second, self._planner_executor = decide, every_second, planner_executor
        self._through = through
        self._awake = True
        self._tick_at = self.start
        self._back_at = self.start
        self._crash_points = CrashPoints()
        zones = sorted(spec.platform.spec.subnets) or [f"{spec.platform.spec.region}a"]
        self.cloud = cloud(
            self.timeline, self.journal, spec.catalog, seed=seed, zones=zones,
            market=scenario.spec.market, wake=self._wake,
        )  # fmt: skip
        self.cluster = SimCluster(
            self.timeline, self.journal, spec.catalog, spec, seed=seed, wake=self._wake, verbose=verbose,
            suspended_jobs=suspended_jobs,
        )  # fmt: skip
        self.cloud.on_instance.append(self.cluster.instance_changed)
        deployment = spec.platform.spec.deployment
        self.compute = SimCompute(self.cloud, self.timeline, deployment, spec.platform.spec.subnets)
        self.karpenter = SimKarpenter(
            self.timeline, self.journal, spec.catalog, self.cloud, self.cluster, zones
        )
        self.ledger = MemoryLedger(self.timeline, deployment, outlives_the_engine=True)
        self._add_reservations()
        self.not_carried_over = self._begin_with(initial)
        schedule_scenario(scenario, seed, self)
        again = _with_another_past(decide)
        self._truth = Truth(
            spec, self.cloud, self.cluster, self.ledger, self.journal, self.timeline.now, again
        )
        if scenario.spec.deadline_agent:
            self._truth.agents = True
            histories = self.cloud.instance_histories
            self.cluster.install_deadline_agents(
                lambda instance: self._truth.deadline_of(histories[instance.id])
            )
        self.invariants = Invariants(self._truth)
        self.recorder = GpuRecorder(self.cloud, self.cluster, spec.catalog, self.start)
        self.alerts = AlertRecorder(spec, self.ledger.alerts, self.start)
        self.engine = self._start_engine()
        self.ticks = 0
        self.done: list[Done] = []
        self.world: World | None = None
        self.plan = Plan()
        self.reasons = ReasonHistory()  # why pods waited, and what was warned of, over the whole run

    # --- running ------------------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None] | None = None) -> None:
        """To the end. Raises InvariantViolated at the first violation."""
        total = (self.end - self.start).total_seconds()
        with _rare_garbage_collection():
            while self.step():
                if progress is not None:
                    progress((self.timeline.now() - self.start).total_seconds() / total)

    def run_until(self, at: datetime) -> None:
        while self.next_at() <= at and self.step():
            pass
        self.timeline.advance(at)

    def next_at(self) -> datetime:
        """The next instant at which something happens or the engine ticks."""
        now = self.timeline.now()
        tick = max(self._tick_at if not self._awake else now, self._back_at)
        if self._every_second:
            tick = min(tick, max(now + timedelta(seconds=1), self._back_at))
        due = self.timeline.next_at()
        return min(tick, due or tick, self.end)

    def step(self) -> bool:
        """One instant: everything due happens, then the engine ticks if it was woken. False: the end is reached."""
        if self.timeline.now() >= self.end:
            return False
        at = self.next_at()
        self.timeline.advance(at)
        self._tick_if_due(at)
        self.recorder.sample(at)
        self._stop_on(self.invariants.check(at))
        return True

    def _tick_if_due(self, now: datetime) -> None:
        if now < self._back_at or not (self._awake or now >= self._tick_at or self._every_second):
            return
        self._awake = False
        self.ticks += 1
        try:
            tick = self.engine.tick()
        except EngineCrashed as crash:
            text = f"it crashed at step '{crash.step}'; a new engine starts"
            self.journal.add("engine-crashed", "engine", text, crash_step=crash.step)
            self._lose_engine(RESTART_AFTER)
            return
        if tick is None:
            # It sees nothing: a new engine has no last reading to go on with while AWS is throttled.
            self._tick_at = now + AFTER_FAILING
            self._truth.absences.append((now, self._tick_at))
            return
        self._awake = False  # events of its own actions wake it a second later
        self._tick_at = tick.wake_at
        self._note(tick)
        self._stop_on(self.invariants.check_tick(tick))

    def _note(self, tick: Tick) -> None:
        self.world, self.plan = tick.world, tick.plan
        for outcome in tick.outcomes:
            self.done.append(Done(tick.world.now, outcome.action, outcome.error))
            self._tell(outcome.action, outcome.error, outcome.detail)
        said = replace(tick.plan, warnings=(*tick.plan.warnings, *tick.kept)) if tick.kept else tick.plan
        for warning in self.reasons.record(tick.world, said):
            self.journal.add("warned", warning.about, sentence(warning.reason))
        self.alerts.after(tick)

    def _tell(self, action: Action, error: str, detail: str) -> None:
        kind = type(action).__name__
        if kind in _QUIET and not error:
            return
        about = (
            getattr(action, "pod", "")
            or getattr(action, "node", "")
            or getattr(action, "instance_id", "")
            or getattr(action, "workload", "")
        )
        intent = getattr(action, "intent", None)
        if intent is not None:
            about = intent.pool
        came = f" -> {error}: {detail}" if error else (f" -> {detail}" if detail else "")
        self.journal.add("decided", about or "engine", f"{kind}: {sentence(action.reason)}{came}")

    def _stop_on(self, violation: Violation | None) -> None:
        if violation is not None:
            raise InvariantViolated(
                violation.invariant, violation.sentence, at=format_instant(violation.at), seed=self.seed,
                objects=violation.objects,
            )  # fmt: skip

    def _begin_with(self, initial: Beginning | None) -> tuple[NotCarriedOver, ...]:
        if initial is None:
            return ()
        return begin_with(initial, self.spec, self.cloud, self.cluster, self.ledger, self.timeline)

    def _add_reservations(self) -> None:
        for owned in self.scenario.spec.reservations:
            if owned.overlap and owned.duration is not None:  # nobody knows of it before it is bought
                bought, _ = block_window(self.start, owned.start, owned.duration, owned.overlap)
                self.timeline.at(bought, partial(self._add_reservation, owned))
            else:
                self._add_reservation(owned)

    def _add_reservation(self, owned: OwnedReservation) -> None:
        owner = self.spec.platform.spec.deployment
        id_ = self.cloud.add_reservation(owned, owner=owner, begun=self.start)
        if owned.owned:
            self.ledger.adopt(Adoption(id_, owned.pool, "the scenario", self.timeline.now()))

    # --- the engine ---------------------------------------------------------------------------------

    def _wake(self, reason: str) -> None:
        self._awake = True

    def _start_engine(self) -> Engine:
        points = self._crash_points
        self.alerts.engine_starts(self.spec)
        through = self._provisioned()
        self.account: Cloud = self.cloud if through is None else through  # as the engine sees it
        return Engine(
            self.spec,
            self.timeline,
            cast(Cloud, Crashing(self.account, points)),
            cast(Cluster, Crashing(self.cluster, points)),
            cast(Ledger, Crashing(self.ledger, points)),
            decide=self._decide,
            executor=self._planner_executor(),
            reconciler=Reconcilers(
                *([] if through is None else [through.reconciler]), *self._karpenter_reconcilers()
            ),
        )

    def planned(self, world: World) -> tuple[PlannedChange, ...]:
        """What reconcilers would create, change and remove at this instant, besides what the plan says."""
        groups = ProvisionedCloud(self.cloud, self.compute, self.spec, self.ledger, self.timeline).reconciler
        return Reconcilers(groups, *self._karpenter_reconcilers()).planned(world)

    def _karpenter_reconcilers(self) -> list[KarpenterReconciler]:
        if not karpenter_pools(self.spec):
            return []
        return [KarpenterReconciler(bootable(self.spec), self.karpenter, ends_of(self.ledger))]

    def _provisioned(self) -> ProvisionedCloud | None:
        """As in production, where a pool launches through groups. Without such a pool it would only cost time."""
        if self._through is not None:
            return self._through(self)
        if not uses_groups(self.spec):
            return None
        compute = cast(Compute, Crashing(self.compute, self._crash_points))
        return ProvisionedCloud(self.cloud, compute, self.spec, self.ledger, self.timeline)

    def _lose_engine(self, duration: timedelta) -> None:
        """Its memory is gone; a new one starts with nothing but the ports."""
        now = self.timeline.now()
        self._back_at = max(self._back_at, now + duration)
        self._truth.absences.append((now, self._back_at))
        self.engine = self._start_engine()
        self._awake = True

    def was_absent_before(self, at: datetime) -> bool:
        """Whether the engine was down or could not read AWS in the hour before."""
        return self._truth.was_absent(at - timedelta(hours=1), at)

    # --- what a script does (script.Stage) ----------------------------------------------------------

    def crash_engine(self, step: str) -> None:
        if step:
            self._crash_points.arm(step)
        else:
            self.journal.add("engine-crashed", "engine", "it crashed between two ticks; a new engine starts")
            self._lose_engine(RESTART_AFTER)

    def keep_engine_away(self, duration: timedelta) -> None:
        self._lose_engine(duration)

    def roll_image(self, node_class: str, ami: AmiTerm) -> None:
        """The documents change: an engine started with the new ones takes over, and new nodes are made from them."""
        old = self.spec.node_classes[node_class]
        inner = old.spec.model_copy(update={"ami_selector_terms": (ami,)})
        new = old.model_copy(update={"spec": inner})
        self.spec = replace(self.spec, node_classes={**self.spec.node_classes, node_class: new})
        self.cluster.follow(self.spec)
        self._truth.spec = self.spec
        self.engine = self._start_engine()
        self._awake = True
        self.journal.add(
            "image-rolled", node_class, f"its nodes are made from {ami.alias or ami.id} from now on"
        )

    def throttle_cloud(self, duration: timedelta) -> None:
        now = self.timeline.now()
        self.cloud.throttle(duration)
        self._truth.throttled.append((now, now + duration))

    def record_verdict(self, window: str, by: str, approved: bool, note: str) -> None:
        """A person decides on what is proposed for a window; if nothing is, the journal says so."""
        for intent in self.ledger.purchases():
            if intent.window == window and intent.state is PurchaseState.PROPOSED:
                try:
                    record_verdict(
                        self.ledger, self.spec, intent, who=by, approved=approved, at=self.timeline.now(),
                        listed=self.cloud.all_reservations(), note=note,
                    )  # fmt: skip
                except Refused as refused:
                    self.journal.add("verdict-refused", window, str(refused))
                    return
                word = "approved" if approved else "refused"
                self.journal.add("verdict", window, f"{by} {word} {intent.id}{': ' + note if note else ''}")
                self._wake("verdict")
                return
        self.journal.add(
            "verdict-refused", window, f"{by} had nothing to decide on: nothing is proposed for {window}"
        )


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Reference counts free nearly all that a rehearsal makes. Looking for cycles as often as Python does by default
    takes a twentieth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _with_another_past(decide: Decide) -> Decide:
    """With a memory of its own: a plan must not follow from what the engine happens to remember."""
    memory = Memory()
    return (lambda spec, world: the_decision(spec, world, memory)) if decide is the_decision else decide


# Too frequent for a line each; they are in `done`.
_QUIET = ("SettleLaunch", "AnnounceEnd", "MarkReady", "Admit", "RemoveNode")
