"""What happens to a pod on its node: admitted or refused, started, stopped within its grace, or killed.

One object holds all kubelets of the cluster. The pod's owner (a Job, a Deployment) is notified and decides what
follows; nothing here knows why a pod is deleted or who creates the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from tidemill.model.pods import Pod, PodPhase
from tidemill.model.resources import amount
from tidemill.sim.cluster.api_server import ApiServer, accelerators
from tidemill.sim.cluster.scheduler_cache import pod_requests
from tidemill.sim.timeline import stream, whole_seconds

_START_S = (2, 15)  # image on the node or nearly: scheduling to container start
_EXIT_SHARE = (0.3, 1.0)  # of its grace: how long a pod takes to stop once told to
_AT_ONCE_S = 5  # a grace shorter than this is not worth spreading: the pod is gone a second later


class PodEnd(Enum):
    STOPPED = "stopped"  # it was deleted and has exited, or had never run
    KILLED = "killed"  # its node died under it
    CRASHED = "crashed"  # it failed by itself, or its GPU did
    REFUSED = "refused"  # the kubelet did not admit it


class PodOwner(Protocol):
    """A controller, as the kubelet knows it. Each call comes after the API server has been updated."""

    @property
    def ready_at_start(self) -> bool:
        """Its pods are Ready as soon as they run; otherwise the owner says when."""
        ...

    def pod_started(self, pod: Pod) -> None: ...

    def pod_leaving(self, pod: Pod, *, counts: bool) -> None:
        """Deletion began. `counts`: for a Job this is a failure (no DisruptionTarget on a started pod)."""
        ...

    def pod_gone(self, pod: Pod, end: PodEnd) -> None: ...


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that somebody deleted from its node, with the grace it was given."""

    at: datetime
    pod: str
    node: str
    forced: bool
    grace_s: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A pod as it was when the engine, or the agent of its node, told it to go."""

    eviction: Eviction
    pod: Pod
    by_agent: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """A pod that died with its node. Without a deletion before it, it had no grace at all."""

    at: datetime
    pod: str
    node: str
    workload: str
    grace_s: int  # what it was promised
    grace_had_s: int
    full_grace: bool


class Kubelets:
    def __init__(self, api: ApiServer, seed: int, owners: Mapping[str, PodOwner]) -> None:
        self._api = api
        self._seed = seed
        self._owners = owners  # by kind of workload: "Job", "Deployment"
        self._leaving_since: dict[str, datetime] = {}
        self.kills: list[Kill] = []
        self.on_bound: Callable[[str], None] = lambda node: None  # for the node's deadline agent

    def _owner(self, pod: Pod) -> PodOwner | None:
        return self._owners.get(pod.workload.partition("/")[0])

    # --- start --------------------------------------------------------------------------------------

    def bind(self, pod: Pod, node_name: str) -> None:
        """Bind, then the kubelet's own admission: what it does not have (yet) is refused, not waited for."""
        api = self._api
        bound = replace(pod, node=node_name, bound_at=api.timeline.now(), message="")
        api.put_pod(bound)
        if api.verbose:
            api.journal.add("pod-bound", pod.full_name, f"bound to {node_name}")
        lacking = self._lacking(bound)
        if lacking:
            self._refuse(bound, lacking)
            return
        if not pod.daemon and pod.ends_at is None:
            self._api.wake(f"{pod.full_name} is bound and does not know its end")
        start_s = stream(self._seed, "start", pod.uid).randint(*_START_S)
        api.timeline.after(timedelta(seconds=start_s), lambda: self._start(pod.uid))
        if not pod.daemon:
            self.on_bound(node_name)

    def _lacking(self, pod: Pod) -> str:
        """The first resource the node has not registered, or has already given to others."""
        node, free = self._api.node(pod.node), self._api.node_infos[pod.node].free
        for name, asked in pod_requests(pod.shape):
            if asked > amount(node.allocatable, name) or free[name] < 0:
                return name
        return ""

    def _refuse(self, pod: Pod, resource: str) -> None:
        message = f"OutOf{resource}"
        self._api.journal.add(
            "pod-admission-failed",
            pod.full_name,
            f"{message} on {pod.node}: the node has none free",
        )
        self._leave(replace(pod, phase=PodPhase.FAILED, message=message), PodEnd.REFUSED)
        self._api.wake(f"{pod.full_name} was refused: {message}")

    def _start(self, uid: str) -> None:
        pod = self._api.pods.get(uid)
        if pod is not None:  # else it was deleted before it ran
            self.start_now(pod)

    def start_now(self, pod: Pod) -> None:
        """Running from this instant."""
        owner = self._owner(pod)
        now, ready = self._api.timeline.now(), owner is None or owner.ready_at_start
        running = replace(pod, phase=PodPhase.RUNNING, started_at=now, ready=ready, message="")
        self._api.put_pod(running)
        if pod.daemon:
            return
        if self._api.verbose:
            self._api.journal.add("pod-started", pod.full_name, f"started on {pod.node}")
        if owner is not None:
            owner.pod_started(running)

    def restore(self, pod: Pod) -> None:
        """What is under way for a pod that was there before the simulation began goes on."""
        now = self._api.timeline.now()
        if pod.deleting_until is not None:
            self._leaving_since[pod.uid] = now
            self._api.timeline.at(max(pod.deleting_until, now), lambda: self._exit(pod.uid))
        elif pod.node and pod.phase is PodPhase.PENDING:
            start_s = stream(self._seed, "start", pod.uid).randint(*_START_S)
            self._api.timeline.after(timedelta(seconds=start_s), lambda: self._start(pod.uid))

    # --- stop ---------------------------------------------------------------------------------------

    def changes_anything(self, pod: Pod, grace_s: int | None) -> bool:
        """Whether a deletion with this grace would begin or hasten anything: grace is never extended."""
        grace = pod.terms.grace if grace_s is None else timedelta(seconds=grace_s)
        return pod.deleting_until is None or self._api.timeline.now() + grace < pod.deleting_until

    def delete(self, pod: Pod, grace_s: int | None = None, *, disruption: bool = True) -> None:
        """Begin (or hasten) a deletion. The pod exits within its grace; what never ran goes at once."""
        now = self._api.timeline.now()
        grace = pod.terms.grace if grace_s is None else timedelta(seconds=grace_s)
        if not self.changes_anything(pod, grace_s):
            return
        again = pod.deleting_until is not None
        leaving = replace(pod, deleting_until=now + grace, ready=False)
        self._api.put_pod(leaving)
        self._leaving_since.setdefault(pod.uid, now)
        owner = self._owner(pod)
        if owner is not None and not again:
            owner.pod_leaving(leaving, counts=not disruption and pod.started_at is not None)
        if pod.started_at is None or not grace:
            self._exit(pod.uid)
        else:
            self._api.timeline.after(self._exit_delay(pod.uid, grace), lambda: self._exit(pod.uid))
            self._api.wake(f"{pod.full_name} is terminating")

    def _exit_delay(self, uid: str, grace: timedelta) -> timedelta:
        grace_s = int(grace.total_seconds())
        if grace_s < _AT_ONCE_S:
            return timedelta(seconds=1)
        share = stream(self._seed, "exit", uid).uniform(*_EXIT_SHARE)
        return min(whole_seconds(grace_s * share), timedelta(seconds=grace_s))

    def _exit(self, uid: str) -> None:
        pod = self._api.pods.get(uid)
        if pod is not None:
            self._leave(pod, PodEnd.STOPPED)
            self._api.wake(f"{pod.full_name} is gone")

    def finish(self, pod: Pod) -> None:
        """It succeeded, and its owner knows."""
        self._api.drop_pod(pod.uid)
        self._leaving_since.pop(pod.uid, None)

    def crash(self, pod: Pod, message: str) -> None:
        self._leave(replace(pod, phase=PodPhase.FAILED, message=message), PodEnd.CRASHED)
        self._api.wake(f"{pod.full_name} failed: {message}")

    def kill_all(self, node_name: str) -> None:
        """The node is dead, and its pods with it at once.

        A real cluster may need minutes to notice, so recovery is too quick here. The grace they did not get is exact.
        """
        for uid in [pod.uid for pod in self._api.on(node_name)]:
            pod = self._api.pods.get(uid)  # gone, if the death of another ended its job
            if pod is not None and pod.daemon:
                self._api.drop_pod(uid)
            elif pod is not None:
                self._record_kill(pod)
                self._leave(replace(pod, message="the node died"), PodEnd.KILLED)

    def _record_kill(self, pod: Pod) -> None:
        now = self._api.timeline.now()
        had = now - self._leaving_since.get(pod.uid, now)
        full = pod.started_at is None or had >= pod.terms.grace
        had_s, grace_s = int(had.total_seconds()), int(pod.terms.grace.total_seconds())
        self.kills.append(Kill(now, pod.full_name, pod.node, pod.workload, grace_s, had_s, full))
        story = (
            "before it had started" if pod.started_at is None else f"after {had_s} s of its {grace_s} s grace"
        )
        self._api.journal.add("pod-killed", pod.full_name, f"died with {pod.node} {story}")

    def _leave(self, pod: Pod, end: PodEnd) -> None:
        self._api.drop_pod(pod.uid)
        self._leaving_since.pop(pod.uid, None)
        owner = self._owner(pod)
        if owner is not None:
            owner.pod_gone(pod, end)


def gpu_pods(api: ApiServer, node_name: str) -> list[Pod]:
    """Running pods there that hold an accelerator, by name."""
    held = [pod for pod in api.on(node_name) if pod.phase is PodPhase.RUNNING and not pod.daemon]
    return sorted((pod for pod in held if accelerators(pod.shape.requests)), key=lambda pod: pod.name)
