"""Ceilings on money, and who must say yes before it is spent: the parts of a Platform that a plan can only lower."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from tidemill.spec.model import Model
from tidemill.spec.units import Count, Duration


class Budget(Model):
    """Ceilings on money. A missing budget means nothing is bought."""

    per_purchase_usd: Count = Field(default=0, ge=0)
    """The highest upfront fee of one block."""
    monthly_usd: Count = Field(default=0, ge=0)
    """Block fees and hourly money together, per calendar month (UTC)."""


class Approval(Model):
    """Who must say yes before a block is bought. The default proposes and never buys."""

    mode: Literal["propose", "one", "two", "auto"] = "propose"
    """Only propose; buy when one or two people approved; or buy by itself up to `autoMaxFeeUsd`. Never beyond the
    budget."""
    approvers: tuple[str, ...] = ()
    """Identities that may approve, as AWS names them (`aws sts get-caller-identity`). Empty: whoever may write to the
    ledger. Never the proposer, listed or not."""
    sessions_are_proved: bool = False
    """Whether the session name of an assumed role proves a person: only where your trust policy or identity provider
    sets it. Without it all sessions of a role count as one person, those of IAM Identity Center apart."""
    two_above_usd: Count | None = Field(default=None, ge=0)
    """Fees above this need two people, whatever the mode."""
    auto_max_fee_usd: Count = Field(default=0, ge=0)
    """With mode auto: fees above this still need a person."""
    auto_monthly_usd: Count | None = Field(default=None, ge=0)
    """With mode auto: once the fees of a calendar month (UTC) would pass this, a person is needed again."""
    expires_after: Duration = timedelta(hours=24)
    """A proposal that is not bought this long after it was made is void, approved or not."""
