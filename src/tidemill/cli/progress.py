"""A progress bar on stderr, only on a terminal, and only for work that takes longer than a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOW_AFTER_S = 0.7
REFRESH_S = 0.1


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None] | None]:
    """Yields a function that takes the share done (0..1), or None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    began = last = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    task = bar.add_task(label, total=1.0)

    def show(share: float) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= REFRESH_S and now - began >= SHOW_AFTER_S:
            last = now
            if not bar.live.is_started:
                bar.start()
            bar.update(task, completed=share)
            bar.refresh()

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()
