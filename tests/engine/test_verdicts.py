"""A person's word on a purchase: whose counts, how often, and what is said to the others."""

from __future__ import annotations

import pytest

from tests.decide.builders import NOW
from tests.decide.purchases import buying, intent
from tests.engine.ports import Hands
from tidemill.errors import Refused
from tidemill.store.memory import MemoryLedger
from tidemill.store.verdicts import give_verdict
from tidemill.world import PurchaseIntent, PurchaseState

pytestmark = pytest.mark.requirement("CB-4")


class Desk:
    """One proposal, and people who come by."""

    def __init__(self, mode: str, *approvers: str) -> None:
        self.platform = buying(mode, approval={"approvers": approvers}).platform
        self.ledger = MemoryLedger(Hands())
        self.ledger.propose(intent())

    @property
    def proposal(self) -> PurchaseIntent:
        (one,) = self.ledger.purchases()
        return one

    def says(self, who: str, *, approved: bool) -> PurchaseState:
        give_verdict(self.ledger, self.platform, self.proposal, who=who, approved=approved, at=NOW)
        return self.proposal.state


@pytest.mark.parametrize("approved", [True, False])
def test_somebody_who_is_no_approver_is_told_who_is(approved):
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


def test_an_approver_may_think_again_while_it_is_open():
    desk = Desk("two", "ana", "ben")
    desk.says("ana", approved=True)
    assert desk.says("ana", approved=False) is PurchaseState.REFUSED
