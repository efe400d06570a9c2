"""What to do: a closed union of actions, and what cannot be done, each with its reason as data.

A Plan is data. `act` carries it out, the rehearsal and `tidemill plan` print it; nobody else decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from tidemill.model.offers import ExtensionQuery, OfferQuery
from tidemill.model.purchase_reasons import ProposalReason, PurchaseReason, SearchReason
from tidemill.model.purchases import LaunchIntent, PurchaseIntent, Spending
from tidemill.model.reasons import (
    AdmitReason,
    DrainReason,
    EndReason,
    EvictReason,
    HandoverReason,
    HoldReason,
    LaunchReason,
    RecreateReason,
    SettleReason,
    StepReason,
    TerminateReason,
)
from tidemill.model.warning_reasons import AnyWarning


@dataclass(frozen=True, slots=True)
class SearchOffers:
    """Ask EC2 what it would sell. Reads only; the dated answer is part of the next World."""

    query: OfferQuery
    reason: SearchReason


@dataclass(frozen=True, slots=True)
class SearchExtensions:
    """Ask EC2 what more time on a block would cost. Reads only, like SearchOffers."""

    query: ExtensionQuery
    reason: SearchReason


@dataclass(frozen=True, slots=True)
class ProposePurchase:
    intent: PurchaseIntent
    reason: ProposalReason


@dataclass(frozen=True, slots=True)
class SubmitPurchase:
    """Buy the best offer inside the approved envelope. The one action that spends tens of thousands."""

    intent: PurchaseIntent
    reason: PurchaseReason


@dataclass(frozen=True, slots=True)
class SettlePurchase:
    """Write down what became of a purchase whose outcome is now certain, or that is no longer wanted."""

    intent: PurchaseIntent  # as it was read: the write is a compare-and-set on its state
    outcome: Literal["confirmed", "failed", "unknown", "voided"]
    reservation_ids: tuple[str, ...]
    fee_usd: int
    reason: PurchaseReason


@dataclass(frozen=True, slots=True)
class Launch:
    """Write the intent, then launch. Repeating it with the same intent is safe: its id is the ClientToken."""

    intent: LaunchIntent
    reason: LaunchReason


@dataclass(frozen=True, slots=True)
class SettleLaunch:
    """All an intent made has been seen, or it has expired: it no longer counts as in flight."""

    intent_id: str
    reason: SettleReason
    failure: str = ""  # the error's label: nothing came of it, and its source rests a while
    short: tuple[str, ...] = ()  # only these came: those who need more at once rest, too


@dataclass(frozen=True, slots=True)
class Admit:
    """Take the gate off these pods (a gang: all of them) and pin them to a source in a pool: pools may share one."""

    pods: tuple[str, ...]  # uids
    source_label: str
    ends_at: datetime | None  # the source's deadline, so that the pod knows from its first moment
    reason: AdmitReason
    pool: str = ""  # empty: any
    workload: str = ""  # whose they are, where Karpenter launches their nodes


@dataclass(frozen=True, slots=True)
class MarkReady:
    """The node check passed: take the startup taint off."""

    node: str
    reason: StepReason


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Taint the node so that nothing new lands, and remember why and since when."""

    node: str
    reason: DrainReason


@dataclass(frozen=True, slots=True)
class CancelDrain:
    """The end moved: an extension was paid after the drain began. Take the taint off again."""

    node: str
    reason: StepReason


@dataclass(frozen=True, slots=True)
class KeepForJobs:
    """Services leave the source of this node for its end, and must not land here: taint it so that only admitted jobs
    start, which are done in time. Its own drain comes later. `CancelDrain` takes this back too."""

    node: str
    ends_at: datetime
    reason: StepReason


@dataclass(frozen=True, slots=True)
class AnnounceEnd:
    """Tell a pod when its node ends (or that the end moved)."""

    pod: str  # uid
    ends_at: datetime
    reason: EndReason


@dataclass(frozen=True, slots=True)
class AnnounceNodeEnd:
    """Tell a node that its own end moved, so that its deadline agent does not empty it for one that is past."""

    node: str
    ends_at: datetime
    reason: EndReason


@dataclass(frozen=True, slots=True)
class RequestCheckpoint:
    pod: str
    reason: StepReason


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask politely: the eviction API, which respects disruption budgets; the pod keeps its full grace."""

    pod: str
    reason: EvictReason


@dataclass(frozen=True, slots=True)
class ForceDelete:
    """The last safe moment: set DisruptionTarget and delete with the grace that is left, budgets or not."""

    pod: str
    grace_s: int
    reason: EndReason


@dataclass(frozen=True, slots=True)
class Recreate:
    """Delete a pod with its full grace so that its controller makes a fresh, gated one.

    For survivors of a broken gang, members of a half-admitted one, and pods pinned to a source that is gone.
    """

    pod: str
    reason: RecreateReason
    workload: str = ""  # that creates it again


@dataclass(frozen=True, slots=True)
class RestartWorkload:
    """Touch the template of a service: its pods are made anew, elsewhere, before the old ones go.

    `token` says what for and is written into the template: the same token again changes nothing.
    """

    workload: str
    token: str
    reason: HandoverReason


@dataclass(frozen=True, slots=True)
class ScaleWorkload:
    """Set the replicas of a service. `added` of them are a hand-over's own; `going` are the pods that go first."""

    workload: str
    replicas: int
    added: int
    going: tuple[str, ...]  # uids
    reason: HandoverReason


@dataclass(frozen=True, slots=True)
class Terminate:
    """End an instance of ours, by name."""

    instance_id: str
    reason: TerminateReason
    # It was never a Ready node: this is written down, so that the pool does not launch the like again and again.
    failed_start: LaunchIntent | None = None


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Delete a Kubernetes node whose instance is gone, so that its pods are let go."""

    node: str
    reason: StepReason


Action = (
    SearchOffers
    | SearchExtensions
    | ProposePurchase
    | SubmitPurchase
    | SettlePurchase
    | Launch
    | SettleLaunch
    | Admit
    | MarkReady
    | StartDrain
    | CancelDrain
    | KeepForJobs
    | AnnounceEnd
    | AnnounceNodeEnd
    | RequestCheckpoint
    | Evict
    | ForceDelete
    | Recreate
    | RestartWorkload
    | ScaleWorkload
    | Terminate
    | RemoveNode
)


UnmetCode = Literal["starting", "launching", "held", "no-capacity", "limit", "impossible", "budget", "gang"]


@dataclass(frozen=True, slots=True)
class Unmet:
    """A pod that waits, and why."""

    pod: str  # uid
    name: str  # namespace/name
    code: UnmetCode
    reason: HoldReason
    earliest: datetime | None = None  # the earliest instant at which it could run, where that is known

    def moved(self, by: timedelta) -> Unmet:
        return replace(self, earliest=None if self.earliest is None else self.earliest + by)


@dataclass(frozen=True, slots=True)
class Warning:
    """Something a person should know before it happens. `about` names the object. A `ServiceShort` is an alert too."""

    about: str
    reason: AnyWarning


@dataclass(frozen=True, slots=True)
class Plan:
    actions: tuple[Action, ...] = ()
    unmet: tuple[Unmet, ...] = ()
    warnings: tuple[Warning, ...] = ()
    wake_at: datetime | None = None  # with no event before, nothing would be decided differently until then
    # What it was made from besides: the figures of `Spending` that were read, when it was made, the pods whose
    # `earliest` is counted from then, and whether the use of blocks was read. Two plans that say the same are equal
    # whatever they were made from.
    figures_read: frozenset[str] = field(default=frozenset(), compare=False)
    made_at: datetime | None = field(default=None, compare=False)
    counted_from_then: frozenset[str] = field(default=frozenset(), compare=False)
    uses_read: bool = field(default=True, compare=False)

    def holds_at(self, now: datetime, spending: Spending, spent_then: Spending) -> bool:
        """Whether it is still what would be decided, if nothing else of the world has changed."""
        if self.wake_at is not None and now >= self.wake_at:
            return False
        return all(getattr(spending, name) == getattr(spent_then, name) for name in self.figures_read)

    def told_at(self, now: datetime) -> Plan:
        """As it would be told at another instant at which it holds."""
        if not self.counted_from_then or self.made_at is None:
            return self
        passed, moving = now - self.made_at, self.counted_from_then
        unmet = tuple(one.moved(passed) if one.pod in moving else one for one in self.unmet)
        return replace(self, unmet=unmet, made_at=now)


NOT_YET = "not-yet"  # the label of errors.NotYet


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one action. `error` is empty, or the error's label."""

    action: Action
    error: str = ""
    detail: str = ""

    @property
    def failed(self) -> bool:
        """It was tried and did not work; what is too soon is no failure."""
        return self.error not in ("", NOT_YET)
