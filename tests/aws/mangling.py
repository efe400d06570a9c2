"""Answers of AWS with something wrong in them, and an AWS that gives them: for whoever must survive any."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

from tidemill.aws.errors import CallKind
from tidemill.aws.session import Aws, RateLimits

HOSTILE: tuple[Any, ...] = (
    None, "", " ", "\x00", "a\nb", "' OR 1=1 --", "../../etc/passwd", "<script>", "${jndi:ldap://x}", "💥" * 50,
    "x" * 100_000, 0, -1, 2**63, 1.5, float("nan"), float("inf"), True, False, [], {}, [None], {"Key": None},
    b"bytes", "NaN", "1e999",
    "cr-", "i-", "active ", "ACTIVE", "next-year", datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC),
    datetime(2026, 11, 16),  # noqa: DTZ001
)  # fmt: skip


class MangledAws(Aws):
    """Answers from a table instead of the network. `named` finds the key of a call among several of one operation."""

    def __init__(self, answers: dict[str, Any], named: Callable[[str, list[str]], str]) -> None:
        super().__init__("us-east-1", rate_limits=RateLimits(sleep=lambda _: None))
        self.answers, self._named = answers, named
        self.changes: list[str] = []

    def call(self, service: str, operation: str, kind: CallKind, **given: Any) -> dict[str, Any]:
        if kind not in (CallKind.READ, CallKind.QUESTION):
            self.changes.append(operation)
        filters = [one["Name"] for one in given.get("Filters", ())]
        answer: dict[str, Any] = self.answers[self._named(operation, filters)]
        return answer


def mangle(draw: Random, answer: Any) -> None:
    """One to three things in it are wrong afterwards."""
    for _ in range(draw.randint(1, 3)):
        there = places(answer)
        if not there:
            break
        container, key = draw.choice(there)
        if isinstance(container, dict) and draw.random() < 0.3:
            del container[key]
        else:
            container[key] = copy.deepcopy(draw.choice(HOSTILE))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += [(value, key), *places(inner)]
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += [(value, index), *places(inner)]
    return found
