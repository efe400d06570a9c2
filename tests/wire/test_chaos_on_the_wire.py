"""Money under chaos, through boto3: a few of the runs that `make chaos-money-wire` makes by the hundred."""

from __future__ import annotations

import pytest

from benchmarks.chaos.simulate import simulate
from benchmarks.chaos_wire import on_the_wire
from tidemill.aws import session


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("seed", [1, 3])
def test_over_the_wire_nothing_is_bought_twice_unapproved_over_budget_or_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ATTEMPTS", 1)
    for name in (
        "AWS_ENDPOINT_URL",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ):
        monkeypatch.setenv(name, "")  # put back afterwards
    run = simulate(seed, reaches=on_the_wire)
    assert run.mistakes.wrong == []
    assert run.struck["crash"] > 20
    assert run.blocks > 0
