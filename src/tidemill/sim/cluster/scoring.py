"""Where would it rather be? kube-scheduler's scores for wishes: node affinity, company, spread, soft taints.

Each plugin's score is brought to 0..100 over the nodes that passed the filters and weighed as in the default
profile. Simplified: wishes come before how full a node is (Kubernetes adds that in with weight 1), scores are
not rounded, and there are no default spread constraints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from math import log

from tidemill.decide.scheduler_rules import selects, tolerates
from tidemill.model.pods import PodShape, PodTerm
from tidemill.sim.cluster.bound_pods import Company, Group
from tidemill.sim.cluster.free_resources import Room
from tidemill.sim.cluster.pod_filters import Field
from tidemill.spec import names

# Weights of the plugins in kube-scheduler's default profile.
_TAINTS, _NODE_AFFINITY, _SPREAD, _COMPANY = 3, 2, 2, 2
_REQUIRED_AFFINITY_WEIGHT = 1  # hardPodAffinityWeight: what a settled pod's required affinity pulls with
_BEST = 100.0


def soft_taints(shape: PodShape, room: Room) -> int:
    """PreferNoSchedule taints it does not tolerate."""
    return sum(
        taint.effect == "PreferNoSchedule" and not tolerates(shape.tolerations, taint)
        for taint in room.node.taints
    )


def scores(
    shape: PodShape,
    namespace: str,
    rooms: Sequence[Room],
    company: Company | None,
    spread_over: Sequence[Field],
) -> list[float]:
    """One for each room, the higher the more it wants to be there; all alike where it wishes for nothing."""
    total = [0.0] * len(rooms)

    def add(weight: int, found: Iterable[float]) -> None:
        for index, score in enumerate(found):
            total[index] += weight * score

    taints = [soft_taints(shape, room) for room in rooms]
    if any(taints):
        most = max(taints)
        add(_TAINTS, (_BEST - _BEST * count / most for count in taints))
    if shape.preferred_nodes:
        add(_NODE_AFFINITY, _share_of_the_best([_liking(shape, room) for room in rooms]))
    if company is not None:
        add(_COMPANY, _company(shape, namespace, rooms, company))
        if spread_over:
            add(_SPREAD, _evenness(shape, namespace, rooms, company, spread_over))
    return total


def _liking(shape: PodShape, room: Room) -> float:
    return float(sum(weight for weight, term in shape.preferred_nodes if selects(term, room.labels)))


def _share_of_the_best(found: list[float]) -> list[float]:
    most = max(found, default=0.0)
    return [_BEST * score / most for score in found] if most else found


def _company(shape: PodShape, namespace: str, rooms: Sequence[Room], company: Company) -> Iterable[float]:
    """What it wishes of pods that are there, and what those wish of it."""
    pull: Counter[tuple[str, str]] = Counter()

    def draw(weight: int, key: str, groups: Iterable[Group]) -> None:
        for value, pods in company.count(key, groups).items():
            pull[key, value] += weight * pods

    for weight, term in _signed(shape):
        draw(weight, term.topology_key, company.meant_by(term, namespace))
    own = Group(shape, namespace, dict(shape.labels))
    for group in company.minding:
        required = ((_REQUIRED_AFFINITY_WEIGHT, term) for term in group.shape.affinity)
        for weight, term in chain(_signed(group.shape), required):
            if group.at and own.is_meant_by(term, group.namespace):
                draw(weight, term.topology_key, (group,))
    if not pull:
        return ()
    found = [
        sum(weight for (key, value), weight in pull.items() if room.labels.get(key) == value)
        for room in rooms
    ]
    low, high = min(found), max(found)
    return [_BEST * (score - low) / (high - low) for score in found] if high > low else ()


def _signed(shape: PodShape) -> Iterator[tuple[int, PodTerm]]:
    yield from shape.preferred_affinity
    for weight, term in shape.preferred_anti_affinity:
        yield -weight, term


def _evenness(
    shape: PodShape, namespace: str, rooms: Sequence[Room], company: Company, spread_over: Sequence[Field]
) -> Iterable[float]:
    """The fewer alike are in a room's domains the better; a room without one of the keys scores nothing."""
    keys = [field.rule.topology_key for field in spread_over]
    keyed = [room for room in rooms if all(key in room.labels for key in keys)]
    terms = [_crowding(field, field.counts(company, shape, namespace), keyed) for field in spread_over]
    crowd = {room.node.name: sum(term(room) for term in terms) for room in keyed}
    low, high = min(crowd.values(), default=0.0), max(crowd.values(), default=0.0)
    even = {name: _BEST * (high + low - one) / high if high else _BEST for name, one in crowd.items()}
    return [even.get(room.node.name, 0.0) for room in rooms]


def _crowding(field: Field, counts: Counter[str], rooms: Sequence[Room]) -> Callable[[Room], float]:
    """A key with many values weighs more, else hosts would drown in zones."""
    key = field.rule.topology_key
    values = len(rooms) if key == names.LABEL_HOSTNAME else len({room.labels[key] for room in rooms})
    weight, slack = log(values + 2), field.rule.max_skew - 1
    return lambda room: counts[room.labels[key]] * weight + slack
