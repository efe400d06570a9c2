"""Does an answer keep every rule? An independent verification of a Solution, on the final state.

Reads the problem and the answer and nothing of how the answer was found. `check` is the whole story: rules of
one pod and one node are in `pod_fits_node`, those between pods in `spread` and `affinity`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.checker.affinity import check_affinity, check_anti_affinity
from tests.checker.fault import Fault
from tests.checker.hosts import Host, hosts_of
from tests.checker.pod_counts import PodLabelCounts
from tests.checker.pod_fits_node import misfits, suitability
from tests.checker.spread import check_spread
from tidemill.decide.packer.problem import Problem, Solution
from tidemill.sim.cluster.scheduler_filters import ports_conflict
from tidemill.spec.names import LABEL_SOURCE, LABEL_ZONE, PODS

__all__ = ["Fault", "check"]


def check(problem: Problem, solution: Solution) -> list[Fault]:
    """Every rule that is broken; empty: the answer is sound."""
    malformed = [*_check_places(problem, solution), *_check_presence(problem, solution)]
    if malformed:
        return malformed  # what follows relies on every ask being somewhere once
    hosts = hosts_of(problem, solution)
    labelled = PodLabelCounts(hosts, problem.pods)
    return [
        *_check_resources(problem, hosts),
        *_check_suitability(problem, hosts),
        *_check_ports(problem, hosts),
        *check_spread(problem, hosts, labelled),
        *check_affinity(problem, hosts, labelled),
        *check_anti_affinity(problem, hosts, labelled),
        *_check_gangs(problem, hosts),
        *_check_stocks(problem, solution),
        *_check_budgets(problem, solution),
    ]


def _check_places(problem: Problem, solution: Solution) -> Iterator[Fault]:
    for index in solution.existing:
        if not 0 <= index < len(problem.nodes):
            yield Fault("stranger", f"there is no place {index}", (str(index),))
    known = {id(option) for option in problem.options}
    for number, node in enumerate(solution.opened):
        if id(node.option) not in known:
            yield Fault("stranger", f"new-{number} is of no flavour of the problem", (f"new-{number}",))
        if not node.pods:
            yield Fault("empty-node", f"new-{number} is opened for nobody", (f"new-{number}",))


def _check_presence(problem: Problem, solution: Solution) -> Iterator[Fault]:
    """Each ask exactly once: on a place, on an opened node, or left out with a reason."""
    seen: Counter[int] = Counter(dict.fromkeys(solution.unplaced, 1))
    for pods in solution.existing.values():
        seen.update(pods)
    for node in solution.opened:
        seen.update(node.pods)
    for index, times in seen.items():
        if not 0 <= index < len(problem.pods):
            yield Fault("stranger", f"there is no ask {index}", (str(index),))
        elif times > 1:
            yield Fault(
                "twice", f"{problem.pods[index].id} is answered {times} times", (problem.pods[index].id,)
            )
    for index, pod in enumerate(problem.pods):
        if index not in seen:
            yield Fault("lost", f"{pod.id} is neither placed nor left out", (pod.id,))
        elif solution.unplaced.get(index) == "":
            yield Fault("no-reason", f"{pod.id} is left out without a reason", (pod.id,))


def _check_resources(problem: Problem, hosts: Sequence[Host]) -> Iterator[Fault]:
    """A resource that a node does not list is one it has none of. Each pod takes one of `pods`."""
    for host in hosts:
        used: Counter[str] = Counter()
        for index in host.pods:
            for name, wanted in problem.pods[index].shape.requests:
                used[name] += wanted
        used[PODS] = len(host.pods)
        for name, amount in used.items():
            # Zero fits everywhere, even where a node is over-committed already.
            if amount > 0 and amount > host.room.get(name, 0):
                yield Fault(
                    "resources",
                    f"{host.name} has {host.room.get(name, 0)} {name} and {amount} are used",
                    (host.name,),
                )


def _check_suitability(problem: Problem, hosts: Sequence[Host]) -> Iterator[Fault]:
    """The rules that concern one pod and one node: worked out once per kind of each."""
    known: dict[tuple[object, ...], list[tuple[str, str]]] = {}
    for host in hosts:
        for index in host.pods:
            pod = problem.pods[index]
            key = (host.kind, *suitability(pod))
            wrong = known.get(key)
            if wrong is None:
                wrong = known[key] = list(misfits(pod, host))
            for kind, why in wrong:
                yield Fault(kind, f"{pod.id} is on {host.name}, but {why}", (pod.id, host.name))


def _check_ports(problem: Problem, hosts: Sequence[Host]) -> Iterator[Fault]:
    for host in hosts:
        taken = [port for existing in host.existing_pods for port in existing.shape.host_ports]
        for index in host.pods:
            pod = problem.pods[index]
            for port in pod.shape.host_ports:
                if any(ports_conflict(port, other) for other in taken):
                    yield Fault(
                        "host-port",
                        f"{pod.id} finds port {port[1]} taken on {host.name}",
                        (pod.id, host.name),
                    )
            taken.extend(pod.shape.host_ports)


def _check_gangs(problem: Problem, hosts: Sequence[Host]) -> Iterator[Fault]:
    """All or nobody, in one zone and on one source. A node without the label is of a source of its own."""
    placed: dict[tuple[str, str], list[Host]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for host in hosts:
        for index in host.pods:
            pod = problem.pods[index]
            if pod.gang is not None:
                placed.setdefault((pod.namespace, pod.gang.name), []).append(host)
                sizes[pod.namespace, pod.gang.name] = pod.gang.size
    for gang, where in placed.items():
        name = "/".join(gang)
        if len(where) < sizes[gang]:
            yield Fault("gang", f"{len(where)} of the {sizes[gang]} of gang {name} are placed", (name,))
        for label, noun in ((LABEL_ZONE, "zones"), (LABEL_SOURCE, "sources")):
            values = {host.labels.get(label, "") for host in where}
            if len(values) > 1:
                yield Fault("gang", f"gang {name} is on several {noun}: {', '.join(sorted(values))}", (name,))


def _check_stocks(problem: Problem, solution: Solution) -> Iterator[Fault]:
    taken = Counter(node.option.stock for node in solution.opened if node.option.stock)
    for stock, count in taken.items():
        if stock not in problem.stocks:
            yield Fault("stock", f"the problem names no stock {stock}", (stock,))
        elif count > problem.stocks[stock]:
            yield Fault(
                "stock", f"{count} of {stock} are opened and it has {problem.stocks[stock]}", (stock,)
            )


def _check_budgets(problem: Problem, solution: Solution) -> Iterator[Fault]:
    """What a budget does not list it does not limit."""
    spent: dict[str, Counter[str]] = {}
    for node in solution.opened:
        if node.option.budget:
            spent.setdefault(node.option.budget, Counter()).update(node.option.consumes)
    for budget, used in spent.items():
        limits: Mapping[str, int] | None = problem.budgets.get(budget)
        if limits is None:
            yield Fault("limit", f"the problem names no budget {budget}", (budget,))
            continue
        for name, limit in limits.items():
            if used[name] > max(limit, 0):
                yield Fault(
                    "limit", f"{used[name]} {name} of {budget} are opened; its limit is {limit}", (budget,)
                )
