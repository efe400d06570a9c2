"""Which pods may start: what waits as one, whether there is time enough, and gangs that must stay whole.

A pin cannot be taken back once the gate is off, so a pod is admitted only onto Ready room that lasts long
enough for it; everything here errs on the side of waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.draft import Draft, End
from tidemill.decide.nodes import pod_lead
from tidemill.plan import Recreate
from tidemill.spec import names
from tidemill.spec.models import ComputePool
from tidemill.world import Gang, Pod, PodPhase, PodShape, Terms

# From the gate's removal to useful work: scheduling and image pull, before the pod's own load time.
POD_START = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Item:
    """What waits as one: a pod, or all the pods of a gang."""

    pods: tuple[Pod, ...]
    gang: Gang | None
    gated: bool
    pinned_to: str = ""  # admitted, but not bound yet: only this source will do

    @property
    def shape(self) -> PodShape:
        return self.pods[0].shape

    @property
    def terms(self) -> Terms:
        return self.pods[0].terms

    @property
    def wants_accelerator(self) -> bool:
        return any(name in names.ACCELERATORS for name, _ in self.shape.requests)

    @property
    def kind(self) -> tuple[object, ...]:
        """Items of one kind ask for the same room and differ only in how long they need it."""
        pod, terms = self.pods[0], self.pods[0].terms
        resumes = terms.checkpoint_every is not None
        return (
            id(pod.shape), pod.namespace, self.gated, self.pinned_to, len(self.pods),
            terms.overflow, terms.grace, terms.checkpoint_time, terms.expected is None, resumes,
        )  # fmt: skip

    @property
    def need(self) -> timedelta:
        """How long it needs its room, as far as it says; the longer of two of one kind is the harder to place."""
        return time_needed(self.terms, None)


def waiting(draft: Draft) -> list[Item]:
    """Everything that waits for a place, in the order it is served: priority, then age."""
    unbound = [pod for pod in draft.world.pods if not pod.node]
    items = [
        Item((pod,), None, pod.gated, pod.pinned_to) for pod in unbound if pod.gang is None and _waits(pod)
    ]
    gangs: dict[tuple[str, str], list[Pod]] = {
        (pod.namespace, pod.gang.name): [] for pod in unbound if pod.gang is not None
    }
    if gangs:
        for pod in draft.world.pods:
            if pod.gang is not None and (key := (pod.namespace, pod.gang.name)) in gangs:
                gangs[key].append(pod)
        for members in gangs.values():
            items.extend(_gang_item(draft, members))
    # What is admitted already comes first: its room was promised, and a pin cannot be taken back.
    items.sort(key=_turn)
    return items


def _turn(item: Item) -> tuple[bool, bool, int, datetime, str]:
    """Of a half-admitted gang, the admitted half before the rest."""
    first = item.pods[0]
    rest_of_gang = bool(item.pinned_to) and item.gated
    return (not item.pinned_to, rest_of_gang, -item.terms.priority, first.created_at, first.name)


def _waits(pod: Pod) -> bool:
    return (
        pod.phase is PodPhase.PENDING
        and not pod.node
        and pod.deleting_until is None
        and not pod.held_by_others
        and not pod.daemon
    )


def _gang_item(draft: Draft, members: list[Pod]) -> Iterable[Item]:
    """A gang that waits whole is one item; one that is broken is stopped, so that it can wait whole again.

    A member that is merely missing may have finished; only a fresh gated replacement proves a loss.
    """
    gang = members[0].gang
    assert gang is not None
    if any(pod.deleting_until is not None or pod.held_by_others for pod in members):
        for pod in members:
            if _waits(pod):
                draft.hold(pod, "gang", f"gang {gang.name} is being stopped, to start again whole")
        return
    gated = [pod for pod in members if pod.gated]
    if not gated:
        unbound = [pod for pod in members if _waits(pod)]
        if unbound:
            yield Item(tuple(unbound), gang, False, unbound[0].pinned_to)
        return
    if len(members) < gang.size:
        for pod in members:
            if _waits(pod):
                draft.hold(pod, "gang", f"gang {gang.name} has {len(members)} of its {gang.size} pods")
        return
    admitted = [pod for pod in members if not pod.gated]
    if not admitted:
        yield Item(tuple(sorted(members, key=lambda pod: pod.name)), gang, True)
        return
    if any(pod.started_at is not None for pod in admitted):
        stop_gang(draft, admitted, f"gang {gang.name} lost {len(gated)} of its {gang.size} pods")
        for pod in gated:
            draft.hold(pod, "gang", f"gang {gang.name} lost a member; the others are being stopped")
        return
    # Half admitted and nobody runs yet: the rest follows onto the same source, or all of it is rolled back.
    # The admitted half comes first, because its room is promised.
    unbound = [pod for pod in admitted if _waits(pod)]
    for half in (unbound, gated):
        if half:
            pods = tuple(sorted(half, key=lambda pod: pod.name))
            yield Item(pods, gang, half is gated, admitted[0].pinned_to)


def stop_gang(draft: Draft, pods: Iterable[Pod], reason: str) -> None:
    """Only pods that somebody will create again are deleted; the others are left, and said so."""
    for pod in pods:
        if not pod.workload:
            draft.warn(pod.full_name, f"{reason}, but nothing would create this pod again")
        elif pod.deleting_until is None:
            draft.do(Recreate(pod.uid, reason))


# --- time ---------------------------------------------------------------------------------------------


def expected_run(terms: Terms, pool: ComputePool | None) -> timedelta | None:
    """What the pod says, else the pool's default; None: no end is known."""
    if terms.expected is not None or pool is None:
        return terms.expected
    return pool.spec.default_duration


def time_needed(terms: Terms, pool: ComputePool | None) -> timedelta:
    """From a Ready node to the end of the work, or to the first checkpoint of a job that can resume."""
    run = expected_run(terms, pool)
    if terms.checkpoint_every is not None:
        to_checkpoint = terms.checkpoint_every + terms.checkpoint_time
        run = to_checkpoint if run is None else min(run, to_checkpoint)
    return POD_START + terms.load + (run or timedelta(0))


def useful_until(item: Item, end: End, pool: ComputePool) -> datetime | None:
    """When a source with this end would start to drain if this item ran there too."""
    if end.deadline is None:
        return None
    own = end.deadline - pod_lead(item.pods[0], checkpoint=pool.spec.drain.checkpoint)
    return min(own, end.drain_from) if end.drain_from is not None else own


def lasts(item: Item, end: End, pool: ComputePool, from_: datetime) -> bool:
    """Is there time enough for this item, starting on a Ready node at `from_`?"""
    until = useful_until(item, end, pool)
    return until is None or from_ + time_needed(item.terms, pool) <= until
