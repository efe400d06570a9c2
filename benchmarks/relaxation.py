"""The linear relaxation of packing, for pods that come in few kinds: nodes and pods may be cut in pieces.

Keeps resources, which pod may use which node, how many pods fit on one, pods that avoid each other, stocks and limits;
ignores zones, gangs and whole numbers. Its optimum is a lower bound on the price of placing every pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.linear_program import INFINITE, Program
from benchmarks.pod_kinds import PodKind, apart, pod_kinds
from tests.checker.hosts import Host, host_of_node, host_of_option
from tidemill.decide.packer.problem import NodeOption, Problem

# Beyond so many pairs of a kind of pod and a kind of node the volumetric bound has to do: seconds, not minutes.
MOST_PAIRS = 6_000


@dataclass(slots=True)
class Bin:
    """Nodes that are alike to every kind of pod: an existing one, or any number of an option."""

    room: Mapping[str, int]
    most: dict[int, int]  # number of a kind of pod -> how many of it one node holds
    option: NodeOption | None = None
    columns: dict[int, int] = field(default_factory=dict)  # number of a kind -> how many of it are here
    opened: int | None = None  # the column that says how many there are; None: one, and it is there


def worth_relaxing(problem: Problem) -> bool:
    offers = {(option.name, option.price, option.stock, option.budget) for option in problem.options}
    return len(pod_kinds(problem, gangs=False)) * (len(offers) + len(problem.nodes)) <= MOST_PAIRS


def relaxed(problem: Problem) -> float | None:
    """The optimum of the relaxation; None: even that cannot place every pod."""
    kinds = pod_kinds(problem, gangs=False)
    bins = _bins(problem, kinds)
    program = Program()
    for each in bins:
        each.opened = None if each.option is None else program.column(each.option.price)
        each.columns = {number: program.column() for number in each.most}
    for number, kind in enumerate(kinds):
        here = {each.columns[number]: 1.0 for each in bins if number in each.columns}
        program.row(kind.count, kind.count, here)
    cliques = _cliques(kinds)
    for each in bins:
        _fill(program, each, kinds, cliques)
    _share(program, problem, bins)
    return program.minimum()


def _bins(problem: Problem, kinds: list[PodKind]) -> list[Bin]:
    """Existing nodes one by one; options that differ only in what the relaxation ignores, once."""
    bins = []
    for index in range(len(problem.nodes)):
        host = host_of_node(problem, index)
        bins.append(Bin(host.room, _most(kinds, host)))
    seen: set[tuple[object, ...]] = set()
    for index, option in enumerate(problem.options):
        host = host_of_option(problem, index, 0)
        most = _most(kinds, host)
        key = (
            tuple(most.items()),
            tuple(sorted(host.room.items())),
            tuple(sorted(option.consumes.items())),
            (option.price, option.stock, option.budget),
        )
        if key not in seen:
            seen.add(key)
            bins.append(Bin(host.room, most, option))
    return bins


def _most(kinds: list[PodKind], host: Host) -> dict[int, int]:
    fitting = ((number, kind.most_on(host)) for number, kind in enumerate(kinds))
    return {number: most for number, most in fitting if most}


def _cliques(kinds: list[PodKind]) -> list[set[int]]:
    """Kinds of which one host holds one pod in all."""
    members = apart(kind.pod for kind in kinds)
    numbers = {id(kind.pod): number for number, kind in enumerate(kinds)}
    return [{numbers[id(pod)] for pod in pods} for pods in members.values()]


def _fill(program: Program, each: Bin, kinds: list[PodKind], cliques: list[set[int]]) -> None:
    """What is put on a kind of node is at most what so many of them hold."""

    def at_most(per_node: float, taken: dict[int, float]) -> None:
        if each.opened is None:
            program.row(-INFINITE, per_node, taken)
        else:
            program.row(-INFINITE, 0.0, {**taken, each.opened: -per_node})

    for name in {name for number in each.most for name in kinds[number].requests}:
        wanted = {c: float(kinds[n].requests.get(name, 0)) for n, c in each.columns.items()}
        scale = max(each.room.get(name, 0), 1)  # bytes beside counts would be hard on the arithmetic
        at_most(each.room.get(name, 0) / scale, {c: amount / scale for c, amount in wanted.items() if amount})
    for number, column in each.columns.items():
        at_most(float(each.most[number]), {column: 1.0})
    for clique in cliques:
        at_most(1.0, {column: 1.0 for number, column in each.columns.items() if number in clique})


def _share(program: Program, problem: Problem, bins: list[Bin]) -> None:
    """Stocks and limits, which several options may share."""
    opened = [(each.option, each.opened) for each in bins if each.option and each.opened is not None]
    for stock, count in problem.stocks.items():
        program.row(-INFINITE, count, {column: 1.0 for option, column in opened if option.stock == stock})
    for budget, limits in problem.budgets.items():
        for name, limit in limits.items():
            scale = max(limit, 1)
            sharing = {c: f.consumes.get(name, 0) / scale for f, c in opened if f.budget == budget}
            program.row(-INFINITE, limit / scale, {c: share for c, share in sharing.items() if share})
