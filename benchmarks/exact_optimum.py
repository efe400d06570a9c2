"""The cheapest way to place every pod, exactly, for problems of a handful of pods and options.

An integer program over single nodes: resources, who suits which node, stocks, limits, gangs in one zone and on
one source, host anti-affinity of a pod to its own kind, and spread over zones. Anything else, and any problem
that is not tiny, gets None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from tidemill.bench.bounds import shared_limits
from tidemill.bench.checker.hosts import Host, host_of_node, host_of_option
from tidemill.bench.checker.spread import Rule, option_domains, rules_of
from tidemill.bench.pod_kinds import PodKind, apart, pod_kinds
from tidemill.decide.packer.problem import NodeOption, Problem
from tidemill.linear_program import INFINITE, Program
from tidemill.spec.names import LABEL_SOURCE, LABEL_ZONE


@dataclass(slots=True)
class Slot:
    """One node, existing or to be opened."""

    host: Host
    option: NodeOption | None = None
    opened: int | None = None  # the column that says whether it is opened; None: it exists
    columns: dict[int, int] = field(default_factory=dict)  # number of a kind -> how many of it are here


def exact_optimum(problem: Problem, most_slots: int = 60) -> float | None:
    """The lowest price of a sound solution with every pod placed. None: there is none, or this cannot state it."""
    kinds = pod_kinds(problem)
    if not _is_expressible(problem, kinds):
        return None
    slots = _slots(problem, kinds)
    if len(slots) > most_slots:
        return None
    program = Program()
    for slot in slots:
        if slot.option is not None:
            slot.opened = program.column(slot.option.price, upper=1, whole=True)
        for number, kind in enumerate(kinds):
            most = min(kind.most_on(slot.host), kind.count)
            if most:
                slot.columns[number] = program.column(upper=most, whole=True)
    for number, kind in enumerate(kinds):
        program.row(kind.count, kind.count, {s.columns[number]: 1.0 for s in slots if number in s.columns})
    _fill(program, slots, kinds)
    _order(program, slots)
    shared_limits(program, problem, [(slot.option, slot.opened) for slot in slots])
    _keep_gangs(program, slots, kinds)
    for rule in dict.fromkeys(r for kind in kinds for r in rules_of(kind.pod.shape, kind.pod.namespace)):
        _spread(program, problem, slots, kinds, rule)
    return program.minimum()


def _is_expressible(problem: Problem, kinds: list[PodKind]) -> bool:
    """Whether the program can state the whole problem."""
    for kind in kinds:
        shape = kind.pod.shape
        if shape.affinity or shape.host_ports or (shape.anti_affinity and not kind.one_per_host):
            return False
        if len(shape.anti_affinity) > 1:
            return False
        for rule in rules_of(shape, kind.pod.namespace):
            if rule.topology_key != LABEL_ZONE:
                return False
    exclusive = [kind for kind in kinds if kind.one_per_host]
    # A pod that such a term matches and that has no such term itself would need a rule of its own.
    for selector in apart(kind.pod for kind in exclusive):
        for kind in kinds:
            if not kind.one_per_host and selector.matches(kind.pod.namespace, dict(kind.pod.shape.labels)):
                return False
    ruled = any(kind.one_per_host or kind.pod.shape.spread for kind in kinds)
    anti = any(r.shape.anti_affinity for node in problem.nodes for r in node.existing_pods)
    return not anti and not (ruled and any(node.existing_pods for node in problem.nodes))


def _slots(problem: Problem, kinds: list[PodKind]) -> list[Slot]:
    """Every existing node, and of each option as many as could be of use."""
    slots = [Slot(host_of_node(problem, index)) for index in range(len(problem.nodes))]
    for index, option in enumerate(problem.options):
        host = host_of_option(problem, index, 0)
        useful = sum(kind.count for kind in kinds if kind.most_on(host))
        if option.stock:
            useful = min(useful, problem.stocks.get(option.stock, 0))
        slots += [Slot(host_of_option(problem, index, number), option) for number in range(useful)]
    return slots


def _fill(program: Program, slots: list[Slot], kinds: list[PodKind]) -> None:
    cliques = [{id(pod) for pod in pods} for pods in apart(kind.pod for kind in kinds).values()]
    for slot in slots:
        for name in {name for number in slot.columns for name in kinds[number].requests}:
            taken = {c: float(kinds[n].requests.get(name, 0)) for n, c in slot.columns.items()}
            _at_most(program, slot, slot.host.room.get(name, 0), taken)
        for clique in cliques:
            members = {c: 1.0 for n, c in slot.columns.items() if id(kinds[n].pod) in clique}
            _at_most(program, slot, 1, members)


def _at_most(program: Program, slot: Slot, room: int, taken: dict[int, float]) -> None:
    scale = float(max(room, 1))  # bytes beside counts would be hard on the arithmetic
    taken = {column: amount / scale for column, amount in taken.items() if amount}
    if slot.opened is None:
        program.row(-INFINITE, max(room, 0) / scale, taken)
    else:
        program.row(-INFINITE, 0.0, {**taken, slot.opened: -max(room, 0) / scale})


def _order(program: Program, slots: list[Slot]) -> None:
    """The second node of an option only after the first: removes solutions that differ in numbering only."""
    for one, other in pairwise(slots):
        if one.opened is not None and other.opened is not None and one.host.kind == other.host.kind:
            program.row(0.0, INFINITE, {one.opened: 1.0, other.opened: -1.0})


def _keep_gangs(program: Program, slots: list[Slot], kinds: list[PodKind]) -> None:
    """Each gang is in one zone and on one source."""
    gangs: dict[tuple[str, str], list[int]] = {}
    for number, kind in enumerate(kinds):
        if kind.pod.gang is not None:
            gangs.setdefault((kind.pod.namespace, kind.pod.gang.name), []).append(number)
    homes = sorted({_home(slot.host) for slot in slots})
    for numbers in gangs.values():
        chosen = {home: program.column(upper=1, whole=True) for home in homes}
        program.row(1, 1, dict.fromkeys(chosen.values(), 1.0))
        for home, choice in chosen.items():
            for number in numbers:
                here = {
                    s.columns[number]: 1.0 for s in slots if number in s.columns and _home(s.host) == home
                }
                program.row(-INFINITE, 0.0, {**here, choice: -float(kinds[number].count)})


def _home(host: Host) -> tuple[str, str]:
    return host.labels.get(LABEL_ZONE, ""), host.labels.get(LABEL_SOURCE, "")


def _spread(program: Program, problem: Problem, slots: list[Slot], kinds: list[PodKind], rule: Rule) -> None:
    """In a zone where any pod has the rule, the count is at most the skew above every other zone's."""
    counting = [slot for slot in slots if rule.counted.includes(slot.host.labels, slot.host.taints)]
    zones = {s.host.labels[LABEL_ZONE] for s in counting if s.option is None} | option_domains(problem, rule)
    meant = {
        n for n, k in enumerate(kinds) if rule.selector.matches(k.pod.namespace, dict(k.pod.shape.labels))
    }
    with_rule = [n for n, k in enumerate(kinds) if rule in rules_of(k.pod.shape, k.pod.namespace)]
    every_pod = float(sum(kind.count for kind in kinds))

    def count(zone: str, sign: float) -> dict[int, float]:
        inside = (slot for slot in counting if slot.host.labels[LABEL_ZONE] == zone)
        return {c: sign for slot in inside for n, c in slot.columns.items() if n in meant}

    for zone in zones:
        is_used = program.column(upper=1, whole=True)
        for slot in slots:
            if slot.host.labels.get(LABEL_ZONE) == zone:
                for number in with_rule:
                    if number in slot.columns:
                        program.row(-INFINITE, 0.0, {slot.columns[number]: 1.0, is_used: -every_pod})
        others = [count(other, -1.0) for other in zones if other != zone]
        if len(zones) < rule.min_domains:
            others.append({})
        for other in others:
            skew = {**count(zone, 1.0), **other, is_used: every_pod}
            program.row(-INFINITE, rule.max_skew + every_pod, skew)
