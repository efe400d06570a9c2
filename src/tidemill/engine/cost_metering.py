"""Records use in the ledger: instances paid by the hour, and the accelerator hours of blocks by pool and team.

Hours of blocks are sampled, not integrated: what is on a node at a sample counts for the time since the last one. It
errs by minutes, and costs one look at the nodes every ten. Time nobody looked counts as neither used nor held.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import repeat

from tidemill.model.capacity import PREPAID, ReservationState, SourceKind
from tidemill.model.changes import different
from tidemill.model.errors import PortError
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Node
from tidemill.model.pods import Pod
from tidemill.model.purchases import BlockHours, BlockUse, CostLine
from tidemill.model.resources import amount
from tidemill.model.world import World
from tidemill.ports import Ledger
from tidemill.spec import Spec
from tidemill.spec.names import ACCELERATORS

log = logging.getLogger("tidemill.engine.cost_metering")

SAMPLE_EVERY = timedelta(minutes=10)
# After a longer pause the engine was down: what happened meanwhile is unknown.
KNOWS_FOR = timedelta(minutes=30)


_Key = tuple[str, str, str]  # block, pool, team


class _InUse:
    """Accelerators of blocks with a pod on them. A node is counted again once it or its pods are other objects than at
    the last look."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._names: list[str] = []  # of their Kubernetes nodes
        self._bound: list[tuple[Pod, ...]] = []
        self._rows: list[Counter[_Key]] = []  # of each node
        self.total: Counter[_Key] = Counter()

    def look(self, world: World) -> None:
        nodes, get = world.nodes, world.pods_by_node.get
        bound = list(map(get, self._names, repeat(())))
        if len(nodes) == len(self._nodes):
            places = {*different(self._nodes, nodes), *different(self._bound, bound)}
        else:
            self._names, bound, self._rows = [""] * len(nodes), [()] * len(nodes), [Counter()] * len(nodes)
            self.total, places = Counter(), set(range(len(nodes)))
        for place in places:
            kube = nodes[place].kube
            name = self._names[place] = kube.name if kube is not None else ""
            bound[place] = get(name, ())
            self.total.subtract(self._rows[place])
            row = self._rows[place] = _in_use(nodes[place], bound[place])
            self.total.update(row)
        self._nodes, self._bound = nodes, bound


def _in_use(node: Node, pods: tuple[Pod, ...]) -> Counter[_Key]:
    found: Counter[_Key] = Counter()
    instance = node.instance
    if instance is None or node.kube is None or instance.source.kind is not SourceKind.BLOCK:
        return found
    for pod in pods:
        if not pod.daemon:
            busy = sum(amount(pod.shape.requests, name) for name in ACCELERATORS)
            found[instance.source.id, instance.pool, pod.terms.team] += busy
    return found


class Meter:
    def __init__(self, spec: Spec, ledger: Ledger) -> None:
        self._spec, self._ledger = spec, ledger
        self._metered: dict[str, tuple[bool, str]] = {}  # instance -> whether it ended, and its team
        self._shared: set[str] = set()  # instances used by several teams
        self._hours: dict[_Key, BlockHours] | None = None
        self._sampled_at: datetime | None = None
        self._read: tuple[object, ...] | None = None  # the parts of the world read last
        self._busy: dict[_Key, tuple[int, int]] | None = None  # ... and what was counted in them
        self._in_use = _InUse()
        self._judged = any(plan.spec.extend.min_utilisation for plan in spec.plans.values())

    def read(self, world: World) -> None:
        """Cheap where nothing changed since the last reading."""
        of = (world.nodes, world.pods, world.reservations, world.cloud_ok)
        same = self._read is not None and all(one is other for one, other in zip(of, self._read, strict=True))
        try:
            for line in () if same else self._lines(world):
                self._ledger.meter(line)
                self._metered[line.instance_id] = (line.until is not None, line.team)
            if not same:
                self._busy = None
            self._sample(world)
            self._read = of
        except PortError as error:
            self._read = None
            log.warning("cannot meter, next tick again: %s", error)

    def uses(self, world: World | None) -> tuple[BlockUse, ...]:
        """How much of each block was used, for plans that ask for a minimum."""
        if not self._judged or world is None or self._hours is None:
            return ()
        sums: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        for hour in self._hours.values():
            used_h, held_h = sums[hour.reservation_id]
            sums[hour.reservation_id] = used_h + hour.used_h, held_h + hour.held_h
        return tuple(
            BlockUse(block.id, self._gpus(block.instance_type) * block.count, *sums[block.id])
            for block in world.reservations
            if block.id in sums
        )

    # --- blocks -------------------------------------------------------------------------------------

    def _sample(self, world: World) -> None:
        if self._sampled_at is not None and world.now - self._sampled_at < SAMPLE_EVERY:
            return
        if self._hours is None:
            self._hours = {
                (block_hour.reservation_id, block_hour.pool, block_hour.team): block_hour
                for block_hour in self._ledger.block_hours()
            }
        since, self._sampled_at = self._sampled_at, world.now
        if since is None or world.now - since > KNOWS_FOR:
            return
        lasted_h = (world.now - since) / timedelta(hours=1)
        changed = {}
        if self._busy is None:
            self._busy = self._now(world)
        for key, (used, held) in self._busy.items():
            before = self._hours.get(key) or BlockHours(*key)
            used_h, held_h = before.used_h + used * lasted_h, before.held_h + held * lasted_h
            changed[key] = self._hours[key] = BlockHours(*key, used_h, held_h)
        if changed:
            self._ledger.write_block_hours(tuple(changed.values()))

    def _now(self, world: World) -> dict[_Key, tuple[int, int]]:
        """Accelerators with a pod on them, by block, pool and team; all a block holds, on the line without a team."""
        owner = self._spec.platform.spec.deployment
        found: dict[_Key, tuple[int, int]] = {}
        for block in world.reservations:
            if block.owner == owner and block.state is ReservationState.ACTIVE:
                held = self._gpus(block.instance_type) * block.count
                found[block.id, block.pool, ""] = 0, held
        self._in_use.look(world)
        for key, used in sorted(self._in_use.total.items()):
            if used:
                found[key] = used, found[key][1] if key in found else 0
        return found

    def _gpus(self, instance_type: str) -> int:
        kind = self._spec.catalog.types.get(instance_type)
        return 0 if kind is None else sum(amount(kind.allocatable, name) for name in ACCELERATORS)

    # --- by the hour --------------------------------------------------------------------------------

    def _lines(self, world: World) -> Iterator[CostLine]:
        """Lines to write: an instance paid by the hour started, got a team, ended, or is no longer known to AWS."""
        owner = self._spec.platform.spec.deployment
        running = {line.instance_id: line for line in self._ledger.metered()}
        for node in world.nodes:
            instance = node.instance
            if instance is None or instance.owner != owner or instance.source.kind in PREPAID:
                continue
            held = running.pop(instance.id, None)
            ended = instance.state in INSTANCE_ENDED_STATES
            known = self._metered.get(instance.id)
            before = held.team if held is not None else known[1] if known is not None else ""
            team = self._team(instance.id, world.pods_by_node.get(node.name, ()), before)
            if known != (ended, team):
                price = self._spec.catalog.usd_h(instance.instance_type, instance.source.kind)
                until = world.now if ended else None
                yield CostLine(
                    instance.id, instance.pool, instance.source.kind, price, instance.launched_at, until,
                    team, self._gpus(instance.instance_type),
                )  # fmt: skip
        # It ended while the engine was down, and AWS no longer lists it. Counting up to now errs on the high side.
        for line in running.values() if world.cloud_ok else ():
            yield replace(line, until=world.now)

    def _team(self, instance_id: str, pods: Iterable[Pod], before: str) -> str:
        """The team an instance is charged to: the only one whose pods it has run. With several, the pool is charged.

        A restarted engine no longer knows of a team that has left; it may then call the instance the next one's.
        """
        teams = {pod.terms.team for pod in pods if not pod.daemon}
        if instance_id in self._shared or len(teams | ({before} if before else set())) > 1:
            self._shared.add(instance_id)
            return ""
        return teams.pop() if teams else before
