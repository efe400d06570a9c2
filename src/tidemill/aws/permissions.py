"""Every AWS action the adapter calls, which of the three policies allows it, and on what condition.

`tidemill iam` prints from this table. A test reads the adapter's source, and every test on the wire what it really
calls: an action that is missing here, or that nothing calls, fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    OBSERVER = "observer"  # reads; everybody needs it
    PROVISIONER = "provisioner"  # launches and ends nodes: the engine
    PURCHASER = "purchaser"  # spends: a process and a service account of its own


class Guard(StrEnum):
    """On what condition, in the words that `tidemill iam` shows."""

    READS = "in the platform's region"
    READS_PRICES = "the public price list, where AWS serves it"
    USES = "in the platform's region and account"
    MAKES = "what is made carries our owner tag"
    OURS = "only what carries our owner tag"
    OUR_NODES = "only what carries our owner tag and a pool's"
    TAGS_WHAT_IT_MAKES = "only while it makes it, and with our owner tag"
    ADOPTS = "only our own tags, and never on what carries another's owner tag"
    OUR_NODE_GROUPS = "only groups that EKS made for a node group of this cluster"
    PASSES = "only the nodes' role, and only to EC2 and EKS"
    LETS_JOIN = "only the nodes' role, and only as a node"


@dataclass(frozen=True, slots=True)
class Permission:
    action: str
    role: Role
    guard: Guard = Guard.READS
    # Ends of ARNs: of this account, of any (`*:`, what may be shared), of none (`:`, what is public). Empty: all.
    resources: tuple[str, ...] = ()
    called: bool = True  # False: AWS asks for it along with another call
    operation: str = ""  # of the API, where IAM has another name for it

    @property
    def call(self) -> str:
        service, _, name = self.action.partition(":")
        return f"{service}:{self.operation or name}"


_MADE_BY_A_LAUNCH = ("instance/*", "volume/*", "network-interface/*")
_USED_BY_A_LAUNCH = (
    ":image/*",
    ":snapshot/*",
    "*:subnet/*",
    "*:security-group/*",
    "*:capacity-reservation/*",
    "spot-instances-request/*",
    "placement-group/*",  # these two only with an existing launch template that names one
    "key-pair/*",
)
_GROUP = "autoScalingGroup:*:autoScalingGroupName/*"
_NODE_GROUP = "nodegroup/CLUSTER/*/*"
_O, _P, _B = Role.OBSERVER, Role.PROVISIONER, Role.PURCHASER

PERMISSIONS: tuple[Permission, ...] = (
    Permission("sts:GetCallerIdentity", _O),  # needs no permission; listed so that the table is whole
    Permission("ec2:DescribeCapacityReservations", _O),
    Permission("ec2:DescribeCapacityBlockExtensionHistory", _O),
    Permission("ec2:DescribeCapacityBlockOfferings", _O),
    Permission("ec2:DescribeCapacityBlockExtensionOfferings", _O),
    Permission("ec2:DescribeInstances", _O),
    Permission("ec2:DescribeInstanceStatus", _O),
    Permission("ec2:DescribeSpotInstanceRequests", _O),
    Permission("ec2:DescribeLaunchTemplates", _O),
    Permission("ec2:DescribeLaunchTemplateVersions", _O),
    Permission("ec2:DescribeSubnets", _O),
    Permission("ec2:DescribeInstanceTypes", _O),
    Permission("pricing:GetProducts", _O, Guard.READS_PRICES),
    Permission("ssm:GetParameter", _O, Guard.USES, (":parameter/aws/service/*",)),
    # --- launches ---
    Permission("ec2:RunInstances", _P, Guard.MAKES, _MADE_BY_A_LAUNCH),
    Permission("ec2:RunInstances", _P, Guard.USES, _USED_BY_A_LAUNCH),
    Permission("ec2:RunInstances", _P, Guard.OURS, ("launch-template/*",)),
    Permission("ec2:TerminateInstances", _P, Guard.OUR_NODES, ("instance/*",)),
    Permission("ec2:CreateLaunchTemplate", _P, Guard.MAKES, ("launch-template/*",)),
    Permission("ec2:CreateLaunchTemplateVersion", _P, Guard.OURS, ("launch-template/*",)),
    Permission("ec2:DeleteLaunchTemplate", _P, Guard.OURS, ("launch-template/*",)),
    Permission(
        "ec2:CreateTags",
        _P,
        Guard.TAGS_WHAT_IT_MAKES,
        (*_MADE_BY_A_LAUNCH, "launch-template/*"),
        called=False,
    ),
    Permission("iam:PassRole", _P, Guard.PASSES, called=False),
    # --- groups; EKS's own carry no tag of ours, and are known by the cluster they belong to ---
    Permission("autoscaling:DescribeAutoScalingGroups", _O),
    Permission("autoscaling:DescribeAutoScalingInstances", _O),
    Permission("autoscaling:DescribeScheduledActions", _O),
    Permission("autoscaling:DescribeLifecycleHooks", _O),
    Permission("autoscaling:DescribeScalingActivities", _O),
    Permission("autoscaling:CreateAutoScalingGroup", _P, Guard.MAKES, (_GROUP,)),
    Permission("autoscaling:UpdateAutoScalingGroup", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:DeleteAutoScalingGroup", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:SuspendProcesses", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:CreateOrUpdateTags", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:SetDesiredCapacity", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:PutScheduledUpdateGroupAction", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:DeleteScheduledAction", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:PutLifecycleHook", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:CompleteLifecycleAction", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:TerminateInstanceInAutoScalingGroup", _P, Guard.OURS, (_GROUP,)),
    Permission("autoscaling:TerminateInstanceInAutoScalingGroup", _P, Guard.OUR_NODE_GROUPS, (_GROUP,)),
    Permission("eks:ListNodegroups", _O, Guard.USES, ("cluster/CLUSTER",)),
    Permission("eks:DescribeNodegroup", _O, Guard.USES, (_NODE_GROUP,)),
    Permission("eks:DescribeAccessEntry", _O, Guard.USES, ("access-entry/CLUSTER/*",)),
    Permission("eks:CreateNodegroup", _P, Guard.MAKES, ("cluster/CLUSTER",)),
    Permission("eks:UpdateNodegroupConfig", _P, Guard.OURS, (_NODE_GROUP,)),
    Permission("eks:UpdateNodegroupVersion", _P, Guard.OURS, (_NODE_GROUP,)),
    Permission("eks:DeleteNodegroup", _P, Guard.OURS, (_NODE_GROUP,)),
    Permission("eks:TagResource", _P, Guard.OURS, (_NODE_GROUP,)),
    # AWS asks for it when a node group is made with tags, which it does not carry yet.
    Permission("eks:TagResource", _P, Guard.MAKES, (_NODE_GROUP,), called=False),
    Permission("eks:CreateAccessEntry", _P, Guard.LETS_JOIN, ("cluster/CLUSTER",)),
    # --- the queue that wakes the engine ---
    Permission("sqs:ReceiveMessage", _P, Guard.USES, ("QUEUE",)),
    Permission("sqs:DeleteMessage", _P, Guard.USES, ("QUEUE",), operation="DeleteMessageBatch"),
    # --- money ---
    Permission("ec2:PurchaseCapacityBlock", _B, Guard.MAKES),
    Permission("ec2:PurchaseCapacityBlockExtension", _B, Guard.OURS),
    Permission("ec2:CreateTags", _B, Guard.TAGS_WHAT_IT_MAKES, ("capacity-reservation/*",), called=False),
    Permission("ec2:CreateTags", _B, Guard.ADOPTS, ("capacity-reservation/*",)),
)


def calls() -> frozenset[str]:
    """The operations the adapter may call."""
    return frozenset(one.call for one in PERMISSIONS if one.called)


def policy_with(action: str, *, called: bool = True) -> str:
    """The name of the policy that allows an action, when it is called or along with another; empty: none of ours."""
    found = [one for one in PERMISSIONS if one.action == action]
    return next((one.role.value for one in sorted(found, key=lambda one: one.called is not called)), "")
