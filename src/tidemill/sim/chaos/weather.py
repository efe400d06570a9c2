"""Ports that fail in every way a network, a process and EC2's lists can: before the call, after it, in between.

The calls themselves are real. `around` lets the engine die, lose an answer, or lose the lead in the middle of a step;
`seen` shows reads as they were a while ago, twice, or in another order. Nothing strikes once the weather is calm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tidemill.errors import OutcomeUnknown, Retryable
from tidemill.sim.chaos.story import Weather
from tidemill.sim.crash import EngineCrashed

# Where a lost answer leaves the caller not knowing. Launches are not part of these stories.
_UNCERTAIN = ("purchase", "purchase_extension", "advance", "propose", "adopt")
_LISTS = ("reservations", "extensions", "search_offers")


class Unforeseen(RuntimeError):
    """An error that no port declares: a bug in a library, a full disk. The engine's process dies of it."""


class Sky:
    """What is going to go wrong, and what has."""

    def __init__(self, weather: Weather, luck: Random) -> None:
        self._weather, self.luck = weather, luck
        self.calm = False
        self.struck: Counter[str] = Counter()
        self.hidden: set[str] = set()  # reservations that lists leave out just now
        self.second_engine: Callable[[], None] | None = None

    def strikes(self, what: str) -> bool:
        if self.calm or self.luck.random() >= getattr(self._weather, what):
            return False
        self.struck[what] += 1
        return True

    def others_act(self) -> None:
        act, self.second_engine = self.second_engine, None  # not within itself
        if act is not None:
            act()
            self.second_engine = act


class Shaken:
    """Any port, under this sky."""

    def __init__(self, port: object, sky: Sky) -> None:
        self._port, self._sky = port, sky
        self._before: dict[str, Sequence[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._port, name)
        if not callable(inner):
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, inner, args, kwargs)

        setattr(self, name, call)
        return call

    def _call(self, name: str, inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        sky = self._sky
        if sky.strikes("second_engine"):
            sky.others_act()
        if sky.strikes("crash"):
            raise EngineCrashed(f"before:{name}")
        if sky.strikes("fails"):
            raise Retryable(f"{name}: the service is unavailable")
        uncertain = name in _UNCERTAIN and sky.strikes("no_answer")
        if uncertain and sky.luck.random() < 0.4:
            raise OutcomeUnknown(f"{name}: no answer, and it was never carried out")
        answer = inner(*args, **kwargs)
        if uncertain:
            raise OutcomeUnknown(f"{name}: no answer, though it was carried out")
        if name in _UNCERTAIN and sky.strikes("broken_after"):
            raise sky.luck.choice((Retryable, Unforeseen))(f"{name}: an error, though it was carried out")
        if sky.strikes("crash"):
            raise EngineCrashed(f"after:{name}")
        return self._seen(name, answer) if name in _LISTS else answer

    def _seen(self, name: str, answer: Sequence[Any]) -> Sequence[Any]:
        sky, before = self._sky, self._before.get(name, ())
        if sky.hidden and name == "reservations":
            answer = tuple(one for one in answer if one.id not in sky.hidden)
        self._before[name] = answer
        if sky.strikes("stale"):
            return before
        if answer and sky.strikes("doubled"):
            shuffled = [*answer, sky.luck.choice(list(answer))]
            sky.luck.shuffle(shuffled)
            return tuple(shuffled)
        return answer
