"""Pools that are left to Karpenter: whether the Karpenter that is there can do what they ask of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import combinations

from tidemill.spec.check.market import Shelf
from tidemill.spec.compute_pool import ComputePool, Provisioner, matching_types
from tidemill.spec.located import Written
from tidemill.spec.platform import KARPENTER_CAPACITY_BLOCKS, KARPENTER_SEVERAL_BLOCKS, KarpenterRef, Platform
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.scenario import Scenario


def karpenter_knows_blocks(shelf: Shelf) -> Iterator[Problem]:
    """KP-5: an older one would not fail; it would launch on-demand nodes beside blocks that are paid for."""
    pools = [pool for pool in _pools(shelf) if _uses_blocks(pool)]
    for platform in shelf.all(Platform) if pools else ():
        own = platform.model.spec.karpenter
        if own is None or not (own.version or own.auto_mode):
            message = (
                f"pool {quoted(pools[0].name)} is left to Karpenter, and which one runs in the cluster is not said;"
                " set karpenter.version (1.6 is the oldest that knows blocks) or karpenter.autoMode"
            )
            yield platform.warning(("karpenter",), message, "karpenter")
        elif not own.supports(KARPENTER_CAPACITY_BLOCKS):
            message = (
                f"Karpenter {own.version} knows nothing of Capacity Blocks: 1.6 is the oldest that does;"
                " upgrade it, or use another provisioner"
            )
            yield platform.error(("karpenter", "version"), message, "karpenter")


def ultraservers_are_drained_in_time(shelf: Shelf) -> Iterator[Problem]:
    for pool in _pools(shelf):
        kinds = matching_types(shelf.catalog, pool.model.spec.requirements)
        if _uses_blocks(pool) and any(kind.ultraserver for kind in kinds):
            yield pool.warning(
                ("provisioner",),
                "Karpenter drains 40 minutes before a block's end, and EC2 takes UltraServers 60 minutes before it:"
                " while the engine is away their pods are killed; use 'native' or 'asg'",
                "TR-14",
            )


def blocks_are_told_apart(shelf: Shelf) -> Iterator[Problem]:
    """TR-15: before 1.8 the second of two blocks of one type and zone under one tag is not seen."""
    own = next((each.model.spec.karpenter for each in shelf.all(Platform)), None)
    if own is None or own.supports(KARPENTER_SEVERAL_BLOCKS) or not own.supports(KARPENTER_CAPACITY_BLOCKS):
        return
    for pool in _pools(shelf):
        by_tag = any(source.type == "block" and not source.ids for source in pool.model.spec.sources)
        if by_tag and _overlap(shelf, pool.name):
            yield pool.warning(("sources",), _told_apart(own, pool.name), "TR-15")


def _told_apart(own: KarpenterRef, pool: str) -> str:
    return (
        f"pool {quoted(pool)} will have two blocks of one type at once, which hide each other under one tag before"
        f" Karpenter 1.8 (here {own.version}): upgrade it; until then each block is selected by its id"
    )


def _overlap(shelf: Shelf, pool: str) -> bool:
    """Two blocks of one type that live at the same time: planned, or in the scenario."""
    planned = [
        (window.instance_type, window.start - plan.model.spec.overlap, window.end)
        for plan, _, window in shelf.windows()
        if plan.model.spec.pool == pool
    ]
    owned = [
        (
            one.instance_type,
            scenario.model.spec.start + one.start,
            scenario.model.spec.start + one.start + one.duration,
        )
        for scenario in shelf.all(Scenario)
        for one in scenario.model.spec.reservations
        if one.type == "block" and one.pool in ("", pool) and one.duration is not None
    ]
    return any(_meet(one, other) for one, other in combinations([*planned, *owned], 2))


def _meet(one: tuple[str, datetime, datetime], other: tuple[str, datetime, datetime]) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _pools(shelf: Shelf) -> list[Written[ComputePool]]:
    return [pool for pool in shelf.all(ComputePool) if pool.model.spec.provisioner is Provisioner.KARPENTER]


def _uses_blocks(pool: Written[ComputePool]) -> bool:
    return any(source.type == "block" for source in pool.model.spec.sources)
