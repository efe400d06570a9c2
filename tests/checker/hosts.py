"""One view of every node of an answer, whether it was there before or is opened by it.

Knows no rule: it only lays out facts so that the judges need not ask which kind of node they look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.decide.packer.problem import Flavour, Place, Problem, Resident, Solution
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
    residents: tuple[Resident, ...] = ()
    asks: list[int] = field(default_factory=list)


def hosts_of(problem: Problem, solution: Solution) -> list[Host]:
    """The places in their order, then the opened nodes in theirs."""
    hosts = [host_of_place(problem, index) for index in range(len(problem.places))]
    for index, asks in solution.existing.items():
        hosts[index].asks = list(asks)
    kinds = {id(flavour): number for number, flavour in enumerate(problem.flavours)}
    for number, node in enumerate(solution.opened):
        host = host_of_flavour(problem, kinds[id(node.flavour)], number)
        host.asks = list(node.asks)
        hosts.append(host)
    return hosts


def host_of_place(problem: Problem, index: int) -> Host:
    place: Place = problem.places[index]
    return Host(
        name=place.name,
        kind=index,
        labels={LABEL_HOSTNAME: place.name, **place.labels},
        room=place.free,
        taints=place.taints,
        group=place.group,
        residents=place.residents,
    )


def host_of_flavour(problem: Problem, flavour_index: int, number: int) -> Host:
    """A node that would be opened: the `number`-th of the answer."""
    flavour: Flavour = problem.flavours[flavour_index]
    name = f"new-{number}"
    return Host(
        name=name,
        kind=len(problem.places) + flavour_index,
        labels={**flavour.labels, LABEL_HOSTNAME: name},
        room=flavour.capacity,
        taints=flavour.taints,
        group=flavour.group,
    )
