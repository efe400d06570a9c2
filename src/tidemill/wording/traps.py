"""The traps, by id: what each is called, why it bites with the source and its date, what to do, where it is looked
for.

Data for people: `tidemill lint --list` and `--explain`, the reports of the linter, and docs/reference/lint.md. The
rules are in `spec.traps`, `spec.check` and `platform.lint`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.spec.problem import Severity

EC2_BLOCKS = "EC2 user guide, Capacity Blocks for ML"
KARPENTER = "Karpenter's documentation and source"


@dataclass(frozen=True, slots=True)
class Trap:
    id: str
    title: str
    severity: Severity
    why: str
    source: str
    seen: str  # year-month in which the source said so
    fix: str
    where: str
    safe_fix: str = ""  # what `--fix` writes; empty: a person must decide


_ALL = (
    Trap(
        "TR-1",
        "A duration that EC2 does not sell, such as 180 days",
        "error",
        "EC2 sells blocks of 1 to 14 days, then of whole weeks up to 182 days. 180 days (4320 hours) is not among them:"
        " such a search finds no offer, which looks like no capacity.",
        f"{EC2_BLOCKS}; EC2 API, CapacityDurationHours",
        "2026-11",
        "write the nearest duration that is sold: 4200 hours (175 days) or 4368 hours (182 days) instead of 4320",
        "Scenario; `CapacityDurationHours` and `--capacity-duration-hours` in any file",
    ),
    Trap(
        "TR-2",
        "redis:// to a Redis with encryption in transit",
        "error",
        "ElastiCache with encryption in transit speaks TLS only. A client with a redis:// URL waits for an answer in"
        " plain text until it times out. An auth token needs encryption in transit, and a serverless cache always has"
        " it.",
        "ElastiCache user guide, In-transit encryption (TLS) and Authenticating with AUTH",
        "2026-11",
        "write rediss://",
        "every text in Kubernetes objects, Helm values and CloudFormation",
        "`rediss://` for `redis://`, outside of base64",
    ),
    Trap(
        "TR-3",
        "A strict pin to a reservation id",
        "warning",
        "A block has one id and ends. What selects by id finds nothing after the end, until a person edits it: the next"
        " block stands empty, and it is paid for.",
        f"{KARPENTER}, capacityReservationSelectorTerms; EC2 user guide (a block keeps its id for its life only)",
        "2026-11",
        "select by tags, and tag every block when it is bought",
        "ComputePool, EC2NodeClass, NodeClass of Auto Mode, NodePool, node selectors of pods and Helm values",
    ),
    Trap(
        "TR-4",
        "do-not-disrupt on a block without a short terminationGracePeriod",
        "warning",
        "Karpenter starts to drain 40 minutes before a block's end, and EC2 terminates 30 minutes before it. A pod with"
        " karpenter.sh/do-not-disrupt, or a PodDisruptionBudget that allows no eviction, holds the drain back unless"
        " terminationGracePeriod ends it: then EC2 kills the pod without its grace.",
        f"{KARPENTER}, terminationGracePeriod; {EC2_BLOCKS}",
        "2026-11",
        "set terminationGracePeriod: 10m in spec.template.spec",
        "NodePool",
        "`terminationGracePeriod: 10m` where the pool has reserved capacity only",
    ),
    Trap(
        "TR-5",
        "Consolidation of prepaid nodes",
        "warning",
        "A block is paid for in advance, whether its nodes run or not. Removing a node saves nothing, its slot is"
        " usable again only after minutes of clean-up, and pods wait for a node to boot.",
        f"{EC2_BLOCKS}; {KARPENTER}, consolidateAfter (default 0s)",
        "2026-11",
        "set disruption.consolidateAfter: Never (ComputePool: leave consolidateBlocks out)",
        "ComputePool, NodePool",
        "`consolidateAfter: Never` where the pool has reserved capacity only; `consolidateBlocks: false`",
    ),
    Trap(
        "TR-6",
        "NVIDIA device plugin 0.19.0 to 0.19.2 beside EFA",
        "error",
        "These versions have MOFED on by default: every GPU pod gets all /dev/infiniband/uverbs devices, which are"
        " EFA's on AWS. The EFA device plugin hands out the same devices: the two plugins clash.",
        "NVIDIA/k8s-device-plugin issue 1692 (2026-04-12); release 0.19.3 turned it off again (2026-06-22)",
        "2026-11",
        "use 0.19.3 or later, or set mofedEnabled: false (MOFED_ENABLED=false in a DaemonSet or the GPU operator)",
        "values of the NVIDIA device plugin and the GPU operator, HelmRelease, Argo CD Application, Chart.yaml,"
        " DaemonSet; EFA in any file",
        "`mofedEnabled: false` in values of the device plugin",
    ),
    Trap(
        "TR-7",
        "A device plugin on Bottlerocket's NVIDIA images",
        "error",
        "Bottlerocket's NVIDIA variants, which EKS Auto Mode uses too, run a device plugin of their own. A second one"
        " registers the same resource with the kubelet, and the one that came last is the one that counts.",
        "Bottlerocket documentation, NVIDIA variants; EKS user guide, Auto Mode",
        "2026-11",
        "keep the plugin off these nodes with nodeSelector or affinity (devicePlugin.enabled: false in the GPU operator"
        " where all nodes are Bottlerocket)",
        "values of the NVIDIA device plugin and the GPU operator, HelmRelease, Argo CD Application, DaemonSet; images"
        " in NodeClass, EC2NodeClass, Auto Mode's NodeClass, CloudFormation",
    ),
    Trap(
        "TR-8",
        "An AMI that changes without an edit (@latest)",
        "warning",
        "A new image is released every week. Nodes of one pool then differ, and Karpenter replaces running nodes by"
        " drift: on a block, in the middle of training.",
        f"{KARPENTER}, amiSelectorTerms and drift; EKS release notes of the images",
        "2026-11",
        "pin a version, such as al2023@v20261101, and raise it on purpose",
        "NodeClass, EC2NodeClass; SSM parameters `recommended` and `latest` of a launch template on a block",
    ),
    Trap(
        "TR-9",
        "A pool without limits",
        "warning",
        "A NodePool without limits launches as many nodes as pods ask for: one wrong `replicas` is a bill. A"
        " ComputePool without limits launches nothing.",
        f"{KARPENTER}, NodePool spec.limits (not set: no limit)",
        "2026-11",
        "set limits, such as nvidia.com/gpu, nodes or cpu",
        "ComputePool, NodePool",
    ),
    Trap(
        "TR-10",
        "Subnets outside the block's zone",
        "error",
        "A block is in one availability zone. An instance that is launched in another zone does not get into it: the"
        " launch fails, and EKS refuses the node group.",
        f"{EC2_BLOCKS}; EKS user guide, managed node groups with Capacity Blocks",
        "2026-11",
        "give the group subnets of the block's zone only",
        "Platform, CapacityPlan, Scenario; node groups and Auto Scaling groups on a block in CloudFormation",
    ),
    Trap(
        "TR-11",
        "A hand-over with less overlap than booting and loading take",
        "warning",
        "EC2 empties a block 30 minutes before its end. A service can only move when the next block's nodes have joined"
        " and its model is loaded there: with less overlap, replicas are missing.",
        f"{EC2_BLOCKS}; boot and load times as measured, else 7 and 10 minutes",
        "2026-11",
        "let the next block start a day earlier, or extend the first by a day",
        "CapacityPlan, Scenario",
    ),
    Trap(
        "TR-12",
        "A chart in which 0 replicas renders 1",
        "warning",
        "In a Helm template `default 1` replaces every empty value, and 0 is empty. `replicas: 0` then renders 1: a GPU"
        " pod that nobody wanted waits, or takes a node, while the platform is meant to be without GPUs.",
        "Helm documentation, function default; chart of Adaptive Engine, templates/harmony-statefulset.yaml",
        "2026-11",
        'in values, leave the pool out; in a template, replace the value only where there is none: kindIs "invalid"',
        "values of engine charts (`computePools`), Helm templates",
        'in a template: `ternary` with `kindIs "invalid"` for a plain `.path | default N`',
    ),
    Trap(
        "TR-13",
        "EFA without a security group that allows all traffic within itself",
        "error",
        "EFA's traffic is no IP traffic. It passes only where a security group of the interface allows all traffic from"
        " and to the group itself; rules for addresses do not count. Without it nodes do not reach each other.",
        "EC2 user guide, Elastic Fabric Adapter, Prepare an EFA-enabled security group",
        "2026-11",
        "add an ingress and an egress rule with IpProtocol -1 and the group itself on the other side",
        "CloudFormation: launch templates with EFA, and security groups that an EC2NodeClass selects by tag where pods"
        " ask for EFA",
    ),
    Trap(
        "TR-14",
        "An UltraServer pool that Karpenter or EKS drains",
        "warning",
        "EC2 starts to terminate UltraServers 60 minutes before the end of their block. Karpenter drains every type,"
        " and EKS scales a managed node group down, 40 minutes before it: too late, the pods are killed.",
        f"{EC2_BLOCKS}, UltraServers; {KARPENTER}; EKS user guide",
        "2026-11",
        "use the provisioner native or asg, or drain by hand before T-60",
        "ComputePool, NodePool, managed node groups in CloudFormation",
    ),
    Trap(
        "TR-15",
        "Two blocks of one type and zone under one tag, on Karpenter before 1.8",
        "warning",
        "Before 1.8 Karpenter takes two blocks of one type and zone behind one selector for one. The second, which a"
        " hand-over needs, is paid for and stays empty.",
        f"{KARPENTER}, release 1.8",
        "2026-11",
        "upgrade Karpenter to 1.8 or later",
        "ComputePool; EC2NodeClass that selects blocks by tags, with Karpenter's version in Helm values, HelmRelease,"
        " Argo CD Application, Chart.yaml or a Deployment",
    ),
    Trap(
        "TR-16",
        "Multi-node work without EFA",
        "warning",
        "Without EFA, traffic between nodes goes over TCP through one interface: an all-reduce over p5 nodes is"
        " limited to a small part of 3200 Gbps, and the GPUs wait.",
        "EC2 user guide, EFA for accelerated instances; EKS user guide, training with EFA",
        "2026-11",
        "ask for vpc.amazonaws.com/efa (32 on p5.48xlarge), use an image with the EFA libraries, and set efa: true in"
        " the NodeClass",
        "Platform, Scenario; Job, JobSet, LeaderWorkerSet, PyTorchJob, MPIJob, gangs; values of engine charts",
    ),
    Trap(
        "TR-17",
        "Checkpoints on instance store",
        "warning",
        "Local disks, and emptyDir and hostPath on them, are lost with the node, and every block ends. A job that"
        " resumes from such a checkpoint starts over.",
        "EC2 user guide, Instance store; Kubernetes documentation, emptyDir",
        "2026-11",
        "write checkpoints to FSx for Lustre, S3 or EFS: a PersistentVolumeClaim",
        "Scenario; pods with accelerators",
    ),
    Trap(
        "TR-18",
        "limits.cpu that is no multiple of the type's vCPUs",
        "warning",
        "A limit of 400 CPU on p5.48xlarge (192 vCPUs) allows two nodes: the rest is no node. Who meant three waits for"
        " the third.",
        f"EC2 instance types; {KARPENTER}, limits",
        "2026-11",
        "write a multiple of the type's vCPUs",
        "ComputePool, NodePool",
        "the multiple below, which allows exactly the same nodes",
    ),
)
TRAPS = {trap.id: trap for trap in _ALL}
