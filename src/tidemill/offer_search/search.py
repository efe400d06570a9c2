"""Asks the questions, one request each, within a budget of requests and at a bounded rate.

What was found so far is there at any moment, so that a search can be stopped. Time is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidemill.model.errors import NotAllowed, Refused
from tidemill.model.offers import Offer
from tidemill.offer_search.request import OfferQuestion
from tidemill.ports import Cloud

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


class OfferSearcher:
    def __init__(self, cloud: Cloud, bucket: TokenBucket, budget: int) -> None:
        self._cloud, self._bucket = cloud, bucket
        self._budget = budget
        self.asked = 0
        self._found: dict[str, FoundOffer] = {}
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
        self._bucket.take()
        self.asked += 1
        answer = [offer for offer in self._answer(question) if question.fits(offer)]
        found = tuple(FoundOffer(offer, question) for offer in answer)
        for one in found:
            self._found.setdefault(one.offer.id, one)
        return found

    def _answer(self, question: OfferQuestion) -> Sequence[Offer]:
        """EC2 may refuse one question and answer the others; a missing permission ends the search."""
        try:
            return self._cloud.search_offers(question.query)
        except NotAllowed:
            raise
        except Refused as no:
            if str(no) not in self.refused:
                self.refused.append(str(no))
            return ()

    def ask_all(
        self, questions: Iterable[OfferQuestion], progress: Callable[[], None] = lambda: None
    ) -> None:
        for question in questions:
            self.ask(question)
            progress()
