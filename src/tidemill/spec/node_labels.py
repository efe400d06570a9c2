"""Which labels a node may give itself when it joins. Kubernetes keeps its own names for the control plane."""

from __future__ import annotations

import re

_KUBERNETES = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")
# What the kubelet itself lists as allowed (NodeRestriction), without the names it sets by itself.
_MAY_SET = re.compile(r"(^|\.)(node|kubelet)\.kubernetes\.io/|^topology\.kubernetes\.io/")


def may_set(label: str) -> bool:
    """With one that it may not, a kubelet does not start."""
    return _KUBERNETES.search(label) is None or _MAY_SET.search(label) is not None
