"""The kubelets of the nodes that the account booted: pods are admitted or refused, start, work, stop, or die.

They know pods through one watch and act only on nodes of ours. Everything happens in the account's turn and in virtual
time; what a pod's object is to say afterwards is handed to the write queue. No pod gets a grace at the end of its
instance: a kubelet's graceful shutdown is not assumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidemill.engine.clock import wall_now
from tidemill.sim.cluster.node_lifecycle import GPU_FAILURE
from tidemill.sim.timeline import Timeline, stream, whole_seconds
from tidemill.sim.wire.data_plane import pod_status
from tidemill.sim.wire.data_plane.node_object import DEVICES, BootedNode
from tidemill.sim.wire.data_plane.nodes import Nodes, Timings
from tidemill.sim.wire.data_plane.pod_spec import PodSpec, read_pod
from tidemill.sim.wire.data_plane.pod_status import SIGKILL, SIGTERM, PodStatus
from tidemill.sim.wire.data_plane.pod_watch import Change
from tidemill.sim.wire.data_plane.pod_writes import PodWriter, Wanted
from tidemill.sim.wire.data_plane.records import PodEnd, PodRecord
from tidemill.spec import names

if TYPE_CHECKING:
    from tidemill.sim.wire.state import Wire

_EXIT_SHARE = (0.3, 1.0)  # of its grace: how long a pod takes to stop once told to
_AT_ONCE_S = 5  # a grace shorter than this is not worth spreading: the pod is gone a second later
_OVER = ("Succeeded", "Failed")
_BACKOFF_S, _LONGEST_BACKOFF_S = 10, 300  # before a container that ended is started again


@dataclass(slots=True, eq=False)
class PodRun:
    """One pod on one node."""

    spec: PodSpec
    node: BootedNode
    record: PodRecord
    wanted: Wanted
    status: PodStatus
    working_since: datetime | None = None  # virtual: when its containers last started
    exits_at: datetime | None = None  # told to stop: when it will have
    asked: str = ""  # the last checkpoint request it saw
    timers: list[Any] = field(default_factory=list)  # each cancels something that was to happen

    @property
    def over(self) -> bool:
        return self.record.end is not None


class Kubelets:
    def __init__(
        self, wire: Wire, timeline: Timeline, nodes: Nodes, writer: PodWriter, timings: Timings
    ) -> None:
        self._wire, self._timeline, self._nodes, self._writer = wire, timeline, nodes, writer
        self._timings = timings
        self._runs: dict[str, PodRun] = {}  # by uid, until the object is gone
        self._on: dict[str, dict[str, PodRun]] = {}  # by node: those that are not over
        self._done: dict[str, timedelta] = {}  # by piece of work: what checkpoints keep of it
        self._failures: Counter[str] = Counter()  # by owner
        self._addresses = 0
        self.records: list[PodRecord] = []
        nodes.on_death, nodes.on_gpu_failure = self._node_died, self._gpu_failed

    def take(self, changes: Sequence[Change]) -> None:
        """From the watch. In the account's turn."""
        for kind, pod in changes:
            self._take(kind, pod)

    def _take(self, kind: str, pod: Mapping[str, Any]) -> None:
        meta = pod["metadata"]
        run = self._runs.get(meta["uid"])
        if kind == "DELETED":
            if run is not None:
                self._vanished(run)
            return
        if run is None:
            node = self._nodes.by_name.get(pod["spec"].get("nodeName", ""))
            phase = (pod.get("status") or {}).get("phase")
            if node is None or node.dead_at is not None or phase in _OVER:
                return
            run = self._admit(pod, node)
        if run.node.dead_at is not None:
            return  # nobody is there to see it
        if meta.get("deletionTimestamp"):
            self._told(run, timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0))
        self._note_request(run, meta.get("annotations") or {})

    # --- start --------------------------------------------------------------------------------------

    def _admit(self, pod: Mapping[str, Any], node: BootedNode) -> PodRun:
        """What the node does not have (yet) is refused, not waited for."""
        spec, now, wall = read_pod(pod), self._timeline.now(), wall_now()
        self._addresses += 1
        number = self._addresses
        address = f"100.{64 + (number >> 16) % 64}.{number >> 8 & 255}.{number & 255}"
        host_network = bool(pod["spec"].get("hostNetwork"))
        status = PodStatus("Pending", wall, node.address if host_network else address, node.address)
        record = PodRecord(spec, node, now)
        run = PodRun(spec, node, record, Wanted(spec), status)
        lacking = self._lacking(run)
        self._runs[spec.uid] = run
        self.records.append(record)
        if lacking:
            resource, asked, used, has = lacking
            numbers = f"requested: {asked}, used: {used}, capacity: {has}"
            message = f"Pod was rejected: Node didn't have enough resource: {resource}, {numbers}"
            run.wanted.status = pod_status.refused(f"OutOf{resource}", message, wall)
            self._over(run, PodEnd.REFUSED, f"OutOf{resource}")
            self._writer.write(run.wanted)
            return run
        self._on.setdefault(node.name, {})[spec.uid] = run
        delay = timedelta(seconds=self._stream("start", spec).randint(*self._timings.start_s))
        run.timers.append(self._timeline.after(delay, lambda: self._start(run)))
        return run

    def _lacking(self, run: PodRun) -> tuple[str, int, int, int] | None:
        has, others = run.node.allocatable, list(self._on.get(run.node.name, {}).values())
        if len(others) + 1 > has[names.PODS]:
            return names.PODS, 1, len(others), has[names.PODS]
        for name, asked in run.spec.requests.items():
            if name not in has and name not in DEVICES:
                continue  # a kubelet ignores what only the cluster knows
            used = sum(other.spec.requests.get(name, 0) for other in others)
            if asked and used + asked > has.get(name, 0):
                return name, asked, used, has.get(name, 0)
        return None

    def _start(self, run: PodRun) -> None:
        """Its containers run from this instant, for the first time or again."""
        if run.over:
            return
        wall = wall_now()
        run.working_since = self._timeline.now()
        if run.record.started_at is None:
            run.record.started_at, run.record.started_wall = run.working_since, wall
        loads = run.spec.load if run.spec.restarts == "Always" else timedelta(0)
        run.status = replace(run.status, phase="Running", running_since=wall, waiting="")
        if loads:
            self._show(run)
            run.timers.append(self._timeline.after(loads, lambda: self._become_ready(run)))
        else:
            self._become_ready(run)
        self._work(run)

    def _become_ready(self, run: PodRun) -> None:
        if not run.over and not run.status.waiting:
            run.record.ready_at = self._timeline.now()
            run.status = replace(run.status, ready=True, ready_changed=wall_now())
            self._show(run)

    def _work(self, run: PodRun) -> None:
        """Until its work is done, or until it fails."""
        spec, left = run.spec, run.spec.duration
        if left is not None:
            left = max(left - self._done.get(spec.work, timedelta(0)), timedelta(seconds=1))
        fails = spec.failure if self._fails(run) else None
        if fails is not None:
            after = left if fails.after is None else fails.after
            self._after(run, after or timedelta(seconds=1), lambda: self._exit(run, fails.exit_code))
        elif left is not None:
            self._after(run, left, lambda: self._exit(run, 0))

    def _fails(self, run: PodRun) -> bool:
        failure, owner = run.spec.failure, run.spec.owner_uid or run.spec.uid
        if failure is None or (failure.times is not None and self._failures[owner] >= failure.times):
            return False
        return failure.share >= 1 or self._stream("fails", run.spec).random() < failure.share

    # --- the end ------------------------------------------------------------------------------------

    def _exit(self, run: PodRun, code: int, message: str = "") -> None:
        """Its containers ended by themselves."""
        if run.over:
            return
        self._keep_progress(run)
        if code:
            self._failures[run.spec.owner_uid or run.spec.uid] += 1
        if run.spec.restarts == "Always" or (run.spec.restarts == "OnFailure" and code):
            self._restart(run)
            return
        if not code:
            self._done.pop(run.spec.work, None)
        self._finish(run, "Failed" if code else "Succeeded", code, message)
        self._over(run, PodEnd.FAILED if code else PodEnd.SUCCEEDED, message or f"exit code {code}")
        self._writer.write(run.wanted)

    def _restart(self, run: PodRun) -> None:
        delay_s = min(_BACKOFF_S * 2 ** min(run.status.restarts, 10), _LONGEST_BACKOFF_S)
        run.record.restarts += 1
        run.status = replace(
            run.status, ready=False, ready_changed=wall_now(), waiting="CrashLoopBackOff",
            restarts=run.status.restarts + 1,
        )  # fmt: skip
        run.working_since = None
        self._show(run)
        self._after(run, timedelta(seconds=delay_s), lambda: self._start(run))

    def _told(self, run: PodRun, grace: timedelta) -> None:
        """Its deletion was seen, or hastened: a grace is never extended. What never ran goes at once."""
        record, now = run.record, self._timeline.now()
        if run.over:
            self._writer.delete(run.wanted)
            return
        if record.grace_given is not None and grace >= record.grace_given:
            return
        if record.told_at is None:
            record.told_at, record.told_wall = now, wall_now()
        record.grace_given = grace
        if record.started_at is None or not grace:
            self._stop(run)
            return
        exits_at = now + self._exit_delay(run.spec, grace)
        if run.exits_at is None or exits_at < run.exits_at:
            run.exits_at = exits_at
            run.timers.append(self._timeline.at(exits_at, lambda: self._stop(run)))

    def _exit_delay(self, spec: PodSpec, grace: timedelta) -> timedelta:
        grace_s = int(grace.total_seconds())
        if spec.stops_after is not None:
            return min(max(spec.stops_after, timedelta(seconds=1)), grace)
        if grace_s < _AT_ONCE_S:
            return timedelta(seconds=1)
        share = self._stream("exit", spec).uniform(*_EXIT_SHARE)
        return min(whole_seconds(grace_s * share), grace)

    def _stop(self, run: PodRun) -> None:
        """Told to, it has ended; its object goes last."""
        if run.over:
            return
        self._keep_progress(run)
        given, takes = run.record.grace_given, run.spec.stops_after
        killed = given is not None and takes is not None and takes > given
        self._finish(run, "Failed", SIGKILL if killed else SIGTERM)
        forced = not given and run.record.started_at is not None
        self._over(run, PodEnd.REMOVED if forced else PodEnd.STOPPED, "it was deleted")
        self._writer.delete(run.wanted)

    def _vanished(self, run: PodRun) -> None:
        """The object is gone. A container that ran until now was killed."""
        del self._runs[run.spec.uid]
        if not run.over:
            self._keep_progress(run)
            self._over(run, PodEnd.REMOVED, "its object was deleted by force")

    def _node_died(self, node: BootedNode) -> None:
        history = self._wire.cloud.instance_histories[node.instance.id]
        why = f"{node.instance.id} was ended by {history.ended_by}: {history.ended_why}"
        for run in list(self._on.get(node.name, {}).values()):
            self._keep_progress(run)
            self._over(run, PodEnd.DIED, why)
            had_s, promised_s = run.record.grace_had.total_seconds(), run.spec.grace.total_seconds()
            story = f"died with {node.name} after {had_s:.0f} s of its {promised_s:.0f} s grace"
            self._wire.cloud.journal.add("pod-killed", run.spec.full_name, story)

    def _gpu_failed(self, node: BootedNode) -> None:
        """The first pod there that holds a device crashes."""
        held = [
            run
            for run in self._on.get(node.name, {}).values()
            if run.working_since is not None
            and any(run.spec.requests.get(each) for each in names.ACCELERATORS)
        ]
        for run in sorted(held, key=lambda each: each.spec.full_name)[:1]:
            self._exit(run, 1, GPU_FAILURE)

    def _finish(self, run: PodRun, phase: str, code: int, message: str = "") -> None:
        wall = wall_now()
        run.status = replace(
            run.status, phase=phase, ended=wall, exit_code=code, ready=False, ready_changed=wall, waiting="",
            message=message,
        )  # fmt: skip
        run.wanted.status = pod_status.as_patch(run.spec, run.status)

    def _over(self, run: PodRun, end: PodEnd, why: str) -> None:
        record = run.record
        record.end, record.why = end, why
        record.ended_at, record.ended_wall = self._timeline.now(), wall_now()
        for cancel in run.timers:
            cancel()
        run.timers.clear()
        self._on.get(run.node.name, {}).pop(run.spec.uid, None)

    # --- checkpoints --------------------------------------------------------------------------------

    def _note_request(self, run: PodRun, notes: Mapping[str, str]) -> None:
        asked = notes.get(names.CHECKPOINT_REQUESTED, "")
        if run.over or not run.spec.acknowledges or not asked or asked == run.asked:
            return
        run.asked = asked
        self._after(run, max(run.spec.checkpoint_time, timedelta(seconds=1)), lambda: self._checkpoint(run))

    def _checkpoint(self, run: PodRun) -> None:
        if run.over or run.working_since is None:
            return
        worked = self._timeline.now() - run.working_since
        self._done[run.spec.work] = self._done.get(run.spec.work, timedelta(0)) + worked
        run.working_since = self._timeline.now()
        run.record.checkpoints += 1
        run.wanted.checkpoint_done = wall_now()
        self._writer.write(run.wanted)

    def _keep_progress(self, run: PodRun) -> None:
        """Of work that writes checkpoints by itself, whole intervals."""
        every = run.spec.checkpoint_every
        if every and run.working_since is not None:
            whole = (self._timeline.now() - run.working_since) // every * every
            self._done[run.spec.work] = self._done.get(run.spec.work, timedelta(0)) + whole

    # --- small things -------------------------------------------------------------------------------

    def _show(self, run: PodRun) -> None:
        run.wanted.status = pod_status.as_patch(run.spec, run.status)
        self._writer.write(run.wanted)

    def _after(self, run: PodRun, delay: timedelta, happen: Any) -> None:
        run.timers.append(self._timeline.after(delay, happen))

    def _stream(self, what: str, spec: PodSpec) -> Any:
        """By name, not by uid: a pod of the same name draws the same in every run."""
        return stream(self._wire.cloud.seed, what, spec.full_name)
