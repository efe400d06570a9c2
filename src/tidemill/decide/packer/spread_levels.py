"""How full the domains of a spread rule are: of one counter, over the nodes that count for whoever has the rule.

A node that the pod does not tolerate, or does not want, may be left out of its rule by its policies: then neither
its domain nor the pods on it count. Pods whose rules look at the same nodes share a gauge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill.decide.packer.pod_groups import HOST, Counter, Crowd
from tidemill.decide.packer.problem import Problem
from tidemill.decide.packer.supply import counts_for
from tidemill.model.labels import Taint
from tidemill.model.pods import Spread

NEW_HOST = "#new"


class Gauge:
    """Heights by value of the key, and the lowest of them, kept as pods come and go."""

    __slots__ = (
        "_at_low", "_crowd", "_keys", "_known", "_pinned", "_rule", "choosy", "counter", "heights", "low",
    )  # fmt: skip

    def __init__(self, problem: Problem, counter: Counter, crowd: Crowd, rule: Spread) -> None:
        self.counter = counter
        self._crowd, self._rule = crowd, rule
        self._keys = [one.topology_key for one in crowd.shape.spread if one.hard and one.topology_key != HOST]
        self._known: dict[int | str, bool] = {}
        chooses = rule.honor_affinity and bool(crowd.shape.node_selector or crowd.shape.node_terms)
        self.choosy = chooses or rule.honor_taints  # not every node that has the keys counts
        key = rule.topology_key
        offered = [one.labels for one in problem.flavours if self._counts(one.labels, one.taints)]
        self._pinned = key == HOST and bool(offered)  # a host that could be opened is as empty as can be
        values = {NEW_HOST} if self._pinned else {labels[key] for labels in offered}
        self.heights: dict[str, int] = dict.fromkeys(values, 0)
        self.low, self._at_low = 0, len(values)

    def _counts(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        if not all(key in labels for key in self._keys):
            return False
        return not self.choosy or counts_for(self._crowd.shape, self._rule, labels, taints)

    def includes(self, kind: int | str, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Nodes of one kind have the same labels and taints."""
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._counts(labels, taints)
        return known

    def extend(self, values: Iterable[str]) -> None:
        """Domains of the nodes there are, before anybody is counted."""
        self.heights |= dict.fromkeys(values, 0)
        self._at_low = len(self.heights)

    def lowest(self, min_domains: int) -> int:
        return 0 if len(self.heights) < min_domains else self.low

    def change(self, value: str, pods: int) -> int:
        """So many more here; returns by how much the lowest of all changed."""
        before = self.heights.get(value, 0)
        after = self.heights[value] = before + pods
        if self._pinned:
            return 0
        low = self.low
        self._at_low += (after == low) - (before == low)
        if after < low or not self._at_low:
            self.low = min(self.heights.values())
            self._at_low = sum(height == self.low for height in self.heights.values())
        return self.low - low
