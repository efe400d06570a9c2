"""A thread beside the ticks: it starts and stops with the process, and `/healthz` sees when it has ended."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Worker(ABC):
    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        # A daemon thread: a call that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It ends when it looks next, or with the process."""
        self._stopping.set()

    @abstractmethod
    def _run(self) -> None:
        """Until `_stopping` is set."""
