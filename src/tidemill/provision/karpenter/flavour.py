"""Karpenter as people install it, and the one in EKS Auto Mode: the same objects under two families of names."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.spec.platform import KarpenterRef


@dataclass(frozen=True, slots=True)
class KarpenterApi:
    karpenter: KarpenterRef
    group: str  # of the node class
    kind: str
    labels: str  # the prefix of the labels that describe instance types
    expire_after: str  # the longest life of a node

    @classmethod
    def of(cls, karpenter: KarpenterRef) -> KarpenterApi:
        if karpenter.auto_mode:
            # Auto Mode ends every node after 21 days, whatever a NodePool says.
            return cls(karpenter, "eks.amazonaws.com", "NodeClass", "eks.amazonaws.com", "504h")
        return cls(karpenter, "karpenter.k8s.aws", "EC2NodeClass", "karpenter.k8s.aws", "Never")

    @property
    def auto_mode(self) -> bool:
        return self.karpenter.auto_mode
