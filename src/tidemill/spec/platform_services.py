"""The services around the pools, as the Platform names them: database, Redis, bucket, and the engine's own chart.

"The engine" of this module is what the GPUs are for: an inference or training engine that is installed by its Helm
chart. Passwords and tokens are never here: they are in Secrets Manager, and these fields say where to look.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from tidemill.spec.document import Model, Name
from tidemill.spec.units import Count

# Bucket names as S3 allows them (2026-11); dots are left out, because TLS certificates of S3 do not cover them.
BucketName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$")]


class Database(Model):
    """PostgreSQL on RDS, with the password that RDS keeps in Secrets Manager and rotates."""

    instance: Annotated[str, Field(pattern=r"^([A-Za-z][A-Za-z0-9-]{0,62})?$")] = ""
    """Identifier of the RDS instance. Empty: the deployment's name."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")] = "engine"
    """Name of the database in it."""
    login_secret: Annotated[str, Field(pattern=r"^(rds!(db|cluster)-[A-Za-z0-9-]+)?$")] = ""
    """Name of the secret that RDS keeps the login in, `rds!db-…`. Empty: RDS is asked for it."""


class Redis(Model):
    """Redis on ElastiCache."""

    replication_group: Annotated[str, Field(pattern=r"^([A-Za-z][A-Za-z0-9-]{0,39})?$")] = ""
    """Id of the replication group. Empty: the deployment's name."""
    tls: bool = True
    """Encryption in transit is on, so addresses must begin with `rediss://`."""


class ServiceAccounts(Model):
    """Service accounts of the engine's pods. Both may use the bucket."""

    control_plane: Name = "control-plane"
    """Of the control plane."""
    workers: Name = "workers"
    """Of the pods with GPUs."""


class EnginePool(Model):
    """Replicas of the engine on the nodes of a ComputePool."""

    name: Name
    """Its name in the engine's values. Unique."""
    compute_pool: Name
    """The ComputePool whose nodes it uses."""
    replicas: Count = Field(default=1, ge=0)
    """How many replicas. 0: the pool is left out."""
    gpus_per_replica: Count | None = Field(default=None, ge=1)
    """GPUs of one replica on each of its nodes; a divisor of the GPUs of a node. Not given: all of them."""
    nodes_per_replica: Count = Field(default=1, ge=1)
    """Nodes of one replica. More than one: EFA, and the image with EFA's libraries."""
    capabilities: str = ""
    """What the engine may use it for, such as `JOB,INFERENCE`. Empty: the engine's default."""


class Images(Model):
    """Images of the engine in its registry."""

    registry: str = ""
    """Empty: the ECR of the Platform's account and region."""
    repository: str = "engine"
    """Repository in the registry."""
    control_plane: str = "control-plane:latest"
    """Tag of the control plane."""
    worker: str = "harmony:latest"
    """Tag of the workers."""
    efa_worker: str = "harmony-efa:latest"
    """Tag of the workers with EFA's libraries, for replicas of several nodes."""


class EngineIngress(Model):
    """How people reach the engine: an Application Load Balancer with the certificate of its host name."""

    certificate_arn: Annotated[
        str, Field(pattern=r"^(arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/.+)?$")
    ] = ""
    """ACM certificate of the Platform's `hostname`. Empty: no ingress is made."""
    internal: bool = False
    """Reachable from inside the VPC only."""
    prefix_lists: tuple[Annotated[str, Field(pattern=r"^pl-[0-9a-f]+$")], ...] = ()
    """Only from these address ranges: managed prefix lists, such as those of a CDN or a VPN."""


class EngineChart(Model):
    """The inference or training engine that the pools are for, installed by its Helm chart."""

    namespace: Name = "engine"
    """Namespace of the release. Its secrets are written there."""
    release: Name = "engine"
    """Name of the release. The names of its secrets begin with it."""
    service_accounts: ServiceAccounts = ServiceAccounts()
    """Who of the engine may use the bucket."""
    images: Images = Images()
    """Its images."""
    ingress: EngineIngress = EngineIngress()
    """How people reach it."""
    otlp_endpoint: Annotated[str, Field(pattern=r"^(https?://[^\s]+)?$")] = ""
    """Where its logs go: the OTLP address of the CloudWatch agent. Empty: nowhere but the pods' own output."""
    pools: tuple[EnginePool, ...] = ()
    """Its compute pools."""

    @model_validator(mode="after")
    def _pool_names_are_unique(self) -> EngineChart:
        names = [pool.name for pool in self.pools]
        if len(names) != len(set(names)):
            raise ValueError("two pools of the engine have one name; rename one of them")
        return self
