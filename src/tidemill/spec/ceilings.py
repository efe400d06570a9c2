"""Spending ceilings in the environment of the process. Documents can only lower them.

Whoever may write to the cluster or the repository can change a document, but not the environment of the process that
buys. A variable that is not set limits nothing. Pure: the environment is an argument.
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

# The strictest first: of two modes the first one in this list applies.
_STRICTNESS: Final[tuple[Mode, ...]] = ("propose", "two", "one", "auto")


@dataclass(frozen=True, slots=True)
class Ceilings:
    max_fee_usd: int | None = None  # of one purchase
    monthly_usd: int | None = None
    approval: Mode | None = None  # the least strict mode that is allowed
    approvers: tuple[str, ...] = ()  # nobody else may approve; empty: those whom the documents name


def read_ceilings(environment: Mapping[str, str]) -> Ceilings:
    """Raises SpecError for a value that cannot be read: a misspelled ceiling must not mean no ceiling."""
    approval = environment.get(APPROVAL, "")
    mode = next((mode for mode in _STRICTNESS if mode == approval), None)
    if approval and mode is None:
        raise SpecError(
            f"{APPROVAL}: {quoted(approval)} is not an approval mode; write propose, two, one or auto"
        )
    approvers = tuple(name.strip() for name in environment.get(APPROVERS, "").split(",") if name.strip())
    if environment.get(APPROVERS) and not approvers:
        raise SpecError(f"{APPROVERS} names nobody; write identities separated by commas, or unset it")
    return Ceilings(_dollars(environment, MAX_FEE), _dollars(environment, MONTHLY), mode, approvers)


def _dollars(environment: Mapping[str, str], name: str) -> int | None:
    written = environment.get(name, "")
    if not written:
        return None
    if not (written.isascii() and written.isdigit()):
        raise SpecError(
            f"{name}: {quoted(written)} is not a whole number of dollars; write for example 50000"
        )
    return int(written)


def lowered(platform: Platform, ceilings: Ceilings) -> Platform:
    """The platform with its limits lowered to the ceilings; the same object where no ceiling is lower."""
    spec = platform.spec
    budget, approval = _budget(spec.budget, ceilings), _approval(spec.approval, ceilings)
    if (budget, approval) == (spec.budget, spec.approval):
        return platform
    return platform.model_copy(
        update={"spec": spec.model_copy(update={"budget": budget, "approval": approval})}
    )


def _budget(budget: Budget, ceilings: Ceilings) -> Budget:
    """A budget of 0 buys nothing, whatever the ceiling."""
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
    """Those whom both lists allow. An empty list means anybody, so an empty intersection is an error."""
    if not (approval.approvers and ceilings.approvers):
        return approval.approvers or ceilings.approvers
    both = tuple(name for name in approval.approvers if name in ceilings.approvers)
    if not both:
        raise SpecError(
            f"nobody can approve: none of the Platform's approvers ({', '.join(approval.approvers)}) "
            f"is in {APPROVERS} ({', '.join(ceilings.approvers)})"
        )
    return both
