"""Rehearse whole platforms that nobody wrote, drawn from seeds, and shrink those that fail.

Run with `python -m benchmarks.vopr [--seeds 200] [--first 0] [--days 30]`, or `--seed N` for one. Exits 1 if any
document failed. Each failure is printed as the smallest documents that still fail: one file that
`tidemill rehearse` replays. A long sweep writes `--record FILE`, a line for each document, and goes on where that file
ends when it is started again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.vopr.generate import as_text, generate
from benchmarks.vopr.judge import Verdict
from benchmarks.vopr.shrink import shrink
from benchmarks.vopr.sweep import Task, sweep

TELL_EVERY_S = 60.0  # where there is no terminal


def main() -> int:
    args = _arguments()
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    if args.print:
        for seed in seeds:
            print(as_text(generate(seed, args.days), f"seed {seed}"), end="")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was found so far is printed then, too
    known = _recorded(args.record)
    tasks = [Task(seed, args.days, args.limit) for seed in seeds if seed not in known]
    totals = _Totals(len(tasks))
    found: dict[str, list[Task]] = defaultdict(list)
    try:
        for task, verdict in sweep(tasks, args.processes):
            totals.add(verdict)
            _record(args.record, task, verdict)
            if verdict.signature:
                found[verdict.signature].append(task)
                totals.show(f"seed {task.seed}: {verdict.signature}\n  {verdict.story}")
            totals.progress(len(found))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    totals.print(found)
    for signature, failed in sorted(found.items()):
        _save(args.out, min(failed, key=lambda task: len(task.text)), signature, args)
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="this document alone")
    parser.add_argument("--days", type=int, default=30, help="how long each is rehearsed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds of one document")
    parser.add_argument("--out", type=Path, help="a folder for the documents that fail")
    parser.add_argument(
        "--record",
        type=Path,
        help="a file with a line for each document; those it has are not rehearsed again",
    )
    parser.add_argument(
        "--shrink", type=float, default=300.0, help="CPU seconds to shrink one fault; 0: not at all"
    )
    parser.add_argument("--print", action="store_true", help="print the documents and rehearse nothing")
    return parser.parse_args()


def _recorded(record: Path | None) -> set[int]:
    """Seeds that an earlier sweep has done."""
    if record is None or not record.exists():
        return set()
    return {json.loads(line)["seed"] for line in record.read_text(encoding="utf-8").splitlines()}


def _record(record: Path | None, task: Task, verdict: Verdict) -> None:
    if record is None:
        return
    line = {
        "seed": task.seed,
        "days": task.days,
        "cpu_s": round(verdict.cpu_s, 2),
        "virtual_h": round(verdict.virtual_h, 1),
        "refused": verdict.refused,
        "verdict": verdict.signature or ("refused" if verdict.refused else "kept"),
        "story": verdict.story,
        "seen": verdict.seen,
    }
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _save(out: Path | None, task: Task, signature: str, args: argparse.Namespace) -> None:
    documents, seed, steps = generate(task.seed, task.days), task.seed, 0
    if args.shrink and signature != "too slow":
        documents, seed, steps = shrink(documents, task.seed, signature, budget_s=args.shrink)
    name = f"seed-{task.seed}.yaml"
    path = (out or Path()) / name
    text = as_text(documents, signature, f"tidemill rehearse {path} --seed {seed}")
    if out is None:
        print(f"\n{text}")
    else:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"{signature}: seed {task.seed}, {len(text.splitlines())} lines after {steps} steps\n"
          f"  tidemill rehearse {path} --seed {seed}", flush=True)  # fmt: skip


class _Totals:
    def __init__(self, count: int) -> None:
        self._count, self._began, self._told = count, time.monotonic(), time.monotonic()
        self._done = self._refused = 0
        self._cpu_s: list[float] = []
        self._virtual_h = 0.0
        self._seen: Counter[str] = Counter()
        self._documents: Counter[str] = Counter()  # in how many documents each was seen
        self._refusals: Counter[str] = Counter()

    def add(self, verdict: Verdict) -> None:
        self._done += 1
        self._refused += bool(verdict.refused)
        self._refusals.update({error.partition(":")[0] for error in verdict.refused})
        self._cpu_s.append(verdict.cpu_s)
        self._virtual_h += verdict.virtual_h
        self._seen += verdict.seen
        self._documents.update(verdict.seen.keys())

    def show(self, text: str) -> None:
        print(f"{chr(13) if sys.stderr.isatty() else ''}{text}", flush=True)

    def progress(self, faults: int) -> None:
        line = f"{self._done} of {self._count}, {self._refused} refused, {faults} kinds of fault"
        if sys.stderr.isatty():
            print(f"\r{line} ", end="", file=sys.stderr, flush=True)
        elif time.monotonic() > self._told + TELL_EVERY_S:
            self._told = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def print(self, found: dict[str, list[Task]]) -> None:
        if not self._done:
            return
        cpu_s = sorted(self._cpu_s)
        print(
            f"\n{self._done} documents, {self._refused} refused; {self._virtual_h / 24:,.0f} virtual days; "
            f"{sum(cpu_s) / self._done:.1f} s of CPU each (half under {cpu_s[len(cpu_s) // 2]:.1f} s, longest "
            f"{cpu_s[-1]:.0f} s), {time.monotonic() - self._began:,.0f} s in all"
        )
        print("refused for: " + ", ".join(f"{code} {n}" for code, n in self._refusals.most_common()))
        print("seen (times, in so many documents):")
        for name in sorted(self._seen):
            print(f"  {name:<34}{self._seen[name]:>10,}{self._documents[name]:>8,}")
        for signature, tasks in sorted(found.items(), key=lambda item: -len(item[1])):
            seeds = ", ".join(str(task.seed) for task in tasks[:12])
            print(f"{len(tasks)} x {signature}: seeds {seeds}")


if __name__ == "__main__":
    sys.exit(main())
