"""A linear or mixed-integer program, built row by row and solved by HiGHS, so that the answer is always the same.

One thread, a fixed seed, limits on the gap and on the nodes of the search tree, none on time. HiGHS is imported when
something is solved. Where that fails nothing is planned: a guess is no ground for spending tens of
thousands of dollars. The planner of purchases and the benchmark's bounds use it; it knows nothing of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.model.errors import SpecError

INFINITE = float("inf")
Row = tuple[float, float, Mapping[int, float]]  # low, high, columns
_ALWAYS_ALIKE = (("output_flag", False), ("threads", 1), ("parallel", "off"), ("random_seed", 0))
# With a good start the rest is proof: heuristics are off. Measured on one-zone problems of 8 weeks and 200 offers: a
# third less time than with the defaults of HiGHS.
_FROM_A_GOOD_START = (
    ("mip_heuristic_effort", 0.0), ("mip_heuristic_run_rins", False), ("mip_heuristic_run_rens", False),
    ("mip_heuristic_run_root_reduced_cost", False), ("mip_heuristic_run_feasibility_jump", False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Solution:
    values: tuple[float, ...]
    objective: float
    bound: float  # no solution can cost less
    optimal: bool = True  # false: a limit ended the search
    duals: Sequence[
        float
    ] = ()  # by row, what one unit more of its bound would cost; none if a column is whole


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A solution of the relaxation: values need not be integers."""

    values: Sequence[float]
    bound: float  # its cost: no integer solution costs less
    reduced: Sequence[
        float
    ]  # reduced cost by column: a solution with one unit of it costs at least so much more
    duals: Sequence[float]  # by row, those that were added for this time after the program's own


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

    @property
    def cost(self) -> Sequence[float]:
        return self._cost

    @property
    def rows(self) -> Sequence[Row]:
        return self._rows

    def relaxation(self, more: Sequence[Row]) -> Relaxation:
        highspy = _highspy()
        solver = highspy.Highs()
        for option, value in _ALWAYS_ALIKE:
            solver.setOptionValue(option, value)
        solver.passModel(self._model(highspy, [*self._rows, *more], {}, [False] * len(self._cost)))
        return Relaxation(solver, len(self._cost), highspy.HighsModelStatus.kOptimal)

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
        if not self._cost:  # HiGHS cannot solve an empty program
            return None if any(low > 0 for low, _, _ in (*self._rows, *more)) else Solution((), 0.0, 0.0)
        solver = highspy.Highs()
        for option, value in (
            *_ALWAYS_ALIKE,
            # Restarts help in long searches. These end at the root node or soon after, and take half as long without.
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
        found = solver.getSolution()
        optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        duals = () if any(kinds) else tuple(found.row_dual)
        return Solution(tuple(found.col_value), objective, bound, optimal, duals)

    def optimum(self) -> Solution | None:
        """None: there is none, or HiGHS did not prove it."""
        solved = self.solve()
        return solved if solved is not None and solved.optimal else None

    def minimum(self) -> float | None:
        solved = self.optimum()
        return solved.objective if solved is not None else None

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


def holds(row: Row, values: Sequence[float]) -> bool:
    low, high, terms = row
    return low - 1e-6 <= sum(value * values[column] for column, value in terms.items()) <= high + 1e-6


class Relaxation:
    """The linear relaxation, solved again from the last basis as rows are added."""

    def __init__(self, solver: Any, columns: int, optimal: Any) -> None:
        self._solver, self._columns, self._optimal = solver, columns, optimal

    def add(self, rows: Iterable[Row]) -> None:
        for low, high, terms in rows:
            self._solver.addRow(low, high, len(terms), list(terms), list(terms.values()))

    def solve(self) -> Relaxed:
        """Without an optimum nothing is known: a bound of minus infinity."""
        self._solver.run()
        if self._solver.getModelStatus() != self._optimal:
            nothing = [0.0] * self._columns
            return Relaxed(nothing, -INFINITE, nothing, [0.0] * self._solver.getNumRow())
        found = self._solver.getSolution()
        cost = float(self._solver.getInfo().objective_function_value)
        return Relaxed(list(found.col_value), cost, list(found.col_dual), list(found.row_dual))


NO_SOLVER = "planning purchases needs the HiGHS solver, which cannot be imported: pip install highspy"


def solver_installed() -> bool:
    try:
        _highspy()
    except SpecError:
        return False
    return True


def _highspy() -> Any:
    try:
        import highspy
    except ImportError:
        raise SpecError(NO_SOLVER) from None
    return highspy
