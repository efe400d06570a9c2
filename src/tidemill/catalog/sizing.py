"""How much of an instance pods may use, and what a pod that uses a whole node should request.

The first is Karpenter's arithmetic, to the MiB, so that Karpenter would make the same plan. When a node has joined, its
own `allocatable` replaces it. It knows no prices and no pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.model.resources import Amounts, amount

if TYPE_CHECKING:
    from tidemill.catalog import InstanceType

MIB = 2**20
GIB = 2**30

# Memory the hypervisor and the kernel keep: Karpenter's default, 7.5 %, rounded up to a whole MiB. Real nodes
# keep less, so this errs on the side of a pod that fits after all.
VM_OVERHEAD_PER_MILLE = 75
ARM_RESERVED_MIB = 64  # Linux on Graviton and Grace sets aside a CMA area EC2 counts as memory
EVICTION_MIB = 100  # the kubelet's default hard eviction threshold
# What the kubelet reserves: 11 MiB a pod + 255 MiB, and of CPU a share that shrinks with size, in
# hundredths of a percent up to so many milli-CPU (the EKS-optimised AMIs' bootstrap rule).
KUBE_RESERVED_POD_MIB, KUBE_RESERVED_MIB = 11, 255
KUBE_RESERVED_CPU = ((1_000, 600), (2_000, 100), (4_000, 50), (2**31, 25))

# What daemon pods request, until some have been seen: the CNI, kube-proxy, a device plugin and a log agent.
# More than their defaults: it errs on the side of one pod less per node.
USUAL_DAEMONS: Amounts = (("cpu", 250), ("memory", 256 * MIB), ("pods", 4))

# What a pod that uses a whole node leaves to daemons. On p5.48xlarge it gives the 180 CPU and 1700 GiB
# that are known to work beside the usual daemon sets.
WHOLE_NODE_CPU_16THS = 15  # of all vCPUs
WHOLE_NODE_SPARE_MILLI = 500  # at least, on small nodes: the CNI, kube-proxy, the device plugin, a log agent
WHOLE_NODE_MEMORY_10THS = 9  # of allocatable memory
WHOLE_NODE_MEMORY_STEP, SMALL_NODE_MEMORY_STEP = 4 * GIB, GIB  # the second where less than 16 GiB is left


def allocatable(
    *, vcpus: int, memory_mib: int, arch: str, max_pods: int, devices: Mapping[str, int], efa: int
) -> Amounts:
    """Capacity less VM overhead, kube-reserved and the eviction threshold; devices whole."""
    amounts = {
        "cpu": vcpus * 1000 - kube_reserved_milli(vcpus * 1000),
        "memory": allocatable_mib(memory_mib, arch=arch, max_pods=max_pods) * MIB,
        "pods": max_pods,
        **devices,
    }
    if efa:
        amounts["vpc.amazonaws.com/efa"] = efa
    return tuple(sorted(amounts.items()))


def kube_reserved_milli(capacity_milli: int) -> int:
    reserved = below = 0
    for upper, share in KUBE_RESERVED_CPU:
        reserved += max(0, min(capacity_milli, upper) - below) * share // 10_000
        below = upper
    return reserved


def allocatable_mib(memory_mib: int, *, arch: str, max_pods: int) -> int:
    usable = memory_mib - (ARM_RESERVED_MIB if arch == "arm64" else 0)
    overhead = -(-usable * VM_OVERHEAD_PER_MILLE // 1000)  # rounded up
    return usable - overhead - (KUBE_RESERVED_POD_MIB * max_pods + KUBE_RESERVED_MIB) - EVICTION_MIB


def whole_node_request(instance_type: InstanceType) -> Amounts:
    """The requests of a replica that uses a whole node: every accelerator, and what daemons do not need.

    CPU is 15/16 of the vCPUs, but leaves at least 500m of what is allocatable, down to 100m. Memory is 9/10
    of what is allocatable, down to 4 GiB, or to 1 GiB on small nodes. EFA is left out: only jobs of several nodes ask
    for it.
    """
    offered = instance_type.allocatable
    cpu_milli = min(
        instance_type.vcpus * 1000 * WHOLE_NODE_CPU_16THS // 16,
        amount(offered, "cpu") - WHOLE_NODE_SPARE_MILLI,
    )
    memory = amount(offered, "memory") * WHOLE_NODE_MEMORY_10THS // 10
    step = WHOLE_NODE_MEMORY_STEP if memory >= 4 * WHOLE_NODE_MEMORY_STEP else SMALL_NODE_MEMORY_STEP
    request = {"cpu": cpu_milli // 100 * 100, "memory": memory // step * step}
    if instance_type.accelerator:
        request[instance_type.accelerator.resource] = instance_type.accelerator.count
    return tuple(sorted(request.items()))
