"""Every AWS action the adapter calls, which of the three policies allows it, and on what condition.

`tidemill iam` prints from this table. A test reads the adapter's source, and every test on the wire what it really
calls: an action that is missing here, or that nothing calls, fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidemill.spec import names

# Where AWS serves its price list; also eu-central-1 and ap-south-1. Each has the prices of every region.
PRICE_LIST_REGION = "us-east-1"


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


_VERSION = "2012-10-17"
_MAKERS = {
    Role.PROVISIONER: ["CreateLaunchTemplate", "RunInstances"],
    Role.PURCHASER: ["PurchaseCapacityBlock"],
}
_PURCHASES = ["ec2:PurchaseCapacityBlock", "ec2:PurchaseCapacityBlockExtension"]


@dataclass(frozen=True, slots=True)
class PolicyScope:
    """What the policies are for. The words in capitals are for whoever has no documents yet to replace."""

    deployment: str = "DEPLOYMENT"
    region: str = "REGION"
    account: str = "ACCOUNT"
    node_roles: tuple[str, ...] = ("NODE-ROLE",)
    cluster: str = "CLUSTER"

    @property
    def complete(self) -> bool:
        return not {"DEPLOYMENT", "REGION", "ACCOUNT", "NODE-ROLE"} & {
            self.deployment,
            self.region,
            self.account,
            *self.node_roles,
        }

    @property
    def partition(self) -> str:
        return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(self.region.rsplit("-", 2)[0], "aws")

    def arn(self, service: str, tail: str) -> str:
        account, _, tail = tail.rpartition(":") if tail.startswith((":", "*:")) else (self.account, "", tail)
        tail = tail.replace("CLUSTER", self.cluster).replace("QUEUE", f"{self.deployment}-*")
        return f"arn:{self.partition}:{service}:{self.region}:{account}:{tail}"


def policy(role: Role, place: PolicyScope) -> dict[str, Any]:
    """One policy document. Actions with the same guard on the same things share a statement."""
    together: dict[tuple[Guard, tuple[str, ...], str], list[Permission]] = {}
    for one in PERMISSIONS:
        if one.role is role:
            service = one.action.partition(":")[0] if one.resources else ""
            together.setdefault((one.guard, one.resources, service), []).append(one)
    statements = [_statement(guard, group, place) for (guard, _, _), group in together.items()]
    return {"Version": _VERSION, "Statement": _named(statements)}


def scp(place: PolicyScope, purchaser_arn: str = "") -> dict[str, Any]:
    """For the organization: nobody but the purchaser buys, and he only here."""
    buyer = purchaser_arn or f"arn:{place.partition}:iam::{place.account}:role/tidemill-purchaser"
    return {
        "Version": _VERSION,
        "Statement": [
            {
                "Sid": "OnlyThePurchaserBuys",
                "Effect": "Deny",
                "Action": _PURCHASES,
                "Resource": "*",
                "Condition": {"ArnNotLike": {"aws:PrincipalArn": buyer}},
            },
            {
                "Sid": "OnlyInThisRegion",
                "Effect": "Deny",
                "Action": _PURCHASES,
                "Resource": "*",
                "Condition": {"StringNotEquals": {"aws:RequestedRegion": place.region}},
            },
        ],
    }


def _statement(guard: Guard, group: list[Permission], place: PolicyScope) -> dict[str, Any]:
    first = group[0]
    service = first.action.partition(":")[0]
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Action": sorted(one.action for one in group),
        "Resource": [place.arn(service, resource) for resource in first.resources] or "*",
    }
    if guard is Guard.PASSES:
        statement["Resource"] = _node_roles(place)
    condition = _condition(guard, first.role, place)
    return {**statement, "Condition": condition} if condition else statement


def _node_roles(place: PolicyScope) -> list[str]:
    return [
        role if role.startswith("arn:") else f"arn:{place.partition}:iam::{place.account}:role/{role}"
        for role in place.node_roles
    ]


def _condition(guard: Guard, role: Role, place: PolicyScope) -> dict[str, Any]:
    asked, carried = f"aws:RequestTag/{names.TAG_OWNER}", f"aws:ResourceTag/{names.TAG_OWNER}"
    match guard:
        case Guard.READS:
            return {"StringEquals": {"aws:RequestedRegion": place.region}}
        case Guard.READS_PRICES:
            return {"StringEquals": {"aws:RequestedRegion": PRICE_LIST_REGION}}
        case Guard.USES:
            return {}  # its resources say where
        case Guard.MAKES:
            return {"StringEquals": {asked: place.deployment, "aws:RequestedRegion": place.region}}
        case Guard.OURS:
            return {"StringEquals": {carried: place.deployment, "aws:RequestedRegion": place.region}}
        case Guard.OUR_NODES:
            # Companies tag all sorts of things with a deployment, but none with a pool of ours.
            here = {carried: place.deployment, "aws:RequestedRegion": place.region}
            return {"StringEquals": here, "Null": {f"aws:ResourceTag/{names.TAG_POOL}": "false"}}
        case Guard.LETS_JOIN:
            return {
                "StringEquals": {"eks:accessEntryType": "EC2_LINUX"},
                "ArnEquals": {"eks:principalArn": _node_roles(place)},
            }
        case Guard.TAGS_WHAT_IT_MAKES:
            return {"StringEquals": {"ec2:CreateAction": _MAKERS[role], asked: place.deployment}}
        case Guard.ADOPTS:
            return {
                "StringEquals": {asked: place.deployment},
                "StringEqualsIfExists": {carried: place.deployment},
                "ForAllValues:StringLike": {"aws:TagKeys": [names.TAG_OWNER, f"{names.GROUP}/*"]},
            }
        case Guard.OUR_NODE_GROUPS:
            return {"StringEquals": {"aws:ResourceTag/eks:cluster-name": place.cluster}}
        case Guard.PASSES:
            return {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "eks.amazonaws.com"]}}


def _named(statements: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """With a Sid each, after what it allows."""
    named: dict[str, dict[str, Any]] = {}
    for statement in statements:
        stem = statement["Action"][0].partition(":")[2]
        sid = next(
            each for each in (stem, *(f"{stem}{number}" for number in range(2, 99))) if each not in named
        )
        named[sid] = {"Sid": sid, **statement}
    return list(named.values())
