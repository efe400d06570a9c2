"""The checklist in words: what a step is, what a check found, and the command that does what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.platform.checklist import CheckKind, Finding, State, Step
from tidemill.platform.checklist.steps import NO_CLUSTER

MARKS = {State.DONE: "✓", State.MISSING: "✗", State.CANNOT_TELL: "?"}
STEPS = {
    Step.INFRASTRUCTURE: "Infrastructure: network, cluster, database, Redis, bucket",
    Step.DEPENDENCIES: "What the cluster needs: device plugins, load balancers, External Secrets",
    Step.SECRETS: "Secrets",
    Step.CONTROL_PLANE: "The control plane, without GPUs",
    Step.BLOCKS: "Capacity Blocks",
    Step.NODE_POOLS: "Nodes of the pools",
    Step.COMPUTE_POOLS: "The engine's workers",
    Step.GPUS: "GPUs in use",
}
# What each check is about; what was found where it is missing; how it is done. {files} are the documents.
_TEXTS: dict[CheckKind, tuple[str, str, str]] = {
    CheckKind.CLUSTER: (
        "EKS cluster {about}",
        "it does not exist, or is not active",
        "tidemill render infra cluster {files}",
    ),
    CheckKind.CLUSTER_VERSION: (
        "Kubernetes {found}",
        "older than {wanted}",
        "aws eks update-cluster-version --name {about} --kubernetes-version VERSION",
    ),
    CheckKind.SUBNETS: (
        "subnets in {about}",
        "not in that zone, or not in the account: {found}",
        "correct spec.subnets; tidemill render infra network {files}",
    ),
    CheckKind.DATABASE: (
        "database {about}",
        "it does not exist, is not available, or is older than PostgreSQL {wanted} ({found})",
        "tidemill render infra data {files}",
    ),
    CheckKind.DATABASE_SAFE: (
        "database {about} is private, encrypted, with a managed password",
        "{found}",
        "tidemill render infra data {files}",
    ),
    CheckKind.REDIS: (
        "Redis {about}",
        "it does not exist, is not available, or has no TLS ({found})",
        "tidemill render infra data {files}",
    ),
    CheckKind.BUCKET: (
        "bucket {about}",
        "it does not exist",
        "write spec.bucket; tidemill render infra data {files}",
    ),
    CheckKind.API_SERVER: ("API server {found}", "", ""),
    CheckKind.DEVICE_PLUGIN: (
        "device plugin {about}",
        "not installed, or not ready ({found})",
        "tidemill render device-plugins {files}",
    ),
    CheckKind.LOAD_BALANCER_CONTROLLER: (
        "AWS Load Balancer Controller",
        "not installed, or not ready ({found})",
        "helm install aws-load-balancer-controller eks/aws-load-balancer-controller -n kube-system",
    ),
    CheckKind.SECRETS_OPERATOR: (
        "External Secrets Operator",
        "not installed, or not ready ({found})",
        "helm install external-secrets external-secrets/external-secrets -n external-secrets --create-namespace",
    ),
    CheckKind.KARPENTER: (
        "Karpenter",
        "not installed, or not ready ({found})",
        "install Karpenter 1.6 or later",
    ),
    CheckKind.SECRET: (
        "secret {about}",
        "it is not there, or wrong ({found})",
        "tidemill secrets check {dash_files} --aws",
    ),
    CheckKind.SYNCED: (
        "{wanted} {about} in the cluster",
        "not there, or not synced ({found})",
        "tidemill render secrets {files} | kubectl apply -f -; tidemill secrets sync {dash_files} --aws",
    ),
    CheckKind.CONTROL_PLANE: (
        "control plane in namespace {about}",
        "not installed, or not ready ({found})",
        "tidemill render engine {files} --control-plane-only > values.yaml; helm install {wanted} CHART -f values.yaml",
    ),
    CheckKind.LOGIN_PAGE: (
        "https://{about}/ answers",
        "HTTP {found}",
        "look at the ingress and the DNS record of spec.hostname",
    ),
    CheckKind.BLOCK_OF_POOL: (
        "block for pool {about}: {found}",
        "none is paid for that it can use ({wanted})",
        "tidemill offers {dash_files} --pool {about} --aws; tidemill buy",
    ),
    CheckKind.ENGINE: (
        "tidemill run is alive",
        "its lease was last renewed at {found}",
        "helm install tidemill deploy/chart; kubectl -n tidemill-system logs deploy/tidemill-controller",
    ),
    CheckKind.POOL_NODES: (
        "nodes of pool {about}: {found} ready",
        "{found} ready",
        "they come with the block; tidemill status {files} --kube --aws says what is under way",
    ),
    CheckKind.ENGINE_PODS: (
        "workers of the engine: {found} of {wanted} ready",
        "{found} of {wanted} ready",
        "tidemill render engine {files} > values.yaml; helm upgrade RELEASE CHART -f values.yaml",
    ),
    CheckKind.NODE_GPUS: (
        "GPUs on the nodes of pool {about}: {found}",
        "{found} GPUs; too few on: {wanted}",
        "kubectl describe node; look at the device plugin on it",
    ),
    CheckKind.PODS_ON_GPUS: (
        "{found} GPUs of blocks are in use by {wanted} pods",
        "no pod of the engine runs on a block's node",
        "tidemill why POD says what a pod waits for",
    ),
}


def finding_text(finding: Finding) -> str:
    """What it is about, and what is the matter where it is not done."""
    about, wrong, _ = _TEXTS[finding.check]
    values = {"about": finding.about or "–", "found": finding.found or "–", "wanted": finding.wanted or "–"}
    text = about.format(**values)
    match finding.state:
        case State.DONE:
            return text
        case State.MISSING:
            return f"{text}: {wrong.format(**values)}"
        case State.CANNOT_TELL:
            why = "add --kube to look at the cluster" if finding.why == NO_CLUSTER else finding.why
            subject = text if finding.about else finding.check.value.replace("-", " ")
            return f"{subject}: cannot tell: {why}"


def fix_text(finding: Finding, files: Sequence[str]) -> str:
    """The command that does it. Empty: nothing is missing."""
    if finding.state is not State.MISSING:
        return ""
    return _TEXTS[finding.check][2].format(
        about=finding.about, wanted=finding.wanted, files=" ".join(files),
        dash_files=" ".join(f"-f {name}" for name in files),
    )  # fmt: skip
