"""How many GPUs the pods of a namespace may still use: the platform's `namespaceLimits`, less what is in use.

What is in use: pods bound to a node of ours, and pods that are admitted and have no node yet. Not pods on a node that
is being emptied: who takes over from them would wait for them to go, and they for it to come.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.model.nodes import Node
from tidemill.model.pods import Pod, PodPhase
from tidemill.model.reasons import HoldKind, HoldReason
from tidemill.model.world import World
from tidemill.spec import Spec, names


class NamespaceCaps:
    """What is left of each limit. `take` counts what a decision adds."""

    def __init__(self, spec: Spec, world: World) -> None:
        limits = spec.platform.spec.namespace_limits
        self._limits = [(", ".join(one.namespaces), one.gpus) for one in limits]
        self._of: dict[str, list[int]] = {}  # by namespace: the numbers of its limits
        for number, limit in enumerate(limits):
            for namespace in limit.namespaces:
                self._of.setdefault(namespace, []).append(number)
        self.left = [limit.gpus for limit in limits]
        if not limits:
            return
        drained = _drained(world)
        for pod in world.pods:
            if pod.namespace in self._of and is_counted(pod, drained):
                self.take((pod,))

    def __bool__(self) -> bool:
        return bool(self._limits)

    @property
    def budgets(self) -> dict[str, int]:
        """By name, for the packer."""
        return {_budget(number): max(0, left) for number, left in enumerate(self.left)}

    def consumes(self, pod: Pod) -> tuple[tuple[str, int], ...]:
        """What the pod would use up of which budgets, if it is not counted already."""
        numbers = self._of.get(pod.namespace)
        if numbers is None or pod.node or pod.pinned_to or not (gpus := accelerators(pod)):
            return ()
        return tuple((_budget(number), gpus) for number in numbers)

    def take(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            for number in self._of.get(pod.namespace, ()):
                self.left[number] -= accelerators(pod)

    def most(self, pods: tuple[Pod, ...]) -> int | None:
        """How many times so many pods there is room for; None: nothing limits them."""
        numbers, gpus = self._of.get(pods[0].namespace, ()), sum(accelerators(pod) for pod in pods)
        return min(max(0, self.left[number]) // gpus for number in numbers) if numbers and gpus else None

    def refusal(self, pods: tuple[Pod, ...]) -> HoldReason | None:
        """Why they may not start, all at once."""
        numbers = self._of.get(pods[0].namespace, ())
        gpus = sum(accelerators(pod) for pod in pods) if numbers else 0
        for number in numbers if gpus else ():
            name, most = self._limits[number]
            if gpus > most:
                return HoldReason(HoldKind.OVER_NAMESPACE_LIMIT, name=name, count=gpus, of=most)
        for number in numbers if gpus else ():
            if gpus > self.left[number]:
                name, most = self._limits[number]
                used = most - self.left[number]
                return HoldReason(HoldKind.NAMESPACE_LIMIT_REACHED, name=name, count=used, of=most)
        return None


def is_counted(pod: Pod, drained: frozenset[str]) -> bool:
    if pod.phase not in (PodPhase.PENDING, PodPhase.RUNNING):
        return False
    return pod.node not in drained if pod.node else bool(pod.pinned_to)


def accelerators(pod: Pod) -> int:
    return sum(count for name, count in pod.shape.requests if name in (names.NVIDIA_GPU, names.NEURON))


def _drained(world: World) -> frozenset[str]:
    """Nodes whose pods are not counted: those that are being emptied, and those of others."""
    return frozenset(
        node.kube.name
        for node in world.nodes
        if node.kube is not None and (node.kube.draining_since is not None or not _is_ours(node))
    )


def _is_ours(node: Node) -> bool:
    """As far as one of its two sides shows a pool: the other may be missing for a while."""
    labelled = node.kube is not None and any(key == names.LABEL_POOL for key, _ in node.kube.labels)
    return labelled or (node.instance is not None and bool(node.instance.pool))


def _budget(number: int) -> str:
    return f"namespaces-{number}"
