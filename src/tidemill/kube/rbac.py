"""Every call the adapter makes of an API server, and the roles made of the table. Pure.

`tidemill rbac` prints them. A test on a real API server runs the engine's writes as a ServiceAccount with exactly these
rights and compares the calls that were made with the table: one too many or one too few fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # roles can be printed where the HTTP client is not installed
    from tidemill.kube.api import Call

NAMESPACE = "tidemill-system"
_API = "rbac.authorization.k8s.io/v1"


class Role(StrEnum):
    CONTROLLER = "controller"  # `tidemill run`
    OBSERVER = "observer"  # people and programs that look: `tidemill status --kube` and the like
    KARPENTER = "karpenter"  # what the controller needs besides, where a pool's provisioner is Karpenter
    DOCUMENTS = (
        "documents"  # what the controller needs besides, where the documents are objects of the cluster
    )
    NODE_AGENT = "node-agent"  # the deadline agent on every node
    PURCHASER = "purchaser"  # `tidemill purchaser`
    RELEASE = "release"  # `tidemill admission uninstall` and `release`: who removes Tidemill
    USERS = "users"  # everybody who has an account in the cluster and runs jobs: `tidemill job`


@dataclass(frozen=True, slots=True)
class Right:
    """One resource, and what is done with it. `own_namespace`: only where Tidemill itself runs."""

    group: str
    resource: str  # with its subresource, as in pods/eviction
    verbs: tuple[str, ...]
    why: str
    own_namespace: bool = False
    optional: bool = False  # of a CRD that may not be installed
    older: bool = False  # used only on API servers before 1.36

    def calls(self) -> frozenset[Call]:
        from tidemill.kube.api import Call

        plain, _, sub = self.resource.partition("/")
        return frozenset(Call(verb, self.group, plain, sub) for verb in self.verbs)


_LOOK = ("list", "watch")
_LOOK_AND_CHANGE = ("list", "watch", "get", "patch")

READS = (
    Right("", "pods", _LOOK, "what waits and what runs"),
    Right("", "nodes", _LOOK, "what there is"),
    Right("", "namespaces", _LOOK, "namespaces that a pod's affinity selects by label"),
    Right("", "persistentvolumeclaims", _LOOK, "zones that a pod's volumes can be reached from"),
    Right("", "persistentvolumes", _LOOK, "the same"),
    Right("apps", "deployments", _LOOK, "services, and other drainers"),
    Right("apps", "statefulsets", _LOOK, "services"),
    Right("apps", "daemonsets", _LOOK, "what daemon pods will take of a node that is not there yet"),
    Right("batch", "jobs", _LOOK, "held work"),
    Right("policy", "poddisruptionbudgets", _LOOK, "how many pods of a service may leave"),
    Right("scheduling.k8s.io", "priorityclasses", _LOOK, "the rank of a Job that has no pods yet"),
    Right("jobset.x-k8s.io", "jobsets", _LOOK, "held work", optional=True),
    Right("kubeflow.org", "pytorchjobs", _LOOK, "held work", optional=True),
    Right("kueue.x-k8s.io", "workloads", _LOOK, "work for which Kueue has reserved quota", optional=True),
    Right("kueue.x-k8s.io", "admissionchecks", _LOOK, "which checks are ours to answer", optional=True),
    Right("kueue.x-k8s.io", "resourceflavors", _LOOK, "node labels that Kueue chose", optional=True),
)
WRITES = (
    Right("", "pods", ("get", "patch", "delete"), "admission, announced ends, checkpoint requests, the last step"),
    Right("", "pods/eviction", ("create",), "drains"),
    Right("", "pods/status", ("patch",), "the condition DisruptionTarget before a forced deletion"),
    Right("", "nodes", ("get", "patch", "delete"), "taints and annotations; nodes whose instance is gone"),
    Right("", "nodes/status", ("patch",), "the phase as a condition"),
    Right("apps", "deployments", ("get", "patch"), "hand-overs: the template touched, replicas"),
    Right("apps", "statefulsets", ("get", "patch"), "the same"),
    Right("batch", "jobs", ("get", "patch"), "admission: suspend and the pin"),
    Right("batch", "jobs/status", ("patch",), "before Kubernetes 1.36: another pin for a Job that ran", older=True),
    Right("jobset.x-k8s.io", "jobsets", ("get", "patch"), "the same", optional=True),
    Right("kubeflow.org", "pytorchjobs", ("get", "patch"), "the same", optional=True),
    Right("kueue.x-k8s.io", "workloads", ("get",), "the answer to our check", optional=True),
    Right("kueue.x-k8s.io", "workloads/status", ("patch",), "the same", optional=True),
    Right("kueue.x-k8s.io", "admissionchecks", ("get",), "that somebody answers for it", optional=True),
    Right("kueue.x-k8s.io", "admissionchecks/status", ("patch",), "the same", optional=True),
    Right("apps", "daemonsets", ("list",), "other drainers"),
    Right("karpenter.sh", "nodepools", ("list",), "other drainers", optional=True),
    Right("events.k8s.io", "events", ("create", "patch"), "why, in one sentence"),
    Right("coordination.k8s.io", "leases", ("get", "create", "update"), "who leads", own_namespace=True),
)  # fmt: skip
# Server-side apply of a new object is a patch that needs the right to create.
_KEEP = ("list", "create", "patch", "delete")
KARPENTER = (
    Right("karpenter.sh", "nodepools", _KEEP, "pools that Karpenter launches for", optional=True),
    Right("karpenter.k8s.aws", "ec2nodeclasses", _KEEP, "what its nodes boot from", optional=True),
    Right("eks.amazonaws.com", "nodeclasses", _KEEP, "the same in EKS Auto Mode", optional=True),
)
_GROUP = "tidemill.dev"
_DOCUMENTS = ("platforms", "nodeclasses", "computepools", "capacityplans")
DOCUMENTS = (
    *(Right(_GROUP, plural, ("list",), "the documents", optional=True) for plural in _DOCUMENTS),
    *(
        Right(_GROUP, f"{plural}/status", ("patch",), "what became of them", optional=True)
        for plural in _DOCUMENTS
    ),
    Right(_GROUP, "capacityblocks", _KEEP, "every block of ours, for people to see", optional=True),
    Right(_GROUP, "capacityblocks/status", ("patch",), "the same", optional=True),
)
USERS = (
    Right(_GROUP, "computepools", ("get", "list"), "which pools there are, and how large their nodes", optional=True),
    Right("scheduling.k8s.io", "priorityclasses", ("list",), "whether a priority that a job names is there"),
)  # fmt: skip
EVERYBODY = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}
PURCHASER = (
    *(Right(_GROUP, plural, ("list",), "the documents", optional=True) for plural in _DOCUMENTS),
    Right("coordination.k8s.io", "leases", ("get", "create", "update"), "which one buys", own_namespace=True),
)
_AGENT_WHY = {
    "nodes": "the end of its own node; the taint and the notes it writes there",
    "pods": "the pods of its own node, which it ends in time",
    "pods/status": "the condition DisruptionTarget before that",
}
_ADMISSION = "admissionregistration.k8s.io"
_LIFT = ("list", "get", "patch")
RELEASE = (
    Right(_ADMISSION, "mutatingadmissionpolicies", ("list", "delete"), "new workloads are held no more", optional=True),
    Right(_ADMISSION, "mutatingadmissionpolicybindings", ("list", "delete"), "the same", optional=True),
    Right(_ADMISSION, "mutatingwebhookconfigurations", ("list", "delete"), "the same"),
    Right("", "nodes", _LIFT, "the taint of held nodes"),
    Right("", "pods", _LIFT, "gates of ours"),
    Right("batch", "jobs", _LIFT, "suspensions of ours"),
    Right("jobset.x-k8s.io", "jobsets", _LIFT, "the same", optional=True),
    Right("kubeflow.org", "pytorchjobs", _LIFT, "the same", optional=True),
)  # fmt: skip
LEASE_READ = Right("coordination.k8s.io", "leases", ("get",), "who leads", own_namespace=True)


def rights(role: Role) -> tuple[Right, ...]:
    match role:
        case Role.CONTROLLER:
            return (*READS, *WRITES)
        case Role.OBSERVER:
            return (*READS, LEASE_READ)
        case Role.KARPENTER:
            return KARPENTER
        case Role.DOCUMENTS:
            return DOCUMENTS
        case Role.PURCHASER:
            return PURCHASER
        case Role.RELEASE:
            return RELEASE
        case Role.USERS:
            return USERS
        case Role.NODE_AGENT:
            from tidemill.node.agent import CALLS

            verbs: dict[tuple[str, str], list[str]] = {}
            for verb, group, resource in CALLS:
                verbs.setdefault((group, resource), []).append(verb)
            return tuple(
                Right(group, resource, tuple(used), _AGENT_WHY[resource])
                for (group, resource), used in verbs.items()
            )


def calls(role: Role) -> frozenset[Call]:
    return frozenset(call for right in rights(role) for call in right.calls())


def manifests(role: Role, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The ServiceAccount, its roles and what binds them together; the controller has those for Karpenter and documents
    as well, and users bring accounts of their own."""
    name = f"tidemill-{role.value}"
    everywhere = [right for right in rights(role) if not right.own_namespace]
    inside = [right for right in rights(role) if right.own_namespace]
    besides = role in (Role.KARPENTER, Role.DOCUMENTS)
    holder = f"tidemill-{Role.CONTROLLER.value}" if besides else name
    account = {"kind": "ServiceAccount", "name": holder, "namespace": namespace}
    if role is Role.USERS:
        holder, account = "", EVERYBODY
    own = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(name, namespace)}
    made: list[dict[str, Any]] = [
        *([own] if holder == name else []),
        {"apiVersion": _API, "kind": "ClusterRole", "metadata": _meta(name), "rules": _rules(everywhere)},
        _binding("ClusterRole", name, "", account),
    ]
    if inside:
        made.append(
            {"apiVersion": _API, "kind": "Role", "metadata": _meta(name, namespace), "rules": _rules(inside)}
        )
        made.append(_binding("Role", name, namespace, account))
    return made


def _meta(name: str, namespace: str = "") -> dict[str, Any]:
    labels = {"app.kubernetes.io/part-of": "tidemill"}
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels}


def _binding(kind: str, name: str, namespace: str, account: dict[str, str]) -> dict[str, Any]:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    meta = _meta(name, namespace)
    return {
        "apiVersion": _API,
        "kind": f"{kind}Binding",
        "metadata": meta,
        "roleRef": role,
        "subjects": [account],
    }


def _rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """One rule for each resource."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        known = verbs.setdefault((right.group, right.resource), [])
        known += [verb for verb in right.verbs if verb not in known]
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": sorted(used)}
        for (group, resource), used in sorted(verbs.items())
    ]
