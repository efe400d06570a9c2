"""A linear or integer program, row by row, solved by HiGHS: one thread, to the end, so always the same answer.

HiGHS is imported when a program is solved and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class Solved:
    cost: float
    columns: list[float]
    duals: list[float]  # by row, what one unit more of its bound would cost; empty if any column is whole


class Program:
    """Minimise the cost of the columns. Columns are numbered as they are added."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._whole: list[bool] = []
        self._bounds: list[tuple[float, float]] = []
        self._starts: list[int] = [0]
        self._index: list[int] = []
        self._value: list[float] = []

    def column(self, cost: float = 0.0, *, upper: float = INFINITE, whole: bool = False) -> int:
        self._cost.append(cost)
        self._upper.append(upper)
        self._whole.append(whole)
        return len(self._cost) - 1

    def row(self, low: float, high: float, terms: Mapping[int, float]) -> None:
        """low <= Σ value · column <= high."""
        self._bounds.append((low, high))
        self._index.extend(terms)
        self._value.extend(terms.values())
        self._starts.append(len(self._index))

    def minimum(self) -> float | None:
        """None: there is no solution."""
        solved = self.solve()
        return solved.cost if solved is not None else None

    def solve(self) -> Solved | None:
        import highspy

        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._cost), len(self._bounds)
        model.col_cost_, model.col_lower_, model.col_upper_ = self._cost, [0.0] * len(self._cost), self._upper
        model.row_lower_ = [low for low, _ in self._bounds]
        model.row_upper_ = [high for _, high in self._bounds]
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_, model.a_matrix_.index_ = self._starts, self._index
        model.a_matrix_.value_ = self._value
        if any(self._whole):
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[whole] for whole in self._whole]
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0)):
            solver.setOptionValue(option, value)
        solver.passModel(model)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = solver.getSolution()
        return Solved(
            float(solver.getInfo().objective_function_value),
            list(solution.col_value),
            list(solution.row_dual) if not any(self._whole) else [],
        )
