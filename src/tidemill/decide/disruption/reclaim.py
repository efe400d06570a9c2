"""Nodes that are no longer wanted: empty ones, ones their pool would not launch any more, and ones it could do without.

Prepaid nodes stay while their reservation lives, unless the pool says otherwise: taking them down saves
nothing. Voluntary disruption never touches a pod marked do-not-disrupt, and keeps to the pool's budgets.
"""

from __future__ import annotations

from tidemill.decide.context import Draft, Life
from tidemill.decide.disruption.budgets import Disruptions, idle_since
from tidemill.decide.disruption.consolidation import consolidate
from tidemill.decide.disruption.drift import replace_drifted
from tidemill.decide.launches import InFlight
from tidemill.decide.nodes import Phase
from tidemill.decide.overflow import PREPAID
from tidemill.model.plan import StartDrain
from tidemill.spec.units import format_duration


def reclaim(draft: Draft, in_flight: InFlight) -> None:
    disruptions = Disruptions(draft)
    staying = [
        life
        for life in draft.lives
        if life.phase is Phase.READY
        and not life.ending
        and life.facts.template is not None
        and not life.facts.template.by_karpenter  # one who consolidates is enough
    ]
    replace_drifted(draft, in_flight, disruptions)
    consolidate(draft, in_flight, disruptions)
    empty = [
        life
        for life in staying
        if not life.pods and not life.reserved and not life.ending and life.facts.drift is None
    ]
    for life in sorted(empty, key=lambda life: (idle_since(life), life.node.name)):
        _drop_empty(draft, life, disruptions)


def _drop_empty(draft: Draft, life: Life, disruptions: Disruptions) -> None:
    """The timer restarts whenever a pod comes or goes; daemon pods do not count."""
    assert life.pool is not None
    disruption = life.pool.spec.disruption
    if disruption.consolidation_policy == "Never":
        return
    if life.source.kind in PREPAID and not _may_give_back(draft, life):
        return
    since = idle_since(life)
    due = since + disruption.consolidate_after
    if draft.now < due:
        draft.wake(due)
        return
    if disruptions.left(life.pool, "Empty") < 1:
        return
    life.ending = True
    idle = format_duration(draft.now - since)
    draft.do(StartDrain(life.node.name, f"empty for {idle}"))


def _may_give_back(draft: Draft, life: Life) -> bool:
    """Prepaid nodes stay, unless the pool says otherwise or another pool may want the slot."""
    assert life.pool is not None
    reservation = draft.reservations.get(life.source.id)
    if reservation is not None and draft.shared(reservation):
        return True
    return life.pool.spec.disruption.consolidate_blocks and _beyond_warm(draft, life)


def _beyond_warm(draft: Draft, life: Life) -> bool:
    """More nodes than the pool keeps warm: giving back one of those would only launch it again."""
    assert life.pool is not None
    warm = life.pool.spec.kept_warm
    if isinstance(warm, bool):
        return not warm
    staying = sum(
        other.facts.template is life.facts.template and other.source.kind in PREPAID and not other.ending
        for other in draft.lives
    )
    return staying > warm
