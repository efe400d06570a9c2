"""One run of the packing benchmark: build a mix, time the packer alone, check the solution, compare its price.

Figures are of this machine and this moment; the ratio of two solvers that run one after the other holds elsewhere.
The lower bound assumes that every pod is placed, so `unplaced` is part of every result.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

from tidemill.bench.bounds import lower_bound
from tidemill.bench.checker.check import Fault, check
from tidemill.bench.first_fit import first_fit, overlooked
from tidemill.bench.mixes import build
from tidemill.bench.other_checkout import OtherPacking, pack_there
from tidemill.bench.ranked_bound import ranked_bound
from tidemill.decide.packer.problem import Problem, Solution
from tidemill.model.resources import amount
from tidemill.spec.names import ACCELERATORS

BEFORE = "before"  # the name under which the packer of another checkout is shown

Solve = Callable[[Problem], Solution]


@dataclass(frozen=True, slots=True)
class Packing:
    """What one solver made of one mix."""

    solver: str
    mix: str
    pods: int
    seed: int
    seconds: float  # the best of the repeats: everything else is the machine's noise
    pods_per_s: float
    cpu_s: float  # of the repeat with least: other programs stretch it less
    pods_per_cpu_s: float
    nodes: int  # opened
    price: float  # dollars an hour
    lower_bound: float
    placed: int
    unplaced: int
    overlooked: int  # of the unplaced: they would still fit
    stranded_gpus: int  # on opened nodes, requested by no pod
    checked: bool
    faults: tuple[Fault, ...]
    judged: bool = True  # false: the packer of another checkout, whose placement is not looked at

    @property
    def over_bound(self) -> float | None:
        """How much dearer than the bound, as a share; None: there is no bound, or not every pod is placed."""
        return self.price / self.lower_bound - 1 if self.lower_bound and not self.unplaced else None


def solver(name: str) -> Solve:
    if name == "first-fit":
        return first_fit
    from tidemill.decide.packer import solve

    return solve


def measure(
    mix: str,
    pods: int,
    *,
    seed: int = 1,
    repeat: int = 1,
    solvers: tuple[str, ...],
    before: Path | None = None,
) -> list[Packing]:
    """The same problem for each solver, one after the other; and for the packer of another checkout."""
    problem = build(mix, pods, seed)
    other = pack_there(before, problem, mix, pods, seed=seed, repeat=repeat) if before is not None else None
    bound = max(lower_bound(problem), ranked_bound(problem) or 0.0)
    found = [_measure(problem, bound, mix, seed, repeat, name) for name in solvers]
    if other is not None:
        found.append(_of_other(problem, bound, mix, seed, other))
    return found


def _of_other(problem: Problem, bound: float, mix: str, seed: int, other: OtherPacking) -> Packing:
    pods = len(problem.pods)
    return Packing(
        solver=BEFORE, mix=mix, pods=pods, seed=seed, seconds=other.seconds, pods_per_s=pods / other.seconds,
        cpu_s=other.cpu_s, pods_per_cpu_s=pods / max(other.cpu_s, 1e-9), nodes=other.nodes, price=other.price,
        lower_bound=bound, placed=pods - other.unplaced, unplaced=other.unplaced, overlooked=0,
        stranded_gpus=0, checked=False, faults=(), judged=False,
    )  # fmt: skip


def _measure(problem: Problem, bound: float, mix: str, seed: int, repeat: int, name: str) -> Packing:
    solve = solver(name)
    seconds = cpu_s = float("inf")
    for _ in range(repeat):
        gc.collect()  # or the garbage of the run before counts for this one
        started, cpu_started = perf_counter(), process_time()
        solution = solve(problem)
        seconds, cpu_s = min(seconds, perf_counter() - started), min(cpu_s, process_time() - cpu_started)
    faults = tuple(check(problem, solution))
    return Packing(
        solver=name,
        mix=mix,
        pods=len(problem.pods),
        seed=seed,
        seconds=seconds,
        pods_per_s=len(problem.pods) / seconds,
        cpu_s=cpu_s,
        pods_per_cpu_s=len(problem.pods) / max(cpu_s, 1e-9),
        nodes=len(solution.opened),
        price=solution.price,
        lower_bound=bound,
        placed=len(problem.pods) - len(solution.unplaced),
        unplaced=len(solution.unplaced),
        overlooked=0 if faults or not solution.unplaced else len(overlooked(problem, solution)),
        stranded_gpus=stranded_gpus(problem, solution),
        checked=not faults,
        faults=faults,
    )


def stranded_gpus(problem: Problem, solution: Solution) -> int:
    offered = sum(node.option.capacity.get(name, 0) for node in solution.opened for name in ACCELERATORS)
    used = (
        amount(problem.pods[index].shape.requests, name)
        for node in solution.opened
        for index in node.pods
        for name in ACCELERATORS
    )
    return offered - sum(used)
