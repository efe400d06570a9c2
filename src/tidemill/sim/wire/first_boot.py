"""What user data tells a node to call itself: labels and taints, out of nodeadm's archives and Bottlerocket's TOML.

Reads what others wrote too, and believes little: what cannot be read tells nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_string
from typing import Any

import yaml

_LABELS = "--node-labels="
_NODE_CONFIG = "application/node.eks.aws"


@dataclass(frozen=True, slots=True)
class FirstBoot:
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect


def read_user_data(text: str) -> FirstBoot:
    labels: dict[str, str] = {}
    taints: list[tuple[str, str, str]] = []
    for config in _configs(text):
        more, further = _nodeadm(config) if "kind" in config else _bottlerocket(config)
        labels |= more
        taints += further
    return FirstBoot(labels, tuple(taints))


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
        found = list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return
    yield from (one for one in found if isinstance(one, dict) and one.get("kind") == "NodeConfig")


def _nodeadm(config: Mapping[str, Any]) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    kubelet = _inside(_inside(config, "spec"), "kubelet")
    labels: dict[str, str] = {}
    for flag in kubelet.get("flags") or ():
        if isinstance(flag, str) and flag.startswith(_LABELS):
            labels |= dict(_pair(one) for one in flag.removeprefix(_LABELS).split(",") if "=" in one)
    written = _inside(kubelet, "config").get("registerWithTaints") or ()
    return labels, [
        (str(one.get("key", "")), str(one.get("value", "")), str(one.get("effect", "NoSchedule")))
        for one in written
        if isinstance(one, dict)
    ]


def _bottlerocket(config: Mapping[str, Any]) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    kubernetes = _inside(_inside(config, "settings"), "kubernetes")
    labels = {str(key): str(value) for key, value in _inside(kubernetes, "node-labels").items()}
    taints = []
    for key, values in _inside(kubernetes, "node-taints").items():
        for one in values if isinstance(values, list) else [values]:
            value, _, effect = str(one).partition(":")
            taints.append((str(key), value, effect or "NoSchedule"))
    return labels, taints


def _inside(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}


def _pair(written: str) -> tuple[str, str]:
    key, _, value = written.partition("=")
    return key, value
