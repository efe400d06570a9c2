"""Room that is promised from an instant on: to services that will move in, or to a gang that has waited long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.placement.candidates import CandidateGroup, CandidateNode, Candidates
from tidemill.decide.placement.queue_item import QueueItem
from tidemill.model.resources import Resources


@dataclass(slots=True)
class CapacityHold:
    """One instant, in one pool. Whoever is still there then must fit beside what is promised."""

    since: datetime
    group: CandidateGroup  # one of those with such room: its pool says how long a pod is assumed to run
    # Whom it is promised to, if it is a gang: it and everyone before it in line is not held back.
    beyond: QueueItem | None = None


def capacity_holds(candidates: Candidates) -> list[CapacityHold]:
    """One for each instant from which room is promised, in order."""
    by_instant: dict[tuple[datetime, int], CapacityHold] = {}
    for group in candidates.groups.values():
        for candidate in group.nodes:
            if candidate.claimed_from is not None:
                key = (candidate.claimed_from, id(candidate.claimed_by))
                by_instant.setdefault(key, CapacityHold(candidate.claimed_from, group, candidate.claimed_by))
    return sorted(by_instant.values(), key=lambda one: one.since)


def unclaimed(candidate: CandidateNode, held: Sequence[CapacityHold]) -> Resources:
    """What is free of it for somebody who must leave room beside these promises."""
    if any(candidate.claimed_from == one.since and candidate.claimed_by is one.beyond for one in held):
        return candidate.unclaimed()
    return candidate.free
