"""Every sentence about what the engine does, made in one place from the typed reasons in `model.reasons`.

Pure text: it decides nothing, and nothing reads its sentences back. It sits below `decide` because not only screens
speak: the engine's log, alerts, the simulator's journal and Kubernetes Events say the same things in the same words.
`decide` itself must not import it.
"""

from __future__ import annotations

from tidemill.model.purchase_reasons import ProposalReason, PurchaseReason, PurchaseWarning, SearchReason
from tidemill.model.reasons import ActionReason, HoldReason
from tidemill.model.warning_reasons import (
    AnyWarning,
    BlockNotFilled,
    MethodUnavailable,
    PinMustMove,
    ProvisionerMessage,
    ServiceShort,
    WarningReason,
)
from tidemill.wording.actions import action_sentence
from tidemill.wording.handover import handover_sentence
from tidemill.wording.holds import hold_sentence
from tidemill.wording.purchases import (
    proposal_sentence,
    purchase_sentence,
    purchase_warning_sentence,
    search_sentence,
)
from tidemill.wording.warnings import not_filled_sentence, warning_sentence

Reason = ActionReason | HoldReason | AnyWarning | SearchReason | ProposalReason


def sentence(reason: Reason) -> str:
    """One sentence, without a capital and a full stop: what it is about stands before it."""
    match reason:
        case ProvisionerMessage():
            return reason.text
        case HoldReason():
            return hold_sentence(reason)
        case WarningReason():
            return warning_sentence(reason)
        case BlockNotFilled():
            return not_filled_sentence(reason)
        case MethodUnavailable() | ServiceShort() | PinMustMove():
            return handover_sentence(reason)
        case PurchaseReason():
            return purchase_sentence(reason)
        case PurchaseWarning():
            return purchase_warning_sentence(reason)
        case SearchReason():
            return search_sentence(reason)
        case ProposalReason():
            return proposal_sentence(reason)
        case _:
            return action_sentence(reason)
