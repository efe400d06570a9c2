"""Does a solution keep every rule? An independent check of the final state.

Reads the problem and the solution and nothing of how the solution was found. Rules between one pod and one node are
in `pod_fits_node`, rules between pods in `spread` and `affinity`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tidemill.bench.checker.affinity import check_affinity, check_anti_affinity
from tidemill.bench.checker.hosts import Fault, Host, hosts_of
from tidemill.bench.checker.pod_counts import PodLabelCounts
from tidemill.bench.checker.pod_fits_node import eligibility_key, node_faults
from tidemill.bench.checker.spread import check_spread
from tidemill.decide.packer.problem import Problem, Solution
from tidemill.sim.cluster.scheduler_filters import ports_conflict
from tidemill.spec.names import LABEL_POOL, LABEL_SOURCE, LABEL_ZONE, PODS

__all__ = ["Fault", "check"]


def check(problem: Problem, solution: Solution) -> list[Fault]:
    """Every rule that is broken; empty: the solution is sound."""
    malformed = [*_check_nodes(problem, solution), *_check_presence(problem, solution)]
    if malformed:
        return malformed  # the other checks rely on every pod being somewhere once
    hosts = hosts_of(problem, solution)
    labelled = PodLabelCounts(hosts, problem.pods)
    return [
        *_check_resources(problem, hosts),
        *_check_eligibility(problem, hosts),
        *_check_ports(problem, hosts),
        *check_spread(problem, hosts, labelled),
        *check_affinity(problem, hosts, labelled),
        *check_anti_affinity(problem, hosts, labelled),
        *_check_gangs(problem, hosts),
        *_check_stocks(problem, solution),
        *_check_budgets(problem, solution),
        *_check_pod_budgets(problem, hosts),
    ]


def _check_nodes(problem: Problem, solution: Solution) -> Iterator[Fault]:
    for index in solution.existing:
        if not 0 <= index < len(problem.nodes):
            yield Fault("stranger", f"there is no node {index}", (str(index),))
    known = {id(option) for option in problem.options}
    for number, node in enumerate(solution.opened):
        if id(node.option) not in known:
            yield Fault("stranger", f"new-{number} is of no option of the problem", (f"new-{number}",))
        if not node.pods:
            yield Fault("empty-node", f"new-{number} is opened without pods", (f"new-{number}",))


def _check_presence(problem: Problem, solution: Solution) -> Iterator[Fault]:
    """Each pod exactly once: on an existing node, on an opened node, or unplaced with a reason."""
    seen: Counter[int] = Counter(dict.fromkeys(solution.unplaced, 1))
    for pods in solution.existing.values():
        seen.update(pods)
    for node in solution.opened:
        seen.update(node.pods)
    for index, times in seen.items():
        if not 0 <= index < len(problem.pods):
            yield Fault("stranger", f"there is no pod {index}", (str(index),))
        elif times > 1:
            yield Fault(
                "twice", f"{problem.pods[index].id} is placed {times} times", (problem.pods[index].id,)
            )
    for index, pod in enumerate(problem.pods):
        if index not in seen:
            yield Fault("lost", f"{pod.id} is neither placed nor unplaced", (pod.id,))
        elif solution.unplaced.get(index) == "":
            yield Fault("no-reason", f"{pod.id} is unplaced without a reason", (pod.id,))


def _check_resources(problem: Problem, hosts: Sequence[Host]) -> Iterator[Fault]:
    """A node has none of a resource that it does not list. Each pod takes one of `pods`."""
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


def _check_eligibility(problem: Problem, hosts: Sequence[Host]) -> Iterator[Fault]:
    """The rules between one pod and one node, worked out once per kind of each."""
    known: dict[tuple[object, ...], list[tuple[str, str]]] = {}
    for host in hosts:
        for index in host.pods:
            pod = problem.pods[index]
            key = (host.kind, *eligibility_key(pod))
            wrong = known.get(key)
            if wrong is None:
                wrong = known[key] = list(node_faults(pod, host))
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
    """All members or none, in one zone, on one source of one pool. A node without the label has one of its own."""
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
        for label, noun in ((LABEL_ZONE, "zones"), (LABEL_SOURCE, "sources"), (LABEL_POOL, "pools")):
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
    """A budget limits only what it lists."""
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


def _check_pod_budgets(problem: Problem, hosts: Sequence[Host]) -> Iterator[Fault]:
    used: Counter[str] = Counter()
    for host in hosts:
        for index in host.pods:
            used.update(dict(problem.pods[index].consumes))
    for budget, limit in problem.pod_budgets.items():
        if used[budget] > max(limit, 0):
            yield Fault("pod-budget", f"pods use {used[budget]} of {budget}; its limit is {limit}", (budget,))
