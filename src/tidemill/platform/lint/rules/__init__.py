"""The rules of the linter, one module for each kind of file. A rule is a function from everything that was read to
findings; no rule stops another. What a rule says of a fact is in `spec.traps`, which `validate` and the importers use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemill.platform.lint.finding import Finding
from tidemill.platform.lint.inventory import Inventory
from tidemill.platform.lint.rules import charts, documents, karpenter, stacks, texts, workloads

Rule = Callable[[Inventory], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    documents.documents_of_ours,
    karpenter.reservations_are_selected_by_tags,
    karpenter.block_nodes_are_drained_in_time,
    karpenter.block_nodes_stay,
    karpenter.images_are_pinned,
    karpenter.pools_have_limits,
    karpenter.cpu_limits_are_whole_nodes,
    karpenter.ultraservers_are_drained_in_time,
    karpenter.blocks_are_told_apart,
    workloads.pods_are_not_pinned_to_a_reservation,
    workloads.nodes_that_work_together_have_efa,
    workloads.checkpoints_outlive_their_node,
    charts.device_plugin_leaves_efa_alone,
    charts.bottlerocket_has_one_device_plugin,
    charts.no_replicas_means_none,
    charts.templates_keep_zero,
    stacks.groups_are_in_the_zone_of_their_block,
    stacks.efa_groups_allow_themselves,
    stacks.selected_groups_allow_themselves,
    stacks.stack_images_are_pinned,
    stacks.stack_ultraservers_are_drained_in_time,
    texts.durations_are_sold,
    texts.redis_with_tls_is_asked_with_tls,
)
