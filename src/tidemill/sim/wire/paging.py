"""EC2's lists: filters by name and value, and pages.

A page that was begun is kept as the ids still to come, so that what happens between two pages neither repeats nor skips
what was there at the first.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tidemill.model.labels import Pairs
from tidemill.sim.wire.errors import AwsError

T = TypeVar("T")
FilterFields = Mapping[str, Callable[[T], "str | Iterable[str]"]]

_PAGES_KEPT = 1000


def filtered(
    items: Iterable[T],
    filters: Sequence[Mapping[str, Any]],
    fields: FilterFields[T],
    tags: Callable[[T], Pairs],
) -> list[T]:
    """Those every filter lets through; a filter lets through what one of its values fits. `*` and `?` are wild."""
    tests = [_test(given, fields, tags) for given in filters]
    return [item for item in items if all(test(item) for test in tests)]


def _test(
    given: Mapping[str, Any], fields: FilterFields[T], tags: Callable[[T], Pairs]
) -> Callable[[T], bool]:
    name, wanted = str(given.get("Name", "")), [str(value) for value in given.get("Values") or ()]
    if name.startswith("tag:"):
        key = name[4:]
        return lambda item: key in dict(tags(item)) and _fits(dict(tags(item))[key], wanted)
    if name == "tag-key":
        return lambda item: any(_fits(key, wanted) for key, _ in tags(item))
    field_of = fields.get(name)
    if field_of is None:
        raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")

    def fits(item: T) -> bool:
        values = field_of(item)
        return any(
            _fits(candidate, wanted) for candidate in ((values,) if isinstance(values, str) else values)
        )

    return fits


def _fits(value: str, wanted: Sequence[str]) -> bool:
    # fnmatch also knows [sets]; EC2 does not, so a bracket is made literal.
    return any(
        value == pattern or fnmatch.fnmatchcase(value, pattern.replace("[", "[[]")) for pattern in wanted
    )


class Pages:
    def __init__(self) -> None:
        self._rest: dict[str, tuple[str, ...]] = {}
        self._made = 0

    def page(
        self,
        items: Sequence[T],
        key: Callable[[T], str],
        params: Mapping[str, Any],
        *,
        least: int = 1,
        most: int = 1000,
    ) -> tuple[list[T], str | None]:
        """The items of this page, and the token of the next; None: it was the last."""
        size = params.get("MaxResults")
        if size is not None and not least <= int(size) <= most:
            raise AwsError(
                "InvalidParameterValue",
                f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between {least} and {most}.",
            )
        if token := params.get("NextToken"):
            if token not in self._rest:
                raise AwsError("InvalidNextToken", "The specified token is not one of ours, or is too old")
            there = {key(item): item for item in items}
            items = [there[id_] for id_ in self._rest[token] if id_ in there]
        here = items[: int(size or most)]
        return list(here), self._keep([key(item) for item in items[len(here) :]])

    def _keep(self, rest: Sequence[str]) -> str | None:
        if not rest:
            return None
        self._made += 1
        token = f"page-{self._made:012x}"
        self._rest[token] = tuple(rest)
        while len(self._rest) > _PAGES_KEPT:
            self._rest.pop(next(iter(self._rest)))
        return token
