"""Somebody who has a choice makes way for somebody who has none.

Whoever is left out may be particular about nodes on which pods stand that could as well stand elsewhere. One of those
is moved, if that is all it takes. Only pods that nobody minds and that mind nobody: moving them upsets no rule.
"""

from __future__ import annotations

from collections import Counter

from tidemill.decide.packer.bins import Bin, room, without
from tidemill.decide.packer.constraint_state import Party
from tidemill.decide.packer.exact_placement import Seeker
from tidemill.decide.packer.pod_groups import Crowd

# Nodes that are looked at for one pod without a place, in the order they came, and how many pods with the same rules
# are tried in vain: where nobody has a choice, that is soon known.
_NODES, _PODS = 200, 4


def make_way(seeker: Seeker, waiting: list[list[int]]) -> set[int]:
    """Those who have a place now."""
    exchange = _Exchange(seeker)
    return {group[0] for group in waiting if exchange.place(group[0])}


class _Exchange:
    def __init__(self, seeker: Seeker) -> None:
        self._seeker = seeker
        self._in_vain: Counter[object] = Counter()  # by the rules of who came
        self._tied = {id(crowd) for crowd in seeker.crowd_of.values() if crowd.bound or crowd.picky}
        self._stuck: set[int] = set()  # crowds that have no other place, as things stand

    def place(self, ask: int) -> bool:
        seeker = self._seeker
        crowd = seeker.crowd_of[ask]
        rules = seeker.rules(crowd)
        if seeker.problem.asks[ask].gang is not None or self._in_vain[rules] >= _PODS or seeker.looks <= 0:
            return False
        # Whoever made way for another may have left room to spare.
        if seeker.place(ask) is None and not self._place(crowd, ask):
            self._in_vain[rules] += 1
            return False
        return True

    def _place(self, crowd: Crowd, ask: int) -> bool:
        seeker, left = self._seeker, _NODES
        for site in seeker.open_to(crowd, seeker.sites()):
            for one in seeker.filler.by_site.get(site, ()):
                if not one.asks:
                    continue
                left -= 1
                if left < 0 or seeker.looks <= 0:
                    return False
                movers = self._could_go(crowd, one)
                if movers and seeker.may_join(crowd, one) and self._is_cleared(movers):
                    seeker.put(one, ask)
                    return True
        return False

    def _could_go(self, crowd: Crowd, one: Bin) -> list[Party]:
        """Whose leaving would make room for one of the crowd, and would matter to nobody else."""
        here = self._seeker.census.parties.get(one.number, {})
        self._seeker.looks -= len(here)
        asks = self._seeker.problem.asks
        return [
            party
            for number, party in here.items()
            if number not in self._tied
            and number not in self._stuck
            and room(without(one.free, party.crowd.wants, -1), crowd.wants) > 0
            and asks[party.asks[-1]].gang is None
        ]

    def _is_cleared(self, movers: list[Party]) -> bool:
        """Did one of them find another place?"""
        for party in movers:
            mover = party.asks[-1]
            if self._seeker.place(mover, other_than=party.bin) is not None:
                self._seeker.take_off(party, mover)
                self._stuck.clear()
                return True
            self._stuck.add(id(party.crowd))
        return False
