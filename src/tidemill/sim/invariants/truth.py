"""What the invariants read: the simulator's own records, and when the engine could not have acted.

Nothing here comes from the engine: deadlines are those at which the simulated AWS and the provisioners act,
so that a wrong deadline in the engine shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile

from tidemill.engine.loop import Decide
from tidemill.sim.cloud.block_end import block_deadline
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cluster.cluster import SimCluster
from tidemill.sim.timeline import Journal
from tidemill.spec import Spec
from tidemill.store.memory import MemoryLedger

Finding = tuple[int, tuple[str, ...]]  # the invariant's number, the objects involved
Findings = Iterator[Finding]
Span = tuple[datetime, datetime]
# Our Auto Scaling groups go to 0 so long before EC2 terminates, because it waits for no hook.
GROUP_GOES_TO_ZERO = timedelta(minutes=10)
# What nobody who foretells a course of things can know.
_DISTURBS = (
    "fault",
    "node-check-failed",
    "instance-ending",
    "engine-crashed",
    "image-rolled",
    "payment-failed",
)


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: int
    at: datetime
    sentence: str
    objects: tuple[str, ...]


@dataclass(slots=True)
class Truth:
    spec: Spec
    cloud: SimCloud
    cluster: SimCluster
    ledger: MemoryLedger
    journal: Journal
    now: Callable[[], datetime]
    decide: Decide
    agents: bool = False  # nodes have deadline agents: then an absent engine excuses nothing
    absences: list[Span] = field(default_factory=list)  # the engine was not there, or saw nothing
    throttled: list[Span] = field(default_factory=list)  # AWS answered no call

    @property
    def owner(self) -> str:
        return self.spec.platform.spec.deployment

    def ours(self) -> Iterator[InstanceHistory]:
        """Pending and running instances with our owner tag."""
        owner = self.owner
        return (history for history in self.cloud.alive() if history.now.owner == owner)

    def history_of_node(self, name: str) -> InstanceHistory | None:
        node = self.cluster.node_truth(name)
        return self.cloud.instance_histories[node.instance_id] if node is not None else None

    def deadline_of(self, history: InstanceHistory) -> datetime | None:
        """When AWS or its provisioner ends this instance; None: not known to end."""
        ends = [history.now.ends_at] if history.now.ends_at is not None else []
        block = self.cloud.reservation(history.now.source.id) if history.now.source.id else None
        deadline = None if block is None else block_deadline(block, [history.now.provisioner])
        if deadline is not None and history.now.provisioner == "asg":
            deadline -= GROUP_GOES_TO_ZERO
        return min([*ends, deadline] if deadline is not None else ends, default=None)

    def keeps_old_end(self, history: InstanceHistory) -> bool:
        """EKS keeps to the end that a block had when the group was made: an extension does not reach it."""
        return history.now.provisioner == "managed" and any(
            extension.reservation_id == history.now.source.id for extension in self.cloud.bought_extensions
        )

    def soon_over(self, instance_id: str, now: datetime) -> bool:
        """It ends within two hours anyway, so that a drain is for its deadline."""
        deadline = self.deadline_of(self.cloud.instance_histories[instance_id])
        return deadline is not None and deadline - now < timedelta(hours=2)

    def pods_started(self, pool: str, since: datetime) -> int:
        """Non-daemon pods that started on nodes of a pool: each may be the one that a node was launched for, and have
        got a place that came free sooner."""
        nodes = {node.name for node in self.cluster.nodes.values() if node.pool == pool}
        return sum(run.since >= since and run.node in nodes for run in self.cluster.pod_runs(self.now()))

    def faults_since(self, since: datetime) -> bool:
        """Ordered by the scenario since then, or before and striking a node since then."""
        recent = takewhile(lambda line: line.at >= since, reversed(self.journal.lines))
        struck = self.cluster.node_faults
        return bool(struck and struck[-1] >= since) or any(line.kind in _DISTURBS for line in recent)

    # --- when the engine could act ---

    def able_for(self, since: datetime, until: datetime) -> timedelta:
        """How much of a span the engine was there for, with an AWS that answered."""
        return until - since - covered([*self.absences, *self.throttled], since, until)

    def was_absent(self, since: datetime, until: datetime) -> bool:
        return any(left < until and since < back for left, back in self.absences)

    def absent_throughout(self, since: datetime, until: datetime) -> bool:
        return covered(self.absences, since, until) >= until - since


def covered(spans: Iterable[Span], since: datetime, until: datetime) -> timedelta:
    """How much of [since, until] the spans cover; where they overlap it counts once."""
    covered, reached = timedelta(0), since
    for start, end in sorted(spans):
        start, end = max(start, reached), min(end, until)
        if end > start:
            covered += end - start
            reached = end
    return covered
