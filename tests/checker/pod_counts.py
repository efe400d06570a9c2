"""Who stands where: pods with the same labels are one crowd, counted per node, and crowds per domain.

Rules between pods ask only "how many pods that this selector means are in that domain?", so this is all they
need. Selectors are matched against crowds, not pods: the work grows with the variety of labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.checker.hosts import Host
from tests.checker.pod_fits_node import selects
from tidemill.decide.packer.problem import Ask
from tidemill.model.labels import Expression, Pairs, Selector
from tidemill.model.pods import PodTerm, Spread


@dataclass(frozen=True, slots=True)
class Meaning:
    """Which pods a term means, wherever they are: a selector with its namespaces resolved."""

    selector: Selector
    namespaces: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Crowd:
    namespace: str
    labels: dict[str, str]
    asks: dict[int, list[int]] = field(default_factory=dict)  # index of a host -> indexes of asks
    residents: Counter[int] = field(default_factory=Counter)  # index of a host -> how many


def meaning_of_term(term: PodTerm, namespace: str) -> Meaning:
    return Meaning(term.selector, term.namespaces or (namespace,))


def meaning_of_spread(spread: Spread, namespace: str, labels: Pairs) -> Meaning:
    """matchLabelKeys narrow the selector to the pod's own values; a key the pod lacks is ignored."""
    own = dict(labels)
    narrowed = tuple(Expression(key, "In", (own[key],)) for key in spread.match_label_keys if key in own)
    return Meaning(spread.selector + narrowed, (namespace,))


def means(meaning: Meaning, namespace: str, labels: dict[str, str]) -> bool:
    return namespace in meaning.namespaces and selects(meaning.selector, labels)


class Crowds:
    """Every pod of the final state, residents and asks, by namespace and labels."""

    def __init__(self, hosts: Sequence[Host], asks: Sequence[Ask]) -> None:
        self.hosts = hosts
        self._crowds: dict[tuple[str, Pairs], Crowd] = {}
        self._meant: dict[Meaning, list[Crowd]] = {}
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

    def meant_by(self, meaning: Meaning) -> list[Crowd]:
        found = self._meant.get(meaning)
        if found is None:
            found = [c for c in self._crowds.values() if means(meaning, c.namespace, c.labels)]
            self._meant[meaning] = found
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
