"""Deployments, StatefulSets and PodDisruptionBudgets in the engine's words: pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.kube.objects import BudgetObject, ServiceObject, Strategy
from tidemill.kube.pods import workload_name
from tidemill.kube.selectors import Labels, matches
from tidemill.kube.templates import Template
from tidemill.model.pods import DisruptionBudget, Method, Workload
from tidemill.spec import names

_QUARTER = "25%"  # Kubernetes' default of a Deployment's surge and unavailable


def workload_of_service(kind: str, one: ServiceObject, template: Template) -> Workload:
    meta, spec, status = one.metadata, one.spec, one.status
    of_template = spec.template.metadata
    own = {**(meta.labels or {}), **(meta.annotations or {})}
    said = {**own, **(of_template.labels or {}), **(of_template.annotations or {})}
    replicas = 1 if spec.replicas is None else max(0, spec.replicas)
    surge, unavailable = _pace(kind, spec.strategy or spec.update_strategy, replicas)
    method = said.get(names.HANDOVER, "")
    minimum = said.get(names.MIN_AVAILABLE, "")
    return Workload(
        name=workload_name(kind, meta.namespace, meta.name),
        namespace=meta.namespace,
        replicas=replicas,
        ready=max(0, status.ready_replicas),
        shape=template.shape,
        terms=template.terms,
        method=Method(method) if method in Method.__members__.values() else None,
        min_available=_share(minimum, replicas, up=True) if minimum else None,
        max_surge=surge,
        max_unavailable=unavailable,
        may_scale=said.get(names.MAY_SCALE) == "true",
        pair=_pair(said.get(names.HANDOVER_PAIR, ""), meta.namespace),
        added=_count(own.get(names.ADDED_REPLICAS, "")),
        restarted_for=(of_template.annotations or {}).get(names.RESTARTED_FOR, ""),
        rolling=_rolling(one),
    )


def _pace(kind: str, strategy: Strategy | None, replicas: int) -> tuple[int, int]:
    """How many more, and how many fewer, pods a rolling update may have meanwhile."""
    rolling = strategy.rolling_update if strategy is not None else None
    if kind == "StatefulSet":
        asked = rolling.max_unavailable if rolling is not None else None
        return 0, max(1, _share(1 if asked is None else asked, replicas, up=True))
    if strategy is not None and strategy.type == "Recreate":
        return 0, replicas
    surge = rolling.max_surge if rolling is not None and rolling.max_surge is not None else _QUARTER
    away = (
        rolling.max_unavailable if rolling is not None and rolling.max_unavailable is not None else _QUARTER
    )
    most, fewest = _share(surge, replicas, up=True), _share(away, replicas, up=False)
    return most, fewest if most or fewest else 1


def _share(written: int | str, replicas: int, *, up: bool) -> int:
    """A number, or a share of the replicas."""
    text = str(written)
    if not text.endswith("%"):
        return _count(text)
    share = replicas * _count(text[:-1])
    return -(-share // 100) if up else share // 100


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _pair(written: str, namespace: str) -> str:
    """`StatefulSet/chat-green` of the same namespace."""
    kind, _, name = written.partition("/")
    return workload_name(kind, namespace, name) if name and "/" not in name else written


def _rolling(one: ServiceObject) -> bool:
    """Pods of an older template are still there, or the controller has not looked at the newest one yet."""
    status = one.status
    if status.observed_generation < one.metadata.generation:
        return True
    if status.update_revision:
        return status.current_revision != status.update_revision and status.updated_replicas < status.replicas
    return status.updated_replicas < status.replicas


# --- budgets --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Population:
    """The pods of one workload as a budget sees them: how many have which labels."""

    workload: str
    namespace: str
    groups: tuple[tuple[Labels, int], ...]


def budgets_of(
    written: Iterable[BudgetObject], populations: Iterable[Population]
) -> tuple[DisruptionBudget, ...]:
    """One for each workload with pods that a budget selects; of several over one workload the strictest.

    A budget over several workloads is held against each of them as a whole: it allows none of them more than all.
    """
    by_namespace: dict[str, list[Population]] = {}
    for population in populations:
        by_namespace.setdefault(population.namespace, []).append(population)
    found: dict[str, DisruptionBudget] = {}
    for one in written:
        selector = one.spec.selector
        if selector is None:
            continue  # it selects no pod
        counts = {
            population.workload: selected
            for population in by_namespace.get(one.metadata.namespace, ())
            if (selected := sum(count for labels, count in population.groups if matches(selector, labels)))
        }
        away = max(0, one.status.expected_pods - one.status.desired_healthy)
        for workload, count in counts.items():
            minimum = one.status.desired_healthy if len(counts) == 1 else max(0, count - away)
            budget = DisruptionBudget(workload, minimum, max(0, one.status.disruptions_allowed))
            known = found.get(workload)
            if known is not None:
                budget = DisruptionBudget(
                    workload, max(minimum, known.min_available), min(budget.allowed, known.allowed)
                )
            found[workload] = budget
    return tuple(found[workload] for workload in sorted(found))
