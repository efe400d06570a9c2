"""Sentence templates: `{field}` stands for a field of the reason, written the way people read its type.

`{count:node}` counts: "1 node", "3 nodes". Instants are UTC with a Z, durations like 1h30m, money like $1,234.50.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from tidemill.spec.units import format_cpu, format_duration, format_instant, format_memory

R = TypeVar("R")
# For each kind its template, or a function where a template cannot say it.
Sentence = str | Callable[[R], str]


class _Counted(int):
    def __format__(self, noun: str) -> str:
        return str(int(self)) if not noun else f"{int(self)} {noun}" if self == 1 else f"{int(self)} {noun}s"


class _Fields(dict[str, object]):
    def __init__(self, reason: object) -> None:
        super().__init__()
        self._reason = reason

    def __missing__(self, name: str) -> object:
        return _written(getattr(self._reason, name))


def _written(value: object) -> object:
    match value:
        case None:  # such as a fact that could not be read from an annotation
            return "(unknown)"
        case datetime():
            return format_instant(value.replace(microsecond=0))
        case timedelta():
            return format_duration(value)
        case float():
            return f"${value:,.2f}"
        case int():
            return _Counted(value)
        case tuple():
            return ", ".join(str(entry) for entry in value)
        case _:
            return value


def fill(sentence: Sentence[R], reason: R) -> str:
    return sentence.format_map(_Fields(reason)) if isinstance(sentence, str) else sentence(reason)


def amounts(requests: tuple[tuple[str, int], ...]) -> str:
    """`8 nvidia.com/gpu, 32 cpu, 256Gi memory`."""
    units: Mapping[str, Callable[[int], str]] = {"cpu": format_cpu, "memory": format_memory}
    return ", ".join(f"{units.get(name, str)(value)} {name}" for name, value in requests if value)


def listed(names: tuple[str, ...]) -> str:
    return " and ".join(names)
