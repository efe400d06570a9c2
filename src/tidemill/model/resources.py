"""Amounts of resources: cpu in milli, memory in bytes, everything else counted."""

from __future__ import annotations

# Resource name -> amount in base units (cpu in milli, memory in bytes, everything else counted), sorted by
# name. A tuple and not a dict, so that shapes hash and equal shapes are one class.
Amounts = tuple[tuple[str, int], ...]


def amount(amounts: Amounts, name: str) -> int:
    """How much of `name` there is; 0 when it is not listed."""
    for key, value in amounts:
        if key == name:
            return value
    return 0
