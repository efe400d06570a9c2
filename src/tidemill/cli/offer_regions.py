"""The regions of a search for offers: those that are named, and what each of them is asked through.

A purchase is made in the Platform's region. Other regions are only looked at: a platform runs in one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidemill.catalog import Catalog, block_regions
from tidemill.cli.region_catalog import catalog_of
from tidemill.model.errors import NotAllowed, SpecError
from tidemill.spec.problem import suggestion

if TYPE_CHECKING:
    from tidemill.cli.session import Session
    from tidemill.model.errors import PortError
    from tidemill.offer_search.search import FoundOffer, SellsOffers

# What AWS says to valid credentials in a region that the account has not enabled.
_CREDENTIALS = ("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "OptInRequired")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]{1,2}")


def home(session: Session) -> str:
    return session.spec.platform.spec.region


def regions_of(session: Session, named: tuple[str, ...], *, every: bool) -> tuple[str, ...]:
    """The regions to search, in the order they were named. None named: the Platform's."""
    known = [region.name for region in block_regions()]
    if every:
        if named:
            raise SpecError("--region names regions, --all-regions all of them; give one or the other")
        return tuple(dict.fromkeys((home(session), *known)))
    written = [part.strip() for one in named for part in one.split(",")]
    for region in written:
        if not _REGION.fullmatch(region):
            raise SpecError(f"--region: '{region}' is not a region; {suggestion(region, known)}")
    return tuple(dict.fromkeys(written)) or (home(session),)


def as_asked(session: Session, regions: Iterable[str]) -> tuple[str, ...]:
    """As questions name them: empty is the Platform's."""
    return tuple("" if region == home(session) else region for region in regions)


def zones_by_region(
    session: Session, regions: tuple[str, ...], zones: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The zones of the Platform's region, and those of the others."""
    others = [region for region in regions if region != home(session)]
    elsewhere = tuple(zone for zone in zones if any(zone.startswith(region) for region in others))
    here = tuple(zone for zone in zones if zone not in elsewhere)
    for region in regions if zones else ():
        mine = here if region == home(session) else [zone for zone in elsewhere if zone.startswith(region)]
        if not mine:
            raise SpecError(f"--zone names no zone of {region}; name one, or search that region apart")
    return here, elsewhere


def others(session: Session, regions: Iterable[str]) -> Mapping[str, SellsOffers]:
    return {region: session.offers_of(region) for region in regions if region != home(session)}


def region_of(session: Session, found: FoundOffer) -> str:
    return found.question.region or home(session)


def catalog_for(session: Session, found: FoundOffer) -> Catalog:
    """Prices differ by region."""
    return catalog_of(found.question.region) if found.question.region else session.spec.catalog


def unanswered_lines(session: Session, unanswered: Mapping[str, PortError]) -> list[str]:
    return [
        f"{region or home(session)} was not searched: {error}{_hint(region, error)}"
        for region, error in unanswered.items()
    ]


def _hint(region: str, error: PortError) -> str:
    if not region or not isinstance(error, NotAllowed):
        return ""
    if error.code in _CREDENTIALS:
        return "; a region that your account has not enabled refuses your credentials"
    return "; the policies of `tidemill iam` allow reading in the Platform's region only"


def bought_at_home(session: Session, found: Iterable[FoundOffer]) -> str:
    """A sentence where offers of other regions are listed, else empty."""
    elsewhere = sorted({one.question.region for one in found} - {""})
    if not elsewhere:
        return ""
    return (
        f"The platform runs in {home(session)}: `tidemill buy` refuses the offers of {', '.join(elsewhere)}."
        " To use them, write a Platform there."
    )
