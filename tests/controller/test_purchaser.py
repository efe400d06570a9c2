"""The purchaser as a process of its own: the engine leaves purchases to it, and nothing is bought twice or unasked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.decide.builders import ahead
from tests.decide.purchases import buying, intent, offer, yes
from tests.engine.ports import Hands, Outside, TinyCloud
from tests.store.ledgers import Opener
from tests.store.postgres import Server
from tidemill.controller.purchaser import ASK_AWS_EVERY_S, Purchaser
from tidemill.engine.act import PURCHASER_TRIES_WITHIN
from tidemill.engine.loop import Engine
from tidemill.model.errors import Refused, Retryable
from tidemill.model.plan import SubmitPurchase
from tidemill.model.purchase_reasons import PurchaseWarning, PurchaseWarningKind
from tidemill.model.purchases import Pause, PurchaseIntent, PurchaseState
from tidemill.store.ledger_owner import LedgerOwner

pytestmark = pytest.mark.requirement("CB-4", "PE-23")

GRANTED = intent("approved", approved_by=("ana",))
TIDES = LedgerOwner("tides", "123456789012", "us-west-2", "mill")


def shop(*held: PurchaseIntent, **platform: Any) -> Outside:
    outside = Outside(buying(**platform))
    outside.cloud.offers = [offer(fee_usd=25_000)]
    for one in held or (GRANTED,):
        outside.books.propose(one)
    return outside


def purchaser(outside: Outside, **more: Any) -> Purchaser:
    return Purchaser(
        outside.spec, outside.clock, outside.cloud, outside.books, lambda pool: (), lambda: True, **more
    )


def engine(outside: Outside) -> Engine:
    ports: Any = (outside.clock, outside.cloud, outside.cluster, outside.books)
    return Engine(outside.spec, *ports, buys=False)


def state(outside: Outside) -> PurchaseState:
    (one,) = outside.books.purchases()
    return one.state


def test_the_engine_decides_and_the_purchaser_buys() -> None:
    outside = shop()
    tick = engine(outside).tick()
    assert tick is not None
    assert [one for one in tick.plan.actions if isinstance(one, SubmitPurchase)], "it may be bought"
    assert not [one for one in tick.outcomes if isinstance(one.action, SubmitPurchase)]
    assert not outside.cloud.purchases
    assert state(outside) is PurchaseState.APPROVED
    assert tick.wake_at > outside.clock.now(), "it does not spin while it waits"

    assert purchaser(outside).look() == [(GRANTED, "")]
    assert len(outside.cloud.purchases) == 1
    assert state(outside) is PurchaseState.CONFIRMED


def test_an_engine_says_when_no_purchaser_tries() -> None:
    outside = shop()
    alone = engine(outside)
    first = alone.tick()
    assert first is not None
    assert not first.kept
    outside.clock.at += PURCHASER_TRIES_WITHIN
    late = alone.tick()
    assert late is not None
    assert [one.reason for one in late.kept] == [PurchaseWarning(PurchaseWarningKind.NOT_TRIED, "tp-1")]
    purchaser(outside).look()
    after = alone.tick()
    assert after is not None
    assert not after.kept


def test_without_an_approval_nothing_is_bought() -> None:
    outside = shop(intent())
    buyer = purchaser(outside)
    assert buyer.look() == []
    assert not outside.cloud.purchases
    (read,) = outside.books.purchases()
    outside.books.advance(read, replace(read, state=PurchaseState.APPROVED, verdicts=(yes("ana"),)))
    assert [error for _, error in buyer.look()] == [""], "the approval is seen at the next look"
    assert buyer.look() == []
    assert len(outside.cloud.purchases) == 1


def test_the_budget_is_checked_again_at_submit() -> None:
    outside = shop(budget={"perPurchaseUsd": 20_000, "monthlyUsd": 500_000})
    assert purchaser(outside).look() == []
    assert not outside.cloud.purchases


def test_while_somebody_has_paused_the_engine_nothing_is_bought() -> None:
    outside = shop()
    outside.books.write_pause(Pause(True, "ana", outside.clock.now(), "an audit"))
    buyer = purchaser(outside, now_s=iter(range(0, 10_000, 100)).__next__)
    assert buyer.look() == []
    assert not outside.cloud.purchases


def test_an_unknown_outcome_is_never_submitted_again() -> None:
    outside = shop()
    outside.cloud.fail("purchase", Retryable("no answer"), after=True)
    buyer = purchaser(outside)
    assert [error for _, error in buyer.look()] == ["outcome-unknown"]
    assert state(outside) is PurchaseState.UNKNOWN
    assert buyer.look() == []
    assert purchaser(outside).look() == [], "nor by the one that comes after it"
    assert len(outside.cloud.purchases) == 1


def test_aws_that_cannot_be_read_buys_nothing() -> None:
    outside = shop()
    outside.cloud.away = True
    with pytest.raises(Retryable):
        purchaser(outside).look()
    outside.cloud.away = False
    outside.cloud.held.append(replace_unread())
    assert purchaser(outside).look() == [], "a reservation that may be ours could not be read"
    assert not outside.cloud.purchases


def replace_unread() -> Any:
    from tests.decide.builders import block

    return replace(block(), id="cr-9", owner="tides", unread="state 'odd'")


def test_aws_is_not_asked_while_nothing_changes() -> None:
    outside = shop()
    outside.cloud.offers = []
    now_s = [0.0]
    buyer = purchaser(outside, now_s=lambda: now_s[0])
    assert [error for _, error in buyer.look()] == ["no-capacity"]
    buyer.look()  # the ledger changed: the reason was written
    outside.cloud.offers = [offer(fee_usd=25_000)]
    outside.clock.pass_time(minutes=20)  # it may be tried again
    assert buyer.look() == []
    now_s[0] = ASK_AWS_EVERY_S
    assert [error for _, error in buyer.look()] == [""]


# --- two of them on one ledger ------------------------------------------------------------------------


def test_of_two_purchasers_one_buys(postgres: Server, opened: Opener, clock: Hands) -> None:
    url = postgres.new_database()
    ledgers = [opened(url, owner=TIDES, process="purchaser") for _ in range(3)]
    ledgers[0].propose(GRANTED)
    cloud = TinyCloud(clock)
    cloud.offers = [offer(fee_usd=25_000)]
    spec = buying()
    buyers = [Purchaser(spec, clock, cloud, ledger, lambda pool: (), lambda: True) for ledger in ledgers]
    with ThreadPoolExecutor(3) as threads:
        answers = [tried for one in threads.map(Purchaser.look, buyers) for tried in one]
    assert len(cloud.purchases) == 1
    assert [error for _, error in answers].count("") == 1


def test_engine_and_purchaser_lead_beside_each_other_and_each_ends_only_its_own_kind(
    url: str, opened: Opener
) -> None:
    engines = [opened(url) for _ in range(2)]
    purchasers = [opened(url, process="purchaser") for _ in range(2)]
    assert engines[0].lead() == 1
    assert purchasers[0].lead() == 1
    engines[0].propose(GRANTED)
    purchasers[0].advance(GRANTED, replace(GRANTED, state_at=ahead("0m")))
    assert purchasers[1].lead() == 2
    with pytest.raises(Refused, match="another purchaser has become the leader"):
        purchasers[0].propose(intent(id="tp-2"))
    assert purchasers[0].overtaken
    engines[0].propose(intent(id="tp-2"))
    assert engines[1].lead() == 2
    with pytest.raises(Refused, match="another engine has become the leader"):
        engines[0].propose(intent(id="tp-3"))
    purchasers[1].propose(intent(id="tp-3"))
