"""Several keepers as one: groups and Karpenter's objects are kept side by side."""

from __future__ import annotations

from typing import Literal, Protocol

from tidemill.model.plan import Warning
from tidemill.model.world import World


class Planned(Protocol):
    @property
    def verb(self) -> Literal["create", "change", "remove"]: ...

    @property
    def about(self) -> str: ...

    @property
    def reason(self) -> str: ...


class Keeps(Protocol):
    def keep(self, world: World) -> tuple[Warning, ...]: ...

    def planned(self, world: World) -> tuple[Planned, ...]:
        """What it would do. Nothing is changed."""
        ...


class Keepers:
    def __init__(self, *keepers: Keeps) -> None:
        self._keepers = keepers

    def keep(self, world: World) -> tuple[Warning, ...]:
        return tuple(warning for one in self._keepers for warning in one.keep(world))

    def planned(self, world: World) -> tuple[Planned, ...]:
        return tuple(change for one in self._keepers for change in one.planned(world))
