"""Labels, selectors, taints and tolerations, with Kubernetes' meaning, in a form that hashes."""

from __future__ import annotations

from dataclasses import dataclass

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """`key` empty with operator Exists tolerates everything; `effect` empty matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on a label: In, NotIn, Exists, DoesNotExist, Gt, Lt (the last two on nodes only)."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()


# Expressions that must all hold. An empty one holds for everything.
Selector = tuple[Expression, ...]
