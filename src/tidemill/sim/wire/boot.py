"""Instances that boot: each becomes a Node of a Kubernetes API server, as its user data says.

The kubelet's part of a boot and no more: the Node with its labels, taints and provider id some minutes after launch,
its accelerators when a device plugin would have registered them, a heartbeat, and NotReady when the instance is gone.
It runs no pods. What the API server answers is logged and never stops the account. User data that cannot be read says
nothing.
"""

from __future__ import annotations

import json
import logging
import ssl
import tomllib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email import message_from_string
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import yaml

from tidemill.catalog import InstanceType
from tidemill.model.nodes import Instance, InstanceState
from tidemill.sim.cluster.node_lifecycle import JOIN_S, REGISTER_S
from tidemill.sim.timeline import Timeline, stream
from tidemill.spec import names
from tidemill.spec.units import format_instant

if TYPE_CHECKING:
    from tidemill.sim.wire.state import Wire

log = logging.getLogger(__name__)
_WAIT_S = 10
_HEARTBEAT = timedelta(minutes=5)
_LABELS = "--node-labels="
_NODE_CONFIG = "application/node.eks.aws"


@dataclass(frozen=True, slots=True)
class KubeApi:
    """An API server and what is shown to it. `ca` is a file; empty: the system's own."""

    url: str
    token: str = ""
    ca: str = ""

    def send(self, method: str, path: str, body: Mapping[str, Any], kind: str = "application/json") -> None:
        request = Request(self.url.rstrip("/") + path, json.dumps(body).encode(), method=method)
        request.add_header("Content-Type", kind)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        context = ssl.create_default_context(cafile=self.ca or None) if self.url.startswith("https") else None
        with urlopen(request, timeout=_WAIT_S, context=context) as answer:
            answer.read()


class NodeBooter:
    def __init__(self, wire: Wire, timeline: Timeline, api: KubeApi) -> None:
        self._wire, self._timeline, self._api = wire, timeline, api
        self._up: dict[str, str] = {}  # instance -> the name of its node
        wire.cloud.on_instance.append(self._changed)

    def close(self) -> None:
        self._wire.cloud.on_instance.remove(self._changed)

    def _changed(self, instance: Instance) -> None:
        if instance.state is InstanceState.RUNNING:
            joins_at = instance.launched_at + self._draw("join", instance.id, JOIN_S)
            self._timeline.at(max(joins_at, self._timeline.now()), lambda: self._join(instance.id))
        elif instance.id in self._up:
            name = self._up.pop(instance.id)
            self._patch(name, {"conditions": [self._ready("Unknown", "NodeStatusUnknown")]})

    def _draw(self, what: str, instance_id: str, range_s: tuple[int, int]) -> timedelta:
        return timedelta(seconds=stream(self._wire.cloud.seed, what, instance_id).randint(*range_s))

    # --- up -----------------------------------------------------------------------------------------

    def _join(self, instance_id: str) -> None:
        history = self._wire.cloud.instance_histories[instance_id]
        if history.now.state is not InstanceState.RUNNING or instance_id in self._up:
            return
        kind = self._wire.cloud.catalog.types[history.now.instance_type]
        told = read_user_data(_decoded(self._wire.launch_of(history).user_data))
        name = f"ip-{self._wire.address(history).replace('.', '-')}.{self._wire.region}.compute.internal"
        self._up[instance_id] = name
        if not self._send("POST", "/api/v1/nodes", self._node(name, history.now, kind, told)):
            return
        self._report(instance_id, kind, devices=False)
        delay = self._draw("register", instance_id, REGISTER_S)
        self._timeline.after(delay, lambda: self._report(instance_id, kind, devices=True))

    def _node(self, name: str, instance: Instance, kind: InstanceType, told: NodeSettings) -> dict[str, Any]:
        labels = {
            names.LABEL_HOSTNAME: name,
            names.LABEL_TYPE: instance.instance_type,
            names.LABEL_ARCH: kind.arch,
            "kubernetes.io/os": "linux",
            names.LABEL_ZONE: instance.zone,
            "topology.kubernetes.io/region": self._wire.region,
            **told.labels,
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "providerID": f"aws:///{instance.zone}/{instance.id}",
                "taints": [
                    {"key": key, "value": value, "effect": effect} for key, value, effect in told.taints
                ],
            },
        }

    def _report(self, instance_id: str, kind: InstanceType, *, devices: bool) -> None:
        name = self._up.get(instance_id)
        if name is None:
            return
        hidden = () if devices else (*names.ACCELERATORS, names.EFA)
        shown = {
            key: f"{amount}m" if key == names.CPU else str(amount)
            for key, amount in kind.allocatable
            if key not in hidden
        }
        ready = self._ready("True", "KubeletReady")
        if self._patch(name, {"capacity": shown, "allocatable": shown, "conditions": [ready]}) and devices:
            self._timeline.after(_HEARTBEAT, lambda: self._report(instance_id, kind, devices=True))

    def _ready(self, status: str, reason: str) -> dict[str, str]:
        at = format_instant(self._timeline.now())
        return {
            "type": "Ready", "status": status, "reason": reason, "lastHeartbeatTime": at, "lastTransitionTime": at,
        }  # fmt: skip

    # --- the API server -----------------------------------------------------------------------------

    def _patch(self, name: str, status: Mapping[str, Any]) -> bool:
        strategic = "application/strategic-merge-patch+json"
        return self._send("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, strategic)

    def _send(self, method: str, path: str, body: Mapping[str, Any], kind: str = "application/json") -> bool:
        try:
            self._api.send(method, path, body, kind)
        except HTTPError as error:
            with error:
                said = error.read(300).decode(errors="replace")
            if error.code == 409 and method == "POST":
                return True  # it was there already: a kubelet that starts again finds its node
            log.warning("%s %s: %s %s", method, path, error.code, said)
            return False
        except (URLError, OSError) as error:
            log.warning("%s %s: %s", method, path, error)
            return False
        return True


def _decoded(user_data: object) -> str:
    if not isinstance(user_data, str) or not user_data:
        return ""
    try:
        return b64decode(user_data, validate=True).decode()
    except ValueError:
        return user_data


# --- what user data says: nodeadm's NodeConfig, Bottlerocket's TOML ------------------------------------


@dataclass(frozen=True, slots=True)
class NodeSettings:
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect


def read_user_data(text: str) -> NodeSettings:
    labels: dict[str, str] = {}
    taints: list[tuple[str, str, str]] = []
    for config in _configs(text):
        more, further = _nodeadm(config) if "kind" in config else _bottlerocket(config)
        labels |= more
        taints += further
    return NodeSettings(labels, tuple(taints))


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


def _nodeadm(config: Mapping[str, Any]) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    kubelet = _inside(_inside(config, "spec"), "kubelet")
    labels: dict[str, str] = {}
    for flag in kubelet.get("flags") or ():
        if isinstance(flag, str) and flag.startswith(_LABELS):
            pairs = (item.partition("=") for item in flag.removeprefix(_LABELS).split(",") if "=" in item)
            labels |= {key: value for key, _, value in pairs}
    written = _inside(kubelet, "config").get("registerWithTaints") or ()
    return labels, [
        (str(item.get("key", "")), str(item.get("value", "")), str(item.get("effect", "NoSchedule")))
        for item in written
        if isinstance(item, dict)
    ]


def _bottlerocket(config: Mapping[str, Any]) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    kubernetes = _inside(_inside(config, "settings"), "kubernetes")
    labels = {str(key): str(value) for key, value in _inside(kubernetes, "node-labels").items()}
    taints = []
    for key, values in _inside(kubernetes, "node-taints").items():
        for taint in values if isinstance(values, list) else [values]:
            value, _, effect = str(taint).partition(":")
            taints.append((str(key), value, effect or "NoSchedule"))
    return labels, taints


def _inside(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = config.get(key)
    return inner if isinstance(inner, Mapping) else {}
