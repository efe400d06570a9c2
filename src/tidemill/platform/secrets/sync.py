"""What became of a deployment's secrets in the cluster: the store, each ExternalSecret, and the keys of its Secret.

Values are never asked for: the keys alone say whether a Secret is whole. A look that fails is "cannot tell".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from tidemill.model.errors import PortError
from tidemill.platform.secrets.check import SecretState

# A refresh may be late by a turn of the operator's queue; three missed ones in a row are a fault.
_MISSED = 3


class SecretObjects(Protocol):
    """Raises PortError where it cannot look or write; None: the API server says there is none."""

    def store(self, name: str) -> Mapping[str, Any] | None: ...

    def external_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None: ...

    def secret_keys(self, namespace: str, name: str) -> frozenset[str] | None: ...

    def force_sync(self, namespace: str, name: str, at: datetime) -> None: ...


@dataclass(frozen=True, slots=True)
class Synced:
    """One object in the cluster. `message`: the operator's own words, which contain no values."""

    kind: str
    name: str
    state: SecretState
    refreshed_at: datetime | None = None
    missing_keys: tuple[str, ...] = ()
    late: bool = False
    message: str = ""


def check_sync(
    objects: SecretObjects, wanted: Sequence[Mapping[str, Any]], now: datetime
) -> tuple[Synced, ...]:
    """`wanted`: the objects as they are rendered."""
    return tuple(_check(objects, one, now) for one in wanted)


def _check(objects: SecretObjects, wanted: Mapping[str, Any], now: datetime) -> Synced:
    kind, name = wanted["kind"], wanted["metadata"]["name"]
    try:
        if kind == "ClusterSecretStore":
            found = objects.store(name)
            return _of_condition(kind, name, found)
        namespace = wanted["metadata"]["namespace"]
        found = objects.external_secret(namespace, name)
        synced = _of_condition(kind, name, found)
        if found is None:
            return synced
        refreshed_at = _instant((found.get("status") or {}).get("refreshTime"))
        keys = objects.secret_keys(namespace, wanted["spec"]["target"]["name"]) or frozenset()
    except PortError as error:
        return Synced(kind, name, SecretState.CANNOT_TELL, message=str(error))
    missing = tuple(sorted({one["secretKey"] for one in wanted["spec"]["data"]} - keys))
    late = refreshed_at is None or now - refreshed_at > _MISSED * _interval(wanted["spec"]["refreshInterval"])
    state = SecretState.WRONG if missing or late else synced.state
    return Synced(kind, name, state, refreshed_at, missing, late, synced.message)


def _of_condition(kind: str, name: str, found: Mapping[str, Any] | None) -> Synced:
    if found is None:
        return Synced(kind, name, SecretState.MISSING)
    conditions = (found.get("status") or {}).get("conditions") or ()
    ready: Mapping[str, Any] = next((one for one in conditions if one.get("type") == "Ready"), {})
    state = SecretState.FINE if ready.get("status") == "True" else SecretState.WRONG
    return Synced(kind, name, state, message=str(ready.get("message") or ""))


def _interval(text: str) -> timedelta:
    return timedelta(**{{"m": "minutes", "h": "hours"}[text[-1]]: int(text[:-1])})


def _instant(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
