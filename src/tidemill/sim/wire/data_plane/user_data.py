"""What user data says of a node: nodeadm's NodeConfig, Bottlerocket's TOML. What cannot be read says nothing."""

from __future__ import annotations

import tomllib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_string
from typing import Any

import yaml

_LABELS = "--node-labels="
_NODE_CONFIG = "application/node.eks.aws"
Taints = tuple[tuple[str, str, str], ...]  # key, value, effect


@dataclass(frozen=True, slots=True)
class NodeSettings:
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Taints = ()
    max_pods: int | None = None


def decoded(user_data: object) -> str:
    """From a launch: base64, or text as it is. moto keeps that of a launch template as an object of its own."""
    text = "" if user_data is None else str(user_data)
    try:
        return b64decode(text, validate=True).decode()
    except ValueError:
        return text


def read_user_data(text: str) -> NodeSettings:
    labels: dict[str, str] = {}
    taints: list[tuple[str, str, str]] = []
    max_pods = None
    for config in _configs(text):
        more, further, most = _nodeadm(config) if "kind" in config else _bottlerocket(config)
        labels |= more
        taints += further
        max_pods = most or max_pods
    return NodeSettings(labels, tuple(dict.fromkeys(taints)), max_pods)


def _configs(text: str) -> Iterator[dict[str, Any]]:
    if text.lstrip().startswith("["):
        try:
            yield tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return
        return
    for part in message_from_string(text).walk():
        if part.get_content_type() == _NODE_CONFIG:
            yield from _documents(str(part.get_payload()))


def _documents(text: str) -> Iterator[dict[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return
    yield from (
        document
        for document in documents
        if isinstance(document, dict) and document.get("kind") == "NodeConfig"
    )


_Read = tuple[dict[str, str], list[tuple[str, str, str]], int | None]


def _nodeadm(config: Mapping[str, Any]) -> _Read:
    kubelet = _inside(_inside(config, "spec"), "kubelet")
    labels: dict[str, str] = {}
    for flag in kubelet.get("flags") or ():
        if isinstance(flag, str) and flag.startswith(_LABELS):
            written = flag.removeprefix(_LABELS).strip("\"'")  # Karpenter quotes them
            pairs = (item.partition("=") for item in written.split(",") if "=" in item)
            labels |= {key: value for key, _, value in pairs}
    own = _inside(kubelet, "config")
    taints = [
        (str(item.get("key", "")), str(item.get("value") or ""), str(item.get("effect", "NoSchedule")))
        for item in own.get("registerWithTaints") or ()
        if isinstance(item, dict)
    ]
    return labels, taints, _number(own.get("maxPods"))


def _bottlerocket(config: Mapping[str, Any]) -> _Read:
    kubernetes = _inside(_inside(config, "settings"), "kubernetes")
    labels = {str(key): str(value) for key, value in _inside(kubernetes, "node-labels").items()}
    taints = []
    for key, values in _inside(kubernetes, "node-taints").items():
        for taint in values if isinstance(values, list) else [values]:
            value, _, effect = str(taint).partition(":")
            taints.append((str(key), value, effect or "NoSchedule"))
    return labels, taints, _number(kubernetes.get("max-pods"))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _inside(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = config.get(key)
    return inner if isinstance(inner, Mapping) else {}
