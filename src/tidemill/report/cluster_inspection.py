"""What of a cluster matters for the end of its blocks, whoever made it: nodes, pods that would die, what is in the way.

Joins what the API server shows with the endings of an account (`instance_endings`). Pure; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.catalog import Catalog
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import DisruptionBudget, Pod, PodPhase
from tidemill.model.resources import amount
from tidemill.report.inspection import Inspection
from tidemill.report.instance_endings import Ending
from tidemill.spec import names


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What was read of a cluster."""

    name: str
    nodes: tuple[KubeNode, ...]
    pods: tuple[Pod, ...]
    budgets: tuple[DisruptionBudget, ...]
    autoscalers: tuple[str, ...] = ()  # "Deployment/kube-system/cluster-autoscaler", "NodePool/default"
    device_plugins: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockNodes:
    """The nodes of one reservation that end together."""

    reservation: str
    ends_at: datetime | None
    nodes: tuple[str, ...]
    missing: tuple[str, ...]  # instances that are no node of this cluster
    pods: int


@dataclass(frozen=True, slots=True)
class DyingPod:
    """A pod that still runs when its node ends, as far as is known."""

    pod: str
    node: str
    ends_at: datetime
    left_s: int
    grace_s: int
    expected_end: datetime | None  # None: it does not say
    has_time: bool  # for its grace, if it was told to stop now
    comes_back: bool  # a controller would create it again


@dataclass(frozen=True, slots=True)
class ClusterInspection:
    cluster: str
    nodes: int
    pods: int
    on_blocks: tuple[BlockNodes, ...]
    dying: tuple[DyingPod, ...]  # the soonest first
    blocking: tuple[
        tuple[str, int], ...
    ]  # budgets that allow no eviction now, of workloads on blocks; their pods there
    without_requests: tuple[str, ...]  # pods on blocks that ask for no CPU or no memory
    without_devices: tuple[str, ...]  # nodes of accelerated types that offer no accelerator
    autoscalers: tuple[str, ...]
    device_plugins: tuple[str, ...]
    not_read: tuple[str, ...]


def cluster_inspection(facts: ClusterFacts, account: Inspection, catalog: Catalog) -> ClusterInspection:
    by_instance = {node.instance_id: node for node in facts.nodes if node.instance_id}
    bound: dict[str, list[Pod]] = {}
    for pod in facts.pods:
        if pod.node and not pod.daemon and pod.phase in (PodPhase.PENDING, PodPhase.RUNNING):
            bound.setdefault(pod.node, []).append(pod)
    held = [
        (ending, node, pod)
        for ending in account.endings
        for id_ in ending.instances
        if (node := by_instance.get(id_)) is not None
        for pod in bound.get(node.name, ())
    ]
    on_blocks = tuple(_block(ending, by_instance, bound) for ending in account.endings)
    there = [pod for _, _, pod in held]
    return ClusterInspection(
        cluster=facts.name,
        nodes=len(facts.nodes),
        pods=len(facts.pods),
        on_blocks=on_blocks,
        dying=tuple(_dying(held, account.at)),
        blocking=_blocking(facts.budgets, there),
        without_requests=tuple(sorted(pod.full_name for pod in there if _asks_for_nothing(pod))),
        without_devices=tuple(node.name for node in facts.nodes if _lacks_devices(node, catalog)),
        autoscalers=facts.autoscalers,
        device_plugins=facts.device_plugins,
        not_read=facts.not_read,
    )


def _block(ending: Ending, by_instance: Mapping[str, KubeNode], bound: Mapping[str, list[Pod]]) -> BlockNodes:
    nodes = tuple(by_instance[id_].name for id_ in ending.instances if id_ in by_instance)
    missing = tuple(id_ for id_ in ending.instances if id_ not in by_instance)
    pods = sum(len(bound.get(name, ())) for name in nodes)
    return BlockNodes(ending.reservation, ending.at, nodes, missing, pods)


def _dying(held: Iterable[tuple[Ending, KubeNode, Pod]], now: datetime) -> list[DyingPod]:
    found = []
    for ending, node, pod in held:
        if ending.at is None:
            continue
        terms = pod.terms
        done = None if terms.expected is None or pod.started_at is None else pod.started_at + terms.expected
        if done is not None and done <= ending.at:
            continue
        left = ending.at - now
        seconds = int(left.total_seconds()), int(terms.grace.total_seconds())
        comes_back = bool(pod.workload)
        found.append(
            DyingPod(pod.full_name, node.name, ending.at, *seconds, done, terms.grace <= left, comes_back)
        )
    return sorted(found, key=lambda one: (one.ends_at, one.pod))


def _blocking(budgets: Iterable[DisruptionBudget], there: Iterable[Pod]) -> tuple[tuple[str, int], ...]:
    closed = {one.workload for one in budgets if one.allowed < 1}
    counts: dict[str, int] = {}
    for pod in there:
        if pod.workload in closed:
            counts[pod.workload] = counts.get(pod.workload, 0) + 1
    return tuple(sorted(counts.items()))


def _asks_for_nothing(pod: Pod) -> bool:
    requests = pod.shape.requests
    return not amount(requests, names.CPU) or not amount(requests, names.MEMORY)


def _lacks_devices(node: KubeNode, catalog: Catalog) -> bool:
    kind = catalog.types.get(dict(node.labels).get(names.LABEL_TYPE, ""))
    if kind is None or kind.accelerator is None:
        return False
    return not amount(node.allocatable, kind.accelerator.resource)
