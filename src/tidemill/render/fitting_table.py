"""A table that is read on any terminal: narrowed where words may wrap, and row by row where that is not enough.

An id that is broken over two lines cannot be copied, and a fee that is cut off cannot be read. It knows nothing of what
it shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

# Sentences in narrower columns are a word a line.
_NARROWEST_SENTENCE = 24
_ANY_WIDTH = 10_000


def ruled(header_style: str = "") -> FittingTable:
    """Without a frame; a rule under the head."""
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
        """Without a broken word or a cut. The width that is missing is taken from the longest sentences first."""
        wide = options.update(max_width=_ANY_WIDTH)
        missing = Measurement.get(console, wide, self).maximum - options.max_width
        room = [(_room(console, wide, column), column) for column in self.columns]
        if missing > sum(spare for (_, spare), _ in room):
            return False
        for (widest, spare), column in sorted(room, key=lambda one: one[0][1], reverse=True):
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
    """How wide it would like to be, and how much of that can be taken without breaking a word."""
    measured = [Measurement.get(console, wide, one) for one in _contents(column)]
    widest = max(one.maximum for one in measured)
    longest_word = max(one.minimum for one in measured)
    least = max(longest_word, _NARROWEST_SENTENCE) if widest > _NARROWEST_SENTENCE else longest_word
    return widest, 0 if column.no_wrap else widest - least


def _contents(column: Column) -> Iterator[RenderableType]:
    yield column.header
    yield from column.cells
