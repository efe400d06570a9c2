"""Run commands against a simulated account: documents in a folder, a clock that the test advances, a caller."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tidemill.cli import main

START = "2026-11-16T08:00:00Z"
P5 = "p5.48xlarge"
# Blocks of the simulated market may be bought without an approval.
CHEAP: dict[str, Any] = {"mode": "auto", "approval": {"autoMaxFeeUsd": 50_000}}


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def pool(name: str, *types: str, **spec: Any) -> dict[str, Any]:
    inside = {
        "nodeClassName": "gpu", "sources": [{"type": "block"}], "requirements": {"instanceTypes": list(types)},
        "limits": {"nodes": 64}, **spec,
    }  # fmt: skip
    return {"kind": "ComputePool", "metadata": {"name": name}, "spec": inside}


class Purchaser:
    """`purchaser("offers", …)` runs a command on the account in one folder, by default as the user `you`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sim = folder / "account.json"
        self.ledger = f"sqlite:///{folder / 'ledger.db'}"
        self.documents = folder / "documents"
        self.documents.mkdir()

    def environment(self, who: str = "you") -> dict[str, str]:
        return {
            "TIDEMILL_SIM": str(self.sim),
            "TIDEMILL_FILES": str(self.documents),
            "TIDEMILL_LEDGER": self.ledger,
            "TIDEMILL_SIM_AS": who,
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    def write(self, *more: dict[str, Any], mode: str = "one", **platform: Any) -> None:
        approval = {"mode": mode, **platform.pop("approval", {})}
        spec = {
            "region": "us-east-1", "deployment": "mill", "cluster": {"name": "ml"},
            "subnets": {"us-east-1a": ["subnet-0a1"], "us-east-1b": ["subnet-0b1"]},
            "budget": {"perPurchaseUsd": 50_000, "monthlyUsd": 100_000}, "approval": approval, **platform,
        }  # fmt: skip
        node_class = {
            "kind": "NodeClass", "metadata": {"name": "gpu"},
            "spec": {"amiSelectorTerms": [{"alias": "al2023@v20261101"}]},
        }  # fmt: skip
        pools = more or (pool("train", P5),)
        documents = [{"kind": "Platform", "metadata": {"name": "mill"}, "spec": spec}, node_class, *pools]
        (self.documents / "all.yaml").write_text(yaml.safe_dump_all(documents))

    def open(self, *, market: str = "plenty", seed: int = 1, **written: Any) -> Purchaser:
        """Write the documents and create an account whose clock stands still at START."""
        self.write(**written)
        result = self("sim", "new", str(self.sim), "--at", START, "--market", market, "--seed", str(seed))
        assert result.code == 0, result.err
        return self

    def __call__(self, *arguments: str, who: str = "you", answer: str = "") -> CommandResult:
        out, err = io.StringIO(), io.StringIO()
        with _set(self.environment(who)), _typed(answer), redirect_stdout(out), redirect_stderr(err):
            code = main([str(one) for one in arguments])
        return CommandResult(code, out.getvalue(), err.getvalue())

    # --- how most tests start -------------------------------------------------------------

    def advance(self, time: str) -> None:
        assert self("sim", "advance", time).code == 0

    def offer(self, *wish: str) -> dict[str, Any]:
        """The first offer of `tidemill offers`."""
        asked = wish or (P5, "--count", "2", "--duration", "7d", "--from", "2026-11-18", "--to", "2026-11-25")
        found: dict[str, Any] = self("offers", *asked, "--json").json["offers"][0]
        return found

    def proposed(self, *wish: str) -> str:
        """The id of an intent that waits for approval."""
        result = self("buy", self.offer(*wish)["id"], "--yes", "--json")
        assert result.code == 0, result.err
        return str(result.json["intent"]["id"])

    def approved(self, *wish: str) -> str:
        intent = self.proposed(*wish)
        result = self("approve", intent, "--yes", who="ana")
        assert result.code == 0, result.err
        return intent

    def bought(self, *wish: str) -> str:
        """The id of a block that is paid for."""
        result = self("buy", self.approved(*wish), "--yes", "--json")
        assert result.code == 0, result.err
        self.advance("10m")
        return str(result.json["reservation_ids"][0])

    def bought_at_once(self, *wish: str) -> str:
        """The id of a block that needs no approval. Its payment is pending."""
        return str(self("buy", self.offer(*wish)["id"], "--yes", "--json").json["reservation_ids"][0])

    def purchases(self) -> list[dict[str, Any]]:
        """Of a ledger that does not exist: none."""
        if not Path(self.ledger.removeprefix("sqlite:///")).exists():
            return []
        found: list[dict[str, Any]] = self("ledger", "--json").json["purchases"]
        return found

    def state(self, intent: str) -> str:
        (found,) = (one for one in self.purchases() if one["id"] == intent)
        return str(found["state"])

    def blocks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self("blocks", "--json").json["blocks"]
        return found

    def calls(self, name: str) -> int:
        """How many such calls changed the account."""
        return sum(one["call"] == name for one in self("sim", "show", "--json").json["calls"])


@contextmanager
def _set(environment: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _typed(answer: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.StringIO(answer)
    try:
        yield
    finally:
        sys.stdin = before
