"""A table for any terminal width: it narrows columns that may wrap, and prints row by row if that is not enough.

An id that wraps cannot be copied, and a price that is cut off cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

# A sentence in a narrower column would have one word a line.
_NARROWEST_SENTENCE = 24
_ANY_WIDTH = 10_000


def ruled(header_style: str = "") -> FittingTable:
    """A table without a frame, with a rule under the header."""
    return FittingTable(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style=header_style, show_edge=False
    )


class FittingTable(Table):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._fits(console, options):
            yield from super().__rich_console__(console, options)
        else:
            yield from self._row_by_row()

    def _fits(self, console: Console, options: ConsoleOptions) -> bool:
        """Whether it fits without breaking words or cutting text. Narrows the columns with the longest sentences
        first."""
        wide = options.update(max_width=_ANY_WIDTH)
        missing = Measurement.get(console, wide, self).maximum - options.max_width
        room = [(_room(console, wide, column), column) for column in self.columns]
        if missing > sum(spare for (_, spare), _ in room):
            return False
        for (widest, spare), column in sorted(room, key=lambda item: item[0][1], reverse=True):
            if (taken := min(missing, spare)) > 0:
                column.width = widest - taken
                missing -= taken
        return True

    def _row_by_row(self) -> RenderResult:
        if self.title:
            yield self.title
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            card = Table.grid(padding=(0, 2, 0, 0))
            card.add_column(no_wrap=True, style="dim")
            card.add_column(overflow="fold")
            for column, cell in zip(self.columns, cells, strict=True):
                if cell != "":
                    card.add_row(column.header, cell)
            yield card
            yield ""


def _room(console: Console, wide: ConsoleOptions, column: Column) -> tuple[int, int]:
    """Its full width, and by how much it can be narrowed without breaking a word."""
    measured = [Measurement.get(console, wide, cell) for cell in _contents(column)]
    widest = max(cell.maximum for cell in measured)
    longest_word = max(cell.minimum for cell in measured)
    least = max(longest_word, _NARROWEST_SENTENCE) if widest > _NARROWEST_SENTENCE else longest_word
    return widest, 0 if column.no_wrap else widest - least


def _contents(column: Column) -> Iterator[RenderableType]:
    yield column.header
    yield from column.cells
