"""Asks EC2 the questions of a request, within a budget of requests and at a bounded rate; then similar questions.

What was found so far is there at any moment, so that a search can be stopped. Time is handed in. The first alternatives
change least for the work that is to run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from tidemill.catalog import Catalog, InstanceType
from tidemill.model.ec2_facts import (
    FARTHEST_START,
    LEGAL_DURATIONS,
    MAX_INSTANCES_PER_BLOCK,
    MAX_OFFERS,
    SMALLEST_ULTRASERVER,
)
from tidemill.model.errors import NotAllowed, PortError, Refused, Retryable
from tidemill.model.offers import Offer, OfferQuery
from tidemill.offer_search.request import OfferQuestion, StartWindow, is_sold, wrong_count
from tidemill.spec.units import format_duration

# EC2 does not state the limit of this call. Its lowest documented buckets refill by 5 a second or less, and other
# tools share the account's: this leaves them room.
REQUESTS_PER_S = 4.0
BURST = 20


class TokenBucket:
    """`burst` requests at once, then `rate_per_s`. `pause` is called with the seconds to wait."""

    def __init__(
        self, rate_per_s: float, burst: int, *, clock: Callable[[], float], pause: Callable[[float], None]
    ) -> None:
        self._rate, self._burst = rate_per_s, burst
        self._clock, self._pause = clock, pause
        self._tokens, self._at = float(burst), clock()

    def take(self) -> None:
        self._refill()
        if self._tokens < 1:
            self._pause((1 - self._tokens) / self._rate)
            self._refill()
        self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now


@dataclass(frozen=True, slots=True)
class FoundOffer:
    offer: Offer
    question: OfferQuestion


class SellsOffers(Protocol):
    """What is asked of a region. `ports.Cloud` is one, for the platform's."""

    def search_offers(self, query: OfferQuery) -> Sequence[Offer]: ...


class OfferSearcher:
    """One budget of requests for all regions. Of several, one that does not answer is left out and named."""

    def __init__(
        self,
        cloud: SellsOffers,
        bucket: TokenBucket,
        budget: int,
        elsewhere: Mapping[str, SellsOffers] | None = None,
    ) -> None:
        """`elsewhere`: the other regions that questions name."""
        self._cloud, self._elsewhere, self._bucket = cloud, elsewhere or {}, bucket
        self._budget = budget
        self.unanswered: dict[str, PortError] = {}  # by region; empty: the platform's
        self.asked = 0
        self._found: dict[str, FoundOffer] = {}
        self.cut_short = False  # an answer was as long as EC2's answers get: there may be more offers
        self.refused: list[
            str
        ] = []  # what EC2 said to questions it does not take: a type it does not sell there, …

    @property
    def left(self) -> int:
        """Requests that may still be made."""
        return self._budget - self.asked

    @property
    def found(self) -> tuple[FoundOffer, ...]:
        return tuple(self._found.values())

    def ask(self, question: OfferQuestion) -> tuple[FoundOffer, ...]:
        """The offers EC2 answered with. An offer that was found before stays with the question that found it."""
        assert self.left > 0, "the budget of requests is the caller's to watch"
        if question.region in self.unanswered:
            return ()
        self._bucket.take()
        self.asked += 1
        shown = self._answer(question)
        self.cut_short = self.cut_short or len(shown) >= MAX_OFFERS
        answer = [offer for offer in shown if question.fits(offer)]
        found = tuple(FoundOffer(offer, question) for offer in answer)
        for one in found:
            self._found.setdefault(one.offer.id, one)
        return found

    def _answer(self, question: OfferQuestion) -> Sequence[Offer]:
        """EC2 may refuse one question and answer the others; a missing permission, or no answer, ends the search in its
        region."""
        try:
            return self._elsewhere.get(question.region, self._cloud).search_offers(question.query)
        except (NotAllowed, Retryable) as error:
            if not self._elsewhere:
                raise
            self.unanswered[question.region] = error
            return ()
        except Refused as no:
            if str(no) not in self.refused:
                self.refused.append(str(no))
            return ()

    def ask_all(
        self, questions: Iterable[OfferQuestion], progress: Callable[[], None] = lambda: None
    ) -> None:
        """Raises the first region's error if none of several regions answered."""
        regions = set()
        for question in questions:
            regions.add(question.region)
            self.ask(question)
            progress()
        if regions and regions <= set(self.unanswered):
            raise next(iter(self.unanswered.values()))


# --- alternatives where nothing was found -------------------------------------------------------------


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
        if detour.question in asked or detour.question.region in shopper.unanswered:
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
    if question.zones and others and not question.region:  # the zones of other regions are not known
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
