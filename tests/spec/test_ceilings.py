"""Ceilings in the environment of a process: documents can lower them and never raise them."""

from __future__ import annotations

import pytest

from tests.sim.scenario_builder import platform
from tidemill.model.errors import SpecError
from tidemill.spec.ceilings import Ceilings, lowered, read_ceilings
from tidemill.spec.platform import Approval, Budget

pytestmark = pytest.mark.requirement("CB-3")


def budget(ceilings: Ceilings, **written: int) -> Budget:
    return lowered(platform(budget=written), ceilings).spec.budget


def approval(ceilings: Ceilings, **written: object) -> Approval:
    return lowered(platform(approval=written), ceilings).spec.approval


def test_without_ceilings_the_platform_is_unchanged():
    written = platform(budget={"perPurchaseUsd": 5, "monthlyUsd": 9}, approval={"mode": "auto"})
    assert lowered(written, read_ceilings({})) is written


def test_the_lower_of_budget_and_ceiling_limits_a_fee():
    assert budget(Ceilings(max_fee_usd=100), perPurchaseUsd=5_000).per_purchase_usd == 100
    assert budget(Ceilings(max_fee_usd=100), perPurchaseUsd=40).per_purchase_usd == 40


def test_the_lower_of_budget_and_ceiling_limits_a_month():
    assert budget(Ceilings(monthly_usd=100), monthlyUsd=5_000).monthly_usd == 100
    assert budget(Ceilings(monthly_usd=100), monthlyUsd=40).monthly_usd == 40


def test_a_ceiling_does_not_raise_a_budget_of_zero():
    assert budget(Ceilings(max_fee_usd=100, monthly_usd=100)) == Budget()


@pytest.mark.parametrize(
    ("ceiling", "written", "holds"),
    [
        ("two", "auto", "two"),
        ("two", "one", "two"),
        ("one", "auto", "one"),
        ("one", "two", "two"),
        ("auto", "one", "one"),
        ("auto", "propose", "propose"),
        ("two", "propose", "propose"),
        ("propose", "auto", "propose"),
    ],
)
def test_the_stricter_of_two_approval_modes_applies(ceiling, written, holds):
    assert approval(Ceilings(approval=ceiling), mode=written).mode == holds


def test_only_approvers_in_both_lists_may_approve():
    assert approval(Ceilings(approvers=("ana", "bo")), approvers=["bo", "eve"]).approvers == ("bo",)
    assert approval(Ceilings(approvers=("ana",))).approvers == ("ana",)
    assert approval(Ceilings(), approvers=["eve"]).approvers == ("eve",)


def test_approver_lists_with_nobody_in_common_are_an_error():
    with pytest.raises(SpecError, match="nobody can approve"):
        approval(Ceilings(approvers=("ana",)), approvers=["eve"])


def test_ceilings_are_read_from_the_environment():
    found = read_ceilings(
        {
            "TIDEMILL_MAX_FEE_USD": "50000",
            "TIDEMILL_MONTHLY_USD": "90000",
            "TIDEMILL_APPROVAL": "two",
            "TIDEMILL_APPROVERS": "arn:a, arn:b",
        }
    )
    assert found == Ceilings(50_000, 90_000, "two", ("arn:a", "arn:b"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEMILL_MAX_FEE_USD", "50k"),
        ("TIDEMILL_MONTHLY_USD", "-1"),
        ("TIDEMILL_APPROVAL", "tow"),
        ("TIDEMILL_APPROVERS", " , "),
    ],
)
def test_a_misspelled_ceiling_is_an_error(name, value):
    with pytest.raises(SpecError, match=name):
        read_ceilings({name: value})
