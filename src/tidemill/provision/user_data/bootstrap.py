"""What user data needs to know, for every image family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tidemill.model.errors import SpecError
from tidemill.spec.compute_pool import kubelet_may_set
from tidemill.spec.node_class import NodeClass, NodeClassSpec
from tidemill.spec.platform import ClusterRef

# The longest shutdown of a node's pods; the last part of it is for the critical pods (DNS, network). No pod gets more
# than its own grace, and the kubelet goes on as soon as pods are done, so a long period costs nothing. A pod with a
# longer grace is cut short.
SHUTDOWN_GRACE = timedelta(minutes=61)
CRITICAL_GRACE = timedelta(minutes=1)


class Family(StrEnum):
    AL2023 = "al2023"
    BOTTLEROCKET = "bottlerocket"

    @classmethod
    def of(cls, node_class: NodeClass) -> Family:
        """From the alias; of an image named by its id, from `amiFamily`."""
        alias = next((term.alias for term in node_class.spec.ami_selector_terms if term.alias), None)
        name = alias.partition("@")[0] if alias else node_class.spec.ami_family.lower()
        try:
            return cls(name)
        except ValueError:
            known = " and ".join(member.value for member in cls)
            raise SpecError(
                f"node class {node_class.name}: the image family '{name}' is not supported, only {known}"
            ) from None


@dataclass(frozen=True, slots=True)
class Bootstrap:
    family: Family
    cluster: ClusterRef
    region: str
    node_class: NodeClassSpec
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]  # key, value, effect
    ends_at: datetime | None = None  # its deadline agent empties the node by then; None: no end is known
    joins: bool = True  # False: EKS adds the cluster, the labels and the taints of its node group
    extra: tuple[str, ...] = ()  # other user data, which ours is merged with


def own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Sorted. SpecError: a label that a kubelet may not set on its own node."""
    for name in labels:
        if not kubelet_may_set(name):
            raise SpecError(
                f"a node may not set the label '{name}' on itself, and its kubelet would not start:"
                " labels under kubernetes.io are set by the cluster; use another prefix"
            )
    return dict(sorted(labels.items()))


def kubelet_duration(value: timedelta) -> str:
    """In the kubelet's form, which has no days."""
    return f"{int(value.total_seconds())}s"
