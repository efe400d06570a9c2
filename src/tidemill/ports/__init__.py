"""What the engine asks of the outside, in the engine's words.

Synchronous on purpose: a tick is a story told once, from top to bottom, and a rehearsal of a month must not
pay for an event loop. Adapters that wait on the network do so in threads of their own.

Every method may raise Retryable; the others it may raise are named. Reads are eventually consistent unless
they say otherwise: what was just made may be missing for minutes, which is why everything made carries the
id of an intent that was written first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tidemill.model.alerts import Alert, Delivery, Raised
from tidemill.model.capacity import Reservation
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance, KubeNode
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, Offer, OfferQuery
from tidemill.model.pods import DisruptionBudget, Pod, PodShape, Workload
from tidemill.model.purchases import (
    Adoption,
    BlockHours,
    Caps,
    CostLine,
    LaunchIntent,
    Pause,
    PurchaseIntent,
    ShownReservation,
    Spending,
)
from tidemill.model.reasons import DrainReason


class Clock(Protocol):
    def now(self) -> datetime:
        """An aware UTC instant, never running backwards."""
        ...


class Account(Protocol):
    """AWS: the truth for reservations and instances, and the one who sells."""

    def reservations(self) -> Sequence[Reservation]:
        """Every block and on-demand reservation the account can see, tracked or not, ended ones for a day."""
        ...

    def instances(self) -> Sequence[Instance]:
        """Instances with our owner tag, and strangers on our reservations; terminated ones for a while."""
        ...

    def search_offers(self, query: OfferQuery) -> Sequence[Offer]:
        """At most six, cheapest first; may be empty. Holds nothing."""
        ...

    def purchase(self, offer_id: str, tags: Pairs) -> Sequence[Reservation]:
        """Buy. Not idempotent, never retried. NoCapacity: the offer is gone; Refused and Throttled: certainly nothing
        was bought. Whatever else is raised, a plain Retryable too, may have bought it."""
        ...

    def search_extensions(self, query: ExtensionQuery) -> Sequence[ExtensionOffer]:
        """May be empty. Refused: the rule of EC2 that forbids to extend this block now."""
        ...

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        """Buy more time. Not idempotent, never retried, takes no tags; errors as of `purchase`."""
        ...

    def extensions(self) -> Sequence[Extension]:
        """The history of extensions, paid or not. Eventually consistent, like all reads."""
        ...

    def tag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        """Set these tags. Idempotent. Gone: there is no such reservation; Refused: it is not ours to tag (shared)."""
        ...

    def untag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        """Remove these tags, each only where it has this value: what somebody wrote since stays. Idempotent; errors as
        of `tag_reservation`. Not without tags: EC2 would remove all."""
        ...

    def identity(self) -> str:
        """Who makes these calls, as AWS itself says (STS): an ARN. The one way a person's word is proved here."""
        ...


class Cloud(Account, Protocol):
    """An account, and how launches become instances in it: `provision` puts the second on top of the first."""

    def launch(self, intent: LaunchIntent, tags: Pairs) -> Sequence[str]:
        """Start up to `intent.count` instances and return their ids; fewer is an answer, none is NoCapacity.
        Refused: the documents or AWS do not allow it, and nothing changes before they do.

        Idempotent on `intent.id`: the same id gives the same instances. Empty: a group was asked; what it launches
        comes by itself, and is listed with this intent's id.
        """
        ...

    def terminate(self, instance_id: str) -> None:
        """Idempotent. Gone: there is no such instance any more."""
        ...

    def console_output(self, instance_id: str) -> str:
        """What its machine printed last: why it never became a node is often there. Empty: AWS has none (yet)."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One consistent reading of the cluster. Unchanged objects keep their identity between readings.

    So do the tuples in `pods_by_node`: adapters keep it up to date as pods come and go, which is far cheaper
    than indexing all pods at every look. Pods of one template share one shape object; that two templates are alike an
    adapter need not notice, `observe` does.
    """

    nodes: tuple[KubeNode, ...]
    # Finished pods are left out. Pods that a suspended Job will make are in it, gated; and once the Job is admitted,
    # those that are not there yet, ungated and pinned: their room stays claimed from the patch to the first pod.
    pods: tuple[Pod, ...]
    budgets: tuple[DisruptionBudget, ...]
    pods_by_node: Mapping[str, tuple[Pod, ...]]  # bound ones, by node name
    workloads: tuple[Workload, ...] = ()  # Deployments and StatefulSets
    daemons: tuple[PodShape, ...] = ()  # the pod that each DaemonSet puts on a node; empty: not known


class Cluster(Protocol):
    """The Kubernetes API server: the truth for nodes and pods. Every write raises Gone if its object is.

    It wakes the engine when a pod is made, goes, fails, acknowledges a checkpoint, or is bound without having
    been told its end; when a service's ready count changes; and when a node joins, registers, is checked,
    turns NotReady or goes. A pod that merely starts changes no decision.
    """

    def view(self) -> ClusterView: ...

    def admit(self, pods: Sequence[str], source_label: str, ends_at: datetime | None, pool: str = "") -> None:
        """Let the pods of one decision, a whole gang too, be scheduled: the gate off, the source pinned by node
        selector, the toleration of `tidemill.dev/held` added, the end announced. `pool`: pinned to that pool as well.

        Idempotent: a pod without our gate stays as it is. Gone: one of them is not there, and none was admitted. The
        writes are one for each object; what fails between two of them leaves some admitted, and the next decision
        completes the gang or takes it back.
        """
        ...

    def mark_ready(self, node: str) -> None:
        """Remove the startup taint. Idempotent."""
        ...

    def start_drain(self, node: str, reason: DrainReason) -> None:
        """Taint the node and note since when and why: the kind is the taint's value, the rest are annotations.

        Idempotent: the first instant and reason stay.
        """
        ...

    def keep_for_jobs(self, node: str, ends_at: datetime) -> None:
        """Taint it for this end: of the pods that are scheduled from now on only admitted jobs tolerate that."""
        ...

    def cancel_drain(self, node: str) -> None:
        """Take the drain taint off. Idempotent."""
        ...

    def announce_end(self, pod: str, ends_at: datetime) -> None: ...

    def announce_node_end(self, node: str, ends_at: datetime) -> None:
        """What the node's deadline agent goes by from now on. Idempotent."""
        ...

    def request_checkpoint(self, pod: str) -> None: ...

    def evict(self, pod: str) -> bool:
        """The eviction API with the pod's own grace. False: a disruption budget forbids it now."""
        ...

    def delete(self, pod: str, grace_s: int | None, *, disruption: bool) -> None:
        """Delete with this grace (None: the pod's own). `disruption` sets the DisruptionTarget condition first."""
        ...

    def restart(self, workload: str, token: str) -> None:
        """Touch the pod template, as a rollout restart does. Idempotent: one that has the token stays as it is."""
        ...

    def scale(self, workload: str, replicas: int, added: int, going: Sequence[str]) -> None:
        """Set the replicas and, in the same patch, note how many of them a hand-over added. Idempotent.

        Where fewer are asked for, the pods in `going` go first (they are marked before), with their own grace. A
        controller's scale-down asks no disruption budget: the caller has counted.
        """
        ...

    def is_empty(self, instance_id: str) -> bool:
        """Whether the node of an instance can be ended: no pod but daemons is bound to it, by the API server's own word
        and not by the last reading, and the scheduler has had time to see its drain. True: it has no node."""
        ...

    def remove_node(self, node: str) -> None: ...


class Ledger(Protocol):
    """Intents, verdicts and money. Durable before it returns; an old leader's writes are Refused.

    Writes that name a state compare-and-set it: Refused if it is no longer what the caller read.
    """

    @property
    def durable(self) -> bool:
        """Only a durable ledger may buy in the real world."""
        ...

    @property
    def deployment(self) -> str:
        """Whose it is. Nothing is bought for one deployment from the ledger of another; empty: nobody's."""
        ...

    def launches(self) -> tuple[LaunchIntent, ...]:
        """The open ones, those that failed within the last hour, and what never became Ready within the last day."""
        ...

    def write_launch(self, intent: LaunchIntent) -> None:
        """Insert or replace by id."""
        ...

    def purchases(self) -> tuple[PurchaseIntent, ...]: ...

    def propose(self, intent: PurchaseIntent) -> None:
        """Insert; nothing happens if the id is known."""
        ...

    def advance(self, before: PurchaseIntent, after: PurchaseIntent, *, caps: Caps | None = None) -> None:
        """Replace `before` by `after` if its state and verdicts are still those of `before`; else Refused.

        `caps`: also Refused, in the same transaction, if its fee would bring the month over them.
        """
        ...

    def adopt(self, adoption: Adoption) -> None:
        """Insert or replace by reservation."""
        ...

    def adoptions(self) -> tuple[Adoption, ...]: ...

    def pause(self) -> Pause | None:
        """Who paused the engine; None: nobody, or it goes on again."""
        ...

    def write_pause(self, pause: Pause) -> None:
        """Append. Every replica goes by the last one."""
        ...

    def remember(self, reservation_id: str, shown: ShownReservation) -> None:
        """What AWS shows of an adopted one. Nothing happens to what was not adopted."""
        ...

    def meter(self, line: CostLine) -> None:
        """Insert or replace the line of an instance paid by the hour."""
        ...

    def write_block_hours(self, lines: tuple[BlockHours, ...]) -> None:
        """Insert or replace by block, pool and team, all together."""
        ...

    def block_hours(self) -> tuple[BlockHours, ...]: ...

    def metered(self) -> tuple[CostLine, ...]:
        """Lines of instances that have not ended as far as the ledger knows."""
        ...

    def spending(self, now: datetime) -> Spending:
        """This calendar month (UTC), running instances counted up to `now`."""
        ...


class AlertBook(Protocol):
    """Alerts and the words still to be sent about them: an outbox. As durable as the ledger it is kept with."""

    def raise_alert(self, alert: Alert, at: datetime, targets: Sequence[str]) -> bool:
        """Write it down, with a word due to each target. False: it is known, and nothing is sent again.

        One that was over and comes back is raised anew, but not at once: trouble that flickers is told once.
        """
        ...

    def resolve_alert(self, key: str, at: datetime) -> None:
        """It is over. Whoever was told, or is still being told, is told that too. Idempotent."""
        ...

    def alerts(self, *, open_only: bool = False) -> tuple[Raised, ...]:
        """Oldest first, with what became of each word. Open: a condition that is not over."""
        ...

    def claim(self, target: str, at: datetime, until: datetime) -> tuple[Raised, Delivery] | None:
        """The next word due to a target, which nobody else is given before `until`; None: none is due.

        Words about one alert come in their order: what is still being tried holds back what follows.
        """
        ...

    def mark(self, delivery: Delivery) -> None:
        """What came of a try. A word that failed for good takes what was to follow it along."""
        ...

    def unsent(self) -> tuple[Delivery, ...]:
        """Words that are still to be tried."""
        ...

    def beat(self, at: datetime) -> None:
        """The engine is there, and sees."""
        ...

    def heartbeat(self) -> datetime | None:
        """When it last was; None: never."""
        ...
