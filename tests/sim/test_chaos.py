"""Chaos on money: the real engine buys nothing twice, unasked, over budget or unseen; broken ones are caught."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.chaos_money import in_a_file
from tidemill.buying import Buyer
from tidemill.decide import decide
from tidemill.engine import Engine
from tidemill.errors import OutcomeUnknown
from tidemill.plan import Plan, SettlePurchase, SubmitPurchase
from tidemill.sim.chaos.judge import Count
from tidemill.sim.chaos.play import play
from tidemill.spec import Spec
from tidemill.world import PurchaseIntent, PurchaseState, World

pytestmark = pytest.mark.requirement("CB-4")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def wrong(count: Count) -> dict[str, int]:
    return {kind: len(getattr(count, kind)) for kind in ("double", "unapproved", "over_budget", "lost")}


NOTHING = {"double": 0, "unapproved": 0, "over_budget": 0, "lost": 0}


def test_the_engine_does_nothing_wrong_whatever_dies_when() -> None:
    runs = [play(seed) for seed in range(1, 61)]
    assert [wrong(run.count) for run in runs] == [NOTHING] * len(runs)
    # It proves nothing if nothing happens.
    assert sum(run.blocks for run in runs) > 20
    assert sum(run.extensions for run in runs) > 5
    assert sum(run.struck["crash"] for run in runs) > 1000
    assert sum(run.struck["no_answer"] for run in runs) > 20


def test_nor_with_its_ledger_in_a_file() -> None:
    assert [wrong(play(seed, opens_ledger=in_a_file).count) for seed in (3, 5, 6)] == [NOTHING] * 3


def test_a_run_is_the_same_whenever_it_is_played() -> None:
    once, again = play(7), play(7)
    assert (once.struck, once.blocks, once.extensions) == (again.struck, again.blocks, again.extensions)


# --- engines that are wrong -----------------------------------------------------------------------------


class _Retries(Buyer):
    """It did not answer, so it is called again."""

    def _purchase(self, submitted: PurchaseIntent, offer: Any) -> Any:
        try:
            return super()._purchase(submitted, offer)
        except OutcomeUnknown:
            return super()._purchase(submitted, offer)


class _AsksNobody(Buyer):
    def _check_the_money(self, intent: PurchaseIntent, fee_usd: int) -> None:
        pass


def _engine_with(buyer: type[Buyer], decides: Any = decide) -> Any:
    def make(*ports: Any) -> Engine:
        engine = Engine(*ports, decide=decides)
        spec, clock, cloud, _, ledger = ports
        engine._actor.buyer = buyer(spec, clock, cloud, ledger)
        return engine

    return make


def _forgets(spec: Spec, world: World) -> Plan:
    plan = decide(spec, world)
    kept = [
        one for one in plan.actions if not (isinstance(one, SettlePurchase) and one.outcome == "confirmed")
    ]
    return Plan(tuple(kept), plan.unmet, plan.warnings, plan.wake_at)


def _eager(spec: Spec, world: World) -> Plan:
    plan = decide(spec, world)
    asked = [one for one in world.purchases if one.state is PurchaseState.PROPOSED]
    return Plan((*plan.actions, *(SubmitPurchase(one, "why wait") for one in asked)), wake_at=plan.wake_at)


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("double", _engine_with(_Retries)),
        ("unapproved", _engine_with(_AsksNobody, _eager)),
        ("over_budget", _engine_with(_AsksNobody, _eager)),
        ("lost", _engine_with(Buyer, _forgets)),
    ],
    ids=["retries", "asks nobody", "does not count", "forgets"],
)
def test_a_wrong_engine_is_caught(kind: str, engine: Any) -> None:
    caught = sum(wrong(play(seed, makes_engine=engine).count)[kind] for seed in range(1, 61))
    assert caught > 0
