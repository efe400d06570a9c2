"""A lower bound for packings that keep the order of ranks: a lower rank goes first, whatever it costs.

Other bounds let every pod use prepaid nodes of every pool. Here a pod is on no higher rank than the lowest one that
would surely open a node for it: there is no limit on that rank, and it is wherever the rules of the pod may send it.
A packer that lets a pod join a node which another pod opened on a higher rank may be below this bound, by that much.

A linear program (HiGHS) over classes of pods that may use the same nodes. What the pods of a class request is added up
and may be cut in pieces; pods that need a host each are counted. So it can be too low, never too high.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemill.bench.bounds import shared_limits
from tidemill.bench.checker.hosts import host_of_option
from tidemill.bench.checker.pod_fits_node import eligibility_key, node_faults
from tidemill.bench.linear_program import INFINITE, Program
from tidemill.bench.pod_kinds import apart
from tidemill.decide.packer.problem import NodeOption, PendingPod, Problem
from tidemill.spec.names import LABEL_HOSTNAME, LABEL_ZONE, PODS

_Rank = tuple[int, ...]


@dataclass(slots=True)
class _Class:
    """Pods that may use the same nodes, and that must or need not follow other pods to their zone."""

    pod: PendingPod
    follows: bool
    demand: Counter[str] = field(default_factory=Counter)
    largest: dict[str, int] = field(default_factory=dict)
    hosts: int = 0  # pods of it that need a host each
    options: list[int] = field(default_factory=list)  # numbers of the options it may use

    def add(self, pod: PendingPod, *, alone: bool) -> None:
        for name, amount in (*pod.shape.requests, (PODS, 1)):
            self.demand[name] += amount
            self.largest[name] = max(amount, self.largest.get(name, 0))
        self.hosts += alone


def ranked_bound(problem: Problem) -> float | None:
    """None: ranks make no difference, or this cannot state the problem."""
    if len({option.rank for option in problem.options}) < 2 or problem.nodes:
        return None
    if any(pod.gang is not None for pod in problem.pods):
        return None
    options = _distinct(problem)
    classes = _classes(problem)
    for each in classes:
        each.options = list(_up_to_the_sure_rank(problem, each, options))
    return _solve(problem, classes, options)


def _distinct(problem: Problem) -> list[int]:
    """Options that differ in more than their name; the zone matters, because pods follow each other there."""
    found: dict[tuple[object, ...], int] = {}
    for number, option in enumerate(problem.options):
        key = (
            option.rank, option.price, option.stock, option.budget, option.group, option.taints,
            option.labels.get(LABEL_ZONE), tuple(sorted(option.capacity.items())),
        )  # fmt: skip
        found.setdefault(key, number)
    return list(found.values())


def _classes(problem: Problem) -> list[_Class]:
    clique = max(apart(problem.pods).values(), key=len, default=[])
    alone = {id(pod) for pod in clique}
    found: dict[tuple[object, ...], _Class] = {}
    for pod in problem.pods:
        follows = _follows(pod)
        key = (eligibility_key(pod), follows, id(pod) in alone)
        if key not in found:
            found[key] = _Class(pod, follows)
        found[key].add(pod, alone=id(pod) in alone)
    return list(found.values())


def _follows(pod: PendingPod) -> bool:
    """Whether a rule may send it to a zone that it would not choose."""
    shape = pod.shape
    keys = [rule.topology_key for rule in shape.spread if rule.hard]
    keys += [term.topology_key for term in (*shape.affinity, *shape.anti_affinity)]
    return any(key != LABEL_HOSTNAME for key in keys)


def _up_to_the_sure_rank(problem: Problem, each: _Class, options: list[int]) -> Iterator[int]:
    usable = [n for n in options if next(node_faults(each.pod, host_of_option(problem, n, 0)), None) is None]
    zones_of: dict[_Rank, set[str | None]] = {}
    for number in usable:
        option = problem.options[number]
        holds = all(option.capacity.get(name, 0) >= amount for name, amount in each.largest.items())
        if holds and _is_unlimited(problem, option):
            zones_of.setdefault(option.rank, set()).add(option.labels.get(LABEL_ZONE))
    everywhere = {problem.options[number].labels.get(LABEL_ZONE) for number in usable}
    covered: set[str | None] = set()  # by this rank and all lower ones: a pod uses the lowest of its zone
    sure: _Rank | None = None
    for rank in sorted(zones_of):
        covered |= zones_of[rank]
        if covered == everywhere or not each.follows:
            sure = rank
            break
    for number in usable:
        if sure is None or problem.options[number].rank <= sure:
            yield number


def _is_unlimited(problem: Problem, option: NodeOption) -> bool:
    """Whether every pod could have such a node."""
    nodes = len(problem.pods)
    if option.stock and problem.stocks.get(option.stock, 0) < nodes:
        return False
    limits = problem.budgets.get(option.budget, {})
    return all(limits[name] >= nodes * amount for name, amount in option.consumes.items() if name in limits)


def _solve(problem: Problem, classes: list[_Class], options: list[int]) -> float | None:
    program = Program()
    opened = {number: program.column(problem.options[number].price) for number in options}
    names = sorted({name for each in classes for name in each.demand})
    used: dict[tuple[int, str], dict[int, float]] = {}
    hosts: dict[int, dict[int, float]] = {}
    for each in classes:
        for name in names:
            amount = each.demand[name]
            if amount:
                columns = {number: program.column() for number in each.options}  # in shares of the demand
                program.row(1.0, 1.0, dict.fromkeys(columns.values(), 1.0))
                for number, column in columns.items():
                    used.setdefault((number, name), {})[column] = float(amount)
        if each.hosts:
            columns = {number: program.column() for number in each.options}
            program.row(each.hosts, INFINITE, dict.fromkeys(columns.values(), 1.0))
            for number, column in columns.items():
                hosts.setdefault(number, {})[column] = 1.0
    for (number, name), amounts in used.items():
        scale = max(amounts.values())
        room = problem.options[number].capacity.get(name, 0)
        terms = {column: amount / scale for column, amount in amounts.items()}
        program.row(-INFINITE, 0.0, {**terms, opened[number]: -room / scale})
    for number, counts in hosts.items():
        program.row(-INFINITE, 0.0, {**counts, opened[number]: -1.0})
    shared_limits(program, problem, [(problem.options[number], opened[number]) for number in options])
    return program.minimum()
