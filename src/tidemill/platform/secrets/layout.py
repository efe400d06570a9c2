"""Which secrets a deployment has, and what must be in each of them.

The layout is the one that engine charts and External Secrets are written for (2026-11): one prefix a deployment, the
database login in the secret that RDS manages itself. A fault names a field and never shows what is in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from tidemill.platform.oidc import read_providers
from tidemill.spec.platform import PlatformSpec

# What signs cookies must not be guessed: engines refuse less.
COOKIE_CHARACTERS: Final = 64
# Secrets Manager takes 64 KiB.
LONGEST_BYTES: Final = 65_536


class SecretKind(StrEnum):
    """By the word the command line has for it."""

    LOGIN = "login"  # of the database: RDS writes and rotates it
    DATABASE = "database"
    STORAGE = "storage"
    REDIS = "redis"
    OIDC = "oidc"
    COOKIES = "cookies"


class FaultKind(StrEnum):
    NOT_JSON = "not-json"
    NOT_AN_OBJECT = "not-an-object"
    FIELD_MISSING = "field-missing"
    NOT_TEXT = "not-text"
    TOO_SHORT = "too-short"
    TOO_LONG = "too-long"
    NOT_S3 = "not-s3"  # an address that is no s3://bucket/prefix
    OTHER_BUCKET = "other-bucket"  # than the Platform names
    OTHER_HOST = "other-host"  # than RDS has for the instance
    OTHER_DATABASE = "other-database"
    NOT_REDIS = "not-redis"  # no redis:// or rediss:// address with a host
    PLAIN_REDIS = "plain-redis"  # redis:// where encryption in transit is on
    NO_TOKEN = "no-token"
    OIDC = "oidc"  # `field` says which of the array


@dataclass(frozen=True, slots=True)
class SecretFault:
    kind: FaultKind
    field: str = ""
    wanted: str = ""  # what it should be, where that is no secret


@dataclass(frozen=True, slots=True)
class Layout:
    """The names for one deployment, and what the Platform says should be in them."""

    deployment: str
    bucket: str
    database: str
    instance: str
    replication_group: str
    redis_tls: bool
    login: str = ""  # empty: RDS knows

    def name(self, kind: SecretKind) -> str:
        """Empty for a login whose name only RDS knows."""
        if kind is SecretKind.LOGIN:
            return self.login
        tail = {
            SecretKind.DATABASE: "rds/connection",
            SecretKind.STORAGE: "s3/storage",
            SecretKind.REDIS: "redis/auth-token",
            SecretKind.OIDC: "oidc_secret",
            SecretKind.COOKIES: "cookies-secret",
        }[kind]
        return f"{self.deployment}/{tail}"

    @property
    def storage(self) -> dict[str, str]:
        return {
            "model_registry": f"s3://{self.bucket}/model_registry",
            "workdir": f"s3://{self.bucket}/shared",
        }


def layout_of(platform: PlatformSpec) -> Layout:
    return Layout(
        deployment=platform.deployment,
        bucket=platform.bucket or "",
        database=platform.database.name,
        instance=platform.database.instance or platform.deployment,
        replication_group=platform.redis.replication_group or platform.deployment,
        redis_tls=platform.redis.tls,
        login=platform.database.login_secret,
    )


def faults_of(kind: SecretKind, value: str, layout: Layout, *, host: str = "") -> tuple[SecretFault, ...]:
    """`host`: where RDS says the database is; empty: not known, and not compared."""
    if len(value.encode()) > LONGEST_BYTES:
        return (SecretFault(FaultKind.TOO_LONG, wanted=f"{LONGEST_BYTES} bytes"),)
    match kind:
        case SecretKind.COOKIES:
            short = len(value.strip()) < COOKIE_CHARACTERS
            return (SecretFault(FaultKind.TOO_SHORT, wanted=str(COOKIE_CHARACTERS)),) if short else ()
        case SecretKind.OIDC:
            return tuple(
                SecretFault(
                    FaultKind.OIDC, f"[{one.provider}].{one.field}" if one.provider >= 0 else "", one.fault
                )
                for one in read_providers(value)[1]
            )
        case SecretKind.LOGIN:
            return _fields(value, "username", "password")[1]
        case SecretKind.DATABASE:
            return _database_faults(value, layout, host)
        case SecretKind.STORAGE:
            return _storage_faults(value, layout)
        case SecretKind.REDIS:
            return _redis_faults(value, layout)


def _fields(value: str, *names: str) -> tuple[dict[str, str], tuple[SecretFault, ...]]:
    """The fields that are there as text, and what is wrong with the others."""
    try:
        record: Any = json.loads(value)
    except (ValueError, RecursionError):
        return {}, (SecretFault(FaultKind.NOT_JSON),)
    if not isinstance(record, dict):
        return {}, (SecretFault(FaultKind.NOT_AN_OBJECT),)
    faults = [
        SecretFault(FaultKind.NOT_TEXT if record.get(name) else FaultKind.FIELD_MISSING, name)
        for name in names
        if not isinstance(record.get(name), str) or not record[name].strip()
    ]
    return {name: record[name] for name in names if isinstance(record.get(name), str)}, tuple(faults)


def _database_faults(value: str, layout: Layout, host: str) -> tuple[SecretFault, ...]:
    found, faults = _fields(value, "endpoint", "database_name")
    if faults:
        return faults
    if host and found["endpoint"].partition(":")[0] != host:
        faults += (SecretFault(FaultKind.OTHER_HOST, "endpoint", host),)
    if found["database_name"] != layout.database:
        faults += (SecretFault(FaultKind.OTHER_DATABASE, "database_name", layout.database),)
    return faults


def _storage_faults(value: str, layout: Layout) -> tuple[SecretFault, ...]:
    found, faults = _fields(value, "model_registry", "workdir")
    for name, address in found.items():
        parts = urlsplit(address)
        if parts.scheme != "s3" or not parts.netloc:
            faults += (SecretFault(FaultKind.NOT_S3, name, "s3://BUCKET/PREFIX"),)
        elif layout.bucket and parts.netloc != layout.bucket:
            faults += (SecretFault(FaultKind.OTHER_BUCKET, name, layout.bucket),)
    return faults


def _redis_faults(value: str, layout: Layout) -> tuple[SecretFault, ...]:
    found, faults = _fields(value, "url")
    if faults:
        return faults
    try:
        parts = urlsplit(found["url"].strip())
        host, token = parts.hostname, parts.password
        _ = parts.port
    except ValueError:
        return (SecretFault(FaultKind.NOT_REDIS, "url"),)
    if parts.scheme not in ("redis", "rediss") or not host:
        return (SecretFault(FaultKind.NOT_REDIS, "url"),)
    if layout.redis_tls and parts.scheme == "redis":
        faults += (SecretFault(FaultKind.PLAIN_REDIS, "url", "rediss://"),)
    return faults if token else (*faults, SecretFault(FaultKind.NO_TOKEN, "url"))
