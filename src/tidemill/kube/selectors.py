"""Label selectors as the API has them: of budgets over pods, of affinity terms over namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tidemill.kube.objects import LabelSelector

Labels = Mapping[str, str]
# No namespace has this name: a selector that selects none does not mean the pod's own.
NO_NAMESPACE = "(none)"


def matches(selector: LabelSelector, labels: Labels) -> bool:
    """An empty selector selects everything. An operator that nobody knows is taken to hold: a budget
    that may be over a pod is over it."""
    for key, value in (selector.match_labels or {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.match_expressions or ():
        values = rule.values or ()
        if rule.operator == "In" and labels.get(rule.key) not in values:
            return False
        if rule.operator == "NotIn" and labels.get(rule.key) in values:
            return False
        if rule.operator == "Exists" and rule.key not in labels:
            return False
        if rule.operator == "DoesNotExist" and rule.key in labels:
            return False
    return True


def with_namespaces(affinity: Any, namespaces: Mapping[str, Labels]) -> tuple[Any, bool]:
    """With every namespaceSelector replaced by the namespaces it selects now; and whether there was one."""
    found = False
    if isinstance(affinity, dict):
        affinity = {**affinity}
        for kind in ("podAffinity", "podAntiAffinity"):
            for when, terms in dict(affinity.get(kind) or {}).items():
                named = [_named(term, namespaces) for term in terms or ()]
                found = found or any(there for _, there in named)
                affinity[kind] = {**affinity[kind], when: [term for term, _ in named]}
    return affinity, found


def _named(term: Any, namespaces: Mapping[str, Labels]) -> tuple[Any, bool]:
    """Of a required term, or of a preferred one around it."""
    if "podAffinityTerm" in term:
        inner, found = _named(term["podAffinityTerm"], namespaces)
        return {**term, "podAffinityTerm": inner}, found
    if term.get("namespaceSelector") is None:
        return term, False
    selector = msgspec.convert(term["namespaceSelector"], LabelSelector)
    chosen = {*(term.get("namespaces") or ()), *_selected(selector, namespaces)}
    kept = {key: value for key, value in term.items() if key != "namespaceSelector"}
    return {**kept, "namespaces": sorted(chosen) or [NO_NAMESPACE]}, True


def _selected(selector: LabelSelector, namespaces: Mapping[str, Labels]) -> Iterator[str]:
    return (name for name, labels in namespaces.items() if matches(selector, labels))
