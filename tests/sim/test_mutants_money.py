"""Engines that spend wrongly on purpose: number 3 stops each of them, and the real one in the same scenario buys only
what people approved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim import mutants_money as mutants
from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, scenario_with
from tidemill.model.errors import InvariantViolated
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec

YES = {"at": "2h", "window": "sprint", "verdict": "approve", "by": "finance"}
AND_YES = {**YES, "at": "2h10m", "by": "boss"}
# Two p5 for a day cost some $1,800.
LATER = {
    "name": "sprint",
    "from": "2026-11-18T11:30:00Z",
    "to": "2026-11-19T11:00:00Z",
    "instanceType": given.P5,
    "instances": 2,
}
LATER_STILL = {**LATER, "name": "next", "from": "2026-11-20T11:30:00Z", "to": "2026-11-21T11:00:00Z"}
LONGER = {**LATER, "from": "2026-11-17T07:30:00Z", "to": "2026-11-18T11:00:00Z"}
RICH = {"perPurchaseUsd": 9000, "monthlyUsd": 9000}
ONE = {"mode": "one"}
AUTO = {"mode": "auto", "autoMaxFeeUsd": 5000}


def buying(
    *decisions: Any,
    money: Any = RICH,
    approval: Any = ONE,
    demand: Any = (LATER,),
    blocks: Any = (),
    **plan: Any,
) -> PreparedScenario:
    return scenario_with(
        on=given.platform(budget=money, approval=approval),
        plans=[given.plan(demand=list(demand), **plan)],
        reservations=list(blocks),
        duration="5h",
        decisions=list(decisions),
    )


def extending(*decisions: Any, **how: Any) -> PreparedScenario:
    """A block ends within the rehearsal, and its demand a day later."""
    return buying(*decisions, demand=[LONGER], blocks=[given.block()], **how)


# What people wrote and said, what the engine goes by instead, and how many sales the real engine makes.
BELIEFS: dict[str, tuple[PreparedScenario, Callable[[Spec], Spec], int]] = {
    "extends what nobody approved": (
        extending(),
        mutants.with_approval(mode="auto", auto_max_fee_usd=10**6),
        0,
    ),
    "extends over the ceiling of one purchase": (
        extending(YES, money={"perPurchaseUsd": 100, "monthlyUsd": 9000}),
        mutants.with_budget(per_purchase_usd=10**6),
        0,
    ),
    "extends over the budget of the month": (
        extending(YES, money={"perPurchaseUsd": 9000, "monthlyUsd": 100}),
        mutants.with_budget(monthly_usd=10**6),
        0,
    ),
    "takes one approval where two are needed": (
        buying(YES, approval={"mode": "two"}),
        mutants.with_approval(mode="one"),
        0,
    ),
    "takes one approval for a fee that needs two": (
        buying(YES, approval={**ONE, "twoAboveUsd": 1000}),
        mutants.with_approval(two_above_usd=None),
        0,
    ),
    "asks nobody for a fee that needs two": (
        buying(approval={**AUTO, "twoAboveUsd": 1000}),
        mutants.with_approval(two_above_usd=None),
        0,
    ),
    "takes two sessions of one role for two people": (
        buying(
            {**YES, "by": "arn:aws:sts::123456789012:assumed-role/ops/ana"},
            {**AND_YES, "by": "arn:aws:sts::123456789012:assumed-role/ops/bo"},
            approval={"mode": "two"},
        ),
        mutants.with_approval(sessions_are_proved=True),
        0,
    ),
    "takes the word of somebody who may not approve": (
        buying(YES, approval={**ONE, "approvers": ["boss"]}),
        mutants.with_approval(approvers=()),
        0,
    ),
    "ignores autoMonthlyUsd": (
        buying(approval={**AUTO, "autoMonthlyUsd": 2500}, demand=[LATER, LATER_STILL]),
        mutants.with_approval(auto_monthly_usd=None),
        1,
    ),
    "ignores autoMaxFeeUsd": (
        buying(approval={**AUTO, "autoMaxFeeUsd": 100}),
        mutants.with_approval(auto_max_fee_usd=10**6),
        0,
    ),
    "ignores the month of a plan": (
        buying(approval=AUTO, demand=[LATER, LATER_STILL], budget={"monthlyUsd": 2500}),
        mutants.without_plan_budget,
        1,
    ),
    "ignores the ceiling of a plan": (
        buying(YES, budget={"perPurchaseUsd": 100}),
        mutants.without_plan_budget,
        0,
    ),
    "buys where it may only propose": (
        buying(YES, approval={"mode": "propose"}),
        mutants.with_approval(mode="one"),
        0,
    ),
}
# What becomes of the call of a real engine, and how many sales there are without that.
CALLS: dict[str, tuple[PreparedScenario, type[SimCloud], int]] = {
    "buys once more, untagged": (buying(YES), mutants.BuysOnceMoreUntagged, 1),
    "buys in a zone that was not approved": (
        buying(YES, money=RICH, demand=[{**LATER, "zones": ["us-east-1a"]}]),
        mutants.BuysElsewhere,
        1,
    ),
    "buys fewer than were approved": (buying(YES), mutants.BuysFewer, 1),
    "extends what it only looked at": (extending(), mutants.ExtendsUnasked, 0),
    "extends twice": (extending(YES), mutants.ExtendsTwice, 1),
}


def sales(rehearsal: Rehearsal) -> int:
    return len(rehearsal.cloud.purchases) + len(rehearsal.cloud.bought_extensions)


@pytest.mark.requirement("CB-3")
@pytest.mark.parametrize("name", BELIEFS)
def test_an_engine_that_buys_by_other_rules_is_stopped_and_the_real_one_buys_what_it_may(name: str) -> None:
    prepared, believed, real = BELIEFS[name]
    with pytest.raises(InvariantViolated) as caught:
        mutants.believing(prepared, believed).run()
    assert caught.value.number == 3, str(caught.value)
    assert sales(prepared.run()) == real


@pytest.mark.requirement("CB-3")
@pytest.mark.parametrize("name", CALLS)
def test_a_sale_that_nobody_asked_for_is_found_and_the_real_call_is_none(name: str) -> None:
    prepared, cloud, real = CALLS[name]
    with pytest.raises(InvariantViolated) as caught:
        prepared.run(cloud=cloud)
    assert caught.value.number == 3, str(caught.value)
    assert sales(prepared.run()) == real


def test_what_a_person_extends_in_the_console_is_theirs() -> None:
    by_hand = scenario_with(
        reservations=[given.block()],
        extensions=[{"at": "1h", "block": "a", "by": "24h", "payment": "succeeds", "settlesAfter": "10m"}],
    )
    assert sales(by_hand.run()) == 1
