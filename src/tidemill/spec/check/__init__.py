"""Rules across documents and the catalog: what no single model can check alone.

Each rule is a function from all documents to problems; no rule stops another. A document that its own model refused
takes part by name only. Errors are for what cannot work or would spend money without a limit; warnings are for known
traps, with the id under which each trap is documented.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.catalog import Catalog
from tidemill.spec.check import plans, platform, pools, scenario, usable_plans
from tidemill.spec.check.document_set import DocumentSet, Heading, LocatedDocument
from tidemill.spec.document import Document
from tidemill.spec.problem import Problem

RULES = (
    platform.names_are_unique,
    platform.one_platform_and_one_scenario,
    pools.images_are_pinned,
    pools.images_are_known,
    pools.drivers_are_new_enough,
    pools.node_class_exists,
    pools.instance_types_exist,
    pools.sources_make_sense,
    pools.overflow_is_capped,
    pools.limits_are_set,
    pools.budgets_can_be_kept,
    pools.cpu_limit_is_whole_nodes,
    pools.prepaid_nodes_stay,
    pools.nodes_may_set_their_labels,
    pools.replicas_of_several_nodes_have_efa,
    pools.admitted_pods_have_their_own_nodes,
    pools.karpenter_knows_blocks,
    pools.ultraservers_are_drained_in_time,
    pools.blocks_are_told_apart,
    usable_plans.plans_feed_a_block_pool,
    usable_plans.demand_fits_the_limits,
    usable_plans.windows_are_not_written_twice,
    plans.windows_can_be_bought,
    plans.window_names_are_unique,
    plans.dates_are_not_overbooked,
    plans.windows_leave_time_to_move,
    plans.calendars_can_be_bought,
    plans.pools_have_one_calendar,
    plans.hours_on_demand_have_a_source,
    plans.calendars_are_where_subnets_are,
    scenario.reservations_could_exist,
    scenario.limits_hold_their_blocks,
    scenario.extensions_could_be_bought,
    scenario.rolls_name_a_node_class,
    scenario.decisions_name_a_window,
    scenario.workload_names_are_unique,
    scenario.checkpoints_outlive_their_node,
    scenario.multi_node_jobs_have_efa,
    scenario.services_can_keep_their_minimum,
    scenario.hand_overs_have_time,
    scenario.faults_hit_something,
    scenario.lines_are_reached,
    scenario.windows_are_not_over,
    scenario.blocks_outlast_their_drain,
    scenario.crashes_have_a_step,
    platform.limited_namespaces_are_served,
    platform.platform_has_subnets,
    platform.subnets_are_in_one_zone,
    platform.capacity_is_where_subnets_are,
)


def check(
    documents: Sequence[LocatedDocument[Document]], headings: Sequence[Heading], catalog: Catalog
) -> Iterator[Problem]:
    document_set = DocumentSet(tuple(documents), tuple(headings), catalog)
    for rule in RULES:
        yield from rule(document_set)
