"""The exact levels of one spread rule: how many of its pods each domain has that counts for it.

`topology_spread` assigns pods to domains on counts; where that is not enough, the repair asks this for every pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill.decide.packer.pod_counters import HOST, PodCounter
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.problem import Problem
from tidemill.decide.packer.supply import counts_for
from tidemill.model.labels import Taint
from tidemill.model.pods import Spread

_NEW_HOST = "#new"


class SpreadLevels:
    """How many pods of one counter each domain of a spread rule has, over the nodes that count for the rule.

    The policies of a rule may leave out nodes that the pod does not tolerate or does not select: then neither their
    domain nor the pods on them count. Pods whose rules look at the same nodes share one object.
    """

    __slots__ = (
        "_at_lowest", "_keys", "_known", "_pinned", "_rule", "_shape", "counter", "counts", "low", "selective",
    )  # fmt: skip

    def __init__(self, problem: Problem, counter: PodCounter, group: PodGroup, rule: Spread) -> None:
        self.counter = counter
        self._shape, self._rule = group.shape, rule
        hard_keys = (spread.topology_key for spread in group.shape.spread if spread.hard)
        self._keys = [key for key in hard_keys if key != HOST]
        self._known: dict[int | str, bool] = {}
        selects_nodes = rule.honor_affinity and bool(group.shape.node_selector or group.shape.node_terms)
        self.selective = selects_nodes or rule.honor_taints  # not every node that has the keys counts
        key = rule.topology_key
        offered = [option.labels for option in problem.options if self._counts(option.labels, option.taints)]
        self._pinned = key == HOST and bool(offered)  # a node that could be opened is an empty host
        values = {_NEW_HOST} if self._pinned else {labels[key] for labels in offered}
        self.counts: dict[str, int] = dict.fromkeys(values, 0)
        self.low, self._at_lowest = 0, len(values)

    def _counts(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        if not all(key in labels for key in self._keys):
            return False
        return not self.selective or counts_for(self._shape, self._rule, labels, taints)

    def includes(self, kind: int | str, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Whether nodes of one kind, which have the same labels and taints, count."""
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._counts(labels, taints)
        return known

    def add_domains(self, values: Iterable[str]) -> None:
        """The domains of the nodes there are. Call before any pod is counted."""
        self.counts |= dict.fromkeys(values, 0)
        self._at_lowest = len(self.counts)

    def allows(self, value: str, skew: int, min_domains: int, more: int) -> bool:
        """Whether a domain is within the skew after `more` pods. In the lowest domain one more always is."""
        lowest = 0 if len(self.counts) < min_domains else self.low
        return self.counts.get(value, 0) + more - lowest <= skew

    def change(self, value: str, pod_count: int) -> int:
        """Count pods of a domain in or out; returns by how much the lowest level changed."""
        before = self.counts.get(value, 0)
        after = self.counts[value] = before + pod_count
        if self._pinned:
            return 0
        low = self.low
        self._at_lowest += (after == low) - (before == low)
        if after < low or not self._at_lowest:
            self.low = min(self.counts.values())
            self._at_lowest = sum(count == self.low for count in self.counts.values())
        return self.low - low
