"""AL2023 user data: a MIME archive with others' parts first, then our script, then our NodeConfig.

nodeadm merges all NodeConfigs and the last one wins, so ours does. Scripts run before it starts the kubelet; a script
that fails does not keep the node out of the cluster.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from typing import Any

import yaml

from tidemill.model.errors import SpecError
from tidemill.provision.user_data import deadline_agent
from tidemill.provision.user_data.bootstrap import (
    CRITICAL_GRACE,
    SHUTDOWN_GRACE,
    Bootstrap,
    kubelet_duration,
    own_labels,
)


def archive(boot: Bootstrap) -> str:
    parts = [part for text in boot.extra for part in read_parts(text)]
    script = [*deadline_agent.install(boot), *_sysctls(boot)]  # the agent first: a sysctl may fail
    if script:
        parts.append(MimePart(SHELL, "\n".join(["#!/bin/bash", "set -eu", *script])))
    written = yaml.safe_dump(node_config(boot), sort_keys=False, width=1000)
    return write_archive([*parts, MimePart(NODE_CONFIG, f"---\n{written}")])


def node_config(boot: Bootstrap) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if boot.joins:
        cluster = boot.cluster
        spec["cluster"] = {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.certificate_authority,
            "cidr": cluster.service_cidr,
        }
    spec["kubelet"] = _kubelet(boot)
    if boot.node_class.instance_store_policy == "RAID0":
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if boot.node_class.container_runtime:
        spec["containerd"] = {"config": containerd_config(boot.node_class.container_runtime)}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def _kubelet(boot: Bootstrap) -> dict[str, Any]:
    config: dict[str, Any] = {
        "shutdownGracePeriod": kubelet_duration(SHUTDOWN_GRACE),
        "shutdownGracePeriodCriticalPods": kubelet_duration(CRITICAL_GRACE),
    }
    if boot.node_class.max_pods is not None:
        config["maxPods"] = boot.node_class.max_pods
    if not boot.joins:  # EKS sets labels and taints by its own flags, which ours would replace
        return {"config": config}
    config["registerWithTaints"] = [
        {"key": key, **({"value": value} if value else {}), "effect": effect}
        for key, value, effect in boot.taints
    ]
    labels = ",".join(f"{key}={value}" for key, value in own_labels(boot.labels).items())
    return {"config": config, "flags": [f"--node-labels={labels}"]}


def containerd_config(settings: dict[str, str]) -> str:
    """TOML: a key is a dotted path in containerd's configuration; a value is TOML, else text."""
    text = "\n".join(f"{key} = {_toml_value(value)}" for key, value in settings.items())
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(
            f"containerRuntime is not valid containerd configuration ({error}); a key is a dotted path such as"
            " plugins.'io.containerd.cri.v1.images'.max_concurrent_downloads"
        ) from None
    return text


def _toml_value(value: str) -> str:
    try:
        tomllib.loads(f"x = {value}")
    except tomllib.TOMLDecodeError:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return value


def _sysctls(boot: Bootstrap) -> list[str]:
    if not boot.node_class.kernel:
        return []
    lines = [f"{key} = {value}" for key, value in boot.node_class.kernel.items()]
    return [
        "cat > /etc/sysctl.d/90-tidemill.conf <<'TIDEMILL'",
        *lines,
        "TIDEMILL",
        "sysctl --load /etc/sysctl.d/90-tidemill.conf",
    ]


# --- MIME multipart archives --------------------------------------------------------------------------

# Written by hand: the standard library's writer folds and encodes what must arrive unchanged.
NODE_CONFIG = "application/node.eks.aws"
SHELL = 'text/x-shellscript; charset="us-ascii"'
_BOUNDARY = "//TIDEMILL//"


@dataclass(frozen=True, slots=True)
class MimePart:
    content_type: str
    text: str


def write_archive(parts: list[MimePart]) -> str:
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"', ""]
    for part in parts:
        lines += [f"--{_BOUNDARY}", f"Content-Type: {part.content_type}", "", part.text.rstrip("\n"), ""]
    return "\n".join([*lines, f"--{_BOUNDARY}--", ""])


def read_parts(text: str) -> list[MimePart]:
    """The parts of others' user data: those of an archive, else the text as one part."""
    start = text.lstrip()
    if start.lower().startswith(("mime-version:", "content-type:")):
        found = [
            _part(message) for message in message_from_string(start).walk() if not message.is_multipart()
        ]
        if not found:
            raise SpecError("the user data looks like a MIME archive and has no parts")
        return found
    if start.startswith("#!"):
        return [MimePart(SHELL, text)]
    if "kind: NodeConfig" in text:
        return [MimePart(NODE_CONFIG, text)]
    raise SpecError(
        "the user data is neither a script (which starts with '#!'), nor a NodeConfig, nor a MIME archive of them"
    )


def _part(message: Message) -> MimePart:
    payload = message.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return MimePart(str(message["Content-Type"] or "text/plain"), payload.decode())
