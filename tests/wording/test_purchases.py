"""Every reason of a purchase has a sentence, and what a person wrote stands behind it."""

from __future__ import annotations

import pytest

from tests.decide.purchases import intent, offer
from tidemill.model import purchase_reasons
from tidemill.wording.purchases import (
    proposal_sentence,
    purchase_note,
    purchase_sentence,
    purchase_warning_sentence,
    search_sentence,
)


@pytest.mark.parametrize("kind", purchase_reasons.ReasonKind)
def test_every_kind_has_a_sentence_of_its_own(kind: purchase_reasons.ReasonKind):
    sentence = purchase_sentence(purchase_reasons.PurchaseReason(kind, detail="AWS said so"))
    assert sentence
    others = {
        purchase_sentence(purchase_reasons.PurchaseReason(other, detail="AWS said so"))
        for other in purchase_reasons.ReasonKind
        if other is not kind
    }
    refusals = (
        purchase_reasons.ReasonKind.REFUSED_BY_AWS,
        purchase_reasons.ReasonKind.REFUSED_BY_LEDGER,
    )  # both show the message they got
    assert sentence not in others or kind in refusals


def test_a_submit_that_bought_nothing_says_so_first():
    tried = intent("approved", reason=purchase_reasons.PurchaseReason(purchase_reasons.ReasonKind.NO_OFFER))
    assert purchase_note(tried) == "not bought: no offer inside its envelope"


def test_the_note_of_a_person_follows_the_reason():
    reason = purchase_reasons.PurchaseReason(purchase_reasons.ReasonKind.NOT_BOUGHT_SAYS_PERSON, name="ana")
    settled = intent("failed", reason=reason, note="the bill is empty")
    assert purchase_note(settled) == "ana made sure that nothing was bought: the bill is empty"
    assert purchase_note(intent("refused", note="too dear")) == "too dear"


@pytest.mark.parametrize("kind", purchase_reasons.SearchKind)
def test_every_search_has_a_sentence(kind: purchase_reasons.SearchKind):
    assert search_sentence(purchase_reasons.SearchReason(kind, "november", "week", 4))


@pytest.mark.parametrize("kind", purchase_reasons.PurchaseWarningKind)
def test_every_warning_has_a_sentence(kind: purchase_reasons.PurchaseWarningKind):
    said = purchase_warning_sentence(
        purchase_reasons.PurchaseWarning(kind, "tp-1", ("cr-1",), "p5.48xlarge", 4, 9, 9_000, 8_000)
    )
    assert said
    assert "{" not in said


def test_a_proposal_says_what_it_costs_and_what_speaks_for_it():
    block = offer(fee_usd=25_000)
    assert "about $25,000" in proposal_sentence(purchase_reasons.ProposalReason(block))
    assert proposal_sentence(purchase_reasons.ProposalReason(block, saves_usd=1_234.0)).endswith(
        "it saves $1,234 over going without it"
    )
