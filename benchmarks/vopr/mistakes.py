"""Puts one mistake into documents, as people make them: a wrong name, unit, key or number.

Such documents must be refused with an error that has a place, or be rehearsed as they are; never with a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from benchmarks.vopr.draw import Draw, Json

ODD_VALUES: tuple[Any, ...] = (
    None, "", 0, -1, 1, 2**63, 10**30, 1.5, float("inf"), True, [], {}, "0s", "5", "1h", "200y", "99999999d", "yes",
    "2026-02-30T00:00:00Z", "2026-11-16", "p5.48xlarge", "nowhere", "us-east-9z", "ü\u0000\u202e", "x" * 300, ["a"],
    {"a": 1}, "1e3Gi", "-5", "100%", "101%",
)  # fmt: skip


def with_mistake(draw: Draw, documents: list[Json]) -> list[Json]:
    wrong = deepcopy(documents)
    for _ in range(draw.of((1, 6), (3, 1))):
        holder, key = draw.choice(list(_places(wrong)))
        kind = draw.of(("remove", 3), ("odd", 5), ("rename", 2), ("copy", 2), ("swap", 2))
        if kind == "remove":
            del holder[key]
        elif kind == "odd":
            holder[key] = deepcopy(draw.choice(ODD_VALUES))
        elif kind == "rename" and isinstance(holder, dict):
            holder[f"{key}s" if draw.chance(0.5) else str(key).lower()] = holder.pop(key)
        elif kind == "copy" and isinstance(holder, list):
            holder.append(deepcopy(holder[key]))
        else:  # a value from somewhere else in the documents
            other, name = draw.choice(list(_places(wrong)))
            holder[key] = deepcopy(other[name])
    return wrong


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in the documents, as its holder and key."""
    keys: Any = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _places(tree[key])
