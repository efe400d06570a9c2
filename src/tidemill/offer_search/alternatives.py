"""Questions like one that found nothing: another length, fewer instances, other zones, days and types.

The first ones change least for the work that is to run there.
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
from tidemill.offer_search.request import OfferQuestion, StartWindow, is_sold, wrong_count
from tidemill.offer_search.search import FoundOffer, OfferSearcher
from tidemill.spec.units import format_duration


@dataclass(frozen=True, slots=True)
class NearbyQuestion:
    question: OfferQuestion
    change: str  # what is different, in words


@dataclass(frozen=True, slots=True)
class Alternative:
    found: FoundOffer
    change: str


@dataclass(frozen=True, slots=True)
class SearchScope:
    """What may be asked instead: the zones of the platform, the types of the catalog, dates from now on."""

    catalog: Catalog
    zones: tuple[str, ...]
    now: datetime


def search_alternatives(
    shopper: OfferSearcher, questions: Sequence[OfferQuestion], around: SearchScope
) -> Iterator[tuple[str, list[Alternative]]]:
    """Each change that is tried and what it found, until the budget of requests is used up."""
    asked = set(questions)
    for detour in _nearby_questions(questions, around):
        if shopper.left <= 0:
            break
        if detour.question in asked:
            continue
        asked.add(detour.question)
        yield detour.change, [Alternative(found, detour.change) for found in shopper.ask(detour.question)]


def _nearby_questions(questions: Sequence[OfferQuestion], around: SearchScope) -> Iterator[NearbyQuestion]:
    """One kind of change for every question, then the next kind: a small budget still tries something for each."""
    for way in (other_durations, other_zones, other_days, fewer_instances, other_types):
        for question in questions:
            yield from way(question, around)


def other_durations(question: OfferQuestion, around: SearchScope) -> Iterator[NearbyQuestion]:
    at = LEGAL_DURATIONS.index(question.duration)
    for near in (at + 1, at - 1):  # longer first: it does the same work
        if 0 <= near < len(LEGAL_DURATIONS):
            length = LEGAL_DURATIONS[near]
            words = f"{format_duration(length)} instead of {format_duration(question.duration)}"
            yield NearbyQuestion(replace(question, duration=length), words)


def other_zones(question: OfferQuestion, around: SearchScope) -> Iterator[NearbyQuestion]:
    others = tuple(zone for zone in around.zones if zone not in question.zones)
    if question.zones and others:
        yield NearbyQuestion(replace(question, zones=others), f"in {' or '.join(others)}")


def other_days(question: OfferQuestion, around: SearchScope) -> Iterator[NearbyQuestion]:
    starts = question.starts
    whole = StartWindow(around.now, around.now + FARTHEST_START)
    if starts.earliest > around.now or starts.latest < whole.latest:
        yield NearbyQuestion(replace(question, starts=whole), "on any day of the next 8 weeks")


def fewer_instances(question: OfferQuestion, around: SearchScope) -> Iterator[NearbyQuestion]:
    kind = around.catalog.types[question.instance_type]
    for count in dict.fromkeys((question.count // 2, SMALLEST_ULTRASERVER if kind.ultraserver else 1)):
        if 0 < count < question.count and not wrong_count(kind, count):
            yield NearbyQuestion(
                replace(question, count=count), f"{count} instead of {question.count} instances"
            )


def other_types(question: OfferQuestion, around: SearchScope) -> Iterator[NearbyQuestion]:
    """Of the same accelerator, and as many of it."""
    kind = around.catalog.types[question.instance_type]
    for other in around.catalog.types.values():
        if other.name != kind.name and is_sold(other) and _same_accelerator(kind, other):
            count = -(-question.count * kind.gpus // other.gpus)
            if count <= MAX_INSTANCES_PER_BLOCK and not wrong_count(other, count):
                words = f"{count} x {other.name} instead of {question.count} x {kind.name}"
                yield NearbyQuestion(replace(question, instance_type=other.name, count=count), words)


def _same_accelerator(one: InstanceType, other: InstanceType) -> bool:
    return (
        one.accelerator is not None
        and other.accelerator is not None
        and one.accelerator.model == other.accelerator.model
    )
