"""The workloads on which packing is measured: `build(mix, pods, seed)` states one as a Problem.

`karpenter` and `preferences` re-create Karpenter's own scheduling benchmark; the others are there because a
packer tuned to the first alone is worthless. The same arguments always give the same problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tidemill.bench.mixes import cluster, diverse, gpu, pools
from tidemill.decide.packer.problem import Problem
from tidemill.model.errors import SpecError

MIXES: dict[str, Callable[[int, int], Problem]] = {
    "karpenter": diverse.build,
    "preferences": diverse.build_preferences,
    "gpu": gpu.build,
    "shapes": partial(diverse.build, sizes=diverse.any_size),  # no two pods alike
    "one-label": partial(diverse.build, letters="a"),  # every spread and affinity rule meets every other
    "no-anchor": partial(diverse.build, anchored=False),  # nothing forces hosts open
    "cluster": cluster.build,
    "pools": pools.build,
}


def named(mixes: Iterable[str]) -> list[str]:
    """The same mixes; SpecError: one of them does not exist."""
    chosen = list(mixes)
    for mix in chosen:
        if mix not in MIXES:
            raise SpecError(f"unknown mix '{mix}'; there are: {', '.join(MIXES)}")
    return chosen


def build(mix: str, pods: int, seed: int = 1) -> Problem:
    return MIXES[named((mix,))[0]](pods, seed)
