"""Rules across documents and the catalog: what no single model can judge alone.

Each rule is a function from everything that was written to problems; none stops another. A document whose
own model refused it takes part by name only. Errors are what cannot work or would spend money unguarded;
warnings are the traps people fall into, by the id they are documented under.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.catalog import Catalog
from tidemill.spec.check import (
    calendar,
    demand_calendar,
    handover,
    karpenter,
    naming,
    node_classes,
    overlap,
    pools,
    scenario,
    workloads,
    zones,
)
from tidemill.spec.check.market import Shelf
from tidemill.spec.located import Heading, Written
from tidemill.spec.model import Document
from tidemill.spec.problem import Problem

RULES = (
    naming.names_are_unique,
    naming.one_platform_and_one_scenario,
    node_classes.images_are_pinned,
    node_classes.images_are_known,
    node_classes.drivers_are_new_enough,
    pools.node_class_exists,
    pools.instance_types_exist,
    pools.sources_make_sense,
    pools.overflow_is_capped,
    pools.limits_are_set,
    pools.budgets_can_be_kept,
    pools.cpu_limit_is_whole_nodes,
    pools.prepaid_nodes_stay,
    pools.nodes_may_set_their_labels,
    karpenter.karpenter_knows_blocks,
    karpenter.ultraservers_are_drained_in_time,
    karpenter.blocks_are_told_apart,
    calendar.plans_feed_a_block_pool,
    calendar.windows_can_be_bought,
    calendar.window_names_are_unique,
    calendar.dates_are_not_overbooked,
    handover.windows_leave_time_to_move,
    demand_calendar.calendars_can_be_bought,
    demand_calendar.pools_have_one_calendar,
    demand_calendar.hours_on_demand_have_a_source,
    demand_calendar.calendars_are_where_subnets_are,
    scenario.reservations_could_exist,
    scenario.extensions_could_be_bought,
    scenario.rolls_name_a_node_class,
    scenario.decisions_name_a_window,
    scenario.workload_names_are_unique,
    scenario.checkpoints_outlive_their_node,
    scenario.services_can_keep_their_minimum,
    overlap.hand_overs_have_time,
    scenario.faults_hit_something,
    workloads.lines_are_reached,
    workloads.windows_are_not_over,
    workloads.blocks_outlast_their_drain,
    workloads.crashes_have_a_step,
    zones.platform_has_subnets,
    zones.subnets_are_in_one_zone,
    zones.capacity_is_where_subnets_are,
)


def check(
    documents: Sequence[Written[Document]], headings: Sequence[Heading], catalog: Catalog
) -> Iterator[Problem]:
    shelf = Shelf(tuple(documents), tuple(headings), catalog)
    for rule in RULES:
        yield from rule(shelf)
