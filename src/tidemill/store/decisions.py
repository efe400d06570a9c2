"""Verdicts of people on a purchase, until it is submitted. The caller proves who they are; the rules are here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from tidemill.decide.read_models import not_granted, why_never_bought
from tidemill.engine.ownership import held_beside
from tidemill.model.capacity import Reservation
from tidemill.model.errors import Refused
from tidemill.model.purchase_reasons import ReasonKind
from tidemill.model.purchases import NOT_SUBMITTED, PurchaseIntent, PurchaseState, Spending, Verdict
from tidemill.ports import Ledger
from tidemill.spec import Spec
from tidemill.spec.platform import Approval, Platform, principal
from tidemill.wording.purchases import purchase_sentence


def record_verdict(
    ledger: Ledger,
    spec: Spec,
    intent: PurchaseIntent,
    *,
    who: str,
    approved: bool,
    at: datetime,
    listed: Iterable[Reservation],
    note: str = "",
) -> PurchaseIntent:
    """Append the verdict; the intent is approved once the platform's policy is satisfied, refused at one no.

    `listed`: the reservations that AWS shows.
    """
    after = with_verdict(ledger, spec, intent, Verdict(who, at, approved, note), listed)
    ledger.advance(intent, after)
    return after


def with_verdict(
    ledger: Ledger, spec: Spec, intent: PurchaseIntent, verdict: Verdict, listed: Iterable[Reservation]
) -> PurchaseIntent:
    """The purchase with the verdict, nothing written yet. Refused: the verdict does not count."""
    platform, spending = spec.platform, ledger.spending(verdict.at)
    _check_state(platform, intent, verdict, spending)
    _check_approver(platform.spec.approval, intent, verdict)
    if verdict.approved:
        held = held_beside(intent, listed, ledger, platform.spec.deployment, verdict.at)
        _check_it_can_be_bought(spec, intent, held, spending, verdict.at)
    after = replace(intent, verdicts=(*intent.verdicts, verdict), state_at=verdict.at)
    if not verdict.approved:
        return replace(after, state=PurchaseState.REFUSED, reason=None, note=verdict.note)
    if not_granted(platform, after, spending) is None:
        return replace(after, state=PurchaseState.APPROVED)
    return after


def _check_state(platform: Platform, intent: PurchaseIntent, verdict: Verdict, spending: Spending) -> None:
    """A no counts until it is submitted; a yes while an approval is missing, also where the policy became stricter."""
    if intent.state not in NOT_SUBMITTED:
        raise Refused(
            f"purchase {intent.id} is {intent.state.value}; only a proposed or approved one can be decided on"
        )
    if not verdict.approved:
        return
    if intent.state is PurchaseState.APPROVED and not_granted(platform, intent, spending) is None:
        raise Refused(
            f"purchase {intent.id} is approved already; it can still be refused until it is submitted"
        )


def _check_it_can_be_bought(
    spec: Spec, intent: PurchaseIntent, held: Iterable[Reservation], spending: Spending, at: datetime
) -> None:
    """A yes to what will not be bought would only look like one."""
    why_not = why_never_bought(spec, intent, held, spending, at)
    if why_not is not None and why_not.kind is ReasonKind.EXPIRED:
        raise Refused(f"purchase {intent.id} has expired", code=why_not.kind)
    if why_not is not None:
        sentence = purchase_sentence(why_not)
        raise Refused(f"purchase {intent.id} can no longer be bought: {sentence}", code=why_not.kind)


def _check_approver(policy: Approval, intent: PurchaseIntent, verdict: Verdict) -> None:
    """A verdict that would not count is refused, so that its author knows. A person may turn their yes into a no."""
    who, me = verdict.who, _person(policy, verdict.who)
    if me == _person(policy, intent.proposer):
        as_role = "" if who == intent.proposer else f" in another session of {me}"
        raise Refused(f"{who} proposed it{as_role}; somebody else must decide")
    if policy.approvers and who not in policy.approvers:
        raise Refused(f"{who} may not decide on purchases; the approvers are {', '.join(policy.approvers)}")
    approved_as = {_person(policy, one.who): one.who for one in intent.verdicts if one.approved}
    if verdict.approved and me in approved_as:
        as_role = (
            ""
            if approved_as[me] == who
            else f", as {approved_as[me]}: a session name does not prove who somebody is"
        )
        raise Refused(
            f"{who} has approved purchase {intent.id} already{as_role}; somebody else must give the second"
        )


def _person(policy: Approval, who: str) -> str:
    return principal(who, sessions_are_proved=policy.sessions_are_proved)
