"""A person's word on a proposed purchase. Identity is proved by the caller; the rules are checked here."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tidemill.decide.blocks.granted import not_granted
from tidemill.errors import Refused
from tidemill.ports import Ledger
from tidemill.spec.models import Approval, Platform
from tidemill.world import PurchaseIntent, PurchaseState, Verdict


def give_verdict(
    ledger: Ledger,
    platform: Platform,
    intent: PurchaseIntent,
    *,
    who: str,
    approved: bool,
    at: datetime,
    note: str = "",
) -> PurchaseIntent:
    """Append the verdict; the intent is approved once the platform's policy is satisfied, refused at one no."""
    if intent.state is not PurchaseState.PROPOSED:
        raise Refused(f"purchase {intent.id} is {intent.state.value}; only a proposed one can be decided on")
    if who == intent.proposer:
        raise Refused(f"{who} proposed it; somebody else must decide")
    if at >= intent.envelope.expires_at:
        raise Refused(f"purchase {intent.id} has expired")
    _may_decide(platform.spec.approval, intent, who, approved)
    after = replace(intent, verdicts=(*intent.verdicts, Verdict(who, at, approved, note)), state_at=at)
    if not approved:
        after = replace(after, state=PurchaseState.REFUSED, note=note)
    elif not_granted(platform, after) is None:
        after = replace(after, state=PurchaseState.APPROVED)
    ledger.advance(intent, after)
    return after


def _may_decide(policy: Approval, intent: PurchaseIntent, who: str, approved: bool) -> None:
    """A word that would not count is not taken: whoever gave it must know. One's own yes may become a no."""
    if policy.approvers and who not in policy.approvers:
        raise Refused(f"{who} may not decide on purchases; the approvers are {', '.join(policy.approvers)}")
    if approved and any(verdict.who == who and verdict.approved for verdict in intent.verdicts):
        raise Refused(
            f"{who} has approved purchase {intent.id} already; the second approval is somebody else's"
        )
