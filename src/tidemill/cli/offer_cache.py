"""The offers that `tidemill offers` showed lately, so that `tidemill buy cb-…` knows what the id stands for.

EC2 has no call for one offer id. The cache only says what to search for: before a purchase the offer is searched again,
and EC2's answer counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import AwareDatetime, TypeAdapter, ValidationError

from tidemill.model.offers import Offer
from tidemill.offer_search.request import OfferQuestion
from tidemill.offer_search.search import FoundOffer

_MAX_OFFERS = 500  # the latest; offers live for minutes or hours


@dataclass(frozen=True, slots=True)
class CachedOffer:
    offer: Offer
    question: OfferQuestion
    at: AwareDatetime


_FORMAT = TypeAdapter(dict[str, CachedOffer])


def cache_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "tidemill" / "offers.json"


def cached_offer(offer_id: str) -> CachedOffer | None:
    return _read().get(offer_id)


def cache_offers(found: Iterable[FoundOffer], at: AwareDatetime) -> None:
    cache = _read()
    for result in found:
        cache.pop(result.offer.id, None)  # re-inserted at the end, because the latest are kept
        cache[result.offer.id] = CachedOffer(result.offer, result.question, at)
    latest = dict(list(cache.items())[-_MAX_OFFERS:])
    target = cache_path()
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(_FORMAT.dump_json(latest))
        fresh.replace(target)
    except OSError as error:
        click.echo(
            f"warning: cannot write {target}, so `tidemill buy` will not find these offers: {error}", err=True
        )


def _read() -> dict[str, CachedOffer]:
    try:
        return _FORMAT.validate_json(cache_path().read_bytes())
    except (OSError, ValidationError):
        return {}
