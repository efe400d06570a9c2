"""The packer of another checkout on the same problem: before and after in one run, on one machine.

It runs in a process of its own, with the interpreter and the libraries of this one, and builds the mix with its own
code; that the problem is the same is checked. What it answers is not: the checker is for the packer of this checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tidemill.decide.packer.problem import Problem
from tidemill.model.errors import SpecError

# Only what every checkout with `tidemill bench pack` has.
_SCRIPT = """
import gc, hashlib, json, sys, time
from tidemill.bench.mixes import build
from tidemill.decide.packer import solve
mix, pods, seed, repeat = sys.argv[1], *map(int, sys.argv[2:])
problem, seconds, cpu_s = build(mix, pods, seed), 1e99, 1e99
for _ in range(repeat):
    gc.collect()
    began, cpu_began = time.perf_counter(), time.process_time()
    solution = solve(problem)
    seconds, cpu_s = min(seconds, time.perf_counter() - began), min(cpu_s, time.process_time() - cpu_began)
json.dump({"seconds": seconds, "cpu_s": cpu_s, "price": solution.price, "nodes": len(solution.opened),
           "unplaced": len(solution.unplaced), "problem": %s}, sys.stdout)
"""
_FINGERPRINT = (
    "hashlib.sha256(repr([(p.shape.requests, sorted(p.refuses)) for p in problem.pods]"
    " + [(o.name, o.price, o.rank) for o in problem.options]).encode()).hexdigest()"
)


@dataclass(frozen=True, slots=True)
class OtherPacking:
    seconds: float
    cpu_s: float
    price: float
    nodes: int
    unplaced: int


def pack_there(
    checkout: Path, problem: Problem, mix: str, pods: int, *, seed: int, repeat: int
) -> OtherPacking:
    """SpecError: there is no such packer, or it packs other pods."""
    source = checkout / "src"
    if not (source / "tidemill" / "bench" / "mixes").is_dir():
        raise SpecError(f"{checkout} is no checkout of Tidemill that has `tidemill bench pack`")
    arguments = [mix, str(pods), str(seed), str(repeat)]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT % _FINGERPRINT, *arguments],
        env={**os.environ, "PYTHONPATH": str(source.resolve())}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise SpecError(f"the packer of {checkout} failed on {mix}: {last[0]}")
    found = json.loads(done.stdout)
    if found.pop("problem") != fingerprint(problem):
        raise SpecError(f"{mix} of {checkout} is another problem, so its price cannot be compared")
    return OtherPacking(**found)


def fingerprint(problem: Problem) -> str:
    pods = [(pod.shape.requests, sorted(pod.refuses)) for pod in problem.pods]
    options = [(option.name, option.price, option.rank) for option in problem.options]
    return hashlib.sha256(repr([*pods, *options]).encode()).hexdigest()
