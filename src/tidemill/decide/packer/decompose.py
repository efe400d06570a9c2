"""A problem as independent problems: pods that can never share a node are in different parts.

Pools with labels of their own make parts, and a platform has several. This knows which pod may use which node, and
ignores rules between pods and amounts: parts that only these keep apart are taken for one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidemill.decide.packer.problem import ExistingNode, NodeOption, PendingPod, Problem
from tidemill.decide.scheduler_rules import admitted, tolerated
from tidemill.spec.names import LABEL_HOSTNAME

# With more pairs of a kind of pod and a node than this, comparing costs more than the parts save.
_MOST_PAIRS = 2_000


def decompose(problem: Problem) -> list[Problem]:
    targets: tuple[ExistingNode | NodeOption, ...] = (*problem.nodes, *problem.options)
    kinds: dict[tuple[object, ...], list[PendingPod]] = {}
    for pod in problem.pods:
        kinds.setdefault((id(pod.shape), pod.refuses), []).append(pod)
    if len(kinds) * len(targets) > _MOST_PAIRS:
        return [problem]
    parts: list[tuple[set[int], list[PendingPod]]] = []
    for pods in kinds.values():
        usable = {number for number, target in enumerate(targets) if _may_use(pods[0], target)}
        separate = [part for part in parts if usable.isdisjoint(part[0])]
        overlapping = [part for part in parts if not usable.isdisjoint(part[0])]
        together = [*(pod for part in overlapping for pod in part[1]), *pods]
        parts = [*separate, (usable.union(*(part[0] for part in overlapping)), together)]
    return [_part(problem, numbers, pods) for numbers, pods in parts]


def _may_use(pod: PendingPod, target: ExistingNode | NodeOption) -> bool:
    if target.group in pod.refuses:
        return False
    is_node = isinstance(target, ExistingNode)
    labels = {LABEL_HOSTNAME: target.name, **target.labels} if is_node else target.labels
    return tolerated(pod.shape, target.taints) and admitted(pod.shape, labels)


def _part(problem: Problem, numbers: Iterable[int], pods: list[PendingPod]) -> Problem:
    nodes = len(problem.nodes)
    chosen = sorted(numbers)
    return replace(
        problem,
        pods=tuple(pods),
        nodes=tuple(problem.nodes[number] for number in chosen if number < nodes),
        options=tuple(problem.options[number - nodes] for number in chosen if number >= nodes),
    )
