"""A lower bound for packings that keep the order of ranks: a lower rank goes first, whatever it costs.

A packing keeps ranks if its nodes can be opened in some order so that each is opened by a pod on it for which no
lower rank could give a node at that moment; other pods may join it later, whatever their rank. So every node has a
pod on it (the opener) that finds no node for sure below: one that has no limit, in every zone where its rules may send
the pod. Other bounds let every pod open nodes of every pool.

A linear program (HiGHS) over kinds of pods and sources of nodes. It knows what a kind of pod requests, which nodes it
fits on, that pods which keep each other off their hosts need one each, limits and stocks, and the openers. Pods and
nodes may be cut in pieces, and zones matter to openers only. So it can be too low, never too high.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.bench.bounds import shared_limits, volumetric
from tidemill.bench.checker.hosts import host_of_option
from tidemill.bench.checker.pod_fits_node import eligibility_key, node_faults
from tidemill.bench.pod_kinds import apart
from tidemill.decide.packer.problem import NodeOption, PendingPod, Problem
from tidemill.linear_program import INFINITE, Program
from tidemill.spec.names import LABEL_HOSTNAME, LABEL_ZONE, PODS

MOST_COLUMNS = 100_000  # pairs of a kind and a source: seconds, not minutes
FAR = 3.0  # times what the amounts cost at least: a limit that costs so much to use up is likely to be beyond the bound
EPSILON = 1e-9

_Rank = tuple[int, ...]
_Options = frozenset[int]  # numbers of options


@dataclass(slots=True)
class _Kind:
    """Pods that request the same, may use the same nodes, and need or need not a host each."""

    pod: PendingPod
    alone: bool
    count: int = 0
    usable: dict[int, _Options] = field(default_factory=dict)  # by source: the options it fits on

    @property
    def requests(self) -> dict[str, int]:
        return {**dict(self.pod.shape.requests), PODS: 1}


@dataclass(slots=True)
class _Source:
    """Options of one rank that share a stock and a limit."""

    rank: _Rank
    options: dict[int, frozenset[object]] = field(default_factory=dict)  # number -> which pods may use it
    zones: dict[int, set[str | None]] = field(default_factory=dict)  # by number of the option


def ranked_bound(problem: Problem) -> float | None:
    """None: ranks make no difference, or this cannot state the problem."""
    if len({option.rank for option in problem.options}) < 2 or problem.nodes:
        return None
    if any(pod.gang is not None for pod in problem.pods):
        return None
    kinds = _kinds(problem)
    sources = _sources(problem, kinds)
    if len(kinds) * len(sources) > MOST_COLUMNS:
        return None
    for kind in kinds:
        key, requests = eligibility_key(kind.pod), kind.requests
        for position, source in enumerate(sources):
            fitting = frozenset(
                number
                for number, able in source.options.items()
                if key in able and _holds(problem.options[number], requests)
            )
            if fitting:
                kind.usable[position] = fitting
    limits = _Limits(problem)
    bound = _solve(problem, kinds, sources, limits)
    return min(bound, limits.worth) if bound is not None else None


def _sources(problem: Problem, kinds: list[_Kind]) -> list[_Source]:
    """Options that are alike but for their zone, to every pod, are one."""
    examples = {eligibility_key(kind.pod): kind.pod for kind in kinds}
    found: dict[tuple[object, ...], _Source] = {}
    seen: dict[tuple[object, ...], int] = {}
    for number, option in enumerate(problem.options):
        host = host_of_option(problem, number, 0)
        able = frozenset(key for key, pod in examples.items() if next(node_faults(pod, host), None) is None)
        source = (option.rank, option.stock, option.budget)
        same = (
            *source, option.price, able, tuple(sorted(option.capacity.items())),
            tuple(sorted(option.consumes.items())),
        )  # fmt: skip
        of = found.setdefault(source, _Source(option.rank))
        first = seen.setdefault(same, number)
        of.options[first] = able
        of.zones.setdefault(first, set()).add(option.labels.get(LABEL_ZONE))
    return list(found.values())


def _kinds(problem: Problem) -> list[_Kind]:
    alone = {id(pod) for pod in max(apart(problem.pods).values(), key=len, default=[])}
    found: dict[tuple[object, ...], _Kind] = {}
    for pod in problem.pods:
        key = (eligibility_key(pod), _follows(pod), id(pod) in alone, pod.shape.requests)
        if key not in found:
            found[key] = _Kind(pod, id(pod) in alone)
        found[key].count += 1
    return list(found.values())


def _holds(option: NodeOption, requests: dict[str, int]) -> bool:
    return all(option.capacity.get(name, 0) >= amount for name, amount in requests.items())


# --- openers ----------------------------------------------------------------------------------------------


def _follows(pod: PendingPod) -> frozenset[str]:
    """The topology keys by which rules may send it where it would not go."""
    shape = pod.shape
    keys = {rule.topology_key for rule in shape.spread if rule.hard and rule.topology_key != LABEL_HOSTNAME}
    keys |= {term.topology_key for term in shape.affinity}
    keys |= {term.topology_key for term in shape.anti_affinity if term.topology_key != LABEL_HOSTNAME}
    return frozenset(keys)


def _sure_rank(problem: Problem, kind: _Kind, sources: list[_Source], limits: _Limits) -> _Rank | None:
    """The lowest rank that has a node for every such pod, wherever it is sent; None: no rank is sure."""
    follows = _follows(kind.pod)
    if follows - {LABEL_ZONE}:
        return None
    zones_of: dict[_Rank, set[str | None]] = {}
    everywhere: set[str | None] = set()
    for position, numbers in kind.usable.items():
        for number in numbers:
            zones = sources[position].zones[number]
            everywhere |= zones
            if limits.allow_any(problem.options[number]):
                zones_of.setdefault(sources[position].rank, set()).update(zones)
    covered: set[str | None] = set()  # by this rank and all lower ones: a pod uses the lowest of its zone
    for rank in sorted(zones_of):
        covered |= zones_of[rank]
        if covered == everywhere or not follows:
            return rank
    return None


class _Limits:
    """Which limits are never used up by a packing that costs less than the bound: those count as none.

    `worth` is what it would cost at least to use such a limit up so far that a node might be refused. No packing that
    costs less does so; and whoever costs more is no matter to a bound that is not above it.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        enough = FAR * volumetric(problem)
        found = {budget: self._worth_of(budget, limits) for budget, limits in problem.budgets.items()}
        self._far = {budget: worth for budget, worth in found.items() if worth >= max(enough, EPSILON)}
        self.worth = min(self._far.values(), default=INFINITE)

    def allow_any(self, option: NodeOption) -> bool:
        """Whether every pod could have such a node at any time."""
        problem = self._problem
        if option.stock and problem.stocks.get(option.stock, 0) < len(problem.pods):
            return False
        return not problem.budgets.get(option.budget) or option.budget in self._far

    def _worth_of(self, budget: str, limits: Mapping[str, int]) -> float:
        sharing = [option for option in self._problem.options if option.budget == budget]
        return min((self._worth(sharing, name, limit) for name, limit in limits.items()), default=INFINITE)

    def _worth(self, sharing: list[NodeOption], name: str, limit: int) -> float:
        problem = self._problem
        most = max((option.consumes.get(name, 0) for option in sharing), default=0)
        if limit >= len(problem.pods) * most:
            return INFINITE  # no node is without a pod, so there are no more nodes than pods
        prepaid: dict[str, int] = {}  # by stock
        rates: list[float] = []
        for option in sharing:
            amount = option.consumes.get(name, 0)
            if option.price <= 0:
                count = problem.stocks.get(option.stock, 0) if option.stock else len(problem.pods)
                prepaid[option.stock] = max(prepaid.get(option.stock, 0), count * amount)
            elif amount:
                rates.append(option.price / amount)
        return (limit - most - sum(prepaid.values())) * min(rates, default=0.0)


# --- the program ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rows:
    """What is on the nodes of a source: columns of kinds, by the options they fit on."""

    fitting: dict[_Options, list[tuple[_Kind, int]]] = field(default_factory=dict)
    openers: dict[int, float] = field(default_factory=dict)


def _solve(problem: Problem, kinds: list[_Kind], sources: list[_Source], limits: _Limits) -> float | None:
    program = Program()
    opened = {
        number: program.column(problem.options[number].price)
        for source in sources
        for number in source.options
    }
    rows = [_Rows() for _ in sources]
    for kind in kinds:
        sure = _sure_rank(problem, kind, sources, limits)
        columns: list[int] = []
        for position, numbers in kind.usable.items():
            column = program.column()
            columns.append(column)
            rows[position].fitting.setdefault(numbers, []).append((kind, column))
            if sure is None or sources[position].rank <= sure:
                rows[position].openers[column] = 1.0
        program.row(kind.count, kind.count, dict.fromkeys(columns, 1.0))
    for source, of in zip(sources, rows, strict=True):
        program.row(0.0, INFINITE, {**of.openers, **{opened[number]: -1.0 for number in source.options}})
        for numbers in of.fitting:
            # Pods that fit on these options only use no more than they have, and no more hosts.
            within = [pair for fits, pairs in of.fitting.items() if fits <= numbers for pair in pairs]
            _fill(program, problem, within, {number: opened[number] for number in numbers})
    shared_limits(program, problem, [(problem.options[number], column) for number, column in opened.items()])
    return program.minimum()


def _fill(
    program: Program, problem: Problem, within: Iterable[tuple[_Kind, int]], opened: dict[int, int]
) -> None:
    used: dict[str, dict[int, float]] = {}
    hosts: dict[int, float] = {}
    for kind, column in within:
        for name, amount in kind.requests.items():
            if amount:
                used.setdefault(name, {})[column] = float(amount)
        if kind.alone:
            hosts[column] = 1.0
    for name, amounts in used.items():
        scale = max(amounts.values())  # bytes beside counts would be hard on the arithmetic
        held = {
            column: -problem.options[number].capacity.get(name, 0) / scale
            for number, column in opened.items()
        }
        terms = {column: amount / scale for column, amount in amounts.items()}
        program.row(-INFINITE, 0.0, {**terms, **held})
    if hosts:
        program.row(-INFINITE, 0.0, {**hosts, **dict.fromkeys(opened.values(), -1.0)})
