"""The questions next to one that found nothing: another length, fewer instances, other zones, days and types.

In the order in which people give way: the first ones change least about the work that is to run there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidemill.catalog import Catalog, InstanceType
from tidemill.model.ec2_facts import (
    FARTHEST_START,
    LEGAL_DURATIONS,
    MAX_INSTANCES_PER_BLOCK,
    SMALLEST_ULTRASERVER,
)
from tidemill.offer_search.request import Question, StartWindow, is_sold, wrong_count
from tidemill.offer_search.search import Found, Shopper
from tidemill.spec.units import format_duration


@dataclass(frozen=True, slots=True)
class Detour:
    question: Question
    change: str  # what is different, in words


@dataclass(frozen=True, slots=True)
class Alternative:
    found: Found
    change: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where one may give way: the zones the platform has, the types there are, the time it is."""

    catalog: Catalog
    zones: tuple[str, ...]
    now: datetime


def look_around(
    shopper: Shopper, questions: Sequence[Question], around: Surroundings
) -> Iterator[tuple[str, list[Alternative]]]:
    """What is tried, one after the other, and what it found, as far as the budget of requests goes."""
    asked = set(questions)
    for detour in _in_turns(questions, around):
        if shopper.left <= 0:
            break
        if detour.question in asked:
            continue
        asked.add(detour.question)
        yield detour.change, [Alternative(found, detour.change) for found in shopper.ask(detour.question)]


def _in_turns(questions: Sequence[Question], around: Surroundings) -> Iterator[Detour]:
    """Each way for every question before the next way: a small budget still sees something of each question."""
    for way in (other_durations, other_zones, other_days, fewer, other_types):
        for question in questions:
            yield from way(question, around)


def other_durations(question: Question, around: Surroundings) -> Iterator[Detour]:
    at = LEGAL_DURATIONS.index(question.duration)
    for near in (at + 1, at - 1):  # longer first: it does the same work
        if 0 <= near < len(LEGAL_DURATIONS):
            length = LEGAL_DURATIONS[near]
            words = f"{format_duration(length)} instead of {format_duration(question.duration)}"
            yield Detour(replace(question, duration=length), words)


def other_zones(question: Question, around: Surroundings) -> Iterator[Detour]:
    others = tuple(zone for zone in around.zones if zone not in question.zones)
    if question.zones and others:
        yield Detour(replace(question, zones=others), f"in {' or '.join(others)}")


def other_days(question: Question, around: Surroundings) -> Iterator[Detour]:
    starts = question.starts
    whole = StartWindow(around.now, around.now + FARTHEST_START)
    if starts.earliest > around.now or starts.latest < whole.latest:
        yield Detour(replace(question, starts=whole), "on any day of the next 8 weeks")


def fewer(question: Question, around: Surroundings) -> Iterator[Detour]:
    kind = around.catalog.types[question.instance_type]
    for count in dict.fromkeys((question.count // 2, SMALLEST_ULTRASERVER if kind.ultraserver else 1)):
        if 0 < count < question.count and not wrong_count(kind, count):
            yield Detour(replace(question, count=count), f"{count} instead of {question.count} instances")


def other_types(question: Question, around: Surroundings) -> Iterator[Detour]:
    """Of the same accelerator, and as many of it."""
    kind = around.catalog.types[question.instance_type]
    for other in around.catalog.types.values():
        if other.name != kind.name and is_sold(other) and _same_accelerator(kind, other):
            count = -(-question.count * kind.gpus // other.gpus)
            if count <= MAX_INSTANCES_PER_BLOCK and not wrong_count(other, count):
                words = f"{count} x {other.name} instead of {question.count} x {kind.name}"
                yield Detour(replace(question, instance_type=other.name, count=count), words)


def _same_accelerator(one: InstanceType, other: InstanceType) -> bool:
    return (
        one.accelerator is not None
        and other.accelerator is not None
        and one.accelerator.model == other.accelerator.model
    )
