"""The smallest documents with the same fault, by leaving out what can be left out.

Delta debugging on the tree: documents, rows and fields go in halves and then one by one, numbers and durations are
halved, the scenario is shortened. Whatever keeps the signature stays.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from benchmarks.vopr.generate import Documents, as_text
from benchmarks.vopr.judge import judge
from benchmarks.vopr.sweep import apart
from tidemill.spec.units import format_duration, parse_duration

Path = tuple[Any, ...]
# What a document must keep to be one.
KEPT = ("apiVersion", "kind", "metadata", "name", "spec")
_LENGTH = re.compile(r"(\d+[dhms])+")


def shrink(
    documents: Documents, seed: int, signature: str, *, budget_s: float = 300.0
) -> tuple[Documents, int, int]:
    """The documents, the seed they need, and how many tries it took."""
    search = _Search(documents, seed, signature, time.monotonic() + budget_s)
    search.run()
    return search.best, search.seed, search.tries


class _Search:
    def __init__(self, documents: Documents, seed: int, signature: str, until: float) -> None:
        self.best, self.seed, self.tries = deepcopy(documents), seed, 0
        self._signature, self._until = signature, until
        self._limit_s = 60.0
        self._tried: set[str] = set()

    def run(self) -> None:
        if self._fails(self.best, 1):
            self.seed = 1
        before = ""
        while before != as_text(self.best) and time.monotonic() < self._until:
            before = as_text(self.best)
            self._shorten()
            self._leave_out()
            self._simplify()

    def _fails(self, documents: Documents, seed: int) -> bool:
        text = as_text(documents)
        if text in self._tried or time.monotonic() > self._until:
            return False
        self._tried.add(text)
        self.tries += 1
        reports = not self._signature.startswith("invariant")
        verdict = apart(lambda: judge(text, seed, cpu_limit_s=self._limit_s, reports=reports))
        if verdict.signature == self._signature:
            self._limit_s = max(2.0, verdict.cpu_s * 3)
        return verdict.signature == self._signature

    def _keep(self, documents: Documents) -> bool:
        if self._fails(documents, self.seed):
            self.best = documents
            return True
        return False

    def _shorten(self) -> None:
        """A shorter scenario makes everything after it faster."""
        scenario = next((each for each in self.best if each.get("kind") == "Scenario"), None)
        if scenario is None or not isinstance(scenario.get("spec", {}).get("duration"), str):
            return
        place = (self.best.index(scenario), "spec", "duration")
        low, high = 0, int(parse_duration(_at(self.best, place)).total_seconds())
        while high - low > max(600, high // 8):
            middle = (low + high) // 2
            if self._keep(
                _with(self.best, place, format_duration(parse_duration(f"{max(1, middle // 60)}m")))
            ):
                high = middle
            else:
                low = middle

    def _leave_out(self) -> None:
        """Lists and documents in halves, then each part alone; the largest first."""
        for path in sorted(_lists(self.best), key=len):
            self._halves(path)
        again = True
        while again and time.monotonic() < self._until:
            again = False
            for path in sorted(_parts(self.best), key=len):
                if _has(self.best, path) and self._keep(_without(self.best, path)):
                    again = True

    def _halves(self, path: Path) -> None:
        if not _has(self.best, path):
            return
        size = len(_at(self.best, path)) // 2
        while size >= 1:
            start = 0
            while _has(self.best, path) and start < len(_at(self.best, path)):
                items = _at(self.best, path)
                if len(items) > size and self._keep(
                    _with(self.best, path, items[:start] + items[start + size :])
                ):
                    continue
                start += size
            size //= 2

    def _simplify(self) -> None:
        for path in list(_leaves(self.best)):
            if not _has(self.best, path) or path[-1] in KEPT:
                continue
            for smaller in _smaller(_at(self.best, path)):
                if self._keep(_with(self.best, path, smaller)):
                    break


def _smaller(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        return
    if isinstance(value, int) and value > 1:
        yield from (1, value // 4, value // 2, value - 1)
    elif isinstance(value, str) and _LENGTH.fullmatch(value):
        seconds = int(parse_duration(value).total_seconds())
        for rounded in (seconds // 4, seconds // 2, seconds // 86400 * 86400, seconds // 3600 * 3600):
            if 0 < rounded < seconds:
                yield format_duration(parse_duration(f"{rounded}s"))


# --- the tree -----------------------------------------------------------------------------------------


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _has(tree: Any, path: Path) -> bool:
    try:
        _at(tree, path)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _with(documents: Documents, path: Path, value: Any) -> Documents:
    if not path:
        return list(deepcopy(value))
    changed = deepcopy(documents)
    _at(changed, path[:-1])[path[-1]] = deepcopy(value)
    return changed


def _without(documents: Documents, path: Path) -> Documents:
    changed = deepcopy(documents)
    del _at(changed, path[:-1])[path[-1]]
    return changed


def _lists(tree: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(tree, list):
        yield path
    for key in _keys(tree):
        yield from _lists(tree[key], (*path, key))


def _parts(tree: Any, path: Path = ()) -> Iterator[Path]:
    """Everything that could be left out; the last of a list first, so that the places of others stay."""
    for key in reversed(list(_keys(tree))):
        if key not in KEPT:
            yield (*path, key)
        yield from _parts(tree[key], (*path, key))


def _leaves(tree: Any, path: Path = ()) -> Iterator[Path]:
    for key in _keys(tree):
        if isinstance(tree[key], (dict, list)):
            yield from _leaves(tree[key], (*path, key))
        else:
            yield (*path, key)


def _keys(tree: Any) -> Any:
    return list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
