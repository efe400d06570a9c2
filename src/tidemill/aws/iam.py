"""Every AWS action the adapter calls, and the IAM policies made of the table. Pure.

`tidemill iam` prints them, with a policy for the External Secrets Operator and a service control policy. Everything
that changes something is bound to the owner tag: what is created must carry it, what is changed or terminated must
carry it already. So the policy of one deployment cannot touch another's, nor what people made by hand. Tests compare
the table with the adapter's source and with the calls of every test on the wire.
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
    OBSERVER = "observer"  # reads; every process needs it
    PROVISIONER = "provisioner"  # launches and terminates nodes: the engine
    PURCHASER = "purchaser"  # buys: its own process and service account
    PLATFORM = "platform"  # sets up what is around the pools: a person or a pipeline, never the engine


class Guard(StrEnum):
    """The condition of a permission, as `tidemill iam` shows it."""

    READS = "in the platform's region"
    READS_PRICES = "the public price list, where AWS serves it"
    USES = "in the platform's region and account"
    MAKES = "what is made carries our owner tag"
    OURS = "only what carries our owner tag"
    OUR_NODES = "only what carries our owner tag and a pool's"
    TAGS_WHAT_IT_MAKES = "only while it makes it, and with our owner tag"
    ADOPTS = "only our own tags, and never on what carries another's owner tag"
    GIVES_UP = "only the tags of an adoption, and only on what carries our owner tag"
    CLAIMS = "with our owner tag, only names of ours, and never what carries another's owner tag"
    OUR_NODE_GROUPS = "only groups that EKS made for a node group of this cluster with a name of ours"
    SERVICE_ROLES = "only the roles that Auto Scaling, EKS and spot make for themselves"
    TELLS = "only the topics of the documents"
    PASSES = "only the nodes' role, and only to EC2 and EKS"
    LETS_JOIN = "only the nodes' role, and only as a node"
    OUR_SECRETS = "only secrets whose names begin with the deployment"


@dataclass(frozen=True, slots=True)
class Permission:
    action: str
    role: Role
    guard: Guard = Guard.READS
    # Ends of ARNs: of this account, of any (`*:`, what may be shared), of none (`:`, what is public). Empty: all.
    resources: tuple[str, ...] = ()
    called: bool = True  # False: AWS requires it for another call
    operation: str = ""  # of the API, where IAM has another name

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
_NAMED_BY_US = "nodegroup/CLUSTER/NAMES/*"  # our names begin with the deployment
_SECRETS = ("secret:DEPLOYMENT/*",)
_O, _P, _B, _S = Role.OBSERVER, Role.PROVISIONER, Role.PURCHASER, Role.PLATFORM

PERMISSIONS: tuple[Permission, ...] = (
    Permission("sts:GetCallerIdentity", _O),  # needs no permission; listed so that the table is complete
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
    Permission("ec2:GetConsoleOutput", _P, Guard.OUR_NODES, ("instance/*",)),
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
    # The first group, node group or spot request of an account makes the role of its service.
    Permission("iam:CreateServiceLinkedRole", _P, Guard.SERVICE_ROLES, called=False),
    # --- groups; those that EKS makes do not carry our tag and are known by their cluster ---
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
    # AWS requires it when a node group is created with tags, which it does not carry yet. Its name is all that tells it
    # from anybody's: with the tag it could be deleted.
    Permission("eks:TagResource", _P, Guard.CLAIMS, (_NAMED_BY_US,), called=False),
    Permission("eks:CreateAccessEntry", _P, Guard.LETS_JOIN, ("cluster/CLUSTER",)),
    # --- the queue that wakes the engine ---
    Permission("sqs:ReceiveMessage", _P, Guard.USES, ("QUEUE",)),
    Permission("sqs:DeleteMessage", _P, Guard.USES, ("QUEUE",), operation="DeleteMessageBatch"),
    # --- alerts, which `notify` sends ---
    Permission("sns:Publish", _P, Guard.TELLS, called=False),
    # --- money ---
    Permission("ec2:PurchaseCapacityBlock", _B, Guard.MAKES),
    Permission("ec2:PurchaseCapacityBlockExtension", _B, Guard.OURS),
    Permission("ec2:CreateTags", _B, Guard.TAGS_WHAT_IT_MAKES, ("capacity-reservation/*",), called=False),
    Permission("ec2:CreateTags", _B, Guard.ADOPTS, ("capacity-reservation/*",)),
    Permission("ec2:DeleteTags", _B, Guard.GIVES_UP, ("capacity-reservation/*",)),
    # --- secrets: `tidemill secrets` ---
    Permission("secretsmanager:DescribeSecret", _S, Guard.USES, (*_SECRETS, "secret:rds!*")),
    Permission("secretsmanager:GetSecretValue", _S, Guard.USES, (*_SECRETS, "secret:rds!*")),
    Permission("secretsmanager:CreateSecret", _S, Guard.MAKES, _SECRETS),
    Permission("secretsmanager:TagResource", _S, Guard.MAKES, _SECRETS, called=False),
    Permission("secretsmanager:PutSecretValue", _S, Guard.OUR_SECRETS, _SECRETS),
    Permission("rds:DescribeDBInstances", _S),
    Permission("elasticache:DescribeReplicationGroups", _S),
    # --- the checklist: `tidemill doctor`, which needs the observer's policy too ---
    Permission("eks:DescribeCluster", _S, Guard.USES, ("cluster/CLUSTER",)),
    Permission("s3:GetBucketLocation", _S, Guard.READS),
)


def calls() -> frozenset[str]:
    """The operations the adapter may call."""
    return frozenset(permission.call for permission in PERMISSIONS if permission.called)


def policy_with(action: str, *, called: bool = True) -> str:
    """The policy that allows an action, called itself or required by another call; empty: none of ours."""
    found = [permission for permission in PERMISSIONS if permission.action == action]
    found.sort(key=lambda permission: permission.called is not called)
    return found[0].role.value if found else ""


# --- policies -----------------------------------------------------------------------------------------


_VERSION = "2012-10-17"
_MAKERS = {
    Role.PROVISIONER: ["CreateLaunchTemplate", "RunInstances"],
    Role.PURCHASER: ["PurchaseCapacityBlock"],
}
_SERVICES_WITH_ROLES = ["autoscaling.amazonaws.com", "eks-nodegroup.amazonaws.com", "spot.amazonaws.com"]
_PURCHASES = ["ec2:PurchaseCapacityBlock", "ec2:PurchaseCapacityBlockExtension"]


@dataclass(frozen=True, slots=True)
class PolicyScope:
    """What the policies are for. Without documents, the words in capitals are left for a person to replace."""

    deployment: str = "DEPLOYMENT"
    region: str = "REGION"
    account: str = "ACCOUNT"
    node_roles: tuple[str, ...] = ("NODE-ROLE",)
    cluster: str = "CLUSTER"
    topics: tuple[str, ...] = ()  # ARNs of SNS topics for alerts; empty: the documents name none
    login_secret: str = "rds!db-*"  # what RDS keeps the login of the database in, as a pattern

    @property
    def names(self) -> str:
        """What the names of our groups begin with, as a pattern."""
        return f"{self.deployment.replace('.', '-')}-*"

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
        tail = tail.replace("NAMES", self.names).replace("QUEUE", f"{self.deployment}-*")
        tail = tail.replace("CLUSTER", self.cluster).replace("DEPLOYMENT", self.deployment)
        return f"arn:{self.partition}:{service}:{self.region}:{account}:{tail}"


def policy(role: Role, scope: PolicyScope) -> dict[str, Any]:
    """One policy document. Actions with the same guard and resources share a statement."""
    together: dict[tuple[Guard, tuple[str, ...], str], list[Permission]] = {}
    for permission in PERMISSIONS:
        if permission.role is role and (scope.topics or permission.guard is not Guard.TELLS):
            service = permission.action.partition(":")[0] if permission.resources else ""
            together.setdefault((permission.guard, permission.resources, service), []).append(permission)
    statements = [_statement(guard, group, scope) for (guard, _, _), group in together.items()]
    return {"Version": _VERSION, "Statement": _named(statements)}


def scp(scope: PolicyScope, purchaser_arn: str = "") -> dict[str, Any]:
    """For the organization: only the purchaser may buy, and only in this region."""
    buyer = purchaser_arn or f"arn:{scope.partition}:iam::{scope.account}:role/tidemill-purchaser"
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
                "Condition": {"StringNotEquals": {"aws:RequestedRegion": scope.region}},
            },
        ],
    }


def external_secrets(scope: PolicyScope) -> dict[str, Any]:
    """For the role of the External Secrets Operator: it reads the secrets of this deployment, and no others."""
    return {
        "Version": _VERSION,
        "Statement": [
            {
                "Sid": "ReadTheSecretsOfThisDeployment",
                "Effect": "Allow",
                "Action": [
                    "secretsmanager:DescribeSecret",
                    "secretsmanager:GetSecretValue",
                    "secretsmanager:ListSecretVersionIds",
                ],
                "Resource": [
                    scope.arn("secretsmanager", "secret:DEPLOYMENT/*"),
                    scope.arn("secretsmanager", f"secret:{scope.login_secret}"),
                ],
            }
        ],
    }


def _statement(guard: Guard, group: list[Permission], scope: PolicyScope) -> dict[str, Any]:
    first = group[0]
    service = first.action.partition(":")[0]
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Action": sorted(permission.action for permission in group),
        "Resource": [scope.arn(service, resource) for resource in first.resources] or "*",
    }
    match guard:
        case Guard.PASSES:
            statement["Resource"] = _node_roles(scope)
        case Guard.SERVICE_ROLES:
            statement["Resource"] = f"arn:{scope.partition}:iam::{scope.account}:role/aws-service-role/*"
        case Guard.TELLS:
            statement["Resource"] = list(scope.topics)
    condition = _condition(guard, first.role, scope)
    return {**statement, "Condition": condition} if condition else statement


def _node_roles(scope: PolicyScope) -> list[str]:
    return [
        role if role.startswith("arn:") else f"arn:{scope.partition}:iam::{scope.account}:role/{role}"
        for role in scope.node_roles
    ]


def _condition(guard: Guard, role: Role, scope: PolicyScope) -> dict[str, Any]:
    asked, carried = f"aws:RequestTag/{names.TAG_OWNER}", f"aws:ResourceTag/{names.TAG_OWNER}"
    match guard:
        case Guard.READS:
            return {"StringEquals": {"aws:RequestedRegion": scope.region}}
        case Guard.READS_PRICES:
            return {"StringEquals": {"aws:RequestedRegion": PRICE_LIST_REGION}}
        case Guard.USES | Guard.TELLS | Guard.OUR_SECRETS:
            return {}  # its resources say where
        case Guard.MAKES:
            return {"StringEquals": {asked: scope.deployment, "aws:RequestedRegion": scope.region}}
        case Guard.OURS:
            return {"StringEquals": {carried: scope.deployment, "aws:RequestedRegion": scope.region}}
        case Guard.OUR_NODES:
            # Companies tag other things with a deployment too, but not with a pool of ours.
            here = {carried: scope.deployment, "aws:RequestedRegion": scope.region}
            return {"StringEquals": here, "Null": {f"aws:ResourceTag/{names.TAG_POOL}": "false"}}
        case Guard.LETS_JOIN:
            return {
                "StringEquals": {"eks:accessEntryType": "EC2_LINUX"},
                "ArnEquals": {"eks:principalArn": _node_roles(scope)},
            }
        case Guard.TAGS_WHAT_IT_MAKES:
            return {"StringEquals": {"ec2:CreateAction": _MAKERS[role], asked: scope.deployment}}
        case Guard.ADOPTS:
            return {
                "StringEquals": {asked: scope.deployment},
                "StringEqualsIfExists": {carried: scope.deployment},
                "ForAllValues:StringLike": {"aws:TagKeys": [names.TAG_OWNER, f"{names.GROUP}/*"]},
            }
        case Guard.GIVES_UP:
            return {
                "StringEquals": {carried: scope.deployment, "aws:RequestedRegion": scope.region},
                "ForAllValues:StringEquals": {"aws:TagKeys": [names.TAG_OWNER, names.TAG_POOL]},
                # A request that names no tag removes all of them, and ForAllValues holds for none.
                "Null": {"aws:TagKeys": "false"},
            }
        case Guard.CLAIMS:
            return {
                "StringEquals": {asked: scope.deployment, "aws:RequestedRegion": scope.region},
                "StringEqualsIfExists": {carried: scope.deployment},
            }
        case Guard.OUR_NODE_GROUPS:
            return {
                "StringEquals": {"aws:ResourceTag/eks:cluster-name": scope.cluster},
                "StringLike": {"aws:ResourceTag/eks:nodegroup-name": scope.names},
            }
        case Guard.SERVICE_ROLES:
            return {"StringEquals": {"iam:AWSServiceName": _SERVICES_WITH_ROLES}}
        case Guard.PASSES:
            return {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "eks.amazonaws.com"]}}


def _named(statements: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each with a Sid, named after its first action."""
    named: dict[str, dict[str, Any]] = {}
    for statement in statements:
        stem = statement["Action"][0].partition(":")[2]
        candidates = (stem, *(f"{stem}{number}" for number in range(2, 99)))
        sid = next(candidate for candidate in candidates if candidate not in named)
        named[sid] = {"Sid": sid, **statement}
    return list(named.values())
