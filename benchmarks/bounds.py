"""Lower bounds on the price of placing every pod, whatever the packer.

Every bound is proved from a relaxation, so it can be too low and never too high, as long as every pod is
placed. `volumetric` needs no optimiser and any number of pods; `relaxed` (HiGHS) is sharper where pods come in
few kinds; the exact optimum of tiny problems is in `exact_optimum`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec

from benchmarks.pod_kinds import apart
from benchmarks.relaxation import relaxed, worth_relaxing
from tests.checker.hosts import host_of_option
from tests.checker.pod_fits_node import eligibility_key, node_faults
from tidemill.decide.packer.problem import NodeOption, Problem
from tidemill.model.resources import Amounts
from tidemill.spec.names import PODS

SEARCH_STEPS = 60  # of a search over an interval that halves: far below the last cent


def lower_bound(problem: Problem) -> float:
    """The best bound in reasonable time."""
    bound = volumetric(problem)
    if find_spec("highspy") is not None and worth_relaxing(problem):
        bound = max(bound, relaxed(problem) or 0.0)
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

    They are forced by the largest set of pods of which no two may share a host. Existing and prepaid nodes
    take one each, and which one is not known: the dearest, to be safe.
    """
    free = len(problem.nodes) + sum(problem.stocks.get(stock, 0) for stock in _prepaid(usable))
    by_price = sorted(paid, key=lambda option: option.price)
    known: dict[Amounts, float] = {}
    prices = []
    for pod in max(apart(problem.pods).values(), key=len, default=[]):
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
