"""Which API server, and who we are to it: a kubeconfig, several of them, or the pod's own service account.

The order is that of other controllers: what is named on the command line, `KUBECONFIG`, the service account of the pod
we run in, `~/.kube/config`. Every mistake in a kubeconfig is one sentence (SpecError). Nothing is sent from here.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import Cluster, Context, User
from lightkube.core.exceptions import ConfigError

from tidemill import __version__
from tidemill.kube.api import KubeApi
from tidemill.kube.credentials import ExecToken, Plugin, TokenFile, service_account_named, service_account_of
from tidemill.model.errors import SpecError

NO_CLUSTER = "no-cluster"  # the code of the error where nothing says which cluster
_MAX_CONFIG_BYTES = 4 << 20
_MAX_CONNECTIONS = 64  # a watch for every kind keeps one; the rest are calls
# A peer that vanished without a word is noticed within half a minute, not when a watch's own time-out is over.
_KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, option), value)
        for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, option)
    ),
]
logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells every request at INFO
# Paths in a kubeconfig are relative to the file they are written in.
_PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}


def connect(
    kubeconfig: str | None = None, context: str | None = None, *, service_account: str = SERVICE_ACCOUNT
) -> KubeApi:
    """Raises SpecError. Whether the server is there shows at the first call."""
    paths = kubeconfig or os.environ.get("KUBECONFIG", "")
    if paths:
        return _open(*_chosen(_merged(paths.split(os.pathsep), required=bool(kubeconfig)), context))
    if os.environ.get("KUBERNETES_SERVICE_HOST") and Path(service_account, "token").exists():
        if context:
            raise SpecError(f"there is no kubeconfig in this pod, so no context {context}")
        return _in_cluster(service_account)
    default = Path("~/.kube/config").expanduser()
    if not default.is_file():
        raise SpecError(
            "no cluster is named: give --kubeconfig FILE, set KUBECONFIG or write ~/.kube/config",
            code=NO_CLUSTER,
        )
    return _open(*_chosen(_merged([str(default)], required=True), context))


# --- reading kubeconfigs --------------------------------------------------------------------------------


def _merged(paths: list[str], *, required: bool) -> dict[str, Any]:
    """Several files as one: the first that names an entry, or the current context, wins; missing ones do not count."""
    whole: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": "", "from": []}
    for path in paths:
        if not path:
            continue
        document = _read(Path(path).expanduser(), required=required or len(paths) == 1)
        if document is None:
            continue
        whole["from"].append(path)
        whole["current-context"] = whole["current-context"] or document.get("current-context") or ""
        for section, key in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for name, entry in _entries(document, section, key, path):
                whole[section].setdefault(
                    name, _with_paths(section, entry, Path(path).expanduser().absolute().parent)
                )
    if not whole["from"]:
        raise SpecError(f"none of the kubeconfig files exists: {', '.join(path for path in paths if path)}")
    return whole


def _read(path: Path, *, required: bool) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise SpecError(f"the kubeconfig {path} is larger than {_MAX_CONFIG_BYTES >> 20} MiB")
        document = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except FileNotFoundError:
        if required:
            raise SpecError(f"there is no kubeconfig {path}") from None
        return None
    except OSError as error:
        raise SpecError(f"the kubeconfig {path} cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        if isinstance(error, yaml.composer.ComposerError) and "single document" in str(error.context):
            raise SpecError(
                f"the kubeconfig {path} has several YAML documents; a kubeconfig is one"
            ) from None
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise SpecError(f"the kubeconfig {path} is not YAML{where}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SpecError(f"the kubeconfig {path} is not a mapping")
    return document


def _entries(
    document: Mapping[str, Any], section: str, key: str, path: str
) -> list[tuple[str, dict[str, Any]]]:
    found = []
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise SpecError(f"the kubeconfig {path}: '{section}' is not a list")
    for index, one in enumerate(listed):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise SpecError(f"the kubeconfig {path}: {section}[{index}] has no name")
        entry = one.get(key) or {}
        if not isinstance(entry, dict):
            raise SpecError(f"the kubeconfig {path}: '{key}' of {section}[{index}] is not a mapping")
        found.append((one["name"], entry))
    return found


def _with_paths(section: str, entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    entry = dict(entry)
    for key in _PATHS.get(section, ()):
        if entry.get(key):
            entry[key] = str(folder / str(entry[key]))
    command = entry.get("exec", {}).get("command") if isinstance(entry.get("exec"), dict) else None
    if isinstance(command, str) and os.sep in command:
        entry["exec"] = {**entry["exec"], "command": str(folder / command)}
    return entry


def _chosen(
    whole: Mapping[str, Any], context: str | None
) -> tuple[SingleConfig, dict[str, Any], dict[str, Any]]:
    """The context that is asked for, or the current one; with its cluster and user as they are written."""
    files = ", ".join(whole["from"])
    name = context or whole["current-context"]
    known = ", ".join(sorted(whole["contexts"]))
    if not known:
        raise SpecError(f"{files} is no kubeconfig: it has no contexts")
    if not name:
        raise SpecError(f"{files} has no current-context; name one of its contexts: {known}")
    if name not in whole["contexts"]:
        raise SpecError(f"{files} has no context '{name}'; it has: {known}")
    written = whole["contexts"][name]
    cluster_name, user_name = written.get("cluster"), written.get("user") or ""
    namespace = written.get("namespace") or ""
    if not all(isinstance(part, str) for part in (cluster_name, user_name, namespace)):
        raise SpecError(f"the context '{name}' of {files} must name a cluster and a user, as text")
    cluster = whole["clusters"].get(cluster_name)
    if cluster is None:
        raise SpecError(
            f"the context '{name}' of {files} names the cluster '{cluster_name}', which is not there"
        )
    user = whole["users"].get(user_name, {} if not user_name else None)
    if user is None:
        raise SpecError(f"the context '{name}' of {files} names the user '{user_name}', which is not there")
    if not cluster.get("server"):
        raise SpecError(f"the cluster '{cluster_name}' of {files} has no server")
    if _given(user, "client-certificate") != _given(user, "client-key"):
        raise SpecError(
            f"the user '{user_name}' of {files} has one of client-certificate and client-key; it needs both, or none"
        )
    for part in (cluster, user):
        _check_data(part, f"the context '{name}' of {files}")
    try:
        single = SingleConfig(
            name,
            msgspec.convert({"cluster": cluster_name, "user": user_name, "namespace": namespace}, Context),
            msgspec.convert(cluster, Cluster),
            msgspec.convert(user, User),
        )
    except msgspec.ValidationError as error:
        raise SpecError(f"the context '{name}' of {files}: {error}") from None
    return single, cluster, user


def _given(user: Mapping[str, Any], what: str) -> bool:
    return bool(user.get(what) or user.get(f"{what}-data"))


def _check_data(written: Mapping[str, Any], where: str) -> None:
    for key, value in written.items():
        if key.endswith("-data") and value:
            try:
                decoded = base64.b64decode(str(value), validate=True)
            except ValueError:
                raise SpecError(f"{where}: '{key}' is not base64, so no certificate") from None
            if b"-----BEGIN " not in decoded:
                raise SpecError(f"{where}: '{key}' is no certificate or key in PEM")


# --- the connection -------------------------------------------------------------------------------------


def _in_cluster(service_account: str) -> KubeApi:
    try:
        single = KubeConfig.from_service_account(service_account).get()
    except (ConfigError, OSError, KeyError) as error:
        raise SpecError(f"the service account of this pod cannot be read: {error}") from None
    assert single is not None
    identity = service_account_of(_token(single)) or "the pod's service account"
    return _open(single, {}, {}, name="in-cluster", identity=identity)


def _open(
    single: SingleConfig,
    cluster: Mapping[str, Any],
    user: Mapping[str, Any],
    *,
    name: str = "",
    identity: str = "",
) -> KubeApi:
    server = single.cluster.server
    host = urlsplit(server)
    if host.scheme not in ("http", "https") or not host.hostname:
        raise SpecError(
            f"the server '{server}' of the context '{single.context_name}' is not an http(s) address"
        )
    params = _params(single, cluster, _is_loopback(host.hostname))
    params["auth"] = _auth(single, cluster, params["auth"])
    headers = {"User-Agent": f"tidemill/{__version__}", "Accept-Encoding": "identity"}
    if user.get("as"):
        headers["Impersonate-User"] = str(user["as"])
    limits = httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=16)
    if params["proxy"] is None and not (params["trust_env"] and getproxies()):
        params["transport"] = httpx2.HTTPTransport(
            verify=params["verify"], limits=limits, socket_options=_KEEP_ALIVE, trust_env=False
        )
    try:
        client = httpx2.Client(**params, headers=headers, limits=limits)
    except ValueError as error:  # of the proxy
        raise SpecError(f"the context '{single.context_name}': {error}") from None
    return KubeApi(
        client,
        server=server,
        name=name or single.context.cluster,
        identity=identity or _identity(single, user),
        namespace=single.context.namespace or "",
        extensions={"sni_hostname": cluster["tls-server-name"]} if cluster.get("tls-server-name") else {},
    )


def _identity(single: SingleConfig, user: Mapping[str, Any]) -> str:
    """Who the API server will take us for, as far as the kubeconfig says: the name of its user is only a name in it."""
    if acts_as := str(user.get("as") or ""):
        return service_account_named(acts_as) or f"user '{acts_as}'"
    return service_account_of(_token(single)) or f"user '{single.context.user or 'anonymous'}'"


def _token(single: SingleConfig) -> str:
    if single.user is None:
        return ""
    if single.user.token_file is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return Path(single.user.token_file).read_text(encoding="utf-8").strip()
    return single.user.token or ""


def _params(single: SingleConfig, cluster: Mapping[str, Any], loopback: bool) -> dict[str, Any]:
    # As in Go, a proxy of the environment is not asked for an address of this machine.
    connection = ConnectionParams(trust_env=not loopback, proxy=cluster.get("proxy-url") or None)
    try:
        return connection.httpx_params(single)
    except ssl.SSLError as error:
        raise SpecError(
            f"the context '{single.context_name}': its certificates or its key are not PEM, or do not belong together"
            f" ({error.reason or 'unreadable'})"
        ) from None
    except (OSError, TypeError) as error:  # lightkube asks for the key file that is not named
        what = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
        raise SpecError(
            f"the context '{single.context_name}': a certificate or key cannot be read: {what}"
        ) from None
    except ConfigError as error:
        raise SpecError(f"the context '{single.context_name}': {error}") from None


def _auth(single: SingleConfig, cluster: Mapping[str, Any], usual: httpx2.Auth | None) -> httpx2.Auth | None:
    """Token files and exec plugins are ours; plain tokens and passwords lightkube's."""
    user = single.user
    if user is not None and user.token_file is not None:
        return TokenFile(user.token_file)
    if user is None or user.token is not None or user.exec is None:
        return usual
    given = user.exec
    return ExecToken(
        Plugin(
            given.apiVersion,
            given.command,
            tuple(given.args or ()),
            tuple((var.name, var.value) for var in given.env or ()),
            given.installHint or "",
            {key: value for key, value in cluster.items() if key != "extensions"} or None,
        )
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
