"""Mend: where something found no room, or pods want particular company, look again at who stands where.

Whoever is not content is taken off (a gang whole), and then everyone without a place tries the nodes there are
and one new one at a time, with every rule asked exactly. What still finds nothing stays unplaced.
"""

from __future__ import annotations

from tidemill.decide.problem import Problem
from tidemill.decide.solver.bins import Bin
from tidemill.decide.solver.census import Census, Party
from tidemill.decide.solver.crowd import Crowd, Crowds
from tidemill.decide.solver.fill import Filler

# Trying every node for every pod is for the few: where more than this wait, they wait for want of room.
_MOST_TRIES = 20_000


def mend(problem: Problem, found: Crowds, filler: Filler, homeless: list[int]) -> list[int]:
    """The asks that have no place in the end."""
    crowd_of = {ask: crowd for crowd in (*found.crowds, *found.gangs) for ask in crowd.asks}
    census = take_census(problem, found, filler, crowd_of)
    out = set(homeless) | _take_off(problem, census, filler)
    single = [ask for ask in sorted(out) if problem.asks[ask].gang is None]
    placed = _try_again(problem, single, crowd_of, census, filler)
    return sorted(out - placed)


def take_census(problem: Problem, found: Crowds, filler: Filler, crowd_of: dict[int, Crowd]) -> Census:
    census = Census(filler, found)
    for one in filler.bins:
        if one.place >= 0:
            _count_residents(problem, census, one)
        parties: dict[int, Party] = {}
        for ask in one.asks:
            crowd = crowd_of[ask]
            parties.setdefault(id(crowd), Party(crowd, one, [])).asks.append(ask)
        for party in parties.values():
            census.settle(party)
    return census


def _count_residents(problem: Problem, census: Census, one: Bin) -> None:
    for resident in problem.places[one.place].residents:
        for counter in census.found.counters:
            value = census.value(one, counter.key)
            if value is None:
                continue
            key = (counter.number, value)
            if counter.matches(resident.shape, resident.namespace):
                census.residents[key] = census.residents.get(key, 0) + resident.count
            for term in resident.shape.anti_affinity:
                same = (counter.key, counter.selector) == (term.topology_key, term.selector)
                if same and counter.namespaces == frozenset(term.namespaces or (resident.namespace,)):
                    census.closed.add(key)


def _take_off(problem: Problem, census: Census, filler: Filler) -> set[int]:
    """Take off who is not content, the least important last placed first, until everybody left is."""
    off: set[int] = set()
    while True:
        unhappy = [party for party in census.parties if party.asks and not census.content(party)]
        if unhappy:
            worst = min(unhappy, key=lambda party: (party.crowd.priority, -party.asks[-1]))
            leaving = [worst.asks[-1]]
        else:
            lonely = census.lonely()
            if not lonely:
                return off
            leaving = [ask for party in lonely for ask in party.asks]
        off |= _remove(problem, census, filler, leaving)


def _remove(problem: Problem, census: Census, filler: Filler, leaving: list[int]) -> set[int]:
    gangs = {
        (problem.asks[a].namespace, gang.name) for a in leaving if (gang := problem.asks[a].gang) is not None
    }
    gone: set[int] = set()
    for party in census.parties:
        mine = [
            ask
            for ask in party.asks
            if ask in leaving or (problem.asks[ask].gang is not None and _gang(problem, ask) in gangs)
        ]
        if mine:
            census.leave(party, mine)
            for ask in mine:
                filler.take_off(party.bin, party.crowd, ask)
            gone.update(mine)
    return gone


def _gang(problem: Problem, ask: int) -> tuple[str, str]:
    gang = problem.asks[ask].gang
    assert gang is not None
    return (problem.asks[ask].namespace, gang.name)


def _try_again(
    problem: Problem, asks: list[int], crowd_of: dict[int, Crowd], census: Census, filler: Filler
) -> set[int]:
    """In passes, because one pod's place may be the company another waits for."""
    placed: set[int] = set()
    tries = 0
    order = sorted(asks, key=lambda ask: (-crowd_of[ask].priority, -crowd_of[ask].size, ask))
    progress = True
    while progress and tries < _MOST_TRIES:
        progress = False
        hopeless: set[int] = set()
        for ask in order:
            crowd = crowd_of[ask]
            if ask in placed or id(crowd) in hopeless:
                continue
            tries += 1
            if _find(crowd, ask, census, filler):
                placed.add(ask)
                progress = True
            else:
                hopeless.add(id(crowd))
    return placed


def _find(crowd: Crowd, ask: int, census: Census, filler: Filler) -> bool:
    for one in filler.bins:
        if (
            one.room(crowd.wants)
            and filler.may_stand(crowd, one)
            and one.ports_free(crowd)
            and _suits(crowd, ask, one, census)
        ):
            filler.put(one, crowd, [ask])
            return True
    for site in sorted(filler.ground.by_site):
        opening = filler.best_opening(crowd, site)
        if opening is None:
            continue
        one = filler.open(crowd, opening[1], opening[2])
        if _suits(crowd, ask, one, census):
            filler.put(one, crowd, [ask])
            return True
        filler.close(one)
    return False


def _suits(crowd: Crowd, ask: int, one: Bin, census: Census) -> bool:
    """Put it there in the books only, and ask everybody; take it back if anybody minds."""
    for counter, own in (*crowd.company, *crowd.host_company):
        value = census.value(one, census.found.counters[counter].key)
        if value is None or (not census.height(counter, value) and (not own or census.anywhere(counter))):
            return False
    party = Party(crowd, one, [ask])
    census.settle(party)
    touched = {*crowd.host_moves, *crowd.moves}
    concerned = (
        other
        for other in census.parties
        if other.asks and (other is party or not touched.isdisjoint(_minds(other.crowd)))
    )
    if all(census.content(other) for other in concerned):
        return True
    census.leave(party, [ask])
    census.parties.pop()
    return False


def _minds(crowd: Crowd) -> set[int]:
    minded = {counter for counter, _, _ in crowd.host_caps} | {counter for counter, _, _ in crowd.spreads}
    return minded | {counter for counter, _ in crowd.apart}


def is_needed(found: Crowds, homeless: list[int]) -> bool:
    """Counting by domain is exact unless somebody found no room, or minds company that counting cannot promise."""
    if homeless or any(crowd.careful for crowd in found.crowds):
        return True
    return any(crowd.bound or crowd.picky for crowd in found.gangs)
