"""Checks of disruption budgets."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, joined, messages, pool

pytestmark = pytest.mark.requirement("PE-7")


def budget(fields: str) -> str:
    return joined(NODE_CLASS, pool(f"disruption: {{budgets: [{{{fields}}}]}}"))


@pytest.mark.parametrize(
    "fields", ["nodes: '0'", "nodes: '25%'", "nodes: '100%'", "schedule: '0 9 * * 1-5', duration: 8h"]
)
def test_accepts_valid_disruption_budgets(read: Reader, fields: str) -> None:
    assert messages(read(budget(fields))) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("nodes: many", "neither a number of nodes nor a percentage"),
        ("nodes: '110%'", "neither a number of nodes nor a percentage"),
        ("schedule: '0 9 * * 1-5'", "duration is missing"),
        ("duration: 8h", "schedule is missing"),
        ("schedule: '61 9 * * *', duration: 8h", "is not a cron line (bad minute)"),
        ("schedule: '@daily', duration: 8h", "it does not have five fields"),
        ("schedule: '0 0 30 2 *', duration: 8h", "is not a cron line"),
    ],
)
def test_refuses_invalid_disruption_budgets(read: Reader, fields: str, said: str) -> None:
    (problem,) = read(budget(fields)).problems
    assert (problem.code, problem.severity) == ("budget", "error")
    assert said in problem.message
