"""Chaos on money: the real engine buys nothing twice, unapproved, over budget or unrecorded; broken ones are caught."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from benchmarks.chaos.drawn_run import START, DrawnRun, draw
from benchmarks.chaos.judge import KINDS, Mistakes
from benchmarks.chaos.simulate import LedgerAccess, in_memory, simulate
from benchmarks.chaos_money import in_a_file
from tidemill.decide import decide
from tidemill.engine.buyer import Buyer
from tidemill.engine.loop import Engine
from tidemill.model.ec2_facts import LONGEST_BLOCK, round_up_duration
from tidemill.model.errors import NoCapacity, OutcomeUnknown, Refused
from tidemill.model.plan import Plan, ProposePurchase, SettlePurchase, SubmitPurchase
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import Adoption, PurchaseIntent, PurchaseState
from tidemill.model.world import World
from tidemill.sim.timeline import Timeline
from tidemill.spec import Spec

HOUR = timedelta(hours=1)
pytestmark = pytest.mark.requirement("CB-4")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def wrong(mistakes: Mistakes) -> dict[str, int]:
    return {kind: len(getattr(mistakes, kind)) for kind in KINDS}


NOTHING = dict.fromkeys(KINDS, 0)


def test_the_engine_makes_no_mistake_with_money_whatever_fails() -> None:
    runs = [simulate(seed) for seed in range(1, 61)]
    assert [wrong(run.mistakes) for run in runs] == [NOTHING] * len(runs)
    # It proves nothing if nothing happens.
    assert sum(run.blocks for run in runs) > 20
    assert sum(run.extensions for run in runs) > 5
    assert sum(run.struck["crash"] for run in runs) > 1000
    assert sum(run.struck["no_answer"] for run in runs) > 20


def test_the_engine_does_nothing_wrong_with_its_ledger_in_a_file() -> None:
    runs = [simulate(seed, opens_ledger=in_a_file) for seed in (3, 6, 8)]
    assert [wrong(run.mistakes) for run in runs] == [NOTHING] * len(runs)


def test_an_engine_that_no_longer_leads_writes_nothing() -> None:
    drawn = draw(1)
    (plan,) = drawn.spec.plans.values()
    with in_a_file(drawn.spec.platform, Timeline(START)) as access:
        old, _ = access.lead(), access.lead()
        with pytest.raises(Refused, match="another engine has become the leader"):
            old.adopt(Adoption("cr-1", plan.spec.pool, "ana", START))
        assert access.ledger.adoptions() == ()


def test_an_old_leader_that_writes_all_the_same_is_caught() -> None:
    """The ledger in memory stops no old leader: called exclusive, it is found out."""

    @contextmanager
    def says_so(*about: Any) -> Iterator[LedgerAccess]:
        with in_memory(*about) as access:
            yield replace(access, exclusive=True)

    mistakes_of_runs = [simulate(seed, opens_ledger=says_so).mistakes for seed in range(1, 31)]
    assert any(
        "no longer leads" in sentence for mistakes in mistakes_of_runs for sentence in mistakes.unapproved
    )


def test_faults_reach_into_the_next_month() -> None:
    drawn_runs = [draw(seed) for seed in range(1, 61)]
    assert any((START + drawn.faults_last).month != START.month for drawn in drawn_runs)
    assert any(drawn.away for drawn in drawn_runs)
    assert any(drawn.hasty for drawn in drawn_runs)


def test_the_engine_does_nothing_wrong_while_lists_lose_adopted_blocks() -> None:
    def loses(seed: int) -> DrawnRun:
        return replace(draw(seed), hidden=tuple((15 * n * HOUR, HOUR) for n in range(1, 6)))

    mistakes_of_runs = [simulate(seed, draws=loses).mistakes for seed in range(1, 61)]
    assert [wrong(mistakes) for mistakes in mistakes_of_runs] == [NOTHING] * len(mistakes_of_runs)


def test_the_same_seed_gives_the_same_run() -> None:
    once, again = simulate(7), simulate(7)
    assert (once.struck, once.blocks, once.extensions) == (again.struck, again.blocks, again.extensions)


# --- engines that are wrong -----------------------------------------------------------------------------


class _Retries(Buyer):
    """It did not answer, so it is called again."""

    def _purchase(self, submitted: PurchaseIntent, offer: Any) -> Any:
        try:
            return super()._purchase(submitted, offer)
        except OutcomeUnknown:
            return super()._purchase(submitted, offer)


class _Untagged(Buyer):
    """Buys, twice, what nobody can tell apart from a stranger's."""

    def _purchase(self, submitted: PurchaseIntent, offer: Any) -> Any:
        if submitted.extends:
            return super()._purchase(submitted, offer)
        for _ in range(2):
            blocks = self._cloud.purchase(offer.id, ())
        return tuple(sorted(block.id for block in blocks)), offer.fee_usd


class _LosesExtensions(Buyer):
    """The answer is taken for a no, and what was asked for is forgotten."""

    def _purchase(self, submitted: PurchaseIntent, offer: Any) -> Any:
        answer = super()._purchase(submitted, offer)
        if submitted.extends:
            raise NoCapacity("no answer")
        return answer

    def _move(
        self, intent: PurchaseIntent, state: PurchaseState, reason: PurchaseReason | None, **changes: Any
    ) -> PurchaseIntent:
        if intent.extends and reason is not None and reason.kind is ReasonKind.REFUSED_BY_AWS:
            changes["offer_id"] = ""
        return super()._move(intent, state, reason, **changes)


def _lavish(spec: Spec, world: World) -> Plan:
    """Asks for three times the time it needs, and for the money."""
    plan = decide(spec, world)
    return replace(plan, actions=tuple(_longer(action) for action in plan.actions))


def _longer(action: Any) -> Any:
    if not isinstance(action, ProposePurchase) or action.intent.extends:
        return action
    bound = action.intent.envelope
    duration = round_up_duration(3 * bound.duration) or LONGEST_BLOCK
    more = replace(bound, duration=duration, max_fee_usd=4 * bound.max_fee_usd)
    return replace(action, intent=replace(action.intent, envelope=more))


class _AsksNobody(Buyer):
    def _check_money(self, intent: PurchaseIntent, fee_usd: int) -> None:
        pass


class _DoesNotCount(_AsksNobody):
    def _caps(self, intent: PurchaseIntent) -> Any:
        return None


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
        action
        for action in plan.actions
        if not (isinstance(action, SettlePurchase) and action.outcome == "confirmed")
    ]
    return Plan(tuple(kept), plan.unmet, plan.warnings, plan.wake_at)


def _eager(spec: Spec, world: World) -> Plan:
    plan = decide(spec, world)
    asked = [purchase for purchase in world.purchases if purchase.state is PurchaseState.PROPOSED]
    return Plan(
        (*plan.actions, *(SubmitPurchase(one, PurchaseReason(ReasonKind.APPROVED)) for one in asked)),
        wake_at=plan.wake_at,
    )


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("double", _engine_with(_Retries)),
        ("unapproved", _engine_with(_AsksNobody, _eager)),
        ("over_budget", _engine_with(_DoesNotCount, _eager)),
        ("lost", _engine_with(Buyer, _forgets)),
        ("lost", _engine_with(_Untagged)),
        ("double", _engine_with(_Untagged)),
        ("lost", _engine_with(_LosesExtensions)),
        ("double", _engine_with(Buyer, _lavish)),
    ],
    ids=[
        "retries",
        "asks nobody",
        "does not count",
        "forgets",
        "tags nothing",
        "buys untagged twice",
        "loses extensions",
        "buys three times the time",
    ],
)
def test_a_wrong_engine_is_caught(kind: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # What an engine would refuse itself must not hide what the judge would not see.
    wanted = sys.modules["tidemill.decide.purchasing.wanted"]
    monkeypatch.setattr(wanted, "is_mostly_covered", lambda *_: False)
    assert any(wrong(simulate(seed, makes_engine=engine).mistakes)[kind] for seed in range(1, 61))
