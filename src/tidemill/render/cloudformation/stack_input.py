"""What a stack is asked for: one source of a pool, with as much of a block as is known when it is rendered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.model.capacity import SourceKind
from tidemill.model.errors import SpecError
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, matching_types
from tidemill.spec.units import format_instant


@dataclass(frozen=True, slots=True)
class Asked:
    kind: SourceKind
    instance_type: str
    zone: str
    reservation: str = (
        ""  # cr-…; the rest is of the block too, and asked for as parameters where it is not known
    )
    start: datetime | None = None
    end: datetime | None = None
    count: int | None = None

    @property
    def reserved(self) -> bool:
        return self.kind in (SourceKind.BLOCK, SourceKind.ODCR)


def asked_of(
    spec: Spec,
    pool: ComputePool,
    *,
    instance_type: str = "",
    zone: str = "",
    reservation: str = "",
    start: datetime | None = None,
    end: datetime | None = None,
    count: int | None = None,
) -> Asked:
    """With what the documents leave no choice about. SpecError: where they do leave one, and nobody chose."""
    if start is not None and end is not None and end <= start:
        raise SpecError(f"--end {format_instant(end)} is not after --start {format_instant(start)}")
    return Asked(
        kind=SourceKind(pool.spec.sources[0].type),
        instance_type=_one_of(
            "--type", instance_type, [k.name for k in matching_types(spec.catalog, pool.spec.requirements)]
        ),
        zone=_one_of("--zone", zone, sorted(zone for zone, ids in spec.platform.spec.subnets.items() if ids)),
        reservation=reservation,
        start=start,
        end=end,
        count=count,
    )


def _one_of(option: str, given: str, allowed: list[str]) -> str:
    if given:
        if given not in allowed:
            raise SpecError(f"{option} {given}: the documents allow {', '.join(allowed) or 'none'}")
        return given
    if len(allowed) != 1:
        shown = ", ".join(allowed[:6]) + (", …" if len(allowed) > 6 else "")
        raise SpecError(f"say which with {option}: the documents allow {shown or 'none'}")
    return allowed[0]
