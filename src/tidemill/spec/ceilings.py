"""Ceilings of the process itself: whoever runs Tidemill sets them, and documents can only lower them.

A document can be changed by whoever may write to the cluster or the repository; the environment of the process that
buys cannot. What is not set says nothing. Pure: the environment is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidemill.model.errors import SpecError
from tidemill.spec.platform import Approval, Budget, Platform
from tidemill.spec.problem import quoted

Mode = Literal["propose", "two", "one", "auto"]

MAX_FEE: Final = "TIDEMILL_MAX_FEE_USD"
MONTHLY: Final = "TIDEMILL_MONTHLY_USD"
APPROVAL: Final = "TIDEMILL_APPROVAL"
APPROVERS: Final = "TIDEMILL_APPROVERS"

# The strictest first: of two modes the one that comes first is taken.
_STRICTNESS: Final[tuple[Mode, ...]] = ("propose", "two", "one", "auto")


@dataclass(frozen=True, slots=True)
class Ceilings:
    max_fee_usd: int | None = None  # of one purchase
    monthly_usd: int | None = None
    approval: Mode | None = None  # the least strict mode that is allowed
    approvers: tuple[str, ...] = ()  # the only ones who may approve; empty: whom the documents name


def read_ceilings(environment: Mapping[str, str]) -> Ceilings:
    """SpecError for what cannot be read: a ceiling that is misspelled must not be none."""
    approval = environment.get(APPROVAL, "")
    mode = next((one for one in _STRICTNESS if one == approval), None)
    if approval and mode is None:
        raise SpecError(f"{APPROVAL}: {quoted(approval)} is no approval mode; write two, one or auto")
    approvers = tuple(one.strip() for one in environment.get(APPROVERS, "").split(",") if one.strip())
    if environment.get(APPROVERS) and not approvers:
        raise SpecError(f"{APPROVERS} names nobody; write identities with commas between them, or unset it")
    return Ceilings(_dollars(environment, MAX_FEE), _dollars(environment, MONTHLY), mode, approvers)


def _dollars(environment: Mapping[str, str], name: str) -> int | None:
    written = environment.get(name, "")
    if not written:
        return None
    if not (written.isascii() and written.isdigit()):
        raise SpecError(
            f"{name}: {quoted(written)} is not a number of whole dollars; write for example 50000"
        )
    return int(written)


def lowered(platform: Platform, ceilings: Ceilings) -> Platform:
    """The same object where no ceiling is lower than what it says."""
    spec = platform.spec
    budget, approval = _budget(spec.budget, ceilings), _approval(spec.approval, ceilings)
    if (budget, approval) == (spec.budget, spec.approval):
        return platform
    return platform.model_copy(
        update={"spec": spec.model_copy(update={"budget": budget, "approval": approval})}
    )


def _budget(budget: Budget, ceilings: Ceilings) -> Budget:
    """A budget of 0 buys nothing and stays so."""
    return budget.model_copy(
        update={
            "per_purchase_usd": _lower(budget.per_purchase_usd, ceilings.max_fee_usd),
            "monthly_usd": _lower(budget.monthly_usd, ceilings.monthly_usd),
        }
    )


def _lower(usd: int, ceiling_usd: int | None) -> int:
    return usd if ceiling_usd is None else min(usd, ceiling_usd)


def _approval(approval: Approval, ceilings: Ceilings) -> Approval:
    mode: Mode = min(approval.mode, ceilings.approval or "auto", key=_STRICTNESS.index)
    return approval.model_copy(update={"mode": mode, "approvers": _approvers(approval, ceilings)})


def _approvers(approval: Approval, ceilings: Ceilings) -> tuple[str, ...]:
    """Who both allow. Nobody left must not become "anybody", which is what an empty list means."""
    if not (approval.approvers and ceilings.approvers):
        return approval.approvers or ceilings.approvers
    both = tuple(one for one in approval.approvers if one in ceilings.approvers)
    if not both:
        raise SpecError(
            f"nobody could approve: none of the Platform's approvers ({', '.join(approval.approvers)}) "
            f"is in {APPROVERS} ({', '.join(ceilings.approvers)})"
        )
    return both
