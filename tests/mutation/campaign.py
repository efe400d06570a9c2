"""Mutants, one after the other, each over the scenarios that reach it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.mutation.code_mutants import CodeMutant, lines_reached, put_in
from tests.mutation.judge import Fate, apart, fate, judge, right_results
from tests.mutation.plan_mutants import PlanMutant
from tests.mutation.scenarios import SCENARIOS
from tidemill.decide import decide as the_decision


@dataclass(frozen=True)
class Row:
    mutant: PlanMutant | CodeMutant
    fate: Fate | None  # None: no scenario reaches it

    def __str__(self) -> str:
        if self.fate is None:
            return f"not reached  {self.mutant}"
        if self.fate.by:
            return f"killed       {self.mutant}  [{self.fate.by}: {self.fate.scenario}]"
        return f"SURVIVED     {self.mutant}  [{self.fate.differs or 'the same'}]"


Tell = Callable[[Row], None]


def _quietly(row: Row) -> None:
    return


def run_plans(mutants: Iterable[PlanMutant], tell: Tell = _quietly) -> list[Row]:
    rights, rows = right_results(), []
    for mutant in mutants:
        names = [name for name, right in rights.items() if mutant.kind in right.kinds]
        found = fate(rights, names, mutant.decide) if names else None
        rows.append(Row(mutant, found))
        tell(rows[-1])
    return rows


def run_code(mutants: Iterable[CodeMutant], tell: Tell = _quietly) -> list[Row]:
    rights = right_results()
    reached = {name: lines_reached(partial(judge, prepared)) for name, prepared in SCENARIOS.items()}
    rows = []
    for mutant in mutants:
        names = [name for name, lines in reached.items() if (mutant.path, mutant.line) in lines]
        rows.append(Row(mutant, fate_of(mutant, rights, names) if names else None))
        tell(rows[-1])
    return rows


def fate_of(mutant: CodeMutant, rights: dict[str, Any], names: list[str]) -> Fate:
    def work() -> Fate:
        put_in(mutant)
        _forget()
        return fate(rights, names, lambda: the_decision)

    return apart(work)


def _forget() -> None:
    """What the right engine left in caches would hide a mutant."""
    for module in [module for name, module in sys.modules.items() if name.startswith("tidemill.")]:
        for value in vars(module).values():
            clear = getattr(value, "cache_clear", None)
            if callable(clear):
                clear()
    gc.collect()
