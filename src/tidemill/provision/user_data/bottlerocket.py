"""Bottlerocket user data: settings in TOML. Where others' settings differ from ours, ours win.

Such a node has no shell and no packages, so no deadline agent is installed. The kubelet's graceful shutdown is set, but
nothing starts it while the engine is away.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.model.errors import SpecError
from tidemill.provision.user_data.bootstrap import (
    CRITICAL_GRACE,
    SHUTDOWN_GRACE,
    Bootstrap,
    kubelet_duration,
    own_labels,
)

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def settings(boot: Bootstrap) -> str:
    merged: dict[str, Any] = {}
    for text in boot.extra:
        _merge(merged, _read(text))
    _merge(merged, {"settings": _ours(boot)})
    return "\n".join(_lines(merged, ())) + "\n"


def _ours(boot: Bootstrap) -> dict[str, Any]:
    kubernetes: dict[str, Any] = {
        "shutdown-grace-period": kubelet_duration(SHUTDOWN_GRACE),
        "shutdown-grace-period-for-critical-pods": kubelet_duration(CRITICAL_GRACE),
    }
    if boot.joins:
        kubernetes |= {
            "cluster-name": boot.cluster.name,
            "api-server": boot.cluster.endpoint,
            "cluster-certificate": boot.cluster.certificate_authority,
            "node-labels": own_labels(boot.labels),
            "node-taints": _taints(boot),
        }
    if boot.node_class.max_pods is not None:
        kubernetes["max-pods"] = boot.node_class.max_pods
    ours: dict[str, Any] = {"kubernetes": kubernetes}
    if boot.node_class.kernel:
        ours["kernel"] = {"sysctl": dict(boot.node_class.kernel)}
    if boot.node_class.container_runtime:
        ours["container-runtime"] = {k: _typed(v) for k, v in boot.node_class.container_runtime.items()}
    if boot.node_class.instance_store_policy == "RAID0":
        ours["bootstrap-commands"] = {"000-instance-store": _raid0()}
    return ours


def _raid0() -> dict[str, Any]:
    """The local disks as one array, with the directories that need most space on it."""
    return {
        "commands": [
            ["apiclient", "ephemeral-storage", "init"],
            ["apiclient", "ephemeral-storage", "bind", "--dirs",
             "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"],
        ],
        "essential": True,
        "mode": "always",
    }  # fmt: skip


def _taints(boot: Bootstrap) -> dict[str, list[str]]:
    taints: dict[str, list[str]] = {}
    for key, value, effect in boot.taints:
        taints.setdefault(key, []).append(f"{value}:{effect}")
    return taints


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"the user data of a Bottlerocket node must be TOML settings: {error}") from None


def _merge(under: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(under.get(key), dict):
            _merge(under[key], value)
        else:
            under[key] = dict(value) if isinstance(value, Mapping) else value


def _typed(value: str) -> Any:
    """As a number or a boolean where possible: Bottlerocket rejects "3" where it expects 3."""
    try:
        return tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        return value


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if plain and path:
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _lines(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def _value(value: Any) -> str:
    """Text, numbers, booleans and lists look the same in JSON and TOML; settings use no dates."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
