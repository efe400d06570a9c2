"""Where a node's capacity comes from. Part of the world, like all facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SourceKind(StrEnum):
    BLOCK = "block"
    ODCR = "odcr"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """Where a node's capacity comes from. `id` is the reservation's; empty for spot and on-demand."""

    kind: SourceKind
    id: str = ""

    @property
    def label(self) -> str:
        """The value of the node label that pods are pinned by."""
        return self.id or self.kind.value
