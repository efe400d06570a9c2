"""The state of every secret of a deployment. A look that fails says nothing: it is "cannot tell", with the reason.

Knows Secrets Manager and RDS by the two Protocols below only; `aws.secrets` has them over boto3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from pydantic import SecretStr

from tidemill.model.errors import PortError
from tidemill.platform.secrets.layout import Layout, SecretFault, SecretKind, faults_of


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """What Secrets Manager has under a name. `value` None: there is a name and no current version."""

    name: str
    value: SecretStr | None
    changed_at: datetime | None = None
    rotates: bool = False
    deleted_at: datetime | None = None  # it is scheduled to be deleted: it cannot be read


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """What RDS says of an instance. `login`: the secret it manages; empty: its password is not managed."""

    host: str  # empty while it is created
    port: int
    login: str


class SecretStore(Protocol):
    """Raises PortError where it cannot look or write; None is an answer of AWS: there is none."""

    def read(self, name: str) -> StoredSecret | None: ...

    def create(self, name: str, value: SecretStr, description: str) -> bool:
        """With our owner tag. False: there is one by now, and it was left as it is."""
        ...

    def put(self, name: str, value: SecretStr) -> None:
        """A new version, which is the current one at once. The one before stays readable as AWSPREVIOUS."""
        ...


class Databases(Protocol):
    def server(self, instance: str) -> DatabaseServer | None: ...

    def redis_host(self, replication_group: str) -> str | None:
        """HOST:PORT of the primary; None: there is no such group, or it has no address yet."""
        ...


class SecretState(StrEnum):
    FINE = "fine"
    MISSING = "missing"
    WRONG = "wrong"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True)
class SecretCheck:
    kind: SecretKind
    name: str
    state: SecretState
    faults: tuple[SecretFault, ...] = ()
    why: str = ""  # cannot tell: what AWS answered
    changed_at: datetime | None = None
    rotates: bool | None = None  # the login alone: whether RDS rotates it
    deleted_at: datetime | None = None


def check_secrets(
    layout: Layout, store: SecretStore, databases: Databases, kinds: Iterable[SecretKind] = SecretKind
) -> tuple[SecretCheck, ...]:
    looked = _ServerLook(layout, databases)
    return tuple(_check(kind, layout, store, looked) for kind in kinds)


class _ServerLook:
    """RDS is asked once, and only if a secret needs it."""

    def __init__(self, layout: Layout, databases: Databases) -> None:
        self._layout, self._databases = layout, databases
        self._answer: DatabaseServer | PortError | None = None
        self._asked = False

    def server(self) -> DatabaseServer | None:
        if not self._asked:
            self._asked = True
            try:
                self._answer = self._databases.server(self._layout.instance)
            except PortError as error:
                self._answer = error
        if isinstance(self._answer, PortError):
            raise self._answer
        return self._answer


def _check(kind: SecretKind, layout: Layout, store: SecretStore, looked: _ServerLook) -> SecretCheck:
    name = layout.name(kind)
    try:
        needs_server = kind is SecretKind.DATABASE or not name
        server = looked.server() if needs_server else None
        if not name:
            name = server.login if server is not None else ""
            if not name:
                return SecretCheck(kind, "", SecretState.MISSING)
        stored = store.read(name)
    except PortError as error:
        return SecretCheck(kind, name, SecretState.CANNOT_TELL, why=str(error))
    if stored is None or stored.value is None:
        deleted_at = stored.deleted_at if stored is not None else None
        return SecretCheck(kind, name, SecretState.MISSING, deleted_at=deleted_at)
    host = server.host if server is not None else ""
    faults = faults_of(kind, stored.value.get_secret_value(), layout, host=host)
    state = SecretState.WRONG if faults else SecretState.FINE
    rotates = stored.rotates if kind is SecretKind.LOGIN else None
    return SecretCheck(kind, name, state, faults, changed_at=stored.changed_at, rotates=rotates)
