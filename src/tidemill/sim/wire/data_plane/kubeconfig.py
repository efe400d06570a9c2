"""A kubeconfig, as far as a simulated kubelet needs one: server, CA, and a token or a client certificate."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tidemill.model.errors import SpecError
from tidemill.sim.wire.data_plane.api_client import KubeApi


def read_kubeconfig(path: Path, context: str = "") -> KubeApi:
    """SpecError: it cannot be read, names nothing, or needs a program to log in."""
    try:
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or "it is not YAML"
        raise SpecError(f"--kubeconfig: {path} cannot be read: {why}") from None
    if not isinstance(written, Mapping):
        raise SpecError(f"--kubeconfig: {path} holds no kubeconfig")
    wanted = context or str(written.get("current-context") or "")
    chosen = _named(path, written.get("contexts"), wanted, "context")
    cluster = _named(path, written.get("clusters"), str(chosen.get("cluster") or ""), "cluster")
    user = _named(path, written.get("users"), str(chosen.get("user") or ""), "user")
    if user.get("exec") or user.get("auth-provider"):
        raise SpecError(
            f"--kubeconfig: {path} logs in with a program; use a token or a client certificate, "
            "or --kube-api with --kube-token-file"
        )
    if not str(cluster.get("server", "")).startswith(("http://", "https://")):
        raise SpecError(f"--kubeconfig: the cluster of {path} has no server")
    return KubeApi(
        url=str(cluster["server"]),
        token=_token(path, user),
        ca=_file(path, cluster, "certificate-authority"),
        certificate=_file(path, user, "client-certificate"),
        key=_file(path, user, "client-key"),
        verify=not cluster.get("insecure-skip-tls-verify"),
    )


def _named(path: Path, entries: Any, name: str, kind: str) -> Mapping[str, Any]:
    found: Iterable[Any] = entries if isinstance(entries, list) else ()
    for entry in found:
        if isinstance(entry, Mapping) and entry.get("name") == name:
            inner = entry.get(kind)
            return inner if isinstance(inner, Mapping) else {}
    raise SpecError(f"--kubeconfig: {path} has no {kind} '{name}'")


def _token(path: Path, user: Mapping[str, Any]) -> str:
    if user.get("token"):
        return str(user["token"])
    if not user.get("tokenFile"):
        return ""
    try:
        return (path.parent / str(user["tokenFile"])).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        raise SpecError(f"--kubeconfig: the tokenFile of {path} cannot be read") from None


def _file(path: Path, entry: Mapping[str, Any], field: str) -> str:
    """The path of a file, or the PEM that the kubeconfig has in itself."""
    data = entry.get(f"{field}-data")
    if data:
        try:
            return b64decode(str(data), validate=True).decode("ascii").lstrip()
        except ValueError:
            raise SpecError(f"--kubeconfig: {field}-data of {path} is not PEM in base64") from None
    return str(path.parent / str(entry[field])) if entry.get(field) else ""
