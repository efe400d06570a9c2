"""One view of every node of an answer, whether it was there before or is opened by it.

Knows no rule: it only lays out facts so that the judges need not ask which kind of node they look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.decide.packer.problem import ExistingNode, ExistingPods, NodeOption, Problem, Solution
from tidemill.model.labels import Taint
from tidemill.spec.names import LABEL_HOSTNAME


@dataclass(slots=True)
class Host:
    name: str
    kind: int  # hosts of one kind differ in their name only: answers about one hold for all
    labels: Mapping[str, str]  # the host name included
    room: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    group: str = ""
    existing_pods: tuple[ExistingPods, ...] = ()
    pods: list[int] = field(default_factory=list)


def hosts_of(problem: Problem, solution: Solution) -> list[Host]:
    """The places in their order, then the opened nodes in theirs."""
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
    """A node that would be opened: the `number`-th of the answer."""
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
