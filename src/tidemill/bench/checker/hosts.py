"""One view of every node of a solution, existing or opened, and the faults that the checker reports. Knows no rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.decide.packer.problem import ExistingNode, ExistingPods, NodeOption, Problem, Solution
from tidemill.model.labels import Taint
from tidemill.spec.names import LABEL_HOSTNAME


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that does not hold."""

    kind: str  # the rule: "resources", "taint", "spread", "gang", …
    sentence: str
    objects: tuple[str, ...] = ()  # the pods, nodes, gangs, stocks or budgets concerned


@dataclass(slots=True)
class Host:
    name: str
    kind: int  # hosts of one kind differ in their name only
    labels: Mapping[str, str]  # the host name included
    room: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    group: str = ""
    existing_pods: tuple[ExistingPods, ...] = ()
    pods: list[int] = field(default_factory=list)


def hosts_of(problem: Problem, solution: Solution) -> list[Host]:
    """The existing nodes in their order, then the opened ones in theirs."""
    hosts = [host_of_node(problem, index) for index in range(len(problem.nodes))]
    for index, pods in solution.existing.items():
        hosts[index].pods = list(pods)
    kinds = {id(option): number for number, option in enumerate(problem.options)}
    for number, node in enumerate(solution.opened):
        host = host_of_option(problem, kinds[id(node.option)], number)
        host.pods = list(node.pods)
        hosts.append(host)
    return hosts


def host_of_node(problem: Problem, index: int) -> Host:
    node: ExistingNode = problem.nodes[index]
    return Host(
        name=node.name,
        kind=index,
        labels={LABEL_HOSTNAME: node.name, **node.labels},
        room=node.free,
        taints=node.taints,
        group=node.group,
        existing_pods=node.existing_pods,
    )


def host_of_option(problem: Problem, option_index: int, number: int) -> Host:
    """A node that would be opened: the `number`-th of the solution."""
    option: NodeOption = problem.options[option_index]
    name = f"new-{number}"
    return Host(
        name=name,
        kind=len(problem.nodes) + option_index,
        labels={**option.labels, LABEL_HOSTNAME: name},
        room=option.capacity,
        taints=option.taints,
        group=option.group,
    )
