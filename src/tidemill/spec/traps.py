"""The traps that several readers of documents look for: `validate`, the importers, the renderers and the linter.

Each is one function of plain facts. It answers with what is wrong, in one sentence, or with None. Who asks knows the
file and the line; why a trap bites, with its source, is in `wording.traps` under the same id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Final, NamedTuple

from tidemill.catalog import InstanceType
from tidemill.model import ec2_facts
from tidemill.spec.platform import KARPENTER_CAPACITY_BLOCKS, KARPENTER_SEVERAL_BLOCKS
from tidemill.spec.problem import quoted
from tidemill.spec.units import format_cpu, format_duration, parse_duration

Release = tuple[int, ...]


def release_of(version: str) -> Release | None:
    """`v0.19.2-ubi9` -> (0, 19, 2); None where it is no version."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?!\d)", version.strip())
    return tuple(int(part or 0) for part in found.groups()) if found else None


# --- TR-1: durations that EC2 does not sell -------------------------------------------------------


def unsold_duration(duration: timedelta) -> str | None:
    if ec2_facts.is_legal_duration(duration):
        return None
    nearest = [format_duration(each) for each in ec2_facts.nearest_legal_durations(duration)]
    hint = f"the nearest are {' and '.join(nearest)}" if len(nearest) > 1 else f"the nearest is {nearest[0]}"
    return f"{format_duration(duration)} is not a duration EC2 sells; {hint}"


# --- TR-4 and TR-5: how Karpenter treats the nodes of a block --------------------------------------

# From Karpenter's drain to EC2's terminations: what a pod may take to leave.
LONGEST_GRACE: Final = ec2_facts.KARPENTER_DRAINS_BEFORE_END - ec2_facts.TERMINATES_BEFORE_END


def drain_outlasts_block(grace: str) -> str | None:
    """TR-4. `grace` is a NodePool's terminationGracePeriod as it is written; empty: not set."""
    try:
        if grace and parse_duration(grace) <= LONGEST_GRACE:
            return None
    except ValueError:
        pass  # such as `Never`, or what Karpenter would refuse
    setting = f"is {grace}" if grace else "is not set"
    return (
        f"terminationGracePeriod {setting}: a pod with do-not-disrupt delays a drain until EC2 terminates the"
        f" instances; the longest that fits is {format_duration(LONGEST_GRACE)}"
    )


def consolidates_prepaid(consolidate_after: str) -> str | None:
    """TR-5. `consolidate_after` as it is written; empty: not set, which is Karpenter's 0s."""
    if consolidate_after == "Never":
        return None
    return "consolidates nodes of blocks, which are paid for whether they run or not"


# --- TR-6 and TR-7: device plugins -----------------------------------------------------------------

# NVIDIA/k8s-device-plugin issue 1692 (2026-04-12): 0.19.0 mounts every /dev/infiniband/uverbs<N>, EFA's too; 0.19.3
# (2026-06-22) turned the default off again.
MOFED_ON_BY_DEFAULT: Final[tuple[Release, Release]] = ((0, 19, 0), (0, 19, 3))  # from, and before


def mofed_takes_efa(version: str, mofed_enabled: bool | None) -> str | None:
    """TR-6, of an NVIDIA device plugin on nodes with EFA. `mofed_enabled` None: the plugin's default."""
    release = release_of(version)
    first, fixed = MOFED_ON_BY_DEFAULT
    if mofed_enabled is None and release is not None and first <= release < fixed:
        how = f"the NVIDIA device plugin {version} has MOFED on by default"
    elif mofed_enabled:
        how = "MOFED is on in the NVIDIA device plugin"
    else:
        return None
    return f"{how}: it hands every /dev/infiniband device to every GPU pod, and fights the EFA device plugin over them"


def bundles_device_plugin(image: str) -> bool:
    """TR-7. Bottlerocket's NVIDIA variants run a device plugin of their own. `image`: an AMI alias, a family as
    Karpenter writes it, or an AMI type of EKS."""
    name = image.lower()
    return name.startswith("bottlerocket") and "neuron" not in name


def second_device_plugin(nodes: str) -> str:
    return (
        f"the NVIDIA device plugin would run on {nodes}, whose Bottlerocket image brings a device plugin of its own:"
        " two plugins register nvidia.com/gpu, and the one that came last counts"
    )


# --- TR-8 and TR-18: what a pool is made of --------------------------------------------------------


def floating_image(alias: str) -> str | None:
    """TR-8. Windows images cannot be pinned by alias (Karpenter's documentation, NodeClasses, 2026-11)."""
    if ("@" in alias and not alias.endswith("@latest")) or alias.startswith("windows"):
        return None
    return (
        f"the AMI alias {quoted(alias)} changes without an edit: nodes of one pool will differ and drift; pin a"
        " version, such as 'bottlerocket@v1.52.0'"
    )


class PartialNode(NamedTuple):
    """A CPU limit that ends inside a node: the whole nodes below it."""

    message: str
    vcpus_below: int  # of the whole nodes that fit; 0: none does


def partial_node_limit(cpu_milli: int, kinds: Iterable[InstanceType]) -> PartialNode | None:
    """TR-18. Only where all types have the same vCPU count: otherwise there is no right multiple."""
    sizes = {kind.vcpus for kind in kinds}
    if len(sizes) != 1:
        return None
    vcpus = sizes.pop()
    nodes, rest = divmod(cpu_milli, vcpus * 1000)
    if not rest:
        return None
    message = (
        f"a limit of {format_cpu(cpu_milli)} CPU is {nodes} nodes of {vcpus} vCPUs and a rest too small for a node;"
        f" write {nodes * vcpus} or {(nodes + 1) * vcpus}"
    )
    return PartialNode(message, nodes * vcpus)


# --- TR-14 and TR-15: what Karpenter does with blocks ----------------------------------------------


def drained_after_ec2(kinds: Iterable[InstanceType], who: str = "Karpenter drains") -> str | None:
    """TR-14. EKS and Karpenter act 40 minutes before a block's end, whatever the type."""
    if not any(kind.ultraserver for kind in kinds):
        return None
    return (
        f"{who} 40 minutes before a block's end, but EC2 terminates UltraServers 60 minutes before it: while the engine"
        " is down their pods are killed"
    )


def hides_blocks(version: str) -> str | None:
    """TR-15. Why a Karpenter of this version must not select several blocks by one tag; None: it may."""
    release = release_of(version)
    if release is None or release[:2] >= KARPENTER_SEVERAL_BLOCKS:
        return None
    if release[:2] < KARPENTER_CAPACITY_BLOCKS:
        return f"Karpenter {version} does not support Capacity Blocks: it needs 1.6, and 1.8 to see several of one type"
    return f"before 1.8 Karpenter sees only one block of a type and zone under a tag (here {version})"


# --- TR-16 and TR-17: what multi-node training needs -----------------------------------------------


def no_efa(pods: int, resource: str = "vpc.amazonaws.com/efa") -> str:
    return (
        f"{pods} pods with whole nodes of GPUs work together, and none asks for {resource}: their traffic goes over"
        " TCP, many times slower"
    )


def efa_not_attached(who: str, node_class: str, pool: str) -> str:
    return (
        f"{who} asks for EFA, but NodeClass {quoted(node_class)} of pool {quoted(pool)} attaches none: set 'efa: true'"
        " there"
    )


CHECKPOINTS_ARE_LOST: Final = (
    "checkpoints on instance store are lost with the node, so this job starts over whenever it must move; write them to"
    " shared storage (FSx for Lustre, S3, EFS)"
)
