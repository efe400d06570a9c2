"""Several reconcilers as one: groups and Karpenter's objects are kept side by side."""

from __future__ import annotations

from typing import Literal, Protocol

from tidemill.model.plan import Warning
from tidemill.model.world import World


class PlannedChange(Protocol):
    @property
    def verb(self) -> Literal["create", "change", "remove"]: ...

    @property
    def about(self) -> str: ...

    @property
    def reason(self) -> str: ...


class Reconciler(Protocol):
    def reconcile(self, world: World) -> tuple[Warning, ...]: ...

    def planned(self, world: World) -> tuple[PlannedChange, ...]:
        """What it would do. Nothing is changed."""
        ...


class Reconcilers:
    def __init__(self, *reconcilers: Reconciler) -> None:
        self._reconcilers = reconcilers

    def reconcile(self, world: World) -> tuple[Warning, ...]:
        return tuple(warning for one in self._reconcilers for warning in one.reconcile(world))

    def planned(self, world: World) -> tuple[PlannedChange, ...]:
        return tuple(change for one in self._reconcilers for change in one.planned(world))
