"""`tidemill ledger rebuild`: a lost ledger is made anew from AWS, and the engine buys nothing of it again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.purchaser import P5, Office, pool
from tests.engine.ports import TinyCluster
from tidemill import catalog
from tidemill.cli.loading import load_spec
from tidemill.decide.purchasing.purchase_intents import intent_id
from tidemill.engine.loop import Engine
from tidemill.model.plan import ProposePurchase, SubmitPurchase
from tidemill.sim.cloud.account import SimAccount
from tidemill.store.ledger_owner import LedgerOwner
from tidemill.store.open_ledger import open_durable
from tidemill.store.sql import SqlLedger

pytestmark = pytest.mark.requirement("CB-4")
CHEAP: dict[str, Any] = {"mode": "auto", "approval": {"autoMaxFeeUsd": 50_000}}
START = datetime(2026, 11, 16, 8, tzinfo=UTC)
PLAN = {
    "kind": "CapacityPlan",
    "metadata": {"name": "november"},
    "spec": {
        "pool": "train",
        "demand": [
            {
                "name": "week-47", "from": "2026-11-17T12:00:00Z", "to": "2026-11-20T11:00:00Z",
                "instanceType": P5, "instances": 2,
            }
        ],
    },
}  # fmt: skip


class Running:
    """The engine on the office's own account and ledger, ticking until it has nothing more to do."""

    def __init__(self, office: Office) -> None:
        spec, _ = load_spec([str(office.documents / "all.yaml")])
        self.account = SimAccount(office.sim, catalog.load(), lambda: START)
        self.ledger: SqlLedger = open_durable(
            office.ledger, LedgerOwner.of(spec.platform), clock=self.account, writer="tidemill-engine"
        )
        cluster: Any = TinyCluster()
        self.engine = Engine(spec, self.account, self.account, cluster, self.ledger)
        self.done: list[object] = []

    def run(self, *, ticks: int = 8) -> Running:
        for _ in range(ticks):
            tick = self.engine.tick()
            assert tick is not None
            self.done += [outcome.action for outcome in tick.outcomes]
            self.account.advance(timedelta(minutes=2))
        self.ledger.close()
        return self

    @property
    def bought(self) -> list[object]:
        return [one for one in self.done if isinstance(one, ProposePurchase | SubmitPurchase)]


@pytest.fixture
def planned(office: Office) -> Office:
    """The engine has bought the week of its plan."""
    office.write(pool("train", P5), PLAN, **CHEAP)
    assert office("sim", "new", str(office.sim), "--at", "2026-11-16T08:00:00Z").code == 0
    assert Running(office).run().bought
    assert office.calls("purchase") == 1
    return office


def lose(office: Office) -> None:
    for path in office.folder.glob("ledger.db*"):
        path.unlink()


def rebuild(office: Office, *given: str) -> Any:
    told = office("ledger", "rebuild", office.ledger, "--yes", "--json", *given)
    assert told.code == 0, told.err
    return told.json


def by_hand(office: Office) -> str:
    """Somebody buys what the plan's week needs before the engine does, and the ledger is lost."""
    office.write(pool("train", P5), PLAN, **CHEAP)
    office("sim", "new", str(office.sim), "--at", "2026-11-16T08:00:00Z")
    offer = office.offer(P5, "--count", "2", "--duration", "3d", "--start", "2026-11-17")
    block = office("buy", offer["id"], "--yes", "--json").json["reservation_ids"][0]
    office.wait("10m")
    lose(office)
    return str(block)


def test_a_lost_ledger_buys_nothing_before_it_is_rebuilt(office: Office):
    """Its plan is not covered as far as it knows, so it would; what AWS shows with our tags forbids it."""
    block = by_hand(office)
    assert Running(office).run().bought
    assert office.calls("purchase") == 1
    told = office("buy", office.offer()["id"], "--yes")
    assert (told.code, office.calls("purchase")) == (1, 1)
    assert f"{block} were bought for 'mill' from another ledger" in told.err
    assert "tidemill ledger rebuild" in told.err


def test_after_a_rebuild_the_engine_buys_nothing_again(office: Office):
    block = by_hand(office)
    rebuild(office)
    assert Running(office).run().bought == []
    assert office.calls("purchase") == 1
    assert [(one["id"], one["held"]) for one in office.blocks()] == [(block, "bought")]


def test_what_the_engine_bought_has_its_plan_and_window_back(planned: Office):
    (before,) = planned.purchases()
    lose(planned)
    (found,) = rebuild(planned)["purchases"]
    same = ("id", "plan", "window", "pool", "reservation_ids", "fee_usd", "state")
    assert {name: found[name] for name in same} == {name: before[name] for name in same}
    assert Running(planned).run().bought == []


def test_attempts_that_left_no_trace_keep_their_ids(office: Office):
    """Refused once, bought at the second attempt: the third must not be called like the second."""
    office.write(pool("train", P5), PLAN, mode="one")
    office("sim", "new", str(office.sim), "--at", "2026-11-16T08:00:00Z")
    Running(office).run()
    (first,) = office.purchases()
    assert office("approve", first["id"], "--refuse", who="ana").code == 0
    office.wait("7h")
    Running(office).run()
    second = office.purchases()[-1]["id"]
    assert office("approve", second, "--yes", who="ana").code == 0
    assert office("buy", second, "--yes").code == 0
    office.wait("10m")
    lose(office)
    found = {one["id"]: (one["state"], one["window"]) for one in rebuild(office)["purchases"]}
    assert found == {first["id"]: ("voided", "week-47"), second: ("confirmed", "week-47")}
    assert first["id"] == intent_id("mill", "november", "week-47", "0")


def test_what_people_bought_and_extended_is_found_too(office: Office):
    office.open(**CHEAP)
    block = office("buy", office.offer()["id"], "--yes", "--json").json["reservation_ids"][0]
    office.wait("10m")
    assert office("extend", block, "--by", "7d", "--yes").code == 0
    office.wait("10m")
    before = {(one["extends"], one["fee_usd"], one["state"]) for one in office.purchases()}
    lose(office)
    found = rebuild(office)["purchases"]
    assert {(one["extends"], one["fee_usd"], one["state"]) for one in found} == before
    assert office("ledger", "--json").json["month"]["fees_usd"] > 0


def test_a_purchase_of_several_ultraservers_is_one_purchase(office: Office):
    gb200 = "p6e-gb200.36xlarge"
    office.write(pool("ultra", gb200), **CHEAP)
    office("sim", "new", str(office.sim), "--at", "2026-11-16T08:00:00Z")
    told = office("buy", office.offer(gb200, "--count", "36")["id"], "--yes", "--json").json
    office.wait("10m")
    lose(office)
    (found,) = rebuild(office)["purchases"]
    assert len(told["reservation_ids"]) == 2
    assert (found["reservation_ids"], found["fee_usd"]) == (told["reservation_ids"], told["fee_usd"])


@pytest.mark.requirement("CB-17")
def test_what_carries_our_tag_alone_is_listed_and_adopted_only_if_asked(office: Office):
    office.open()
    given = ("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--owner", "mill")
    block = office(*given).out.strip()
    told = rebuild(office)
    assert (told["adopted"], told["left_alone"]) == ([], [block])
    assert office.blocks()[0]["held"] == "untracked"
    assert rebuild(office, "--adopt-tagged")["adopted"] == [block]
    assert office.blocks()[0]["held"] == "adopted"


def test_a_ledger_that_holds_purchases_is_not_lost(office: Office):
    office.open().proposed()
    told = office("ledger", "rebuild", office.ledger, "--yes")
    assert (told.code, "this ledger is not lost: it holds tp-" in told.err) == (1, True)


def test_a_rebuild_that_was_interrupted_can_be_gone_on_with(planned: Office):
    lose(planned)
    assert rebuild(planned)["purchases"] == rebuild(planned)["purchases"]
    assert len(planned.purchases()) == 1


def ended(office: Office, monkeypatch: pytest.MonkeyPatch) -> int:
    """A block is bought and ends, and AWS lists it no more. What it cost."""
    office.open(**CHEAP)
    told = office("buy", office.offer(P5, "--start", "2026-11-17")["id"], "--yes", "--json").json
    office.wait("5d")
    lose(office)
    monkeypatch.setattr(SimAccount, "reservations", lambda account: ())
    return int(told["fee_usd"])


def test_a_rebuild_says_what_money_it_cannot_find(office: Office, monkeypatch: pytest.MonkeyPatch):
    ended(office, monkeypatch)
    told = office("ledger", "rebuild", office.ledger, "--yes")
    assert told.code == 0
    assert "AWS no longer lists ended blocks" in told.err
    assert "take the sum from the bill and pass it with --spent-usd N" in told.err


def test_what_a_person_says_was_spent_counts_against_the_budget(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    fee_usd = ended(office, monkeypatch)
    (found,) = rebuild(office, "--spent-usd", str(fee_usd))["purchases"]
    assert (found["fee_usd"], found["reservation_ids"]) == (fee_usd, [])
    assert f"${fee_usd:,} spent" in office("buy", office.offer()["id"], answer="n\n").err
    assert "other spending" in office("ledger").out
    assert office("blocks").out == "AWS shows no block.\n"
    rebuild(office, "--spent-usd", str(fee_usd + 1))
    (line,) = office.purchases()
    assert line["fee_usd"] == fee_usd + 1
    assert Running(office).run().bought == []


def test_a_rebuild_asks(planned: Office, tmp_path: Path):
    lose(planned)
    assert planned("ledger", "rebuild", planned.ledger, answer="n\n").code == 1
    assert planned.purchases() == []
