"""Ports that fail in every way a network, a process and EC2's lists can: before the call, after it, in between.

The calls themselves are real. Around a call the engine crashes, loses the answer, or loses the lead; reads show what
was true a while ago, twice, or in another order. Nothing fails once the injector is off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from benchmarks.chaos.drawn_run import FaultRates
from tidemill.model.errors import OutcomeUnknown, Retryable
from tidemill.sim.scenario.crash import EngineCrashed

# Where a lost answer leaves the caller not knowing. These runs launch nothing.
_UNCERTAIN = ("purchase", "purchase_extension", "advance", "propose", "adopt")
_LISTS = ("reservations", "extensions", "search_offers")


class UndeclaredError(RuntimeError):
    """An error that no port declares: a bug in a library, a full disk. The engine's process dies of it."""


class FaultInjector:
    """Draws what goes wrong at each call, and counts what did."""

    def __init__(self, rates: FaultRates, rng: Random) -> None:
        self._rates, self.rng = rates, rng
        self.off = False
        self.struck: Counter[str] = Counter()
        self.hidden: set[str] = set()  # reservations that lists leave out just now
        self.second_engine: Callable[[], None] | None = None

    def strikes(self, what: str) -> bool:
        if self.off or self.rng.random() >= getattr(self._rates, what):
            return False
        self.struck[what] += 1
        return True

    def tick_second_engine(self) -> None:
        act, self.second_engine = self.second_engine, None  # not within itself
        if act is not None:
            act()
            self.second_engine = act


class CallFailures(Protocol):
    """How a call fails. Each raises, or returns what its caller can tell from a good answer."""

    def fails(self, name: str, call: Callable[[], Any]) -> Any:
        """The service says that it cannot, and has done nothing."""
        ...

    def request_lost(self, name: str, call: Callable[[], Any]) -> Any:
        """No answer, and it was never carried out."""
        ...

    def answer_lost(self, name: str, call: Callable[[], Any]) -> Any:
        """No answer, though it was carried out."""
        ...

    def fails_after(self, name: str, call: Callable[[], Any]) -> Any:
        """An error, though it was carried out."""
        ...


class PortFailures:
    """As a port reports it: with the errors that an adapter would raise."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def fails(self, name: str, call: Callable[[], Any]) -> Any:
        raise Retryable(f"{name}: the service is unavailable")

    def request_lost(self, name: str, call: Callable[[], Any]) -> Any:
        raise OutcomeUnknown(f"{name}: no answer, and it was never carried out")

    def answer_lost(self, name: str, call: Callable[[], Any]) -> Any:
        call()
        raise OutcomeUnknown(f"{name}: no answer, though it was carried out")

    def fails_after(self, name: str, call: Callable[[], Any]) -> Any:
        call()
        raise self._rng.choice((Retryable, UndeclaredError))(f"{name}: an error, though it was carried out")


class FaultyPort:
    """Any port, with an injector around its calls."""

    def __init__(self, port: object, injector: FaultInjector, failures: CallFailures | None = None) -> None:
        self._port, self._injector = port, injector
        self._failures: CallFailures = failures or PortFailures(injector.rng)
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
        injector = self._injector
        if injector.strikes("second_engine"):
            injector.tick_second_engine()
        if injector.strikes("crash"):
            raise EngineCrashed(f"before:{name}")
        answer = self._answer(name, call)
        if injector.strikes("crash"):
            raise EngineCrashed(f"after:{name}")
        return self._seen(name, answer) if name in _LISTS else answer

    def _answer(self, name: str, call: Callable[[], Any]) -> Any:
        injector, failures = self._injector, self._failures
        if injector.strikes("fails"):
            return failures.fails(name, call)
        if name not in _UNCERTAIN:
            return call()
        if injector.strikes("no_answer"):
            lost = injector.rng.random() < 0.4
            return failures.request_lost(name, call) if lost else failures.answer_lost(name, call)
        return failures.fails_after(name, call) if injector.strikes("broken_after") else call()

    def _seen(self, name: str, answer: Sequence[Any]) -> Sequence[Any]:
        injector, before = self._injector, self._before.get(name, ())
        if injector.hidden and name == "reservations":
            answer = tuple(one for one in answer if one.id not in injector.hidden)
        self._before[name] = answer
        if injector.strikes("stale"):
            return before
        if answer and injector.strikes("doubled"):
            shuffled = [*answer, injector.rng.choice(list(answer))]
            injector.rng.shuffle(shuffled)
            return tuple(shuffled)
        return answer
