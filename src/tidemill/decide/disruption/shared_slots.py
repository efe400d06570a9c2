"""Idle nodes of prepaid capacity that several pools may use: which of them give their slot to another pool.

An idle node costs nothing there, and the next job of its pool starts on it at once. In another pool's node its slot
costs a boot and the minutes in which EC2 cleans it. So a node goes only for a pool that needs the slot: one whose pods
wait and get no node of their own as soon, one that has neither a node nor a free slot, or one whose services will come.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import ceil, inf

from tidemill.decide.context import DecisionContext
from tidemill.decide.disruption.consolidation_moves import is_replica
from tidemill.decide.disruption.make_way import under_way
from tidemill.decide.launches import InFlight
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import BOOT
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.queue_item import QueueItem, finished_at, lasts
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import Reservation

# What a slot that changes hands costs who waits: EC2 cleans it for some minutes, then a node boots.
_SWAP = 2 * BOOT
# So many that wait are looked at: more than the idle nodes of a block could serve.
_MOST_ITEMS = 200


class SharedSlots:
    """The idle nodes and who wants their slots, in one decision. Nodes that this plan ends are marked and counted."""

    def __init__(self, context: DecisionContext, in_flight: InFlight) -> None:
        self._context = context
        self._under_way = under_way(context, in_flight)
        self._users: dict[str, list[PoolTemplate]] = {}
        self._wanted: dict[
            tuple[str, str], float
        ] = {}  # slots, by reservation and the pool that has the node

    def is_wanted(self, view: NodeView, reservation: Reservation) -> bool:
        """Whether this idle node has to go for another pool."""
        own = view.facts.pool_name
        key = (reservation.id, own)
        if key not in self._wanted:
            self._wanted[key] = self._wanted_by_others(reservation, own)
        return self._wanted[key] > self._room(reservation)

    def _room(self, reservation: Reservation) -> int:
        """Slots that are free, or will be as nodes end and EC2 cleans up after them."""
        staying = sum(not view.ending and view.phase is not Phase.DRAINING for view in self._on(reservation))
        staying += sum(count for intent, count in self._under_way if intent.source == reservation.source)
        staying += sum(
            node.instance is not None and node.instance.source == reservation.source
            for node in self._context.strangers
        )
        return reservation.count - staying

    def _on(self, reservation: Reservation) -> Iterator[NodeView]:
        for (_, _, source), group in self._context.table.groups.items():
            if source == reservation.source:
                yield from group.views

    def _wanted_by_others(self, reservation: Reservation, own: str) -> float:
        others = [one for one in self._pools_of(reservation) if one.pool.name != own]
        if any(self._will_come(template, reservation) for template in others):
            return inf
        present = {view.facts.pool_name for view in self._on(reservation) if not view.ending}
        present |= {intent.pool for intent, _ in self._under_way if intent.source == reservation.source}
        absent = sum(template.pool.name not in present for template in others)
        return max(min(absent, 1), sum(self._slots_waited_for(one, reservation) for one in others))

    def _pools_of(self, reservation: Reservation) -> list[PoolTemplate]:
        if reservation.id not in self._users:
            self._users[reservation.id] = [
                template
                for template in self._context.templates.values()
                if reservation.instance_type in template.kinds
                and any(
                    reservation in usable_reservations(self._context, template.pool, source)
                    for source in template.pool.spec.sources
                    if source.type == reservation.kind.value
                )
            ]
        return self._users[reservation.id]

    def _will_come(self, template: PoolTemplate, reservation: Reservation) -> bool:
        """It has replicas of a service on a source that ends: they may need these slots, and must not wait for them."""
        return any(
            view.deadline is not None and any(is_replica(pod) for pod in view.pods)
            for view in self._context.views
            if view.facts.template is template and view.source != reservation.source
        )

    def _slots_waited_for(self, template: PoolTemplate, reservation: Reservation) -> int:
        """How many nodes of the pool its waiting pods need beyond those that come free for them as soon as a new one
        could be there."""
        context, pool = self._context, template.pool
        kind = template.kinds[reservation.instance_type]
        labels = template.labels(reservation.source, kind, reservation.zone)
        end = context.end_of(reservation.source, pool.name, pool.spec.provisioner)
        room, shares = dict(kind.allocatable), 0.0
        for item in context.waiting[:_MOST_ITEMS]:
            if (
                item in context.placed_items
                or item.pinned_to not in ("", reservation.source.label)
                or not template.accepts(
                    reservation.kind, item.pods[0].namespace, overflow=item.terms.overflow
                )
                or not all(admits(shape, labels, template.taints) for shape in item.shapes)
                or not lasts(item, end, pool, context.now + _SWAP)
            ):
                continue
            each = _shares(item, room)
            if max(each) <= 1:
                shares += sum(each)
        return ceil(shares) - self._soon_free(template, reservation) if shares else 0

    def _soon_free(self, template: PoolTemplate, reservation: Reservation) -> int:
        context, found = self._context, 0
        for view in self._on(reservation):
            if view.facts.template is not template or view.ending or not view.pods:
                continue
            ends = [pod.deleting_until or finished_at(pod, template.pool, context.now) for pod in view.pods]
            known: list[datetime] = [end for end in ends if end is not None]
            if len(known) == len(ends) and max(known) <= context.now + _SWAP:
                found += 1
                context.wake(max(known))  # not free then: its slot has to come from another
        return found


def _shares(item: QueueItem, room: dict[str, int]) -> list[float]:
    """What part of a node each pod of it takes; infinite: it does not fit on one."""
    return [
        max((amount / room.get(name, 0) if room.get(name) else inf for name, amount in shape.requests if amount),
            default=0.0)
        for shape in item.shapes
    ]  # fmt: skip
