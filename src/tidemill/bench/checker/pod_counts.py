"""Pods by their labels, counted per node and per domain.

Rules between pods only ask how many pods that a selector matches are in a domain. Selectors are matched against sets
of labels and not against pods: the work grows with the variety of labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tidemill.bench.checker.hosts import Host
from tidemill.decide.packer.problem import PendingPod
from tidemill.model.labels import Pairs
from tidemill.sim.cluster.scheduler_filters import PodSelector


@dataclass(slots=True, eq=False)
class LabelledPods:
    namespace: str
    labels: dict[str, str]
    pods: dict[int, list[int]] = field(default_factory=dict)  # index of a host -> indexes of pods
    existing_pods: Counter[int] = field(default_factory=Counter)  # index of a host -> how many


class PodLabelCounts:
    """Every pod of the final state, existing and placed, by namespace and labels."""

    def __init__(self, hosts: Sequence[Host], pods: Sequence[PendingPod]) -> None:
        self.hosts = hosts
        self._by_labels: dict[tuple[str, Pairs], LabelledPods] = {}
        self._selected: dict[PodSelector, list[LabelledPods]] = {}
        for number, host in enumerate(hosts):
            for existing in host.existing_pods:
                self.of(existing.namespace, existing.shape.labels).existing_pods[number] += existing.count
            for index in host.pods:
                pod = pods[index]
                self.of(pod.namespace, pod.shape.labels).pods.setdefault(number, []).append(index)

    def of(self, namespace: str, labels: Pairs) -> LabelledPods:
        same_labels = self._by_labels.get((namespace, labels))
        if same_labels is None:
            same_labels = self._by_labels[namespace, labels] = LabelledPods(namespace, dict(labels))
        return same_labels

    def selected_by(self, selector: PodSelector) -> list[LabelledPods]:
        found = self._selected.get(selector)
        if found is None:
            found = [c for c in self._by_labels.values() if selector.matches(c.namespace, c.labels)]
            self._selected[selector] = found
        return found

    def count(
        self, labelled: Collection[LabelledPods], key: str, among: Collection[int] | None = None
    ) -> tuple[Counter[str], Counter[str]]:
        """How many placed pods and how many existing pods, by domain; only on hosts in `among`, if given."""
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
