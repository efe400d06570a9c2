"""Lower bounds on the price of placing every pod, whatever the packer.

Every bound is proved from a relaxation, so it can be too low and never too high, as long as every pod is placed.
`volumetric` needs no optimiser and any number of pods; `relaxed` (HiGHS) is sharper where pods come in few kinds,
`configurations` where many nodes hold a few pods each; the exact optimum of tiny problems is in `exact_optimum`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from tidemill.bench.checker.hosts import Host, host_of_node, host_of_option
from tidemill.bench.checker.pod_fits_node import eligibility_key, node_faults
from tidemill.bench.pod_kinds import PodKind, apart, pod_kinds
from tidemill.decide.packer.problem import NodeOption, Problem
from tidemill.linear_program import INFINITE, Program
from tidemill.model.resources import Amounts
from tidemill.spec.names import PODS

# Beyond so many pairs of a kind of pod and a kind of node the volumetric bound has to do: seconds, not minutes.
MOST_PAIRS = 6_000
FEWEST_CONFIGURED = 500  # pods: for fewer, seconds for the configuration LP are too many
SEARCH_STEPS = 60  # of a search over an interval that halves: far below the last cent


def lower_bound(problem: Problem) -> float:
    """The best bound in reasonable time."""
    bound = volumetric(problem)
    if find_spec("highspy") is not None and worth_relaxing(problem):
        bound = max(bound, relaxed(problem) or 0.0)
    if find_spec("highspy") is not None and len(problem.pods) >= FEWEST_CONFIGURED:
        from tidemill.bench.configurations import configuration_bound

        bound = max(bound, configuration_bound(problem) or 0.0)
    return bound


def volumetric(problem: Problem) -> float:
    """By resource: what is requested beyond what exists or is prepaid, at the best price per unit.

    Where pods that avoid each other force so many hosts open, each host costs at least something even if it
    held nothing else: both are weighed together, by the dual of min price · y with capacity · y >= demand and
    Σ y >= hosts. Any multiplier gives a bound; the best one is searched for.
    """
    usable = _usable(problem)
    if any(option.price <= 0 and not option.stock for option in usable):
        return 0.0
    paid = [option for option in usable if option.price > 0]
    if not paid:
        return 0.0
    hosts = _forced_hosts(problem, usable, paid)
    by_resource = (_by_resource(paid, n, a, len(hosts)) for n, a in _demand(problem, usable).items())
    return max(sum(hosts), *by_resource, 0.0)


def _usable(problem: Problem) -> list[NodeOption]:
    """Options that at least one pod may use; size is not looked at."""
    kinds = {eligibility_key(pod): pod for pod in problem.pods}.values()
    found = []
    for index, option in enumerate(problem.options):
        host = host_of_option(problem, index, 0)
        if any(next(node_faults(pod, host), None) is None for pod in kinds):
            found.append(option)
    return found


def _demand(problem: Problem, usable: Iterable[NodeOption]) -> Counter[str]:
    """What is requested, less all that existing nodes and prepaid stocks could give."""
    demand: Counter[str] = Counter({PODS: len(problem.pods)})
    for pod in problem.pods:
        for name, amount in pod.shape.requests:
            demand[name] += amount
    for node in problem.nodes:
        for name, amount in node.free.items():
            demand[name] -= max(amount, 0)
    for stock, sharing in _prepaid(usable).items():
        for name in demand:
            most = max(option.capacity.get(name, 0) for option in sharing)
            demand[name] -= most * problem.stocks.get(stock, 0)
    return +demand


def _prepaid(usable: Iterable[NodeOption]) -> dict[str, list[NodeOption]]:
    stocks: dict[str, list[NodeOption]] = {}
    for option in usable:
        if option.price <= 0:
            stocks.setdefault(option.stock, []).append(option)
    return stocks


def _forced_hosts(problem: Problem, usable: Iterable[NodeOption], paid: Sequence[NodeOption]) -> list[float]:
    """What each host that must be opened costs at least: the cheapest that has room for its pod alone.

    They are forced by the largest set of pods of which no two may share a host. Existing nodes without such a pod, and
    prepaid ones, take one each, and which one is not known: the dearest, to be safe.
    """
    cliques = apart(problem.pods)
    if not cliques:
        return []
    selector, members = max(cliques.items(), key=lambda pair: len(pair[1]))
    free = sum(
        not any(selector.matches(pods.namespace, dict(pods.shape.labels)) for pods in node.existing_pods)
        for node in problem.nodes
    ) + sum(problem.stocks.get(stock, 0) for stock in _prepaid(usable))
    by_price = sorted(paid, key=lambda option: option.price)
    known: dict[Amounts, float] = {}
    prices = []
    for pod in members:
        requests = pod.shape.requests
        if requests not in known:
            fitting = (f for f in by_price if all(f.capacity.get(n, 0) >= a for n, a in requests))
            known[requests] = next((f.price for f in fitting), 0.0)
        prices.append(known[requests])
    return sorted(prices)[: max(len(prices) - free, 0)]


def _by_resource(paid: Sequence[NodeOption], name: str, wanted: int, hosts: int) -> float:
    """max over λ of λ · wanted + hosts · min(price - λ · capacity): concave in λ, so thirds are cut off."""
    offers = {(option.price, option.capacity.get(name, 0)) for option in paid}
    if not any(capacity for _, capacity in offers):
        return 0.0
    low, high = 0.0, min(price / capacity for price, capacity in offers if capacity > 0)

    def bound(each: float) -> float:
        return each * wanted + hosts * min(price - each * capacity for price, capacity in offers)

    best = bound(high)
    for _ in range(SEARCH_STEPS if hosts else 0):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if bound(left) < bound(right):
            low = left
        else:
            high = right
        best = max(best, bound(low), bound(high))
    return best


# --- the linear relaxation: nodes and pods may be cut in pieces --------------------------------------------
#
# It keeps resources, which pod may use which node, how many pods fit on one, pods with host anti-affinity, stocks and
# limits, and ignores zones, gangs and whole numbers.


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
    shared_limits(program, problem, [(each.option, each.opened) for each in bins])
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


def shared_limits(
    program: Program, problem: Problem, columns: Iterable[tuple[NodeOption | None, int | None]]
) -> None:
    """Stocks and limits, which several options may share. `columns` count the new nodes of an option."""
    opened = [(option, column) for option, column in columns if option and column is not None]
    for stock, count in problem.stocks.items():
        program.row(-INFINITE, count, {column: 1.0 for option, column in opened if option.stock == stock})
    for budget, limits in problem.budgets.items():
        for name, limit in limits.items():
            scale = max(limit, 1)
            sharing = {c: f.consumes.get(name, 0) / scale for f, c in opened if f.budget == budget}
            program.row(-INFINITE, limit / scale, {c: share for c, share in sharing.items() if share})
