"""What `rebuild` makes of the blocks that AWS still lists; through the command line: tests/cli/test_rebuild.py."""

from __future__ import annotations

import pytest

from tests.decide.builders import NOW, block, spec
from tidemill.model.capacity import LIVE_STATES, NEVER_CAME_STATES, ReservationState
from tidemill.model.purchases import PurchaseIntent, PurchaseState
from tidemill.store.rebuild import rebuild


def rebuilt(state: ReservationState) -> PurchaseIntent:
    bought = block(state=state, intent_id="tp-1", fee_usd=30_000)
    (intent,) = rebuild(spec(), [bought], [], who="ops", now=NOW).purchases
    return intent


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("state", sorted(NEVER_CAME_STATES))
def test_a_block_that_never_came_is_rebuilt_as_a_failed_purchase_without_a_fee(
    state: ReservationState,
) -> None:
    intent = rebuilt(state)
    assert (intent.state, intent.fee_usd) == (PurchaseState.FAILED, 0)


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    "state", sorted({*LIVE_STATES, ReservationState.EXPIRED, ReservationState.UNAVAILABLE})
)
def test_any_other_block_is_rebuilt_as_bought_with_its_fee(state: ReservationState) -> None:
    intent = rebuilt(state)
    assert (intent.state, intent.fee_usd) == (PurchaseState.CONFIRMED, 30_000)
