"""Chaos on money, many runs of it: one line, and exit code 1 if anything is bought twice, unasked, over budget or lost.

Run with `python -m benchmarks.chaos_money [--runs 1000] [--from SEED] [--json]`. Every fiftieth run keeps its ledger
in SQLite, the others in memory: the same rules, and many times the runs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.chaos.judge import KINDS, Mistakes
from benchmarks.chaos.simulate import LedgerAccess, NeverIdle, Run, in_memory, simulate
from tidemill.ports import Clock
from tidemill.spec.platform import Platform
from tidemill.store.database import sqlite
from tidemill.store.ledger_owner import LedgerOwner
from tidemill.store.open_ledger import open_durable
from tidemill.store.sql import SqlLedger

_SQLITE_EVERY = 50


@contextmanager
def in_a_file(platform: Platform, clock: Clock) -> Iterator[LedgerAccess]:
    """Each engine that starts takes the lead: whoever led before can write nothing more."""
    with TemporaryDirectory() as folder, ExitStack() as opened:
        path = Path(folder) / "ledger.db"
        whose, writer = LedgerOwner.of(platform), "tidemill-engine"
        people = opened.enter_context(
            closing(open_durable(f"sqlite:///{path}", whose, clock=clock, writer=writer))
        )
        database = opened.enter_context(closing(sqlite(path)))

        def lead() -> SqlLedger:
            ledger = SqlLedger(database, clock, writer=writer)
            ledger.lead()
            return ledger

        yield LedgerAccess(people, lead, exclusive=True)


def _simulate_seed(seed: int) -> tuple[int, Run]:
    logging.disable(logging.CRITICAL)  # everything fails here, and every failure is logged
    try:
        return seed, simulate(seed, opens_ledger=in_memory if seed % _SQLITE_EVERY else in_a_file)
    except (
        NeverIdle
    ) as never_idle:  # it says nothing about the others; nobody knows what became of its purchases
        return seed, Run(Mistakes(lost=[str(never_idle)]), 0, 0, Counter())


def main() -> int:
    return sweep(_simulate_seed, __doc__ or "", usual=1000, at_a_time=20)


def sweep(simulate_seed: Callable[[int], tuple[int, Run]], about: str, *, usual: int, at_a_time: int) -> int:
    """Every seed once, on every core, and one line of results. Ctrl-C ends it without a traceback."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=usual)
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="SEED")
    parser.add_argument("--json", action="store_true", help="also what was bought and what went wrong")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.runs)
    try:
        with get_context("spawn").Pool(os.cpu_count() or 1, _ignore_interrupt) as pool:
            return report(
                pool.imap_unordered(simulate_seed, seeds, chunksize=at_a_time), args.runs, args.json
            )
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def report(runs: Iterable[tuple[int, Run]], total: int, as_json: bool) -> int:
    wrong: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for done, (seed, run) in enumerate(runs, 1):
        mistakes = run.mistakes
        for kind in KINDS:
            wrong[kind] += len(getattr(mistakes, kind))
        for sentence in mistakes.wrong:
            print(f"seed {seed}: {sentence}", file=sys.stderr)
        sums.update({"blocks": run.blocks, "extensions": run.extensions}, **run.struck)
        if sys.stderr.isatty():
            print(f"\r{done:,} of {total:,}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    print(
        f"{total:,} runs, {wrong['double']} double, {wrong['unapproved']} unapproved, "
        f"{wrong['over_budget']} over budget, {wrong['lost']} lost"
    )
    if as_json:
        print(json.dumps({"runs": total, "wrong": dict(wrong), "in_them": dict(sums)}))
    return 1 if wrong.total() else 0


if __name__ == "__main__":
    sys.exit(main())
