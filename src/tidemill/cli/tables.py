"""Tables as the command line prints them: fitted to a terminal, never cut in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 220  # a pipe must not cut what a person greps for


def console() -> Console:
    from rich.console import Console

    shown = Console(highlight=False, markup=False)
    if shown.is_terminal:
        return shown
    return Console(highlight=False, markup=False, width=WIDTH_WITHOUT_TERMINAL)


def table(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> Table:
    from rich import box

    from tidemill.render.fitting_table import FittingTable

    made = FittingTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return made
