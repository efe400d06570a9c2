"""What the limits of a NodePool still allow, and what pods get of a node that it would launch.

Both are asked for every offering, again and again while a pod waits that nothing can be launched for: they are worked
out once, and again when something of it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidemill.catalog import InstanceType
from tidemill.model.resources import Amounts, Resources
from tidemill.sim.karpenter.offerings import NodePool


class Room:
    def __init__(
        self, claimed: Callable[[str], Iterable[InstanceType]], daemons: Callable[[], Amounts]
    ) -> None:
        """`claimed`: the types of the nodes that a NodePool has; `daemons`: what daemon pods take of each node."""
        self._claimed, self._daemons = claimed, daemons
        self._allowed: dict[tuple[str, str], bool] = {}  # by NodePool and type
        self._free: dict[str, Resources] = {}  # by type, beside the daemons
        self._beside: Amounts = ()

    def changed(self) -> None:
        """A NodePool was written, or a node came or went."""
        self._allowed.clear()

    def allows(self, pool: NodePool, kind: InstanceType) -> bool:
        key = (pool.name, kind.name)
        allowed = self._allowed.get(key)
        if allowed is None:
            allowed = self._allowed[key] = pool.allows(kind, self._claimed(pool.name))
        return allowed

    def free(self, kind: InstanceType) -> Mapping[str, int]:
        daemons = self._daemons()
        if daemons != self._beside:
            self._beside, self._free = daemons, {}
        known = self._free.get(kind.name)
        if known is None:
            known = self._free[kind.name] = Resources(kind.allocatable)
            known.subtract_pod(daemons)
        return known
