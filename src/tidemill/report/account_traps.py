"""What will go wrong in an account as it stands, each with what to do about it: the rules, the worst first. Pure.

About things that exist, whoever made them; traps in documents are found by `spec.check`. What could not be read is not
judged. Codes are stable: those of the requirements where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemill.catalog import Catalog
from tidemill.report import block_traps, group_traps
from tidemill.report.survey import Survey
from tidemill.report.trap import Scene, Trap

RULES: tuple[Callable[[Scene], Iterator[Trap]], ...] = (
    block_traps.payments_are_open,
    group_traps.groups_outlive_their_block,
    group_traps.groups_have_lost_their_block,
    group_traps.groups_launch_beside_the_block,
    group_traps.subnets_are_outside_the_zone,
    group_traps.hooks_are_cut_short,
    group_traps.eks_action_is_behind,
    block_traps.karpenter_is_too_late,
    block_traps.machines_have_nobody,
    block_traps.extensions_are_open,
    block_traps.blocks_end_without_a_successor,
    block_traps.blocks_idle,
)


def traps(survey: Survey, catalog: Catalog) -> tuple[Trap, ...]:
    scene = Scene(survey, catalog)
    return tuple(trap for rule in RULES for trap in rule(scene))
