"""22: no job is admitted while the pods of its namespace would use more GPUs than the platform allows them.

Judged when an admitted pod starts, by all that were admitted. Not of pods that nobody holds: kube-scheduler starts
them. Pods on nodes that are being emptied do not count: who takes over from them need not wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.model.pods import Pod
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec import names

_GPUS = (names.NVIDIA_GPU, names.NEURON)


class NamespaceLimits:
    def __init__(self) -> None:
        self._seen = 0

    def check(self, truth: Truth) -> Findings:
        starts = truth.cluster.starts
        new, self._seen = starts[self._seen :], len(starts)
        limits = truth.spec.platform.spec.namespace_limits
        fresh = {pod.namespace for pod in new if pod.pinned_to and _gpus((pod,))} if limits else set()
        for limit in limits if fresh else ():
            if fresh.isdisjoint(limit.namespaces):
                continue
            used = _gpus(pod for pod in _admitted(truth) if pod.namespace in limit.namespaces)
            if used > limit.gpus:
                yield 22, (", ".join(limit.namespaces), f"{used} GPUs of {limit.gpus}")


def is_held_back(truth: Truth, item: list[Pod]) -> bool:
    """Its namespace may not have left what it asks for. Pods that nobody holds and that leave are counted too: this
    errs on the side of yes."""
    for limit in truth.spec.platform.spec.namespace_limits:
        if item[0].namespace in limit.namespaces:
            there = (pod for pod in truth.cluster.pods.values() if pod.node or pod.pinned_to)
            used = _gpus(pod for pod in there if pod.namespace in limit.namespaces)
            if used + _gpus(item) > limit.gpus:
                return True
    return False


def _admitted(truth: Truth) -> list[Pod]:
    emptied = {node.name for node in truth.cluster.nodes.values() if node.draining_since is not None}
    return [pod for pod in truth.cluster.pods.values() if pod.pinned_to and pod.node not in emptied]


def _gpus(pods: Iterable[Pod]) -> int:
    return sum(count for pod in pods for name, count in pod.shape.requests if name in _GPUS)
