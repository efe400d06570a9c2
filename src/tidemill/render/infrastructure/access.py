"""The stack of roles: who may do what in AWS, and which ServiceAccount that is.

The policies of Tidemill's own processes are those of `tidemill iam`. The engine's pods get the bucket with exactly the
calls that multipart uploads need. Roles are bound by EKS Pod Identity, or by the cluster's OIDC issuer (IRSA).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from tidemill.aws.iam import PolicyScope, Role, external_secrets, policy
from tidemill.model.errors import SpecError
from tidemill.render.external_secrets import OPERATOR_ACCOUNT, OPERATOR_NAMESPACE
from tidemill.spec import Spec

# Where the charts put them.
OUR_NAMESPACE = "tidemill-system"
LOGS = ("amazon-cloudwatch", "cloudwatch-agent")
LOAD_BALANCER = ("kube-system", "aws-load-balancer-controller")
_VERSION = "2012-10-17"
_CLUSTER_ARN = "arn:${AWS::Partition}:eks:${AWS::Region}:${AWS::AccountId}:cluster/${ClusterName}"
# Of objects and of the bucket. Uploads of large models are multipart uploads, and one that failed is taken up again.
BUCKET_ACTIONS = ("s3:ListBucket", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads")
OBJECT_ACTIONS = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)


def access_template(spec: Spec, issuer: str = "") -> dict[str, Any]:
    platform = spec.platform.spec
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Who may do what in AWS for the platform {platform.deployment}. Made by tidemill render infra.",
        "Parameters": {
            "Deployment": {"Type": "String", "Description": "Name of the deployment"},
            **(
                {}
                if issuer
                else {"ClusterName": {"Type": "String", "Description": "Name of the EKS cluster"}}
            ),
            "LoadBalancerPolicyArn": {
                "Type": "String",
                "Default": "",
                "Description": "The policy that the AWS Load Balancer Controller publishes; empty makes no role for it",
            },
        },
        "Conditions": {
            "HasLoadBalancer": {"Fn::Not": [{"Fn::Equals": [{"Ref": "LoadBalancerPolicyArn"}, ""]}]}
        },
        "Resources": {
            **{
                f"{role.title()}Policy": _managed(spec, role)
                for role in (Role.OBSERVER, Role.PROVISIONER, Role.PURCHASER)
            },
            **_roles(spec, _Binding(issuer)),
        },
        "Outputs": {
            f"{name}RoleArn": {"Value": {"Fn::GetAtt": [f"{name}Role", "Arn"]}}
            for name in ("Controller", "Purchaser", "ExternalSecrets", "Engine", "Logs")
        },
    }


def _roles(spec: Spec, binding: _Binding) -> dict[str, Any]:
    chart = spec.platform.spec.engine_chart
    accounts = (chart.service_accounts.control_plane, chart.service_accounts.workers)
    ours, theirs = ["ObserverPolicy", "ProvisionerPolicy"], ["ObserverPolicy", "PurchaserPolicy"]
    read = {"read-secrets": external_secrets(_scope(spec)), "decrypt": _decrypt("kms:Decrypt")}
    store = {"bucket": _bucket(), "encrypt": _decrypt("kms:Decrypt", "kms:GenerateDataKey")}
    logs = {"Fn::Sub": "arn:${AWS::Partition}:iam::aws:policy/CloudWatchAgentServerPolicy"}
    balancer = {"Ref": "LoadBalancerPolicyArn"}
    return {
        **binding.provider(),
        **binding.role("Controller", [(OUR_NAMESPACE, "tidemill-controller")], ours),
        **binding.role("Purchaser", [(OUR_NAMESPACE, "tidemill-purchaser")], theirs),
        **binding.role("ExternalSecrets", [(OPERATOR_NAMESPACE, OPERATOR_ACCOUNT)], inline=read),
        **binding.role("Engine", [(chart.namespace, name) for name in accounts], inline=store),
        **binding.role("Logs", [LOGS], arns=[logs]),
        **binding.role("LoadBalancer", [LOAD_BALANCER], arns=[balancer], condition="HasLoadBalancer"),
    }


class _Binding:
    """How a ServiceAccount gets its role."""

    def __init__(self, issuer: str) -> None:
        parts = urlsplit(issuer)
        if issuer and (parts.scheme != "https" or not parts.netloc):
            raise SpecError(
                f"'{issuer}' is not the address of an OIDC issuer; `aws eks describe-cluster --name NAME --query"
                " cluster.identity.oidc.issuer` prints it"
            )
        self._issuer = issuer.removeprefix("https://").rstrip("/")

    def provider(self) -> dict[str, Any]:
        if not self._issuer:
            return {}
        properties = {"Url": f"https://{self._issuer}", "ClientIdList": ["sts.amazonaws.com"]}
        return {"Issuer": {"Type": "AWS::IAM::OIDCProvider", "Properties": properties}}

    def role(
        self, name: str, accounts: Sequence[tuple[str, str]], policies: Sequence[str] = (), *,
        arns: Sequence[Any] = (), inline: dict[str, Any] | None = None, condition: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        only = {"Condition": condition} if condition else {}
        properties: dict[str, Any] = {
            "AssumeRolePolicyDocument": {"Version": _VERSION, "Statement": [self._trust(accounts)]},
            "Tags": [{"Key": "deployment", "Value": {"Ref": "Deployment"}}],
        }
        if policies or arns:
            properties["ManagedPolicyArns"] = [*({"Ref": each} for each in policies), *arns]
        if inline:
            properties["Policies"] = [
                {"PolicyName": key, "PolicyDocument": _substituted(document)}
                for key, document in inline.items()
            ]
        made = {f"{name}Role": {"Type": "AWS::IAM::Role", **only, "Properties": properties}}
        if self._issuer:
            return made
        for number, (namespace, account) in enumerate(accounts):
            made[f"{name}Identity{number or ''}"] = {
                "Type": "AWS::EKS::PodIdentityAssociation",
                **only,
                "Properties": {
                    "ClusterName": {"Ref": "ClusterName"},
                    "Namespace": namespace,
                    "ServiceAccount": account,
                    "RoleArn": {"Fn::GetAtt": [f"{name}Role", "Arn"]},
                },
            }
        return made

    def _trust(self, accounts: Sequence[tuple[str, str]]) -> dict[str, Any]:
        if not self._issuer:
            return {
                "Effect": "Allow",
                "Principal": {"Service": "pods.eks.amazonaws.com"},
                "Action": ["sts:AssumeRole", "sts:TagSession"],
                # Else pods of every cluster of the account could be given the role.
                "Condition": {
                    "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
                    "ArnLike": {"aws:SourceArn": {"Fn::Sub": _CLUSTER_ARN}},
                },
            }
        return {
            "Effect": "Allow",
            "Principal": {"Federated": {"Ref": "Issuer"}},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {
                "StringEquals": {
                    f"{self._issuer}:aud": "sts.amazonaws.com",
                    f"{self._issuer}:sub": [
                        f"system:serviceaccount:{space}:{name}" for space, name in accounts
                    ],
                }
            },
        }


def _scope(spec: Spec) -> PolicyScope:
    platform = spec.platform.spec
    login = platform.database.login_secret
    return PolicyScope(
        deployment=platform.deployment,
        region=platform.region,
        account="${AWS::AccountId}",
        node_roles=(platform.node_role,) if platform.node_role else ("${Deployment}-node",),
        cluster=platform.cluster.name,
        topics=tuple(sorted({target.topic_arn for target in platform.notifications if target.topic_arn})),
        login_secret=f"{login}-*" if login else "rds!db-*",
    )


def _managed(spec: Spec, role: Role) -> dict[str, Any]:
    return {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {
            "Description": f"What the {role} of the platform may do",
            "PolicyDocument": _substituted(policy(role, _scope(spec))),
        },
    }


def _bucket() -> dict[str, Any]:
    bucket = {"Fn::ImportValue": {"Fn::Sub": "${Deployment}-BucketArn"}}
    return {
        "Version": _VERSION,
        "Statement": [
            {"Effect": "Allow", "Action": list(BUCKET_ACTIONS), "Resource": bucket},
            {
                "Effect": "Allow",
                "Action": list(OBJECT_ACTIONS),
                "Resource": {"Fn::Join": ["/", [bucket, "*"]]},
            },
        ],
    }


def _decrypt(*actions: str) -> dict[str, Any]:
    """What is encrypted with the platform's key is of no use without it."""
    key = {"Fn::ImportValue": {"Fn::Sub": "${Deployment}-KeyArn"}}
    return {
        "Version": _VERSION,
        "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": key}],
    }


def _substituted(value: Any) -> Any:
    """Texts with ${…} become Fn::Sub."""
    match value:
        case str() if "${" in value:
            return {"Fn::Sub": value}
        case dict() if not any(key.startswith("Fn::") for key in value):
            return {key: _substituted(each) for key, each in value.items()}
        case list() | tuple():
            return [_substituted(each) for each in value]
    return value
