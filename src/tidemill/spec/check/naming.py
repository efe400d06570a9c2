"""Names: each kind has each name once, and there is one Platform and one Scenario."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.spec.check.market import Shelf
from tidemill.spec.located import Heading
from tidemill.spec.problem import Problem, quoted


def names_are_unique(shelf: Shelf) -> Iterator[Problem]:
    first: dict[tuple[str, str], Heading] = {}
    for heading in shelf.headings:
        known = first.setdefault((heading.kind, heading.name), heading)
        if known is not heading:
            message = f"{heading.kind} {quoted(heading.name)} is already defined at {known.place}"
            yield heading.problem(message, "duplicate-name")


def one_platform_and_one_scenario(shelf: Shelf) -> Iterator[Problem]:
    first: dict[str, Heading] = {}
    for heading in shelf.headings:
        if heading.kind not in ("Platform", "Scenario"):
            continue
        known = first.setdefault(heading.kind, heading)
        if known.name != heading.name:  # the same name twice is told by the rule above
            message = (
                f"a second {heading.kind} {quoted(heading.name)}; there is one a run,"
                f" and {quoted(known.name)} is defined at {known.place}"
            )
            yield heading.problem(message, "second-of-its-kind")
