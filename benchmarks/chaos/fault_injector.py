"""Ports that fail in every way a network, a process and EC2's lists can: before the call, after it, in between.

The calls themselves are real. `around` lets the engine die, lose an answer, or lose the lead in the middle of a step;
`seen` shows reads as they were a while ago, twice, or in another order. Nothing strikes once the weather is calm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from benchmarks.chaos.story import Weather
from tidemill.model.errors import OutcomeUnknown, Retryable
from tidemill.sim.scenario.crash import EngineCrashed

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


class Trouble(Protocol):
    """How a call goes wrong. Each raises, or comes to what its caller can tell apart from a good answer."""

    def fails(self, name: str, call: Callable[[], Any]) -> Any:
        """The service says that it cannot, and has done nothing."""
        ...

    def is_lost(self, name: str, call: Callable[[], Any]) -> Any:
        """No answer, and it was never carried out."""
        ...

    def is_not_answered(self, name: str, call: Callable[[], Any]) -> Any:
        """No answer, though it was carried out."""
        ...

    def breaks_after(self, name: str, call: Callable[[], Any]) -> Any:
        """An error, though it was carried out."""
        ...


class InOurWords:
    """Trouble as ports tell it: an adapter made these words of it."""

    def __init__(self, luck: Random) -> None:
        self._luck = luck

    def fails(self, name: str, call: Callable[[], Any]) -> Any:
        raise Retryable(f"{name}: the service is unavailable")

    def is_lost(self, name: str, call: Callable[[], Any]) -> Any:
        raise OutcomeUnknown(f"{name}: no answer, and it was never carried out")

    def is_not_answered(self, name: str, call: Callable[[], Any]) -> Any:
        call()
        raise OutcomeUnknown(f"{name}: no answer, though it was carried out")

    def breaks_after(self, name: str, call: Callable[[], Any]) -> Any:
        call()
        raise self._luck.choice((Retryable, Unforeseen))(f"{name}: an error, though it was carried out")


class Shaken:
    """Any port, under this sky."""

    def __init__(self, port: object, sky: Sky, trouble: Trouble | None = None) -> None:
        self._port, self._sky = port, sky
        self._trouble: Trouble = trouble or InOurWords(sky.luck)
        self._before: dict[str, Sequence[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._port, name)
        if not callable(inner):
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, lambda: inner(*args, **kwargs))

        setattr(self, name, call)
        return call

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        sky = self._sky
        if sky.strikes("second_engine"):
            sky.others_act()
        if sky.strikes("crash"):
            raise EngineCrashed(f"before:{name}")
        answer = self._answer(name, call)
        if sky.strikes("crash"):
            raise EngineCrashed(f"after:{name}")
        return self._seen(name, answer) if name in _LISTS else answer

    def _answer(self, name: str, call: Callable[[], Any]) -> Any:
        sky, trouble = self._sky, self._trouble
        if sky.strikes("fails"):
            return trouble.fails(name, call)
        if name not in _UNCERTAIN:
            return call()
        if sky.strikes("no_answer"):
            lost = sky.luck.random() < 0.4
            return trouble.is_lost(name, call) if lost else trouble.is_not_answered(name, call)
        return trouble.breaks_after(name, call) if sky.strikes("broken_after") else call()

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
