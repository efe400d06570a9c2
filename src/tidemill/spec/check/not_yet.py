"""What the documents may say and this version does not act on: accepted, so that they need not change later.

The reader must hear it from us, and not from a night on which it mattered. Settings of a NodeClass that only a
real launch needs are not warned of: a rehearsal has nothing to do with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.spec.check.shelf import Shelf
from tidemill.spec.models import CapacityPlan
from tidemill.spec.problem import Problem

CODE = "not-yet"


def overlap_is_not_bought(shelf: Shelf) -> Iterator[Problem]:
    for plan in shelf.all(CapacityPlan):
        if plan.model.spec.overlap:
            message = (
                "'overlap' is accepted but not used in this version: each window is bought as it is written,"
                " with no time beside its successor"
            )
            yield plan.warning(("overlap",), message, CODE)
