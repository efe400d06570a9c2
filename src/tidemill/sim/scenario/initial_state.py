"""A rehearsal that begins with what was true somewhere: blocks, nodes, running and waiting pods of a world.

What a world does not tell is assumed, and what cannot be carried over is left out; both are listed, never dropped
silently. Node names are the simulator's; instance ids, reservation ids and names of pods stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from tidemill.model.capacity import LIVE_STATES, PREPAID, ReservationState
from tidemill.model.nodes import INSTANCE_UP_STATES, Instance
from tidemill.model.pods import Pod, PodPhase, Workload
from tidemill.model.purchases import MAY_COST, Adoption, PurchaseState
from tidemill.model.resources import amount
from tidemill.model.world import World
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cluster.cluster import SimCluster
from tidemill.sim.cluster.workloads import JobTruth, Progress, ServiceTruth, SetTruth
from tidemill.sim.timeline import Timeline
from tidemill.spec import Spec, names
from tidemill.spec.scenario import Arrivals, HandOver, JobStream, RandomDuration, Service
from tidemill.store.memory import MemoryLedger

# Of a job that does not say how long it takes.
ASSUMED_DURATION = timedelta(hours=12)
# A job that has run for longer than it said is assumed to need this share of its run more.
_OVERRUN = 0.1


@dataclass(frozen=True, slots=True)
class NotCarriedOver:
    """`what` is assumed or left out, so many times."""

    what: str
    count: int
    examples: tuple[str, ...] = ()


class _Notes:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    def add(self, what: str, example: str = "") -> None:
        self._counts[what] += 1
        if example and len(some := self._examples.setdefault(what, [])) < 3:
            some.append(example)

    def all(self) -> tuple[NotCarriedOver, ...]:
        return tuple(
            NotCarriedOver(what, count, tuple(self._examples.get(what, ())))
            for what, count in self._counts.items()
        )


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that came later, as its pods were when they were first seen."""

    at: datetime
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    world: World
    arrivals: tuple[Arrival, ...] = ()


def begin_with(
    beginning: Beginning,
    spec: Spec,
    cloud: SimCloud,
    cluster: SimCluster,
    ledger: MemoryLedger,
    timeline: Timeline,
) -> tuple[NotCarriedOver, ...]:
    """Fill a simulation that has just been built. What is not as it was."""
    notes, world = _Notes(), beginning.world
    for arrival in beginning.arrivals:
        timeline.at(arrival.at, partial(_arrive, arrival, cluster, notes))
    _reservations(world, spec, cloud, ledger, notes)
    nodes = _nodes(world, spec, cloud, cluster, notes)
    _workloads(world, cluster, nodes, notes)
    for intent in world.purchases:
        if intent.state is PurchaseState.PROPOSED:
            ledger.propose(intent)
        elif intent.state in MAY_COST and not intent.reservation_ids:
            notes.add(f"a purchase that is {intent.state.value} is left out", intent.id)
    for launch in world.launches:
        if not launch.failure:
            notes.add("a launch under way is left out; it is decided again", launch.id)
    if world.spending.fees_usd or world.spending.hourly_usd:
        notes.add("the money of this month counts from the start of the rehearsal")
    return notes.all()


def _reservations(world: World, spec: Spec, cloud: SimCloud, ledger: MemoryLedger, notes: _Notes) -> None:
    owner = spec.platform.spec.deployment
    for one in world.reservations:
        if one.state not in LIVE_STATES or (one.end is not None and one.end <= world.now):
            continue
        if one.instance_type not in spec.catalog.types:
            notes.add("a reservation of a type that is not in the catalog is left out", one.id)
            continue
        if one.state is ReservationState.PAYMENT_PENDING:
            notes.add("a block whose payment is pending counts as paid", one.id)
        if one.extension_pending_to is not None:
            notes.add("an extension whose payment is pending is left out", one.id)
        tags = {**dict(one.tags), **({names.TAG_OWNER: one.owner} if one.owner else {})}
        cloud.restore_reservation(
            replace(
                one, tags=tuple(sorted(tags.items())), extension_pending_to=None, intent_id="", scale_downs=()
            )
        )
        if one.owner == owner:
            ledger.adopt(Adoption(one.id, one.pool, "as it was", world.now))
    for one in world.unread:
        notes.add("a reservation that could not be read is left out", one.id)


def _nodes(world: World, spec: Spec, cloud: SimCloud, cluster: SimCluster, notes: _Notes) -> dict[str, str]:
    """By name of the node: its name here."""
    found: dict[str, str] = {}
    begins = world.now.replace(microsecond=0)
    for node in world.nodes:
        instance, kube = node.instance, node.kube
        if instance is None or instance.state not in INSTANCE_UP_STATES:
            continue
        if why := _why_not(instance, spec):
            notes.add(why, node.name)
            continue
        if kube is None or not kube.ready:
            notes.add("a node that is not Ready is left out; its slot is free", node.name)
            continue
        if instance.ends_at is not None:
            notes.add("an end that AWS announced for one instance is left out", instance.id)
        # What is paid by the hour is paid for from now on: a rehearsal costs what happens in it.
        launched = instance.launched_at if instance.source.kind in PREPAID else begins
        running = replace(instance, ends_at=None, ends_why=None, leaves=False, launched_at=launched)
        if not cloud.restore_instance(running):
            notes.add("a node on a reservation that has no slot for it is left out", node.name)
            continue
        found[kube.name] = cluster.restore_node(running, kube)
    return found


def _why_not(instance: Instance, spec: Spec) -> str:
    if instance.owner != spec.platform.spec.deployment:
        return "a node of somebody else is left out, and its pods with it"
    if instance.pool not in spec.pools:
        return "a node of a pool that the documents do not have is left out, and its pods with it"
    if instance.instance_type not in spec.catalog.types:
        return "a node of a type that is not in the catalog is left out, and its pods with it"
    return ""


# --- work -----------------------------------------------------------------------------------------------


def _workloads(world: World, cluster: SimCluster, nodes: dict[str, str], notes: _Notes) -> None:
    services = {one.name: one for one in world.workloads}
    minimums = {one.workload: one.min_available for one in world.budgets}
    by_workload: dict[str, list[Pod]] = {}
    for pod in world.pods:
        if pod.phase not in (PodPhase.PENDING, PodPhase.RUNNING):
            continue
        if pod.node and pod.node not in nodes:
            if not pod.daemon:
                notes.add("a pod on a node that is left out is left out", pod.full_name)
            continue
        here = replace(pod, node=nodes[pod.node]) if pod.node else pod
        if pod.held_by_others:
            notes.add("a pod that another controller holds is held to the end", pod.full_name)
        if pod.of_job or pod.workload in services:
            by_workload.setdefault(pod.workload, []).append(here)
            continue
        if not pod.daemon and not pod.node:
            notes.add("a pod without a Job or a service runs on once it has started", pod.full_name)
        cluster.restore_pod(here)
    for name, pods in by_workload.items():
        if name in services:
            _service(services[name], minimums.get(name, 0), pods, world, cluster)
        else:
            _job(name, pods, world, cluster, notes)
    for name in services.keys() - by_workload.keys():
        _service(services[name], minimums.get(name, 0), [], world, cluster)


def _job(workload: str, pods: list[Pod], world: World, cluster: SimCluster, notes: _Notes) -> None:
    first = pods[0]
    kind, _, name = workload.partition("/")
    if kind != "Job":
        notes.add(f"a {kind} counts as a Job", name)
        pods = [replace(pod, workload=f"Job/{name}") for pod in pods]
    if first.terms.expected is None:
        notes.add(f"a job that does not say how long it takes runs for {_hours(ASSUMED_DURATION)} h", name)
    stated = first.terms.expected or ASSUMED_DURATION
    started = [pod.started_at for pod in pods if pod.started_at is not None and pod.phase is PodPhase.RUNNING]
    ran = world.now - max(started) if started else timedelta(0)
    total = stated if ran < stated else ran * (1 + _OVERRUN)
    if total is not stated:
        notes.add("a job that has run for longer than it said needs a tenth of its run more", name)
    size = first.gang.size if first.gang is not None else len(pods)
    stream = _stream(name, first, total, size)
    job = JobTruth(
        name=name, stream=stream, duration=total, submitted=min(pod.created_at for pod in pods), shape=first.shape,
        terms=first.terms, progress=Progress(total, first.terms.checkpoint_every), attempts=[0] * size,
    )  # fmt: skip
    cluster.restore_job(job, pods)


def _arrive(arrival: Arrival, cluster: SimCluster, notes: _Notes) -> None:
    """Waiting for its first decision, wherever it was first seen."""
    pods = [
        replace(
            pod, phase=PodPhase.PENDING, node="", bound_at=None, started_at=None, ready=False, ready_at=None,
            pinned_to="", gated=True, ends_at=None, deleting_until=None, created_at=arrival.at,
        )
        for pod in arrival.pods
    ]  # fmt: skip
    _job(pods[0].workload, pods, World(arrival.at), cluster, notes)


def _stream(name: str, pod: Pod, total: timedelta, size: int) -> JobStream:
    """What the simulator asks of a job besides its shape and terms. Names with a slash are not checked."""
    requests, terms = pod.shape.requests, pod.terms
    return JobStream.model_construct(
        **_template(pod), name=name, arrivals=Arrivals(at=(timedelta(0),)), duration=RandomDuration(fixed=total),
        nodes=size, checkpoint_every=terms.checkpoint_every, checkpoint_time=terms.checkpoint_time,
        neuron=amount(requests, names.NEURON),
    )  # fmt: skip


def _template(pod: Pod) -> dict[str, Any]:
    terms = pod.terms
    return {
        "gpus": amount(pod.shape.requests, names.NVIDIA_GPU), "grace": terms.grace, "load": terms.load,
        "team": pod.namespace, "priority": terms.priority,
    }  # fmt: skip


def _service(one: Workload, minimum: int, pods: Iterable[Pod], world: World, cluster: SimCluster) -> None:
    kind, _, name = one.name.partition("/")
    of: Any = kind
    method: Any = one.method.value if one.method is not None and one.method.value != "paired" else "evict"
    how = HandOver.model_construct(
        method=method, kind=of, max_surge=one.max_surge, max_unavailable=one.max_unavailable,
        may_scale=one.may_scale, min_available=one.min_available,
    )  # fmt: skip
    service = Service.model_construct(
        name=name, replicas=one.replicas, min_available=minimum, handover=how, load=one.terms.load,
        grace=one.terms.grace, team=one.namespace, gpus=amount(one.shape.requests, names.NVIDIA_GPU),
    )  # fmt: skip
    members = [pod for pod in pods if pod.deleting_until is None]
    truth = ServiceTruth(service, one.shape, one.terms, world.now)
    replica_set = SetTruth(
        one.name, name.replace("/", "-"), one.shape, one.terms, one.replicas, one.max_surge, one.max_unavailable,
        added=one.added, made=len(members), restarted_for=one.restarted_for,
    )  # fmt: skip
    truth.sets = [replica_set]
    cluster.restore_service(truth, members)


def _hours(length: timedelta) -> str:
    return f"{length.total_seconds() / 3600:g}"
