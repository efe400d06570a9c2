"""Mend: where something found no room, or pods want particular company, look again at who stands where.

Whoever is not content is taken off (a gang whole), and nodes that nobody is left on are given back. Then everyone
without a place tries the nodes there are and one new one at a time, with every rule asked exactly; in the end
somebody who has a choice makes way for somebody who has none. What still finds nothing stays unplaced.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from heapq import heapify, heappop, heappush

from tidemill.decide.packer.binding_order import lonely
from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.constraint_state import Census, Party
from tidemill.decide.packer.ejection import make_way
from tidemill.decide.packer.exact_placement import Seeker
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.pod_groups import Crowd, Crowds
from tidemill.decide.packer.problem import Problem
from tidemill.decide.packer.spread_levels import Gauge
from tidemill.decide.packer.supply import Site
from tidemill.spec import names


def mend(
    problem: Problem,
    found: Crowds,
    filler: Filler,
    homeless: list[int],
    hurried: Container[int] = (),
) -> list[int]:
    """The asks that have no place in the end. Whoever is hurried comes first among the equally important."""
    seeker = Seeker(problem, found, filler, take_census(problem, found, filler))
    out = set(homeless) | _Discontent(seeker).take_off()
    _give_back(seeker)
    out -= _try_again(seeker, out, hurried)
    if out and problem.budgets:
        _tighten(seeker)
        out -= _try_again(seeker, out, hurried)
    if out:
        out -= make_way(seeker, _in_order(seeker, out, hurried))
    return sorted(out)


def take_census(problem: Problem, found: Crowds, filler: Filler) -> Census:
    census = Census(problem, filler, found)
    crowd_of = {ask: crowd for crowd in (*found.crowds, *found.gangs) for ask in crowd.asks}
    for one in filler.bins:
        together: dict[int, tuple[Crowd, list[int]]] = {}
        for ask in one.asks:
            crowd = crowd_of[ask]
            together.setdefault(id(crowd), (crowd, []))[1].append(ask)
        for crowd, asks in together.values():
            census.settle(crowd, one, asks)
    return census


# --- who is not content -----------------------------------------------------------------------------------


class _Discontent:
    """Takes off who is not content, the least important last placed first, until everybody left is."""

    def __init__(self, seeker: Seeker) -> None:
        self._seeker, self._census = seeker, seeker.census
        self._off: set[int] = set()
        self._queue: list[tuple[int, int, Party]] = []
        self._watching: dict[Gauge, list[Party]] = {}
        self._members: dict[tuple[str, str], list[tuple[Party, int]]] = {}
        for party in self._census.everybody():
            for gauge in self._census.watches(party.crowd):
                self._watching.setdefault(gauge, []).append(party)
            for ask in party.asks:
                gang = _gang(seeker.problem, ask)
                if gang is not None:
                    self._members.setdefault(gang, []).append((party, ask))

    def take_off(self) -> set[int]:
        self._queue = [_turn(party) for party in self._census.everybody() if not self._census.content(party)]
        heapify(self._queue)
        while True:
            while self._queue:
                party = heappop(self._queue)[2]
                if party.asks and not self._census.content(party):
                    self._remove(party, party.asks[-1])
            left_alone = [(party, ask) for party in lonely(self._census) for ask in party.asks]
            if not left_alone:
                return self._off
            for party, ask in left_alone:
                if ask not in self._off:
                    self._remove(party, ask)

    def _remove(self, party: Party, ask: int) -> None:
        """With the rest of its gang, if it has one."""
        gang = _gang(self._seeker.problem, ask)
        self._census.fallen.clear()
        for of, member in self._members[gang] if gang is not None else [(party, ask)]:
            if member not in self._off:
                self._seeker.take_off(of, member)
                self._off.add(member)
        upset = {id(party): party}
        for gauge in self._census.fallen:
            upset |= {id(one): one for one in self._watching.get(gauge, ())}
        for one in upset.values():
            if one.asks and not self._census.content(one):
                heappush(self._queue, _turn(one))


def _turn(party: Party) -> tuple[int, int, Party]:
    return (party.crowd.priority, -party.asks[-1], party)


def _gang(problem: Problem, ask: int) -> tuple[str, str] | None:
    gang = problem.asks[ask].gang
    return (problem.asks[ask].namespace, gang.name) if gang is not None else None


# --- what nobody uses -------------------------------------------------------------------------------------


def _give_back(seeker: Seeker) -> None:
    """New nodes on which nobody is left, with what they took of stocks and limits."""
    empty = [one for one in seeker.filler.bins if one.place < 0 and not one.asks]
    for one in empty:
        seeker.filler.close(one)
    seeker.census.freed += len(empty)


def _tighten(seeker: Seeker) -> None:
    """Every new node as small as it can be: what it holds beyond that counts against the limits of its pool."""
    for one in seeker.filler.bins:
        if one.place < 0:
            before = one.rung
            seeker.filler.shrink(one)
            seeker.census.freed += one.rung != before


# --- who has no place -------------------------------------------------------------------------------------


def _try_again(seeker: Seeker, asks: Iterable[int], hurried: Container[int]) -> set[int]:
    """In passes, because one pod's place may be the company another waits for."""
    placed: set[int] = set()
    waiting = _in_order(seeker, asks, hurried)
    while waiting:
        crowds = (seeker.crowd_of[group[0]] for group in waiting)
        seeker.rule_out({id(crowd): crowd for crowd in crowds}.values())
        left = []
        for group in waiting:
            if _place(seeker, group):
                placed.update(group)
            else:
                left.append(group)
        if len(left) == len(waiting):
            break
        waiting = left
    return placed


def _in_order(seeker: Seeker, asks: Iterable[int], hurried: Container[int]) -> list[list[int]]:
    """Gangs, and pods by themselves: the important first, then the large."""
    groups: dict[object, list[int]] = {}
    for ask in sorted(asks):
        groups.setdefault(_gang(seeker.problem, ask) or ask, []).append(ask)
    crowd_of = seeker.crowd_of

    def turn(group: list[int]) -> tuple[float, ...]:
        size = sum([crowd_of[ask].size for ask in group])
        return (-crowd_of[group[0]].priority, group[0] not in hurried, -len(group), -size, group[0])

    return sorted(groups.values(), key=turn)


def _place(seeker: Seeker, group: list[int]) -> bool:
    gang = seeker.problem.asks[group[0]].gang
    if gang is None:
        return seeker.place(group[0]) is not None
    if len(group) < gang.size:
        return False
    homes: dict[tuple[str, ...], list[Site]] = {}
    keys = seeker.filler.ground.keys
    zone, source = keys.index(names.LABEL_ZONE), keys.index(names.LABEL_SOURCE)
    for site in seeker.sites():
        homes.setdefault((site[1][zone], site[1][source]), []).append(site)
    return any(_place_in(seeker, group, sites) for sites in homes.values())


def _place_in(seeker: Seeker, group: list[int], sites: list[Site]) -> bool:
    """The whole gang in one zone, on one source, or nobody."""
    census = seeker.census
    before = census.freed
    put: list[tuple[Bin, int]] = []
    for ask in group:
        one = seeker.place(ask, sites)
        if one is None:
            for there, member in reversed(put):
                seeker.take_off(census.parties[there.number][id(seeker.crowd_of[member])], member)
                if there.place < 0:
                    (seeker.filler.shrink if there.asks else seeker.filler.close)(there)
            census.freed = before  # everything is as it was
            return False
        put.append((one, ask))
    return True


def is_needed(found: Crowds, homeless: list[int]) -> bool:
    """Counting by domain is exact unless somebody found no room, or minds company that counting cannot promise."""
    if homeless or any(crowd.careful for crowd in found.crowds):
        return True
    return any(crowd.bound or crowd.picky for crowd in found.gangs)
