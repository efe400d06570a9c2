"""The choices of one attempt at a problem: each is better on some problems, none on all of them.

The first of every field is what a large problem gets. What the others are worth trying for is in `search`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Hosts(Enum):
    """When the pods that keep each other off their hosts take their turn."""

    FIRST = 0  # they force hosts open, and the others fill them
    BY_SIZE = 1  # with everybody else: they do not take a scarce large node a large pod needs whole
    LAST = 2  # on what the others opened


class Ahead(Enum):
    """For whom a new node is chosen."""

    ONE = 0  # the next pod
    ALIKE = 1  # those with the same needs that wait for room with it
    EVERYBODY = 2  # whoever is still to come


@dataclass(frozen=True, slots=True)
class Strategy:
    hosts: Hosts = Hosts.FIRST
    ahead: Ahead = Ahead.ONE
    floors: bool = True  # new nodes grow evenly before they are filled
    choosy_first: bool = False  # who has few places to choose from goes before who has many
    large_first: bool = True
    gangs_first: bool = True  # before the single pods of the same priority
    hurried: frozenset[int] | None = None  # asks that come before the others; then everybody comes one by one


USUAL = Strategy()
