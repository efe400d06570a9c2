"""A person's word on a purchase: whose counts, how often, and what is said to the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.decide.builders import NOW
from tests.decide.purchases import buying, intent
from tests.engine.ports import Hands
from tidemill.decide.purchasing.approval import not_granted
from tidemill.model.errors import Refused
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import PurchaseIntent, PurchaseState, Verdict
from tidemill.spec.platform import principal
from tidemill.store.decisions import record_verdict
from tidemill.store.memory import MemoryLedger

pytestmark = pytest.mark.requirement("CB-4")


class Desk:
    """One proposal, and people who come by."""

    def __init__(self, mode: str, *approvers: str) -> None:
        self.spec = buying(mode, approval={"approvers": approvers})
        self.ledger = MemoryLedger(Hands())
        self.ledger.propose(intent())

        self.at = NOW

    @property
    def proposal(self) -> PurchaseIntent:
        (one,) = self.ledger.purchases()
        return one

    def says(self, who: str, *, approved: bool) -> PurchaseState:
        record_verdict(
            self.ledger, self.spec, self.proposal, who=who, approved=approved, at=self.at, listed=()
        )
        return self.proposal.state


@pytest.mark.parametrize("approved", [True, False])
def test_somebody_who_is_no_approver_is_told_who_the_approvers_are(approved):
    desk = Desk("one", "ana", "ben")
    with pytest.raises(Refused, match="eve may not decide on purchases; the approvers are ana, ben"):
        desk.says("eve", approved=approved)
    assert (desk.proposal.state, desk.proposal.verdicts) == (PurchaseState.PROPOSED, ())


def test_without_a_list_anybody_but_the_proposer_may_decide():
    assert Desk("one").says("eve", approved=True) is PurchaseState.APPROVED
    with pytest.raises(Refused, match="somebody else must decide"):
        Desk("one").says("tidemill-engine", approved=True)


def test_one_person_cannot_be_two_approvers():
    desk = Desk("two", "ana", "ben")
    assert desk.says("ana", approved=True) is PurchaseState.PROPOSED
    with pytest.raises(Refused, match="ana has approved purchase tp-1 already"):
        desk.says("ana", approved=True)
    assert len(desk.proposal.verdicts) == 1
    assert desk.says("ben", approved=True) is PurchaseState.APPROVED


def test_an_approver_may_refuse_after_approving_while_it_is_open():
    desk = Desk("two", "ana", "ben")
    desk.says("ana", approved=True)
    assert desk.says("ana", approved=False) is PurchaseState.REFUSED


def test_an_approved_purchase_can_be_refused_until_it_is_submitted():
    desk = Desk("one")
    assert desk.says("ana", approved=True) is PurchaseState.APPROVED
    with pytest.raises(Refused, match="is approved already; it can still be refused until it is submitted"):
        desk.says("ben", approved=True)
    assert desk.says("ben", approved=False) is PurchaseState.REFUSED
    with pytest.raises(Refused, match="only a proposed or approved one can be decided on"):
        desk.says("ana", approved=False)


def test_an_expired_purchase_can_be_refused_but_not_approved():
    desk = Desk("one")
    desk.at = intent().envelope.expires_at
    with pytest.raises(Refused, match="has expired"):
        desk.says("ana", approved=True)
    assert desk.says("ana", approved=False) is PurchaseState.REFUSED


def test_a_stricter_policy_requires_a_second_approval():
    desk = Desk("one")
    desk.says("ana", approved=True)
    desk.spec = buying("two")
    assert desk.says("ben", approved=True) is PurchaseState.APPROVED
    assert len(desk.proposal.verdicts) == 2
    assert not_granted(desk.spec.platform, desk.proposal) is None


def test_the_money_spent_this_month_counts_at_an_approval():
    """Inside what the policy buys by itself, until the month's fees are too many: from then on a yes is lacking."""
    fee_usd = intent().envelope.max_fee_usd
    documents = buying("auto", approval={"autoMaxFeeUsd": fee_usd, "autoMonthlyUsd": fee_usd})
    ledger = MemoryLedger(Hands())
    small = replace(intent(), state=PurchaseState.APPROVED)
    ledger.propose(small)
    with pytest.raises(Refused, match="is approved already"):
        record_verdict(ledger, documents, small, who="ana", approved=True, at=NOW, listed=())
    ledger.propose(
        replace(
            intent(), id="tp-0", pool="other", state=PurchaseState.CONFIRMED, state_at=NOW, fee_usd=fee_usd
        )
    )
    after = record_verdict(ledger, documents, small, who="ana", approved=True, at=NOW, listed=())
    assert [said.who for said in after.verdicts] == ["ana"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"budget": {"perPurchaseUsd": 100, "monthlyUsd": 500_000}},
            "over the ceiling of \\$100 for one purchase",
        ),
        ({"budget": {"perPurchaseUsd": 100_000, "monthlyUsd": 100}}, "over the monthly budget of \\$100"),
    ],
    ids=["ceiling", "month"],
)
def test_what_the_documents_no_longer_allow_is_not_approved_and_can_be_refused(changed, sentence):
    desk = Desk("one")
    desk.spec = buying("one", **changed)
    with pytest.raises(Refused, match=f"can no longer be bought: .*{sentence}"):
        desk.says("ana", approved=True)
    assert not desk.proposal.verdicts
    assert desk.says("ana", approved=False) is PurchaseState.REFUSED


# --- who is one person --------------------------------------------------------------------------------

ROLE = "arn:aws:sts::123456789012:assumed-role/tidemill-operator"
CENTRE = "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Finance_0123456789abcdef"


def test_two_sessions_of_one_role_are_one_person():
    desk = Desk("two")
    desk.says(f"{ROLE}/ana-1", approved=True)
    with pytest.raises(Refused, match="a session name does not prove who somebody is"):
        desk.says(f"{ROLE}/ana-2", approved=True)
    assert desk.says(f"{CENTRE}/ben", approved=True) is PurchaseState.APPROVED


def test_the_proposer_in_another_session_is_still_the_proposer():
    desk = Desk("one")
    desk.ledger = MemoryLedger(Hands())
    desk.ledger.propose(replace(intent(), proposer=f"{ROLE}/you"))
    with pytest.raises(
        Refused, match=r"proposed it in another session of .*tidemill-operator; somebody else"
    ):
        desk.says(f"{ROLE}/not-you", approved=True)


def test_sessions_count_where_the_platform_says_that_they_are_proved():
    desk = Desk("two")
    desk.spec = buying("two", approval={"sessionsAreProved": True})
    desk.says(f"{ROLE}/ana", approved=True)
    assert desk.says(f"{ROLE}/ben", approved=True) is PurchaseState.APPROVED


def test_earlier_verdicts_are_counted_by_person_too():
    given = tuple(Verdict(f"{ROLE}/ana-{number}", NOW, True) for number in (1, 2))
    platform = buying("two").platform
    kind = ReasonKind.WAITS_FOR_APPROVAL
    one_of_two = PurchaseReason(kind, approvals=1, approvals_needed=2)
    assert not_granted(platform, replace(intent(), verdicts=given)) == one_of_two
    mine = replace(intent(), proposer=f"{ROLE}/you", verdicts=given)
    assert not_granted(platform, mine) == PurchaseReason(kind, approvals=0, approvals_needed=2)


@pytest.mark.parametrize(
    ("arn", "who"),
    [
        ("ana", "ana"),
        ("arn:aws:iam::123456789012:user/ana", "arn:aws:iam::123456789012:user/ana"),
        (f"{ROLE}/ana", ROLE),
        (f"{CENTRE}/ana@example.com", f"{CENTRE}/ana@example.com"),
        ("arn:aws:sts::123456789012:federated-user/ana", "arn:aws:sts::123456789012:federated-user"),
        ("arn:aws-us-gov:sts::1:assumed-role/r/s", "arn:aws-us-gov:sts::1:assumed-role/r"),
    ],
)
def test_a_person_is_identified_by_what_they_cannot_choose_themselves(arn, who):
    assert principal(arn) == who
    assert principal(arn, sessions_are_proved=True) == arn
