"""The Karpenter of the cluster, as the platform's document tells of it, and which version can do what."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tidemill.spec.model import Model

Version = tuple[int, int]

# From Karpenter's own release notes.
BLOCKS: Final[Version] = (1, 6)
STATIC_CAPACITY: Final[Version] = (1, 8)
SEVERAL_BLOCKS: Final[Version] = (
    1,
    8,
)  # of one type and zone under one tag; before, the first hides the others
NETWORK_INTERFACES: Final[Version] = (1, 11)


class KarpenterRef(Model):
    """Who launches for pools with `provisioner: karpenter`. Its blocks need Karpenter 1.6 at least."""

    version: Annotated[str, Field(pattern=r"^v?\d+\.\d+(\.\d+)?$")] = ""
    """Of the Karpenter in the cluster, in quotes: `"1.8.2"`. Not needed with EKS Auto Mode."""
    auto_mode: bool = False
    """EKS Auto Mode launches: AWS keeps its Karpenter new, nodes run Bottlerocket and live at most 21 days."""
    static_capacity: bool = False
    """The feature gate StaticCapacity is on (1.8): pools with `warm` are kept up without pods."""

    def can(self, what: Version) -> bool:
        """AWS keeps Auto Mode at the newest."""
        return self.auto_mode or (bool(self.version) and self.release >= what)

    @property
    def release(self) -> Version:
        major, minor = self.version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)
