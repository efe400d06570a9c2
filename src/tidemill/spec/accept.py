"""Which versions of a cluster's objects the engine works by: the newest of each that is right beside the others.

Somebody's wrong pool must not stop everybody's changes. An object with an error counts as its last good version, or not
at all if it never had one; where that does not help either, all objects keep their last good versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.catalog import Catalog
from tidemill.spec import Spec
from tidemill.spec.problem import Problem
from tidemill.spec.read import load_objects, object_name

Object = Mapping[str, Any]
CatalogOf = Callable[[str], Catalog] | None


def name_of(thing: Object) -> str:
    return object_name(thing["kind"], thing["metadata"]["name"])


def generation_of(thing: Object) -> int:
    return int(thing["metadata"].get("generation", 0))


@dataclass(frozen=True, slots=True)
class Accepted:
    """`used` are the objects of `spec`, by name. `problems` are those of the newest versions."""

    spec: Spec | None = None
    used: Mapping[str, Object] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def verdict(self, thing: Object) -> Verdict:
        name = name_of(thing)
        own = [problem for problem in self.problems if problem.file == name]
        errors = tuple(problem.message for problem in own if problem.severity == "error")
        warnings = tuple(problem.message for problem in own if problem.severity == "warning")
        used = self.used.get(name)
        in_use = used is not None and generation_of(used) == generation_of(thing)
        others = sorted({one.file for one in self.problems if one.severity == "error" and one.file != name})
        return Verdict(in_use and not errors, errors, warnings, tuple(others), used is not None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one version of one object. `has_good`: an earlier version is used meanwhile."""

    accepted: bool
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    wrong_others: tuple[str, ...] = ()
    has_good: bool = False

    @property
    def reason(self) -> str:
        return "Accepted" if self.accepted else "Invalid" if self.errors else "WaitsForOthers"

    @property
    def message(self) -> str:
        if self.accepted:
            return "; ".join(self.warnings)
        if self.errors:
            meanwhile = "the last good version is used" if self.has_good else "it is not used"
            return f"{'; '.join(self.errors)}; {meanwhile}"
        return (
            f"not used before these are right: {', '.join(self.wrong_others)}"
            if self.wrong_others
            else "not used"
        )


def accept(objects: Iterable[Object], before: Accepted, catalog_of: CatalogOf = None) -> Accepted:
    """What to work by now. Without a Platform, or with none that was ever right, there is no spec."""
    newest = {name_of(thing): thing for thing in objects}
    loaded = load_objects(newest.values(), catalog_of=catalog_of)
    chosen, found = dict(newest), loaded
    for _ in range(len(newest) + 1):  # each round replaces an object, or is the last
        wrong = {problem.file for problem in found.errors} & chosen.keys()
        if not wrong:
            break
        for name in wrong:
            good = before.used.get(name)
            if good is None or good is chosen[name]:
                del chosen[name]  # never right, or wrong together with the others' new versions
            else:
                chosen[name] = good
        found = load_objects(chosen.values(), catalog_of=catalog_of)
    if _lost(before, newest, chosen) or found.errors:
        return Accepted(before.spec, before.used, loaded.problems)
    return Accepted(found.spec or before.spec, chosen if found.spec else before.used, loaded.problems)


def _lost(before: Accepted, newest: Mapping[str, Object], chosen: Mapping[str, Object]) -> bool:
    """Whether something that is used and still there would vanish: a pool with nodes, because of another object."""
    return any(name in newest and name not in chosen for name in before.used)
