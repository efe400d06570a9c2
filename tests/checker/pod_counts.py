"""Who stands where: pods with the same labels are one crowd, counted per node, and crowds per domain.

Rules between pods ask only "how many pods that this selector means are in that domain?", so this is all they
need. Selectors are matched against crowds, not pods: the work grows with the variety of labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.checker.hosts import Host
from tidemill.decide.packer.problem import Ask
from tidemill.model.labels import Pairs
from tidemill.sim.cluster.scheduler_filters import PodSelector


@dataclass(slots=True, eq=False)
class Crowd:
    namespace: str
    labels: dict[str, str]
    asks: dict[int, list[int]] = field(default_factory=dict)  # index of a host -> indexes of asks
    residents: Counter[int] = field(default_factory=Counter)  # index of a host -> how many


class Crowds:
    """Every pod of the final state, residents and asks, by namespace and labels."""

    def __init__(self, hosts: Sequence[Host], asks: Sequence[Ask]) -> None:
        self.hosts = hosts
        self._crowds: dict[tuple[str, Pairs], Crowd] = {}
        self._meant: dict[PodSelector, list[Crowd]] = {}
        for number, host in enumerate(hosts):
            for resident in host.residents:
                self.of(resident.namespace, resident.shape.labels).residents[number] += resident.count
            for index in host.asks:
                ask = asks[index]
                self.of(ask.namespace, ask.shape.labels).asks.setdefault(number, []).append(index)

    def of(self, namespace: str, labels: Pairs) -> Crowd:
        crowd = self._crowds.get((namespace, labels))
        if crowd is None:
            crowd = self._crowds[namespace, labels] = Crowd(namespace, dict(labels))
        return crowd

    def meant_by(self, selector: PodSelector) -> list[Crowd]:
        found = self._meant.get(selector)
        if found is None:
            found = [c for c in self._crowds.values() if selector.matches(c.namespace, c.labels)]
            self._meant[selector] = found
        return found

    def count(
        self, crowds: Collection[Crowd], key: str, among: Collection[int] | None = None
    ) -> tuple[Counter[str], Counter[str]]:
        """How many asks, and how many residents, by domain; only hosts in `among` where it is given."""
        asks: Counter[str] = Counter()
        residents: Counter[str] = Counter()
        for crowd in crowds:
            for number, indexes in crowd.asks.items():
                domain = self.hosts[number].labels.get(key)
                if domain is not None and (among is None or number in among):
                    asks[domain] += len(indexes)
            for number, count in crowd.residents.items():
                domain = self.hosts[number].labels.get(key)
                if domain is not None and (among is None or number in among):
                    residents[domain] += count
        return asks, residents
