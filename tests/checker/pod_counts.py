"""Who stands where: pods with the same labels are one crowd, counted per node, and crowds per domain.

Rules between pods ask only "how many pods that this selector means are in that domain?", so this is all they
need. Selectors are matched against crowds, not pods: the work grows with the variety of labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.checker.hosts import Host
from tidemill.decide.packer.problem import PendingPod
from tidemill.model.labels import Pairs
from tidemill.sim.cluster.scheduler_filters import PodSelector


@dataclass(slots=True, eq=False)
class LabelledPods:
    namespace: str
    labels: dict[str, str]
    pods: dict[int, list[int]] = field(default_factory=dict)  # index of a host -> indexes of asks
    existing_pods: Counter[int] = field(default_factory=Counter)  # index of a host -> how many


class PodLabelCounts:
    """Every pod of the final state, residents and asks, by namespace and labels."""

    def __init__(self, hosts: Sequence[Host], pods: Sequence[PendingPod]) -> None:
        self.hosts = hosts
        self._crowds: dict[tuple[str, Pairs], LabelledPods] = {}
        self._meant: dict[PodSelector, list[LabelledPods]] = {}
        for number, host in enumerate(hosts):
            for existing in host.existing_pods:
                self.of(existing.namespace, existing.shape.labels).existing_pods[number] += existing.count
            for index in host.pods:
                pod = pods[index]
                self.of(pod.namespace, pod.shape.labels).pods.setdefault(number, []).append(index)

    def of(self, namespace: str, labels: Pairs) -> LabelledPods:
        same_labels = self._crowds.get((namespace, labels))
        if same_labels is None:
            same_labels = self._crowds[namespace, labels] = LabelledPods(namespace, dict(labels))
        return same_labels

    def meant_by(self, selector: PodSelector) -> list[LabelledPods]:
        found = self._meant.get(selector)
        if found is None:
            found = [c for c in self._crowds.values() if selector.matches(c.namespace, c.labels)]
            self._meant[selector] = found
        return found

    def count(
        self, labelled: Collection[LabelledPods], key: str, among: Collection[int] | None = None
    ) -> tuple[Counter[str], Counter[str]]:
        """How many asks, and how many residents, by domain; only hosts in `among` where it is given."""
        pods: Counter[str] = Counter()
        existing_pods: Counter[str] = Counter()
        for same_labels in labelled:
            for number, indexes in same_labels.pods.items():
                domain = self.hosts[number].labels.get(key)
                if domain is not None and (among is None or number in among):
                    pods[domain] += len(indexes)
            for number, count in same_labels.existing_pods.items():
                domain = self.hosts[number].labels.get(key)
                if domain is not None and (among is None or number in among):
                    existing_pods[domain] += count
        return pods, existing_pods
