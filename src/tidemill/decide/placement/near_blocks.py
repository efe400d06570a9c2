"""Limits that a paid block needs soon: no node by the hour is launched for work that would keep its nodes out.

Nodes by the hour make way for a block that is delivered (`disruption.make_way`), but not under work that would start
over, that must not be disturbed, or that is a gang: it finishes first. Where the pool's limits do not hold the nodes of
a paid block beside such work, and it would stay longer beyond the start of the block than it waits for it, it waits. At
most two hours: a block that starts later is no reason to let work stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import BOOT, CandidateNode, Candidates
from tidemill.decide.placement.packing import Packing
from tidemill.decide.placement.pool_explanation import coming, end_of
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.queue_item import QueueItem, expected_run, finished_at, lasts
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import PREPAID, Reservation, ReservationState
from tidemill.model.pods import Pod
from tidemill.model.resources import Resources
from tidemill.spec.compute_pool import Allowance

NEAR = timedelta(hours=2)


def waiting_for_blocks(
    context: DecisionContext, packing: Packing, candidates: Candidates, nodes: Mapping[int, CandidateNode]
) -> dict[QueueItem, tuple[datetime, str]]:
    """Those of the items on these new nodes by the hour that wait for a block instead: from when it has nodes, and
    its id."""
    found: dict[QueueItem, tuple[datetime, str]] = {}
    for template in context.templates.values():
        if not any(template.overflow.values()):
            continue
        near = [one for one in coming(context, template) if _is_near(context, one)]
        if near:
            found.update(_of_pool(context, packing, candidates, nodes, template, near))
    return found


def _is_near(context: DecisionContext, one: Reservation) -> bool:
    return one.state is ReservationState.SCHEDULED and context.now < one.start <= context.now + NEAR


def _of_pool(
    context: DecisionContext, packing: Packing, candidates: Candidates, nodes: Mapping[int, CandidateNode],
    template: PoolTemplate, near: list[Reservation],
) -> Iterator[tuple[QueueItem, tuple[datetime, str]]]:  # fmt: skip
    """Nodes in the order of the queue: what the limits hold beside the blocks is launched."""
    first = min(near, key=lambda one: (one.start, one.id))
    left = Allowance.of(template.pool.spec.limits)
    for one in near:
        left.take(template.kinds[one.instance_type], one.count)
    for view in context.views:
        if (
            view.facts.template is template
            and view.facts.kind is not None
            and _stays(context, view, first.start)
        ):
            left.take(view.facts.kind)
    users: dict[int, list[QueueItem]] = {}
    for placement in packing.placements:
        for node in placement.nodes:
            if id(node) in nodes and node.group.template is template:
                users.setdefault(id(node), []).append(placement.item)
    for key, items in users.items():
        option = nodes[key].option
        assert option is not None
        if not any(_outlasts(context, item, template, first.start) for item in items):
            continue  # it goes, or moves, when the block is there
        if not left.allows(option.kind) and all(
            _could_use(context, item, template, first, candidates) for item in items
        ):
            yield from ((item, (first.start + BOOT, first.id)) for item in items)
        else:
            left.take(option.kind)


def _stays(context: DecisionContext, view: NodeView, at: datetime) -> bool:
    """Whether the node is there then, and nothing makes it go."""
    if view.ending or view.phase is Phase.DRAINING:
        return False
    if view.source.kind in PREPAID:
        return view.deadline is None or view.deadline > at
    return any(_pod_stays(context, pod, view, at) for pod in view.pods)


def _pod_stays(context: DecisionContext, pod: Pod, view: NodeView, at: datetime) -> bool:
    if pod.terms.do_not_disrupt or not pod.of_job:
        return True
    if pod.terms.checkpoint_every is not None and pod.gang is None:
        return False
    end = finished_at(pod, view.pool, context.now)
    return end is None or end > at


def _outlasts(context: DecisionContext, item: QueueItem, template: PoolTemplate, start: datetime) -> bool:
    """It cannot move, and would be there longer after the start than it would wait for it."""
    terms = item.terms
    if terms.checkpoint_every is not None and item.gang is None and not terms.do_not_disrupt:
        return False
    run = expected_run(terms, template.pool)
    wait = max(start - context.now, 2 * BOOT)
    return run is None or context.now + BOOT + terms.load + run - start > wait


def _could_use(
    context: DecisionContext, item: QueueItem, template: PoolTemplate, block: Reservation, candidates: Candidates
) -> bool:  # fmt: skip
    kind, pool = template.kinds[block.instance_type], template.pool
    labels = template.labels(block.source, kind, block.zone)
    free = kind.free_beside(candidates.daemons[pool.name])
    return (
        item.gated
        and not item.pinned_to
        and len(item.pods) <= block.count
        and _fits(free, (shape.requests for shape in item.shapes))
        and all(admits(shape, labels, template.taints) for shape in item.shapes)
        and lasts(item, end_of(block, pool), pool, block.start + BOOT)
    )


def _fits(free: Mapping[str, int], requests: Iterable[tuple[tuple[str, int], ...]]) -> bool:
    room = Resources(free)
    return all(room.fits(each) for each in requests)
