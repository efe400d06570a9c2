"""What the checker says of a rule that is broken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str  # the rule: "resources", "taint", "spread", "gang", …
    sentence: str
    objects: tuple[str, ...] = ()  # the pods, nodes, gangs, stocks or budgets concerned
