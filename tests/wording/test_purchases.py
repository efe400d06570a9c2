"""Every reason of a purchase has a sentence, and what a person wrote stands behind it."""

from __future__ import annotations

import pytest

from tests.decide.purchases import intent
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.wording.purchases import purchase_note, purchase_sentence


@pytest.mark.parametrize("kind", ReasonKind)
def test_every_kind_has_a_sentence_of_its_own(kind: ReasonKind):
    sentence = purchase_sentence(PurchaseReason(kind, detail="AWS said so"))
    assert sentence
    others = {
        purchase_sentence(PurchaseReason(other, detail="AWS said so"))
        for other in ReasonKind
        if other is not kind
    }
    refusals = (ReasonKind.REFUSED_BY_AWS, ReasonKind.REFUSED_BY_LEDGER)  # both show the message they got
    assert sentence not in others or kind in refusals


def test_a_submit_that_bought_nothing_says_so_first():
    tried = intent("approved", reason=PurchaseReason(ReasonKind.NO_OFFER))
    assert purchase_note(tried) == "not bought: no offer inside its envelope"


def test_the_note_of_a_person_follows_the_reason():
    reason = PurchaseReason(ReasonKind.NOT_BOUGHT_SAYS_PERSON, name="ana")
    settled = intent("failed", reason=reason, note="the bill is empty")
    assert purchase_note(settled) == "ana made sure that nothing was bought: the bill is empty"
    assert purchase_note(intent("refused", note="too dear")) == "too dear"
