"""Several keepers as one: groups and Karpenter's objects are kept side by side."""

from __future__ import annotations

from typing import Protocol

from tidemill.plan import Warning
from tidemill.world import World


class Keeps(Protocol):
    def keep(self, world: World) -> tuple[Warning, ...]: ...


class Keepers:
    def __init__(self, *keepers: Keeps) -> None:
        self._keepers = keepers

    def keep(self, world: World) -> tuple[Warning, ...]:
        return tuple(warning for one in self._keepers for warning in one.keep(world))
