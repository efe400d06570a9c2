"""Could everybody have been bound in some order? Whoever needs company must find it when its turn comes."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.decide.packer.constraint_state import Census, Key, Party


def lonely(census: Census) -> list[Party]:
    """Parties that could not have been bound in any order: each needs company that never comes."""
    seekers = [party for party in census.everybody() if party.crowd.company or party.crowd.host_company]
    if not seekers:
        return []
    there, totals = dict(census.counts), census.totals.copy()
    for party in seekers:
        _arrive(census, party, there, totals, -1)
    while seekers:
        ready = [party for party in seekers if _welcome(census, party, there)]
        if not ready:
            ready = [party for party in seekers if _welcome(census, party, there, totals)][:1]
        if not ready:
            break
        for party in ready:
            _arrive(census, party, there, totals, +1)
        arrived = set(ready)
        seekers = [party for party in seekers if party not in arrived]
    return seekers


def _arrive(census: Census, party: Party, there: dict[Key, int], totals: list[int], sign: int) -> None:
    for counter in census.manners(party.crowd).moves:
        value = census.value(party.bin, counter.key)
        if value is not None:
            key = (counter.number, value)
            there[key] = there.get(key, 0) + sign * len(party.asks)
            totals[counter.number] += sign * len(party.asks)


def _welcome(census: Census, party: Party, there: Mapping[Key, int], totals: list[int] | None = None) -> bool:
    """Everybody it needs is there; with totals, it may also begin where nobody matches anywhere."""
    for counter, own in census.manners(party.crowd).company:
        value = census.value(party.bin, counter.key)
        if value is None:
            return False
        first = totals is not None and own and not totals[counter.number]
        if not there.get((counter.number, value)) and not first:
            return False
    return True
