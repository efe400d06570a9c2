"""Crashes at any step: a port that makes the engine crash just before or just after one of its calls.

The call itself is real: `after:purchase` means that the block is bought and the ledger does not say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class EngineCrashed(Exception):
    """The engine's process died at this step. Not a TidemillError: nothing in the engine may catch it."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


class CrashPoints:
    """Armed steps such as `before:launch` and `after:purchase`; each strikes once."""

    def __init__(self) -> None:
        self.armed: list[str] = []

    def arm(self, step: str) -> None:
        self.armed.append(step)

    def reached(self, step: str) -> None:
        if step in self.armed:
            self.armed.remove(step)
            raise EngineCrashed(step)


class Crashing:
    """Any port, with crash points around its calls."""

    def __init__(self, port: object, points: CrashPoints) -> None:
        self._port = port
        self._points = points

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._port, name)
        if not callable(inner):
            return inner
        wrapped = self._around(name, inner)
        setattr(self, name, wrapped)
        return wrapped

    def _around(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        before, after, points = f"before:{name}", f"after:{name}", self._points

        def call(*args: Any, **kwargs: Any) -> Any:
            if not points.armed:  # nearly always; the engine calls its ports a hundred thousand times
                return inner(*args, **kwargs)
            points.reached(before)
            answer = inner(*args, **kwargs)
            points.reached(after)
            return answer

        return call
