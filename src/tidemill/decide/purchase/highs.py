"""A mixed-integer program, row by row, solved by HiGHS so that the answer is always the same.

One thread, a fixed seed, limits on the gap and on the nodes of the search tree, none on time. HiGHS comes with the
extra `plan`. Without it nothing is planned: a guess is no ground for spending tens of thousands of dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.errors import SpecError

INFINITE = float("inf")
Row = tuple[float, float, Mapping[int, float]]  # low, high, columns
# What is left is to prove it: no more guessing, and few cuts kept, because each one makes every step slower. Measured
# on one-zone questions of 8 weeks and 200 offers: a third less time than with what HiGHS does by itself.
_FROM_A_GOOD_START = (("mip_heuristic_effort", 0.0), ("mip_lp_age_limit", 5), ("mip_pool_soft_limit", 2000))


@dataclass(frozen=True, slots=True)
class Solution:
    values: tuple[float, ...]
    objective: float
    bound: float  # no solution can cost less


class Program:
    """Minimise the cost of the columns, all at least 0. Columns are numbered as they are added."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._whole: list[bool] = []
        self._rows: list[Row] = []

    def column(self, cost: float = 0.0, *, upper: float = INFINITE, whole: bool = False) -> int:
        self._cost.append(cost)
        self._upper.append(upper)
        self._whole.append(whole)
        return len(self._cost) - 1

    def row(self, low: float, high: float, terms: Mapping[int, float]) -> None:
        """low <= Σ value · column <= high."""
        self._rows.append((low, high, terms))

    def solve(
        self,
        *,
        more: Sequence[Row] = (),
        fixed: Mapping[int, float] | None = None,
        whole: Iterable[int] = (),
        gap: float = 0.0,
        most_nodes: int = 2**31 - 1,
        start: Sequence[float] | None = None,
    ) -> Solution | None:
        """With more rows, some columns fixed and some whole for this time only; from a good solution, if there is one.
        None: there is no solution."""
        highspy = _highspy()
        if not self._cost:  # HiGHS has no answer to an empty question
            return None if any(low > 0 for low, _, _ in more) else Solution((), 0.0, 0.0)
        solver = highspy.Highs()
        for option, value in (
            ("output_flag", False), ("threads", 1), ("parallel", "off"), ("random_seed", 0),
            # Restarts pay on long searches; these end at the root or soon after, and take half as long without.
            ("mip_allow_restart", False),
            ("mip_rel_gap", gap), ("mip_abs_gap", 1e-6), ("mip_max_nodes", most_nodes),
            *(_FROM_A_GOOD_START if start is not None else ()),
        ):  # fmt: skip
            solver.setOptionValue(option, value)
        kinds = list(self._whole)
        for column in whole:
            kinds[column] = True
        solver.passModel(self._model(highspy, [*self._rows, *more], fixed or {}, kinds))
        if start is not None:
            known = highspy.HighsSolution()
            known.col_value = list(start)
            solver.setSolution(known)
        solver.run()
        info = solver.getInfo()
        if info.primal_solution_status != int(highspy.SolutionStatus.kSolutionStatusFeasible):
            return None
        objective = float(info.objective_function_value)
        bound = float(info.mip_dual_bound) if any(kinds) else objective
        return Solution(tuple(solver.getSolution().col_value), objective, bound)

    def _model(
        self,
        highspy: Any,
        rows: list[Row],
        fixed: Mapping[int, float],
        whole: list[bool],
    ) -> Any:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._cost), len(rows)
        model.col_cost_ = self._cost
        model.col_lower_ = [fixed.get(column, 0.0) for column in range(len(self._cost))]
        model.col_upper_ = [fixed.get(column, upper) for column, upper in enumerate(self._upper)]
        model.row_lower_ = [low for low, _, _ in rows]
        model.row_upper_ = [high for _, high, _ in rows]
        starts = [0]
        for _, _, terms in rows:
            starts.append(starts[-1] + len(terms))
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = starts
        model.a_matrix_.index_ = [column for _, _, terms in rows for column in terms]
        model.a_matrix_.value_ = [float(value) for _, _, terms in rows for value in terms.values()]
        if any(whole):
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[one] for one in whole]
        return model


def without_solver() -> str:
    """Why nothing can be planned; empty: the solver is there."""
    try:
        _highspy()
    except SpecError as missing:
        return str(missing)
    return ""


def _highspy() -> Any:
    try:
        import highspy
    except ImportError:
        raise SpecError(
            "planning purchases needs the HiGHS solver, which is not installed: pip install 'tidemill[plan]'"
        ) from None
    return highspy
