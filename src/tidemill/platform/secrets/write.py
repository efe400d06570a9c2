"""Making the secrets that are missing, and replacing one on purpose.

Made: only what is missing, from what the documents and AWS say (bucket, database) or by chance (cookies). What only a
person knows must be given. Replaced: one, after its value was checked; the same value again changes nothing. The
database login is RDS's own and never written here.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from pydantic import SecretStr

from tidemill.model.errors import PortError, SpecError
from tidemill.platform.secrets.check import Databases, SecretCheck, SecretState, SecretStore, check_secrets
from tidemill.platform.secrets.layout import Layout, SecretFault, SecretKind, faults_of

# 64 bytes of chance, 86 characters.
_COOKIE_BYTES = 64

_DESCRIPTIONS = {
    SecretKind.DATABASE: "Where the engine's database is",
    SecretKind.STORAGE: "Where the engine keeps models and shared files",
    SecretKind.REDIS: "Address and token of the engine's Redis",
    SecretKind.OIDC: "Identity providers: a JSON array",
    SecretKind.COOKIES: "Signs session cookies; a new value logs everybody out",
}


class Outcome(StrEnum):
    MADE = "made"
    WAS_THERE = "was-there"
    NOT_GIVEN = "not-given"  # only a person knows it
    NOT_YET = "not-yet"  # what it comes from is not there: the database, the bucket's name
    WRONG = "wrong"  # what was given, or what is there already
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True)
class Made:
    kind: SecretKind
    name: str
    outcome: Outcome
    faults: tuple[SecretFault, ...] = ()
    why: str = ""


class Replaced(StrEnum):
    REPLACED = "replaced"
    CREATED = "created"
    UNCHANGED = "unchanged"


class WrongValue(SpecError):
    """The value that was given. Its message has no value, and `faults` say what to change."""

    def __init__(self, kind: SecretKind, faults: tuple[SecretFault, ...]) -> None:
        super().__init__(f"the value for {kind} is not usable")
        self.kind, self.faults = kind, faults


def initialise(
    layout: Layout,
    store: SecretStore,
    databases: Databases,
    given: Mapping[SecretKind, SecretStr],
    *,
    dry_run: bool = False,
) -> tuple[Made, ...]:
    """`given`: what people gave, by kind; of Redis its token or its whole address. Nothing that exists is changed."""
    return tuple(
        _initialise(check, layout, store, databases, given.get(check.kind), dry_run)
        for check in check_secrets(layout, store, databases)
    )


def _initialise(
    check: SecretCheck, layout: Layout, store: SecretStore, databases: Databases, given: SecretStr | None,
    dry_run: bool,
) -> Made:  # fmt: skip
    kind, name = check.kind, check.name
    match check.state:
        case SecretState.CANNOT_TELL:
            return Made(kind, name, Outcome.CANNOT_TELL, why=check.why)
        case SecretState.WRONG:
            return Made(kind, name, Outcome.WRONG, check.faults)
        case SecretState.FINE:
            return Made(kind, name, Outcome.WAS_THERE)
    if kind is SecretKind.LOGIN or check.deleted_at is not None:
        return Made(kind, name, Outcome.NOT_YET)
    try:
        value = _value_of(kind, layout, databases, given)
        if isinstance(value, Outcome):
            return Made(kind, name, value)
        if faults := faults_of(kind, value.get_secret_value(), layout):
            return Made(kind, name, Outcome.WRONG, faults)
        made = dry_run or store.create(name, value, _DESCRIPTIONS[kind])
    except PortError as error:
        return Made(kind, name, Outcome.CANNOT_TELL, why=str(error))
    return Made(kind, name, Outcome.MADE if made else Outcome.WAS_THERE)


def _value_of(
    kind: SecretKind, layout: Layout, databases: Databases, given: SecretStr | None
) -> SecretStr | Outcome:
    match kind:
        case SecretKind.COOKIES:
            return given or new_cookie_secret()
        case SecretKind.STORAGE:
            return _json(layout.storage) if layout.bucket else Outcome.NOT_YET
        case SecretKind.DATABASE:
            server = databases.server(layout.instance)
            if server is None or not server.host:
                return Outcome.NOT_YET
            return _json({"endpoint": f"{server.host}:{server.port}", "database_name": layout.database})
        case SecretKind.REDIS:
            return redis_value(given, layout, databases) if given is not None else Outcome.NOT_GIVEN
        case _:
            return given if given is not None else Outcome.NOT_GIVEN


def redis_value(given: SecretStr, layout: Layout, databases: Databases) -> SecretStr | Outcome:
    """From a whole address, or from a token and the address that ElastiCache has for the group."""
    text = given.get_secret_value().strip()
    if "://" in text:
        return _json({"url": text})
    host = databases.redis_host(layout.replication_group)
    if host is None:
        return Outcome.NOT_YET
    scheme = "rediss" if layout.redis_tls else "redis"
    return _json({"url": f"{scheme}://:{quote(text, safe='')}@{host}"})


def replace_secret(
    kind: SecretKind, layout: Layout, store: SecretStore, databases: Databases, given: SecretStr | None
) -> Replaced:
    """Without `given`: what the documents and AWS say, or a new random value for cookies. WrongValue, PortError."""
    if kind is SecretKind.LOGIN:
        raise SpecError(
            "RDS writes the database login itself; to have a new password: aws secretsmanager rotate-secret"
            " --secret-id 'rds!db-…'"
        )
    if given is not None and kind in (SecretKind.STORAGE, SecretKind.DATABASE):
        value: SecretStr | Outcome = given
    else:
        value = _value_of(kind, layout, databases, given)
    if value is Outcome.NOT_GIVEN:
        raise SpecError(f"only you know the value of {kind}; give it with --from env:NAME, file:PATH or -")
    if isinstance(value, Outcome):
        raise SpecError(_NOT_YET[kind].format(layout=layout))
    if faults := faults_of(kind, value.get_secret_value(), layout):
        raise WrongValue(kind, faults)
    name = layout.name(kind)
    stored = store.read(name)
    if stored is not None and stored.deleted_at is not None:
        raise SpecError(
            f"{name} is scheduled to be deleted; bring it back first: aws secretsmanager restore-secret"
            f" --secret-id {name}"
        )
    if stored is None:
        if store.create(name, value, _DESCRIPTIONS[kind]):
            return Replaced.CREATED
        stored = store.read(name)
    if stored is not None and stored.value is not None and _same(stored.value, value):
        return Replaced.UNCHANGED
    store.put(name, value)
    return Replaced.REPLACED


_NOT_YET = {
    SecretKind.STORAGE: "the Platform names no bucket; write spec.bucket",
    SecretKind.DATABASE: "RDS has no instance '{layout.instance}' with an address yet; wait for it, or name another in"
    " spec.database.instance",
    SecretKind.REDIS: "ElastiCache has no group '{layout.replication_group}' with an address yet; wait for it, name"
    " another in spec.redis.replicationGroup, or give the whole address",
}


def new_cookie_secret() -> SecretStr:
    return SecretStr(secrets.token_urlsafe(_COOKIE_BYTES))


def _same(one: SecretStr, other: SecretStr) -> bool:
    return secrets.compare_digest(one.get_secret_value().encode(), other.get_secret_value().encode())


def _json(fields: Mapping[str, str]) -> SecretStr:
    return SecretStr(json.dumps(dict(fields)))
