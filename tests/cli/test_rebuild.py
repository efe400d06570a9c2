"""`tidemill ledger rebuild`: a lost ledger is rebuilt from AWS, and the engine buys nothing a second time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.purchaser import CHEAP, P5, Purchaser, pool
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
    """The engine on the purchaser's account and ledger, ticking until it has nothing more to do."""

    def __init__(self, purchaser: Purchaser) -> None:
        spec, _ = load_spec([str(purchaser.documents / "all.yaml")])
        self.account = SimAccount(purchaser.sim, catalog.load(), lambda: START)
        self.ledger: SqlLedger = open_durable(
            purchaser.ledger, LedgerOwner.of(spec.platform), clock=self.account, writer="tidemill-engine"
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
def planned(purchaser: Purchaser) -> Purchaser:
    """The engine has bought the week of its plan."""
    purchaser.write(pool("train", P5), PLAN, **CHEAP)
    assert purchaser("sim", "new", str(purchaser.sim), "--at", "2026-11-16T08:00:00Z").code == 0
    assert Running(purchaser).run().bought
    assert purchaser.calls("purchase") == 1
    return purchaser


def lose(purchaser: Purchaser) -> None:
    for path in purchaser.folder.glob("ledger.db*"):
        path.unlink()


def rebuild(purchaser: Purchaser, *given: str) -> Any:
    result = purchaser("ledger", "rebuild", purchaser.ledger, "--yes", "--json", *given)
    assert result.code == 0, result.err
    return result.json


def by_hand(purchaser: Purchaser) -> str:
    """Somebody buys what the plan's week needs before the engine does, and the ledger is lost."""
    purchaser.write(pool("train", P5), PLAN, **CHEAP)
    purchaser("sim", "new", str(purchaser.sim), "--at", "2026-11-16T08:00:00Z")
    offer = purchaser.offer(P5, "--count", "2", "--duration", "3d", "--start", "2026-11-17")
    block = purchaser("buy", offer["id"], "--yes", "--json").json["reservation_ids"][0]
    purchaser.advance("10m")
    lose(purchaser)
    return str(block)


def test_an_empty_ledger_buys_nothing_while_aws_shows_our_blocks(purchaser: Purchaser):
    """Its plan is not covered as far as it knows, so it would; what AWS shows with our tags forbids it."""
    block = by_hand(purchaser)
    assert Running(purchaser).run().bought
    assert purchaser.calls("purchase") == 1
    result = purchaser("buy", purchaser.offer()["id"], "--yes")
    assert (result.code, purchaser.calls("purchase")) == (1, 1)
    assert f"{block} were bought for 'mill' from another ledger" in result.err
    assert "tidemill ledger rebuild" in result.err


def test_after_a_rebuild_the_engine_buys_nothing_again(purchaser: Purchaser):
    block = by_hand(purchaser)
    rebuild(purchaser)
    assert Running(purchaser).run().bought == []
    assert purchaser.calls("purchase") == 1
    assert [(one["id"], one["held"]) for one in purchaser.blocks()] == [(block, "bought")]


def test_rebuild_restores_plan_and_window_of_engine_purchases(planned: Purchaser):
    (before,) = planned.purchases()
    lose(planned)
    (found,) = rebuild(planned)["purchases"]
    same = ("id", "plan", "window", "pool", "reservation_ids", "fee_usd", "state")
    assert {name: found[name] for name in same} == {name: before[name] for name in same}
    assert Running(planned).run().bought == []


def test_rebuild_reserves_the_ids_of_attempts_without_a_trace(purchaser: Purchaser):
    """Refused once, bought at the second attempt: the third must not be called like the second."""
    purchaser.write(pool("train", P5), PLAN, mode="one")
    purchaser("sim", "new", str(purchaser.sim), "--at", "2026-11-16T08:00:00Z")
    Running(purchaser).run()
    (first,) = purchaser.purchases()
    assert purchaser("approve", first["id"], "--refuse", who="ana").code == 0
    purchaser.advance("7h")
    Running(purchaser).run()
    second = purchaser.purchases()[-1]["id"]
    assert purchaser("approve", second, "--yes", who="ana").code == 0
    assert purchaser("buy", second, "--yes").code == 0
    purchaser.advance("10m")
    lose(purchaser)
    found = {one["id"]: (one["state"], one["window"]) for one in rebuild(purchaser)["purchases"]}
    assert found == {first["id"]: ("voided", "week-47"), second: ("confirmed", "week-47")}
    assert first["id"] == intent_id("mill", "november", "week-47", "0")


def test_rebuild_finds_purchases_and_extensions_by_hand(purchaser: Purchaser):
    purchaser.open(**CHEAP)
    block = purchaser.bought_at_once()
    purchaser.advance("10m")
    assert purchaser("extend", block, "--by", "7d", "--yes").code == 0
    purchaser.advance("10m")
    before = {(one["extends"], one["fee_usd"], one["state"]) for one in purchaser.purchases()}
    lose(purchaser)
    found = rebuild(purchaser)["purchases"]
    assert {(one["extends"], one["fee_usd"], one["state"]) for one in found} == before
    assert purchaser("ledger", "--json").json["month"]["fees_usd"] > 0


def test_rebuild_records_several_ultraservers_as_one_purchase(purchaser: Purchaser):
    gb200 = "p6e-gb200.36xlarge"
    purchaser.write(pool("ultra", gb200), **CHEAP)
    purchaser("sim", "new", str(purchaser.sim), "--at", "2026-11-16T08:00:00Z")
    result = purchaser("buy", purchaser.offer(gb200, "--count", "36")["id"], "--yes", "--json").json
    purchaser.advance("10m")
    lose(purchaser)
    (found,) = rebuild(purchaser)["purchases"]
    assert len(result["reservation_ids"]) == 2
    assert (found["reservation_ids"], found["fee_usd"]) == (result["reservation_ids"], result["fee_usd"])


@pytest.mark.requirement("CB-17")
def test_blocks_with_only_the_owner_tag_are_adopted_with_adopt_tagged(purchaser: Purchaser):
    purchaser.open()
    given = ("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--owner", "mill")
    block = purchaser(*given).out.strip()
    result = rebuild(purchaser)
    assert (result["adopted"], result["left_alone"]) == ([], [block])
    assert purchaser.blocks()[0]["held"] == "untracked"
    assert rebuild(purchaser, "--adopt-tagged")["adopted"] == [block]
    assert purchaser.blocks()[0]["held"] == "adopted"


def test_rebuild_refuses_a_ledger_that_holds_purchases(purchaser: Purchaser):
    purchaser.open().proposed()
    result = purchaser("ledger", "rebuild", purchaser.ledger, "--yes")
    assert (result.code, "this ledger is not lost: it holds tp-" in result.err) == (1, True)


def test_an_interrupted_rebuild_can_be_continued(planned: Purchaser):
    lose(planned)
    assert rebuild(planned)["purchases"] == rebuild(planned)["purchases"]
    assert len(planned.purchases()) == 1


def ended(purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch) -> int:
    """A block is bought and ends, and AWS lists it no more. What it cost."""
    purchaser.open(**CHEAP)
    result = purchaser("buy", purchaser.offer(P5, "--start", "2026-11-17")["id"], "--yes", "--json").json
    purchaser.advance("5d")
    lose(purchaser)
    monkeypatch.setattr(SimAccount, "reservations", lambda account: ())
    return int(result["fee_usd"])


def test_rebuild_warns_about_missing_costs(purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch):
    ended(purchaser, monkeypatch)
    result = purchaser("ledger", "rebuild", purchaser.ledger, "--yes")
    assert result.code == 0
    assert "AWS no longer lists ended blocks" in result.err
    assert "take the sum from the bill and pass it with --spent-usd N" in result.err


def test_spent_usd_counts_against_the_budget(purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch):
    fee_usd = ended(purchaser, monkeypatch)
    (found,) = rebuild(purchaser, "--spent-usd", str(fee_usd))["purchases"]
    assert (found["fee_usd"], found["reservation_ids"]) == (fee_usd, [])
    assert f"${fee_usd:,} spent" in purchaser("buy", purchaser.offer()["id"], answer="n\n").err
    assert "other spending" in purchaser("ledger").out
    assert purchaser("blocks").out == "AWS shows no block.\n"
    rebuild(purchaser, "--spent-usd", str(fee_usd + 1))
    (line,) = purchaser.purchases()
    assert line["fee_usd"] == fee_usd + 1
    assert Running(purchaser).run().bought == []


def test_rebuild_asks_first(planned: Purchaser, tmp_path: Path):
    lose(planned)
    assert planned("ledger", "rebuild", planned.ledger, answer="n\n").code == 1
    assert planned.purchases() == []
