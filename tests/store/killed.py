"""A process that writes to a ledger and is killed without warning at one of the moments where it could be.

`python -m tests.store.killed URL FOLDER MOMENTS` forks once per moment. A child buys a block, step by step, and
writes a line to FOLDER/MOMENT after each step that returned; it is killed before the n-th statement or
commit, or after a step returned. One moment too late, and it ends by itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sqlalchemy import event

from tests.decide.builders import NOW, launch_intent
from tests.decide.purchases import intent, yes
from tests.engine.ports import Hands
from tests.store.ledgers import OURS
from tests.store.probes import engine_of
from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import CostLine, LaunchState, PurchaseState
from tidemill.store.open_ledger import open_durable
from tidemill.store.sql import SqlLedger


class Work:
    """One block bought, one node launched and metered. Its ids are its own, so that many share a ledger."""

    def __init__(self, moment: int) -> None:
        proposed = intent(id=f"tp-{moment}")
        approved = replace(proposed, state=PurchaseState.APPROVED, verdicts=(yes("ana"), yes("bo")))
        submitted = replace(approved, state=PurchaseState.SUBMITTED, fee_usd=25_000, state_at=NOW)
        bought = replace(submitted, state=PurchaseState.CONFIRMED, reservation_ids=("cr-1",))
        written = launch_intent(f"ti-{moment}")
        launched = replace(written, state=LaunchState.LAUNCHED, instance_ids=("i-1",))
        line = CostLine(f"i-{moment}", "p5", SourceKind.ON_DEMAND, 55.0, NOW)
        self.ids = (bought.id, launched.id, line.instance_id)
        self.records = (proposed, approved, submitted, bought, written, launched, line)  # step by step
        self.result = (bought, launched, line)
        self.steps: tuple[Callable[[SqlLedger], None], ...] = (
            lambda ledger: ledger.propose(proposed),
            lambda ledger: ledger.advance(proposed, approved),
            lambda ledger: ledger.advance(approved, submitted),
            lambda ledger: ledger.advance(submitted, bought),
            lambda ledger: ledger.write_launch(written),
            lambda ledger: ledger.write_launch(launched),
            lambda ledger: ledger.meter(line),
        )


def live(url: str, moment: int, answered: Path) -> None:
    ledger = open_durable(url, OURS, clock=Hands(), writer="tidemill-engine")
    passed = iter(range(1_000_000))

    def perhaps(*_: object) -> None:
        if next(passed) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("before_cursor_execute", "commit"):
        event.listen(engine_of(ledger), name, perhaps)
    with answered.open("w") as lines:
        for step in Work(moment).steps:
            step(ledger)
            lines.write("answered\n")
            lines.flush()
            perhaps()
    os._exit(0)


def main(url: str, folder: Path, moments: int) -> None:
    open_durable(
        url, OURS, clock=Hands(), writer="tidemill-engine"
    ).close()  # imports once, not in every child
    for moment in range(moments):
        child = os.fork()
        if child == 0:
            live(url, moment, folder / str(moment))
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else "ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
