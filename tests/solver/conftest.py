"""Tests that state a rule the solver does not keep yet. A name leaves this list when it passes."""

from __future__ import annotations

import pytest

NOT_YET = frozenset(
    [
        "test_pods_that_want_their_own_kind_go_where_all_of_them_find_room",
    ]
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        names = {item.name, item.name.partition("[")[0]}  # with and without the parameter
        if "/solver/" in item.nodeid and names & NOT_YET:
            quick = "test_properties" not in item.nodeid  # a failing property takes a minute to shrink
            reason = "the solver does not keep this rule yet"
            item.add_marker(pytest.mark.xfail(strict=False, run=quick, reason=reason))
