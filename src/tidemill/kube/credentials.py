"""Who we are to an API server: bearer tokens that are found again when they expire.

A token file is read again when it changes (the kubelet rotates service account tokens) and after a 401. An exec plugin
(`aws eks get-token`) is run when its token is about to expire and after a 401. No token is ever printed.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from tidemill.model.errors import NotAllowed, SpecError

EXEC_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
# A plugin may ask AWS, which may be slow; one that waits for a person would wait for ever.
_PLUGIN_TIMEOUT_S = 60
# A token that expires sooner than this is fetched anew: a request takes time, and clocks differ.
_SPARE = timedelta(seconds=15)


def service_account_of(token: str) -> str:
    """`service account NAMESPACE/NAME` of a token of Kubernetes; empty: of another token, or none. Not verified: it is
    for a sentence, and the API server decides."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return service_account_named(str(claims["sub"]))
    except (IndexError, ValueError, KeyError, TypeError):
        return ""


def service_account_named(user: str) -> str:
    """The same of a user name as the API server has it."""
    kind, _, named = user.partition("serviceaccount:")
    namespace, _, name = named.partition(":")
    return f"service account {namespace}/{name}" if kind == "system:" and namespace and name else ""


class TokenFile(httpx2.Auth):
    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int] | None = None
        self._token = ""

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._read()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            self._seen = None
            again = self._read()
            if again != token:
                request.headers["Authorization"] = f"Bearer {again}"
                yield request

    def _read(self) -> str:
        try:
            stat = self._path.stat()
            if self._seen != (stat.st_mtime_ns, stat.st_ino):
                self._token = self._path.read_text("utf-8").strip()
                self._seen = (stat.st_mtime_ns, stat.st_ino)
        except (OSError, UnicodeDecodeError) as error:
            raise NotAllowed(f"the token file {self._path} cannot be read: {error}", code="token") from None
        return self._token


@dataclass(frozen=True)
class Plugin:
    """The `exec` of a kubeconfig's user."""

    api_version: str
    command: str
    args: Sequence[str] = ()
    env: Sequence[tuple[str, str]] = ()
    install_hint: str = ""
    cluster: Mapping[str, object] | None = None  # provideClusterInfo: told to the plugin


class ExecToken(httpx2.Auth):
    """Thread-safe: one thread runs the plugin, the others wait for its token."""

    def __init__(self, plugin: Plugin) -> None:
        if plugin.api_version not in EXEC_VERSIONS:
            known = ", ".join(EXEC_VERSIONS)
            raise SpecError(
                f"the exec plugin {plugin.command} speaks {plugin.api_version or 'no apiVersion'}; known are {known}"
            )
        self._plugin = plugin
        self._lock = threading.Lock()
        self._token = ""
        self._expires_at: datetime | None = None

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._current(unlike="")
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            request.headers["Authorization"] = f"Bearer {self._current(unlike=token)}"
            yield request

    def _current(self, *, unlike: str) -> str:
        """The token; another than `unlike`, which an API server did not accept, if the plugin has another."""
        with self._lock:
            expired = self._expires_at is not None and datetime.now(UTC) >= self._expires_at - _SPARE
            if expired or self._token in ("", unlike):
                self._token, self._expires_at = _run(self._plugin)
            return self._token


def _run(plugin: Plugin) -> tuple[str, datetime | None]:
    spec: dict[str, object] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    env = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(info)}
    said = f"the exec plugin {plugin.command} of the kubeconfig"
    try:
        done = subprocess.run(
            [plugin.command, *plugin.args], env=env, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_PLUGIN_TIMEOUT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        hint = f": {' '.join(plugin.install_hint.split())}" if plugin.install_hint else ""
        raise NotAllowed(f"{said} is not installed{hint}", code="exec") from None
    except subprocess.TimeoutExpired:
        raise NotAllowed(f"{said} did not end within {_PLUGIN_TIMEOUT_S} s", code="exec") from None
    except OSError as error:
        raise NotAllowed(f"{said} cannot be run: {error}", code="exec") from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1][:300] if lines else "it said nothing"
        raise NotAllowed(f"{said} failed with status {done.returncode}: {why}", code="exec")
    return _token_in(done.stdout, said)


def _token_in(output: bytes, said: str) -> tuple[str, datetime | None]:
    """What went wrong is said without the output: it may hold a secret."""
    try:
        status = json.loads(output)["status"]
        token, expires = status.get("token"), status.get("expirationTimestamp")
        expires_at = datetime.fromisoformat(expires) if expires else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotAllowed(f"{said} printed no ExecCredential with a status", code="exec") from None
    if not isinstance(token, str) or not token:
        raise NotAllowed(f"{said} gave no token (client certificates are not supported)", code="exec")
    if expires_at is not None and expires_at.tzinfo is None:
        expires_at = expires_at.replace(tzinfo=UTC)
    return token, expires_at
