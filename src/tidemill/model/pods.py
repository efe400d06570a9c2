"""Pods, what the scheduler looks at in them, and the workloads that create them.

Kubernetes' meaning in a form that hashes, so that pods of one template are one class. The rules are elsewhere:
nothing here knows a node, a cluster or where a pod was read from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tidemill.model.labels import Expression, Pairs, Selector, Toleration
from tidemill.model.resources import Amounts, Resources


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Other pods, by label, and the kind of place in which to be with them or apart from them."""

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...] = ()  # empty: the pod's own

    def namespaces_of(self, pod_namespace: str) -> frozenset[str]:
        """The namespaces whose pods the term means, for a pod in this namespace."""
        return frozenset(self.namespaces or (pod_namespace,))


@dataclass(frozen=True, slots=True)
class Spread:
    """A topologySpreadConstraint."""

    topology_key: str
    selector: Selector
    max_skew: int = 1
    hard: bool = True  # DoNotSchedule; False: ScheduleAnyway
    min_domains: int = 1
    match_label_keys: tuple[str, ...] = ()
    honor_affinity: bool = True  # nodeAffinityPolicy: only places its own selector and affinity allow count
    honor_taints: bool = False  # nodeTaintsPolicy


@dataclass(frozen=True, slots=True)
class PodShape:
    """What the scheduler looks at. Pods of one template share one shape object."""

    requests: Amounts = ()
    node_selector: Pairs = ()
    tolerations: tuple[Toleration, ...] = ()
    labels: Pairs = ()  # what other pods' selectors see
    node_terms: tuple[Selector, ...] = ()  # required node affinity: one must hold; empty: none required
    preferred_nodes: tuple[tuple[int, Selector], ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[tuple[int, PodTerm], ...] = ()
    preferred_anti_affinity: tuple[tuple[int, PodTerm], ...] = ()
    spread: tuple[Spread, ...] = ()
    host_ports: tuple[tuple[str, int, str], ...] = ()  # protocol, port, host IP ("" or 0.0.0.0: all of them)
    volume_zones: tuple[str, ...] = ()  # zones its bound volumes can be reached from; empty: no such volume

    @property
    def sociable(self) -> bool:
        """Where other pods are matters to it, as a rule or as a wish."""
        return bool(
            self.spread
            or self.anti_affinity
            or self.affinity
            or self.host_ports
            or self.preferred_affinity
            or self.preferred_anti_affinity
        )


def spread_selector(spread: Spread, labels: Pairs) -> Selector:
    """Whom a pod with these labels is spread among: matchLabelKeys adds its own value of each key."""
    own = dict(labels)
    more = tuple(Expression(key, "In", (own[key],)) for key in spread.match_label_keys if key in own)
    return (*spread.selector, *more)


class PodPhase(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a pod says about its own time, money and rank. Pods of one template share one terms object."""

    grace: timedelta = timedelta(seconds=30)
    expected: timedelta | None = None  # whole run time of the work, restarts not counted; None: no end known
    checkpoint_time: timedelta = timedelta(0)
    checkpoint_every: timedelta | None = None  # set: resumable
    load: timedelta = timedelta(0)
    overflow: bool = False
    do_not_disrupt: bool | timedelta = False
    priority: int = 0
    team: str = ""


# More pods are not started together: one on each node of the largest cluster that Kubernetes is tested with.
MAX_GANG_PODS = 5_000


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that run all or not at all, in one zone and on one source; at most MAX_GANG_PODS."""

    name: str
    size: int


# Workloads whose pods run to an end of their own. The kind is what a workload's name begins with.
JOB_KINDS = frozenset({"Job", "JobSet", "PyTorchJob"})


@dataclass(frozen=True, slots=True)
class Pod:
    uid: str
    namespace: str
    name: str
    shape: PodShape
    terms: Terms
    phase: PodPhase
    created_at: datetime
    workload: str = ""  # "Job/train-7": the controller that would create it again; empty: nobody would
    daemon: bool = False
    gang: Gang | None = None
    gated: bool = False  # carries our admission gate
    held_by_others: bool = False  # somebody else's gate or suspend: not demand yet
    pinned_to: str = ""  # a source label, once admitted
    node: str = ""  # name of the Kubernetes node it is bound to
    bound_at: datetime | None = None  # when the scheduler gave it its node
    started_at: datetime | None = None
    ready: bool = False
    ready_at: datetime | None = None  # when it last became Ready
    deleting_until: datetime | None = None  # deletion asked for; its grace ends then
    ends_at: datetime | None = None  # as announced to the pod
    checkpoint_requested_at: datetime | None = None
    checkpoint_done_at: datetime | None = None
    message: str = ""  # the last thing the kubelet or the scheduler said about it

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def of_job(self) -> bool:
        return self.workload.partition("/")[0] in JOB_KINDS


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget over the pods of one workload, with what it allows this instant.

    A minimum that only an annotation asks for is one too: nobody but the engine keeps to it, and the engine does.
    """

    workload: str  # "Deployment/chat"
    min_available: int
    allowed: int


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Pods of this workload were admitted, found no node after all and were taken back: so many times in a row, the
    last then. kube-scheduler knows no gangs and no plan of ours: it may choose a node with no room for the rest."""

    workload: str
    times: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class LetGo:
    """Pods of this workload were admitted then so that Karpenter launches a node for them."""

    workload: str
    at: datetime


class Method(StrEnum):
    """How a service leaves a source that ends."""

    ROLLOUT = "rollout"  # its template is touched: new pods surge elsewhere, old ones go as the new are Ready
    SCALE = "scale"  # more replicas elsewhere, then fewer here
    PAIRED = "paired"  # a second set is brought up elsewhere, then the first goes
    EVICT = "evict"  # one by one, within its budget


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet whose replicas run on: what of it a hand-over must know."""

    name: str  # "Deployment/chat", as pods name it
    namespace: str
    replicas: int  # asked for
    ready: int
    shape: PodShape  # of its template
    terms: Terms
    method: Method | None = None  # None: it says nothing
    min_available: int | None = None  # of its annotation; a disruption budget comes before it
    max_surge: int = 0  # of its rolling update; a StatefulSet has none
    max_unavailable: int = 1
    may_scale: bool = False  # it says that nobody else minds its number of replicas
    pair: str = ""  # the workload that takes over from it, and it from that
    added: int = 0  # of its replicas: those a hand-over added, and takes back
    restarted_for: str = ""  # what its template was last touched for
    rolling: bool = False  # pods of an older template are still there

    @property
    def stateful(self) -> bool:
        """Its pods have names that are used again."""
        return self.name.startswith("StatefulSet/")


def daemon_requests(bound: Iterable[Pod]) -> Resources:
    """What daemon pods take of a node."""
    taken = Resources()
    for pod in bound:
        if pod.daemon:
            taken.add_pod(pod.shape.requests)
    return taken
