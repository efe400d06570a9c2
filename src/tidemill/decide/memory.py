"""What is remembered from one decision to the next, for as long as the documents are the same.

It changes how fast an answer comes, never the answer: whoever keeps something here also keeps what it follows from,
and compares. Each user has a class of its own for what it keeps; this module knows none of them. A memory belongs to
whoever decides again and again, one decision after the other; a decision without one starts from nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from tidemill.spec import Spec

Part = TypeVar("Part")


class Memory:
    def __init__(self) -> None:
        self._spec: Spec | None = None
        self._parts: dict[type[Any], Any] = {}

    def about(self, spec: Spec) -> Memory:
        """This memory; emptied first if it is about other documents."""
        if self._spec is not spec:
            self._spec, self._parts = spec, {}
        return self

    def of(self, part: type[Part]) -> Part:
        """What a class remembers; made empty the first time."""
        known = self._parts.get(part)
        if known is None:
            known = self._parts[part] = part()
        return cast(Part, known)
