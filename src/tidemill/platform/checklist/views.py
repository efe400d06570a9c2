"""What the checklist looks at: a few facts of the account and of the cluster, and the Protocols that bring them.

Every method raises PortError where it cannot look. None and an empty list are answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tidemill.model.capacity import Reservation
from tidemill.platform.secrets.check import Databases, SecretStore
from tidemill.platform.secrets.sync import SecretObjects


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    version: str
    active: bool


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    version: str
    available: bool
    public: bool
    encrypted: bool
    managed_login: bool


@dataclass(frozen=True, slots=True)
class RedisFacts:
    available: bool
    tls: bool
    token: bool


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    pool: str
    source: str
    ready: bool
    gpus: int  # that pods may use


@dataclass(frozen=True, slots=True)
class PodFacts:
    name: str
    node: str
    ready: bool
    gpus: int


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A Deployment, DaemonSet or StatefulSet."""

    name: str
    wanted: int
    ready: int


class AccountView(Protocol):
    def cluster(self, name: str) -> ClusterFacts | None: ...

    def database(self, instance: str) -> DatabaseFacts | None: ...

    def redis(self, group: str) -> RedisFacts | None: ...

    def has_bucket(self, name: str) -> bool: ...

    def zones_of(self, subnets: Sequence[str]) -> Mapping[str, str]:
        """Zone by subnet; those that do not exist are left out."""
        ...

    def blocks(self) -> Sequence[Reservation]:
        """With the owner tag of the deployment, or adopted by it."""
        ...


class ClusterView(Protocol):
    def version(self) -> str: ...

    def workloads(self, namespace: str = "") -> Sequence[WorkloadFacts]:
        """Of all namespaces, or of one."""
        ...

    def engine_seen_at(self) -> datetime | None:
        """When the engine's Lease was renewed last; None: there is none."""
        ...

    def nodes(self) -> Sequence[NodeFacts]:
        """Those with a pool of ours."""
        ...

    def pods(self, namespace: str) -> Sequence[PodFacts]: ...


class Web(Protocol):
    def status(self, url: str) -> int:
        """Of a GET that follows no redirect."""
        ...


@dataclass(frozen=True, slots=True)
class Views:
    """`cluster` None: nobody said which cluster to look at, so what is in it cannot be told."""

    account: AccountView
    secrets: SecretStore
    servers: Databases
    cluster: ClusterView | None
    objects: SecretObjects | None
    web: Web
    wall: datetime  # for what Kubernetes and the operator write
