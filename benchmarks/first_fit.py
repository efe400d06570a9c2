"""The plain reference: first fit decreasing that tries every node in turn, then opens the cheapest that fits.

Nodes that are there come first, then opened ones in the order of their opening. It keeps every hard rule and
no wish, and nothing is clever about it: a solver that is not at least as good has gone wrong somewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from benchmarks.first_fit_counts import Manners, Tallies
from tests.checker.hosts import Host, host_of_flavour, host_of_place
from tests.checker.pod_fits_node import misfits, suitability
from tidemill.decide.packer.problem import Ask, Flavour, NewNode, Problem, Solution
from tidemill.model.pods import PodShape
from tidemill.model.resources import Amounts
from tidemill.sim.cluster.scheduler_filters import ports_conflict
from tidemill.spec.names import LABEL_SOURCE, LABEL_ZONE, PODS

OTHER_TRIES = 5
NO_ROOM = "no place fits it, and none that fits it may be opened"
NO_ROOM_FOR_ALL = "no zone and source has room for the whole gang"


def first_fit(problem: Problem) -> Solution:
    """Largest first, gangs before single pods. Who is left out goes first in another try, if that helps.

    Without that, spread rules that pull a pod's label and its selector to different zones leave a few out
    whom any zone would have taken early.
    """
    hurried: dict[int, None] = {}
    best = _pack(problem, hurried)
    for _ in range(OTHER_TRIES):
        if not best.unplaced:
            break
        hurried |= dict.fromkeys(best.unplaced)
        another = _pack(problem, hurried)
        best = min(best, another, key=lambda solution: len(solution.unplaced))
    return best


def overlooked(problem: Problem, solution: Solution) -> list[int]:
    """Asks that a sound answer left out although there is still a place for them, as everybody else stands."""
    packing = _Packing(problem)
    packing.load(solution)
    left_out = [group for group in _in_order(problem, ()) if group[0] in solution.unplaced]
    return sorted(index for group in left_out if packing.place(group) for index in group)


def _pack(problem: Problem, hurried: Container[int]) -> Solution:
    """One try, and within it again for who found no place, until nobody new does."""
    packing = _Packing(problem)
    waiting = _in_order(problem, hurried)
    while waiting:
        left = [group for group in waiting if not packing.place(group)]
        if len(left) == len(waiting):
            break
        waiting = left
    unplaced = {i: NO_ROOM if len(group) == 1 else NO_ROOM_FOR_ALL for group in waiting for i in group}
    return packing.solution(unplaced)


def _in_order(problem: Problem, hurried: Container[int]) -> list[list[int]]:
    """Groups of asks to be placed together: gangs, and pods by themselves."""
    largest: Counter[str] = Counter({PODS: 1})
    for room in (*(f.capacity for f in problem.flavours), *(p.free for p in problem.places)):
        for name, amount in room.items():
            largest[name] = max(largest[name], amount)
    groups: dict[object, list[int]] = {}
    for index, ask in enumerate(problem.asks):
        together = index if ask.gang is None else (ask.namespace, ask.gang.name)
        groups.setdefault(together, []).append(index)

    def urgency(group: list[int]) -> tuple[float, ...]:
        ask = problem.asks[group[0]]
        share = max((amount / max(largest[name], 1) for name, amount in ask.shape.requests), default=0.0)
        return (-ask.priority, group[0] not in hurried, -len(group), -share, group[0])

    return sorted(groups.values(), key=urgency)


class _Packing:
    """An answer in the making."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._hosts = [host_of_place(problem, index) for index in range(len(problem.places))]
        self._free = [dict(host.room) for host in self._hosts]
        self._ports = [[p for r in host.residents for p in r.shape.host_ports] for host in self._hosts]
        self._flavour_of: list[int] = []  # of the opened ones, which follow the places in `_hosts`
        self._cheapest = sorted(
            range(len(problem.flavours)),
            key=lambda f: (problem.flavours[f].rank, problem.flavours[f].price, f),
        )
        self._stocks = dict(problem.stocks)
        self._budgets = {name: dict(limits) for name, limits in problem.budgets.items()}
        self._suits: dict[tuple[object, ...], bool] = {}
        self._tallies = Tallies(problem, self._hosts)

    def load(self, solution: Solution) -> None:
        """Begin with an answer instead of with nothing."""
        for number, asks in solution.existing.items():
            for index in asks:
                self._put(index, number, 1)
        numbers = {id(flavour): f for f, flavour in enumerate(self._problem.flavours)}
        for node in solution.opened:
            f = numbers[id(node.flavour)]
            number = self._add(f, host_of_flavour(self._problem, f, len(self._flavour_of)))
            for index in node.asks:
                self._put(index, number, 1)

    def place(self, group: Sequence[int]) -> bool:
        ask = self._problem.asks[group[0]]
        if ask.gang is None:
            return self._place_one(group[0], lambda host: True) is not None
        return len(group) >= ask.gang.size and self._place_gang(group)

    def solution(self, unplaced: dict[int, str]) -> Solution:
        places = len(self._problem.places)
        opened = self._hosts[places:]
        return Solution(
            {number: host.asks for number, host in enumerate(self._hosts[:places]) if host.asks},
            [
                NewNode(self._problem.flavours[f], host.asks)
                for f, host in zip(self._flavour_of, opened, strict=True)
            ],
            unplaced,
        )

    # --- one pod ------------------------------------------------------------------------------------------

    def _place_one(self, index: int, allowed: Callable[[Host], bool]) -> int | None:
        """The number of the host it was put on."""
        ask = self._problem.asks[index]
        kind = suitability(ask)
        manners = self._tallies.manners(ask.shape, ask.namespace)
        requests = _requests(ask.shape)
        for number, free in enumerate(self._free):
            for name, wanted in requests:
                if free.get(name, 0) < wanted:
                    break
            else:
                host = self._hosts[number]
                if allowed(host) and self._fits(ask, kind, manners, host, self._ports[number]):
                    self._put(index, number, 1)
                    return number
        return self._open(index, kind, manners, requests, allowed)

    def _fits(
        self,
        ask: Ask,
        kind: tuple[object, ...],
        manners: Manners,
        host: Host,
        taken: list[tuple[str, int, str]],
    ) -> bool:
        key = (host.kind, kind)
        if key not in self._suits:
            self._suits[key] = next(misfits(ask, host), None) is None
        if not self._suits[key]:
            return False
        if any(ports_conflict(port, other) for port in ask.shape.host_ports for other in taken):
            return False
        return self._tallies.welcome(manners, host)

    def _open(
        self,
        index: int,
        kind: tuple[object, ...],
        manners: Manners,
        requests: Amounts,
        allowed: Callable[[Host], bool],
    ) -> int | None:
        """A new node of the first flavour, by rank and then by price, that may hold the pod."""
        number = len(self._flavour_of)
        for f in self._cheapest:
            flavour = self._problem.flavours[f]
            if any(flavour.capacity.get(name, 0) < wanted for name, wanted in requests):
                continue
            if not self._affordable(flavour):
                continue
            host = host_of_flavour(self._problem, f, number)
            if allowed(host) and self._fits(self._problem.asks[index], kind, manners, host, []):
                opened = self._add(f, host)
                self._put(index, opened, 1)
                return opened
        return None

    def _add(self, f: int, host: Host) -> int:
        """Open the node; its number among the hosts."""
        self._pay(self._problem.flavours[f], 1)
        self._hosts.append(host)
        self._free.append(dict(host.room))
        self._ports.append([])
        self._flavour_of.append(f)
        return len(self._hosts) - 1

    def _put(self, index: int, number: int, sign: int) -> None:
        """Put the pod there, or (with -1) take it away again."""
        ask, host = self._problem.asks[index], self._hosts[number]
        for name, wanted in _requests(ask.shape):
            self._free[number][name] -= sign * wanted
        if sign > 0:
            host.asks.append(index)
            self._ports[number].extend(ask.shape.host_ports)
        else:
            host.asks.remove(index)
            for port in ask.shape.host_ports:
                self._ports[number].remove(port)
        self._tallies.put(self._tallies.manners(ask.shape, ask.namespace), host, sign)

    # --- money --------------------------------------------------------------------------------------------

    def _affordable(self, flavour: Flavour) -> bool:
        if flavour.stock and self._stocks.get(flavour.stock, 0) < 1:
            return False
        left = self._budgets.get(flavour.budget, {})
        return all(left[name] >= amount for name, amount in flavour.consumes.items() if name in left)

    def _pay(self, flavour: Flavour, sign: int) -> None:
        if flavour.stock:
            self._stocks[flavour.stock] -= sign
        left = self._budgets.get(flavour.budget, {})
        for name in left:
            left[name] -= sign * flavour.consumes.get(name, 0)

    # --- gangs --------------------------------------------------------------------------------------------

    def _place_gang(self, group: Sequence[int]) -> bool:
        """The first zone and source, in the order in which nodes would be taken, that holds everybody."""
        flavours = (self._problem.flavours[f].labels for f in self._cheapest)
        homes = dict.fromkeys(_home(labels) for labels in (*(host.labels for host in self._hosts), *flavours))
        return any(self._place_gang_in(home, group) for home in homes)

    def _place_gang_in(self, home: tuple[str, str], group: Sequence[int]) -> bool:
        before = len(self._hosts)
        put: list[tuple[int, int]] = []
        for index in group:
            number = self._place_one(index, lambda host: _home(host.labels) == home)
            if number is None:
                self._take_back(put, before)
                return False
            put.append((index, number))
        return True

    def _take_back(self, put: Iterable[tuple[int, int]], before: int) -> None:
        for index, number in put:
            self._put(index, number, -1)
        while len(self._hosts) > before:
            self._pay(self._problem.flavours[self._flavour_of.pop()], -1)
            self._hosts.pop()
            self._free.pop()
            self._ports.pop()


def _home(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get(LABEL_ZONE, ""), labels.get(LABEL_SOURCE, "")


def _requests(shape: PodShape) -> Amounts:
    return ((PODS, 1), *(pair for pair in shape.requests if pair[0] != PODS and pair[1] > 0))
