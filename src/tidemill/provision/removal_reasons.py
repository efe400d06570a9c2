"""Why a group, template or NodePool of ours may be removed: a positive reason, or None. Pure.

What could not be read, listed or made is no reason. A block that AWS does not list is over only if the ledger says when
it ended; a document that lacks a field makes a group that nobody can make, not one that nobody wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from tidemill.model.capacity import OVER_STATES, SECURED_STATES, Reservation
from tidemill.model.purchases import Adoption, PurchaseIntent, PurchaseState
from tidemill.provision.wanted_groups import reservations_for
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner
from tidemill.spec.units import format_instant

Ends = Callable[[], Mapping[str, datetime]]  # reservation -> its paid end, by the ledger


class RemovalKind(StrEnum):
    SOURCE_OVER = "source-over"  # name: the reservation, which AWS lists as over
    SOURCE_ENDED = (
        "source-ended"  # name: the reservation; at: its end by the ledger; AWS does not list it any more
    )
    POOL_GONE = "pool-gone"  # name: the pool, which no document defines
    OTHER_PROVISIONER = "other-provisioner"  # name: the pool, which launches its nodes in another way
    NOT_SELECTED = "not-selected"  # name: the pool, whose documents do not let it use the reservation
    CREATE_FAILED = "create-failed"  # name: the node group, which EKS could not create; detail: what EKS says
    # name: the reservation, which was extended; at: when EKS scales the node group to 0 all the same
    OLD_END = "old-end"


@dataclass(frozen=True, slots=True)
class RemovalReason:
    kind: RemovalKind
    name: str
    at: datetime | None = None
    detail: str = ""

    def __str__(self) -> str:
        match self.kind:
            case RemovalKind.SOURCE_OVER:
                return f"{self.name} is over"
            case RemovalKind.SOURCE_ENDED:
                return f"{self.name} ended at {format_instant(self.at)}" if self.at else f"{self.name} ended"
            case RemovalKind.POOL_GONE:
                return f"no document defines its pool '{self.name}' any more"
            case RemovalKind.OTHER_PROVISIONER:
                return f"pool {self.name} has another provisioner now"
            case RemovalKind.CREATE_FAILED:
                return f"{self.detail}; it is created again once it is deleted"
            case RemovalKind.OLD_END:
                at = f" at {format_instant(self.at)}" if self.at else ""
                return f"EKS still scales it to 0{at}, although {self.name} was extended; it is created again"
            case RemovalKind.NOT_SELECTED:
                return f"the documents of pool {self.name} do not let it use the reservation any more"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known for certain. `ends`: asked only about reservations that AWS does not list."""

    spec: Spec
    now: datetime
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    ends: Ends = dict

    @classmethod
    def of(
        cls, spec: Spec, now: datetime, reservations: Iterable[Reservation], ends: Ends = dict
    ) -> Evidence:
        return cls(spec, now, {reservation.id: reservation for reservation in reservations}, ends)

    def source_is_over(self, reservation_id: str) -> RemovalReason | None:
        listed = self.reservations.get(reservation_id)
        if listed is not None:
            over = listed.state in OVER_STATES
            return RemovalReason(RemovalKind.SOURCE_OVER, reservation_id) if over else None
        end = self.ends().get(reservation_id)
        if end is None or self.now < end:
            return None
        return RemovalReason(RemovalKind.SOURCE_ENDED, reservation_id, end)

    def not_wanted(
        self, pool_name: str, provisioner: Provisioner, reservation_id: str
    ) -> RemovalReason | None:
        """Of what launches nodes of a pool on a reservation. Ownership is left aside: it is known from the ledger, and
        another ledger would make every block somebody else's."""
        if over := self.source_is_over(reservation_id):
            return over
        if not pool_name:
            return None
        pool = self.spec.pools.get(pool_name)
        if pool is None:
            return RemovalReason(RemovalKind.POOL_GONE, pool_name)
        if pool.spec.provisioner is not provisioner:
            return RemovalReason(RemovalKind.OTHER_PROVISIONER, pool_name)
        listed = self.reservations.get(reservation_id)
        if listed is None or not listed.listed or listed.state not in SECURED_STATES:
            return None
        ours = replace(listed, owner=self.spec.platform.spec.deployment)
        if reservations_for(self.spec, pool, [ours]):
            return None
        return RemovalReason(RemovalKind.NOT_SELECTED, pool_name)


def ends_in_ledger(purchases: Iterable[PurchaseIntent], adoptions: Iterable[Adoption]) -> dict[str, datetime]:
    """The last end of every reservation that was bought, extended or adopted."""
    ends: dict[str, datetime] = {}
    for purchase in purchases:
        if purchase.state is PurchaseState.CONFIRMED and purchase.end is not None:
            for id_ in purchase.reservation_ids:
                ends[id_] = max(purchase.end, ends.get(id_, purchase.end))
    for adoption in adoptions:
        if adoption.shown is not None and adoption.shown.end is not None:
            id_, end = adoption.reservation_id, adoption.shown.end
            ends[id_] = max(end, ends.get(id_, end))
    return ends
