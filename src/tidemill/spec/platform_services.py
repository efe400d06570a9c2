"""The services around the pools, as the Platform names them: database, Redis, bucket, and the engine's own chart.

"The engine" of this module is what the GPUs are for: an inference or training engine that is installed by its Helm
chart. Passwords and tokens are never here: they are in Secrets Manager, and these fields say where to look.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidemill.spec.document import Model, Name

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


class EngineChart(Model):
    """The inference or training engine that the pools are for, installed by its Helm chart."""

    namespace: Name = "engine"
    """Namespace of the release. Its secrets are written there."""
    release: Name = "engine"
    """Name of the release. The names of its secrets begin with it."""
    service_accounts: ServiceAccounts = ServiceAccounts()
    """Who of the engine may use the bucket."""
