"""The three IAM policies and the service control policy beside them, written from the table of permissions. Pure.

Everything that changes something is bound to the owner tag: what is made must carry it, what is changed or ended must
carry it already. So a policy of one deployment cannot touch another's, nor what people made by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidemill.aws.permissions import PERMISSIONS, Guard, Permission, Role
from tidemill.aws.prices import SERVED_FROM
from tidemill.spec import names

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
        "Resource": [place.arn(service, one) for one in first.resources] or "*",
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
            return {"StringEquals": {"aws:RequestedRegion": SERVED_FROM}}
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
    for one in statements:
        stem = one["Action"][0].partition(":")[2]
        sid = next(
            each for each in (stem, *(f"{stem}{number}" for number in range(2, 99))) if each not in named
        )
        named[sid] = {"Sid": sid, **one}
    return list(named.values())
