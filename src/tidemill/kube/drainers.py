"""Who else drains or scales the nodes of our pools: found, so that `tidemill run` can refuse to be the second.

Two that end one node give its pods two notices, and neither counts what the other took. What is looked at is what the
API server shows: workloads by image or name, Karpenter's objects, labels of nodes. What cannot be seen from there (the
tags of an Auto Scaling group, say) makes a finding that is not certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidemill.kube.api import KubeApi
from tidemill.kube.custom_objects import all_pages
from tidemill.spec import names
from tidemill.spec.compute_pool import Provisioner

_KARPENTER_POOL = "karpenter.sh/nodepool"  # label on a node, a NodeClaim
_EKS_GROUP = "eks.amazonaws.com/nodegroup"
_APP = "app.kubernetes.io/name"


class DrainerKind(StrEnum):
    NODE_TERMINATION_HANDLER = "aws-node-termination-handler"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"
    NODE_REPAIR = "eks-node-monitoring-agent"  # EKS replaces nodes by what it reports


@dataclass(frozen=True, slots=True)
class Drainer:
    """`certain`: it acts on nodes of these pools. Otherwise it may, and the API server does not show it."""

    kind: DrainerKind
    name: str  # "DaemonSet/kube-system/aws-node-termination-handler"
    pools: tuple[str, ...]
    certain: bool
    nodes: tuple[str, ...] = ()  # those of ours that show it, by name; the first few

    def __str__(self) -> str:
        does = "acts" if self.certain else "may act"
        on = f" (on {', '.join(self.nodes)})" if self.nodes else ""
        return f"{self.name} is a {self.kind.value} and {does} on nodes of {', '.join(self.pools)}{on}"


def find_drainers(api: KubeApi, pools: Mapping[str, Provisioner]) -> tuple[Drainer, ...]:
    """Those that may act on nodes of pools that are ours alone; Karpenter owns the nodes of its pools."""
    ours = {name: how for name, how in pools.items() if how is not Provisioner.KARPENTER}
    if not ours:
        return ()
    nodes = [
        node for node in all_pages(api, "/api/v1/nodes", "Node", names.LABEL_POOL) if _pool(node) in ours
    ]
    found = [*_karpenter(api, ours, nodes)]
    for kind in ("DaemonSet", "Deployment"):
        for workload in all_pages(api, f"/apis/apps/v1/{kind.lower()}s", kind):
            drainer = _judged(kind, workload, ours, nodes)
            if drainer is not None:
                found.append(drainer)
    return tuple(found)


def _judged(
    kind: str, workload: Mapping[str, Any], ours: Mapping[str, Provisioner], nodes: list[Any]
) -> Drainer | None:
    which = recognized(workload)
    spec = workload["spec"]
    if which is None or (kind == "Deployment" and spec.get("replicas", 1) == 0):
        return None
    meta, template = workload["metadata"], spec["template"]
    name = f"{kind}/{meta['namespace']}/{meta['name']}"
    match which:
        case DrainerKind.NODE_TERMINATION_HANDLER if kind == "DaemonSet":
            pools = tuple(pool for pool in sorted(ours) if _reaches(template["spec"], pool, nodes))
            on = [node for node in nodes if _pool(node) in pools]
            return Drainer(which, name, pools, True, _first(on)) if pools else None
        case DrainerKind.NODE_TERMINATION_HANDLER:
            # With a queue it drains any instance it reads of; by default only those with a tag of its own.
            certain = _setting(template, "check-tag-before-draining") == "false"
            return Drainer(which, name, tuple(sorted(ours)), certain)
        case DrainerKind.CLUSTER_AUTOSCALER:
            # EKS tags the groups of its node groups so that it finds them; instances without a group it leaves alone.
            managed = _of(ours, Provisioner.MANAGED)
            grouped = _of(ours, Provisioner.MANAGED, Provisioner.ASG)
            return Drainer(which, name, grouped, bool(managed)) if grouped else None
        case DrainerKind.NODE_REPAIR:
            managed = _of(ours, Provisioner.MANAGED)
            shown = [node for node in nodes if _EKS_GROUP in _labels(node)]
            return Drainer(which, name, managed, False, _first(shown)) if managed else None
        case DrainerKind.KARPENTER:
            return None  # it acts on the nodes of its NodePools, which are looked at by themselves


def _reaches(spec: Mapping[str, Any], pool: str, nodes: list[Any]) -> bool:
    """Whether pods of a DaemonSet may run on a node of the pool. Of a pool without nodes only its label is known."""
    known = [_labels(node) for node in nodes if _pool(node) == pool]
    if known:
        return any(_may_run_on(spec, labels) for labels in known)
    return _may_run_on(spec, {names.LABEL_POOL: pool}, whole=False)


def recognized(workload: Mapping[str, Any]) -> DrainerKind | None:
    """By its image or its name; None: it is none of those that are known."""
    meta, template = workload["metadata"], workload["spec"]["template"]
    words = {meta.get("labels", {}).get(_APP, ""), template["metadata"].get("labels", {}).get(_APP, "")}
    for container in template["spec"].get("containers", ()):
        image = str(container.get("image", "")).partition("@")[0]
        words.add(image.rpartition("/")[2].partition(":")[0])
    for kind in DrainerKind:
        if any(word == kind.value or word.startswith(f"{kind.value}-") for word in words):
            return kind
    return None


def _setting(template: Mapping[str, Any], flag: str) -> str:
    """A flag of the first container, as an argument or as its environment variable."""
    for container in template["spec"].get("containers", ())[:1]:
        for word in (*container.get("command", ()), *container.get("args", ())):
            if word.lstrip("-").partition("=")[0] == flag:
                return str(word.partition("=")[2])
        for variable in container.get("env", ()):
            if variable.get("name") == flag.upper().replace("-", "_"):
                return str(variable.get("value", ""))
    return ""


# --- Karpenter ------------------------------------------------------------------------------------------


def _karpenter(api: KubeApi, ours: Mapping[str, Provisioner], nodes: list[Any]) -> Iterator[Drainer]:
    """Its NodePools that make nodes with our label, and nodes of ours that one of its NodeClaims owns."""
    claimed: dict[str, list[Any]] = {}
    for node in nodes:
        if pool := _labels(node).get(_KARPENTER_POOL, ""):
            claimed.setdefault(pool, []).append(node)
    for node_pool in all_pages(api, "/apis/karpenter.sh/v1/nodepools", "NodePool"):
        template = node_pool["spec"].get("template", {})
        label = template.get("metadata", {}).get("labels", {}).get(names.LABEL_POOL, "")
        if label in ours:
            made = {"metadata": {"labels": {names.LABEL_POOL: label}}}
            claimed.setdefault(node_pool["metadata"]["name"], []).append(made)
    for name, owned in sorted(claimed.items()):
        pools = tuple(sorted({_pool(node) for node in owned}))
        yield Drainer(DrainerKind.KARPENTER, f"NodePool/{name}", pools, True, _first(owned))


# --- reading --------------------------------------------------------------------------------------------


def _pool(node: Mapping[str, Any]) -> str:
    return _labels(node).get(names.LABEL_POOL, "")


def _labels(node: Mapping[str, Any]) -> dict[str, str]:
    return node["metadata"].get("labels") or {}


def _of(ours: Mapping[str, Provisioner], *kinds: Provisioner) -> tuple[str, ...]:
    return tuple(sorted(name for name, how in ours.items() if how in kinds))


def _first(nodes: list[Any], count: int = 3) -> tuple[str, ...]:
    return tuple(node["metadata"]["name"] for node in nodes if "name" in node["metadata"])[:count]


def _may_run_on(spec: Mapping[str, Any], labels: Mapping[str, str], *, whole: bool = True) -> bool:
    """By its node selector and its required node affinity. Not `whole`: labels that are not known may match."""
    for key, value in (spec.get("nodeSelector") or {}).items():
        if (key in labels or whole) and labels.get(key) != value:
            return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
    if not terms:
        return True
    return any(
        all(_holds(each, labels, whole) for each in term.get("matchExpressions") or ()) for term in terms
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str], whole: bool) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    if key not in labels and not whole:
        return True
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return True
