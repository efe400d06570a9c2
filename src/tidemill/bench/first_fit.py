"""The plain reference: first fit decreasing. It tries every node in turn, then opens the cheapest that fits.

Existing nodes come first, then opened ones in the order of their opening. It keeps every hard rule and no preference.
Nothing about it is clever: a packer that is not at least as good has a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from tidemill.bench.checker.hosts import Host, host_of_node, host_of_option
from tidemill.bench.checker.pod_fits_node import eligibility_key, node_faults
from tidemill.bench.first_fit_counts import RuleCounts, Rules
from tidemill.decide.packer.problem import NewNode, NodeOption, PendingPod, Problem, Solution
from tidemill.model.pods import PodShape
from tidemill.model.resources import Amounts
from tidemill.sim.cluster.scheduler_filters import ports_conflict
from tidemill.spec.names import LABEL_POOL, LABEL_SOURCE, LABEL_ZONE, PODS

OTHER_TRIES = 5
NO_ROOM = "no node fits it, and none that fits it may be opened"
NO_ROOM_FOR_ALL = "no zone and source has room for the whole gang"


def first_fit(problem: Problem) -> Solution:
    """Largest first, gangs before single pods. Unplaced pods go first in another try, if that helps.

    Without that, spread rules whose selector does not match the pod itself leave a few pods unplaced that any zone
    would have taken early.
    """
    place_first: dict[int, None] = {}
    best = _pack(problem, place_first)
    for _ in range(OTHER_TRIES):
        if not best.unplaced:
            break
        place_first |= dict.fromkeys(best.unplaced)
        another = _pack(problem, place_first)
        best = min(best, another, key=lambda solution: len(solution.unplaced))
    return best


def overlooked(problem: Problem, solution: Solution) -> list[int]:
    """Pods that a sound solution left unplaced although there is a node for them, with all others where they are."""
    packing = _Packing(problem)
    packing.load(solution)
    left_out = [group for group in _in_order(problem, ()) if group[0] in solution.unplaced]
    return sorted(index for group in left_out if packing.place(group) for index in group)


def _pack(problem: Problem, place_first: Container[int]) -> Solution:
    """One try. Within it, pods without a node are tried again until no further pod is placed."""
    packing = _Packing(problem)
    waiting = _in_order(problem, place_first)
    while waiting:
        left = [group for group in waiting if not packing.place(group)]
        if len(left) == len(waiting):
            break
        waiting = left
    unplaced = {i: NO_ROOM if len(group) == 1 else NO_ROOM_FOR_ALL for group in waiting for i in group}
    return packing.solution(unplaced)


def _in_order(problem: Problem, place_first: Container[int]) -> list[list[int]]:
    """Groups of pods to be placed together: gangs, and single pods."""
    largest: Counter[str] = Counter({PODS: 1})
    for room in (*(f.capacity for f in problem.options), *(p.free for p in problem.nodes)):
        for name, amount in room.items():
            largest[name] = max(largest[name], amount)
    groups: dict[object, list[int]] = {}
    for index, pod in enumerate(problem.pods):
        together = index if pod.gang is None else (pod.namespace, pod.gang.name)
        groups.setdefault(together, []).append(index)

    def urgency(group: list[int]) -> tuple[float, ...]:
        pod = problem.pods[group[0]]
        share = max((amount / max(largest[name], 1) for name, amount in pod.shape.requests), default=0.0)
        return (-pod.priority, group[0] not in place_first, -len(group), -share, group[0])

    return sorted(groups.values(), key=urgency)


class _Packing:
    """A solution in the making."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._hosts = [host_of_node(problem, index) for index in range(len(problem.nodes))]
        self._free = [dict(host.room) for host in self._hosts]
        self._ports = [[p for r in host.existing_pods for p in r.shape.host_ports] for host in self._hosts]
        self._option_of: list[int] = []  # of the opened nodes, which follow the existing ones in `_hosts`
        self._cheapest = sorted(
            range(len(problem.options)),
            key=lambda f: (problem.options[f].rank, problem.options[f].price, f),
        )
        self._stocks = dict(problem.stocks)
        self._budgets = {name: dict(limits) for name, limits in problem.budgets.items()}
        self._suits: dict[tuple[object, ...], bool] = {}
        self._counts = RuleCounts(problem, self._hosts)

    def load(self, solution: Solution) -> None:
        """Start from a solution."""
        for number, pods in solution.existing.items():
            for index in pods:
                self._put(index, number, 1)
        numbers = {id(option): f for f, option in enumerate(self._problem.options)}
        for node in solution.opened:
            f = numbers[id(node.option)]
            number = self._add(f, host_of_option(self._problem, f, len(self._option_of)))
            for index in node.pods:
                self._put(index, number, 1)

    def place(self, group: Sequence[int]) -> bool:
        pod = self._problem.pods[group[0]]
        if pod.gang is None:
            return self._place_one(group[0], lambda host: True) is not None
        return len(group) >= pod.gang.size and self._place_gang(group)

    def solution(self, unplaced: dict[int, str]) -> Solution:
        nodes = len(self._problem.nodes)
        opened = self._hosts[nodes:]
        return Solution(
            {number: host.pods for number, host in enumerate(self._hosts[:nodes]) if host.pods},
            [
                NewNode(self._problem.options[f], host.pods)
                for f, host in zip(self._option_of, opened, strict=True)
            ],
            unplaced,
        )

    # --- one pod ------------------------------------------------------------------------------------------

    def _place_one(self, index: int, allowed: Callable[[Host], bool]) -> int | None:
        """The number of the host it was put on."""
        pod = self._problem.pods[index]
        kind = eligibility_key(pod)
        rules = self._counts.rules(pod.shape, pod.namespace)
        requests = _requests(pod.shape)
        for number, free in enumerate(self._free):
            for name, wanted in requests:
                if free.get(name, 0) < wanted:
                    break
            else:
                host = self._hosts[number]
                if allowed(host) and self._fits(pod, kind, rules, host, self._ports[number]):
                    self._put(index, number, 1)
                    return number
        return self._open(index, kind, rules, requests, allowed)

    def _fits(
        self,
        pod: PendingPod,
        kind: tuple[object, ...],
        rules: Rules,
        host: Host,
        taken: list[tuple[str, int, str]],
    ) -> bool:
        key = (host.kind, kind)
        if key not in self._suits:
            self._suits[key] = next(node_faults(pod, host), None) is None
        if not self._suits[key]:
            return False
        if any(ports_conflict(port, other) for port in pod.shape.host_ports for other in taken):
            return False
        return self._counts.allows(rules, host)

    def _open(
        self,
        index: int,
        kind: tuple[object, ...],
        rules: Rules,
        requests: Amounts,
        allowed: Callable[[Host], bool],
    ) -> int | None:
        """A new node of the first option, by rank and then by price, that may hold the pod."""
        number = len(self._option_of)
        for f in self._cheapest:
            option = self._problem.options[f]
            if any(option.capacity.get(name, 0) < wanted for name, wanted in requests):
                continue
            if not self._available(option):
                continue
            host = host_of_option(self._problem, f, number)
            if allowed(host) and self._fits(self._problem.pods[index], kind, rules, host, []):
                opened = self._add(f, host)
                self._put(index, opened, 1)
                return opened
        return None

    def _add(self, f: int, host: Host) -> int:
        """Open the node; its number among the hosts."""
        self._consume(self._problem.options[f], 1)
        self._hosts.append(host)
        self._free.append(dict(host.room))
        self._ports.append([])
        self._option_of.append(f)
        return len(self._hosts) - 1

    def _put(self, index: int, number: int, sign: int) -> None:
        """Put the pod there, or (with -1) take it away again."""
        pod, host = self._problem.pods[index], self._hosts[number]
        for name, wanted in _requests(pod.shape):
            self._free[number][name] -= sign * wanted
        if sign > 0:
            host.pods.append(index)
            self._ports[number].extend(pod.shape.host_ports)
        else:
            host.pods.remove(index)
            for port in pod.shape.host_ports:
                self._ports[number].remove(port)
        self._counts.put(self._counts.rules(pod.shape, pod.namespace), host, sign)

    # --- money --------------------------------------------------------------------------------------------

    def _available(self, option: NodeOption) -> bool:
        if option.stock and self._stocks.get(option.stock, 0) < 1:
            return False
        left = self._budgets.get(option.budget, {})
        return all(left[name] >= amount for name, amount in option.consumes.items() if name in left)

    def _consume(self, option: NodeOption, sign: int) -> None:
        if option.stock:
            self._stocks[option.stock] -= sign
        left = self._budgets.get(option.budget, {})
        for name in left:
            left[name] -= sign * option.consumes.get(name, 0)

    # --- gangs --------------------------------------------------------------------------------------------

    def _place_gang(self, group: Sequence[int]) -> bool:
        """The first zone and source, in the order in which nodes would be taken, that holds all members."""
        options = (self._problem.options[f].labels for f in self._cheapest)
        homes = dict.fromkeys(_home(labels) for labels in (*(host.labels for host in self._hosts), *options))
        return any(self._place_gang_in(home, group) for home in homes)

    def _place_gang_in(self, home: tuple[str, str, str], group: Sequence[int]) -> bool:
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
            self._consume(self._problem.options[self._option_of.pop()], -1)
            self._hosts.pop()
            self._free.pop()
            self._ports.pop()


def _home(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get(LABEL_ZONE, ""), labels.get(LABEL_SOURCE, ""), labels.get(LABEL_POOL, "")


def _requests(shape: PodShape) -> Amounts:
    return ((PODS, 1), *(pair for pair in shape.requests if pair[0] != PODS and pair[1] > 0))
