"""A scenario's reservation as EC2 would have sold it: on the grid, priced from the catalog, tagged or not."""

from __future__ import annotations

from datetime import datetime

from tidemill.catalog import Catalog
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.errors import SpecError
from tidemill.sim.cloud.ids import seeded_id
from tidemill.sim.cloud.prices import block_fee_usd
from tidemill.spec import names
from tidemill.spec.scenario import OwnedReservation, block_window


def owned_reservation(
    owned: OwnedReservation, catalog: Catalog, *, owner: str, seed: int, now: datetime
) -> Reservation:
    """As it stands before its start; the account makes it active, at once when the start is not ahead."""
    kind = catalog.types.get(owned.instance_type)
    if kind is None:
        raise SpecError(f"reservation {owned.name}: '{owned.instance_type}' is not in the catalog")
    block = owned.type == "block"
    start, end = _block_window(owned, now) if block else _odcr_window(owned, now)
    fee_usd = block_fee_usd(kind, owned.count, end - start) if block and end is not None else None
    tags = {names.TAG_OWNER: owner} if owned.owned else {}
    if owned.pool:
        tags[names.TAG_POOL] = owned.pool
    return Reservation(
        id=owned.id or seeded_id("cr", seed, "owned", owned.name),
        kind=SourceKind.BLOCK if block else SourceKind.ODCR,
        instance_type=owned.instance_type,
        zone=owned.zone,
        count=owned.count,
        available=0,
        state=ReservationState.SCHEDULED,
        start=start,
        end=end,
        owner=tags.get(names.TAG_OWNER, ""),
        pool=owned.pool,
        fee_usd=fee_usd or 0,
        ultraserver=block and bool(kind.ultraserver),
        tags=tuple(sorted(tags.items())),
    )


def _block_window(owned: OwnedReservation, now: datetime) -> tuple[datetime, datetime]:
    if owned.duration is None:
        raise SpecError(f"reservation {owned.name}: a block needs a duration")
    return block_window(now, owned.start, owned.duration)


def _odcr_window(owned: OwnedReservation, now: datetime) -> tuple[datetime, datetime | None]:
    start = now + owned.start
    return start, None if owned.duration is None else start + owned.duration
