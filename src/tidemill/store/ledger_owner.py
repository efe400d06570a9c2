"""The deployment a ledger belongs to. Two in one ledger would spend each other's budgets."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tidemill.model.errors import Refused
from tidemill.spec.platform import Platform


@dataclass(frozen=True, slots=True)
class LedgerOwner:
    """`deployment` is the owner tag. The others may be unknown (empty) at first; once known they stay."""

    deployment: str
    account: str = ""
    region: str = ""
    cluster: str = ""

    @classmethod
    def of(cls, platform: Platform) -> LedgerOwner:
        spec = platform.spec
        return cls(spec.deployment, spec.account_id or "", spec.region, spec.cluster.name)

    def agreed_with(self, other: LedgerOwner) -> LedgerOwner:
        """Both together; Refused where they contradict each other. `self` is what the ledger says."""
        agreed = {}
        for field in fields(self):
            here, there = getattr(self, field.name), getattr(other, field.name)
            if here and there and here != there:
                raise Refused(f"this ledger belongs to {field.name} {here}, not to {there}")
            agreed[field.name] = here or there
        return LedgerOwner(**agreed)
