"""The deadline agent's objects: a DaemonSet, and a ServiceAccount that may do on its own node what the agent does.

RBAC cannot say "its own node": a ValidatingAdmissionPolicy does. The token of a pod names the node the pod runs on
(Kubernetes 1.30 and later), so that the agent of one node can write nothing of another. Admission sees no reads: the
agent may read nodes and pods of the whole cluster, but no secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.kube.rbac import NAMESPACE, Role, manifests
from tidemill.node.agent import BOOT_FILE
from tidemill.spec import names

NAME = f"tidemill-{Role.NODE_AGENT.value}"
_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "tidemill"}
_NODE_NAME = "authentication.kubernetes.io/node-name"


def node_agent_objects(
    image: str, *, namespace: str = NAMESPACE, boot_file: bool = True
) -> list[dict[str, Any]]:
    """`boot_file`: the end that a node was launched with is read from the host. Without, only the engine tells it."""
    policies = _policies(namespace)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        *manifests(Role.NODE_AGENT, namespace),
        *policies,
        *(_binding(policy["metadata"]["name"]) for policy in policies),
        _daemon_set(image, namespace, boot_file),
    ]


def _metadata(namespace: str = "") -> dict[str, Any]:
    return {"name": NAME, **({"namespace": namespace} if namespace else {}), "labels": dict(_LABELS)}


# --- what its token may write -------------------------------------------------------------------------

_NODE = f"request.userInfo.extra['{_NODE_NAME}'][0]"
_OWN_ANNOTATIONS = (names.DEADLINE_AGENT, names.AGENT_ENDS_AT, names.DRAINING_SINCE)
_IS_OWN = f"key in {list(_OWN_ANNOTATIONS)} || key.startsWith('{names.DRAIN_REASON}')"
_ANNOTATIONS = "metadata.?annotations.orValue({})"
_LABELS_OF = "metadata.?labels.orValue({})"
_OTHER_TAINTS = f"spec.?taints.orValue([]).filter(taint, taint.key != '{names.TAINT_DRAINING}')"
_CORDON = "spec.?unschedulable.orValue(false)"
_OTHER_CONDITIONS = "status.?conditions.orValue([]).filter(one, one.type != 'DisruptionTarget')"

_BOUND_TOKEN = {
    "the token names no node; tokens of pods do, from Kubernetes 1.30 on": (
        f"has(request.userInfo.extra) && '{_NODE_NAME}' in request.userInfo.extra"
    )
}
_NODE_RULES = _BOUND_TOKEN | {
    "it is the node of another agent": f"oldObject.metadata.name == {_NODE}",
    "the agent deletes no node": "request.operation == 'UPDATE'",
    "a node's labels are not the agent's to change": f"object.{_LABELS_OF} == oldObject.{_LABELS_OF}",
    "of a node's taints the agent may change its own only": (
        f"object.{_OTHER_TAINTS} == oldObject.{_OTHER_TAINTS} && object.{_CORDON} == oldObject.{_CORDON}"
    ),
    "of a node's annotations the agent may change its own only": (
        f"variables.before.all(key, {_IS_OWN} || variables.after[?key] == variables.before[?key]) && "
        f"variables.after.all(key, {_IS_OWN} || variables.after[?key] == variables.before[?key])"
    ),
}
_POD_RULES = _BOUND_TOKEN | {
    "the pod is on another node": f"oldObject.spec.?nodeName.orValue('') == {_NODE}",
    "of a pod's status the agent may add the condition DisruptionTarget only": (
        "request.operation == 'DELETE' || (object.status.?phase == oldObject.status.?phase && "
        f"object.{_OTHER_CONDITIONS} == oldObject.{_OTHER_CONDITIONS})"
    ),
}


def _policies(namespace: str) -> list[dict[str, Any]]:
    """One for each kind, so that the API server can check the types of the expressions."""
    nodes = _policy("nodes", namespace, _NODE_RULES)
    nodes["spec"]["variables"] = [
        {"name": "before", "expression": f"oldObject.{_ANNOTATIONS}"},
        {"name": "after", "expression": f"object.{_ANNOTATIONS}"},
    ]
    return [nodes, _policy("pods", namespace, _POD_RULES)]


def _policy(resource: str, namespace: str, rules: Mapping[str, str]) -> dict[str, Any]:
    username = f"system:serviceaccount:{namespace}:{NAME}"
    watched = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE", "DELETE"],
        "resources": [resource, f"{resource}/*"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {**_metadata(), "name": f"{NAME}-{resource}"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [watched]},
            "matchConditions": [
                {"name": "the-agent", "expression": f"request.userInfo.username == '{username}'"}
            ],
            "validations": [
                {"expression": expression, "message": message} for message, expression in rules.items()
            ],
        },
    }


def _binding(policy: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {**_metadata(), "name": policy},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    }


# --- the DaemonSet ------------------------------------------------------------------------------------


def _daemon_set(image: str, namespace: str, boot_file: bool) -> dict[str, Any]:
    folder = BOOT_FILE.rpartition("/")[0]
    pod: dict[str, Any] = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 10,
        "tolerations": [{"operator": "Exists"}],  # also those of a node that starts, drains or is not ready
        "affinity": {"nodeAffinity": _OUR_NODES},
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(image, folder if boot_file else "")],
    }  # fmt: skip
    if boot_file:
        pod["volumes"] = [{"name": "boot", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(namespace),
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": NAME}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
        },
    }


_OUR_NODES: Mapping[str, Any] = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": names.LABEL_POOL, "operator": "Exists"}]}]
    }
}


def _container(image: str, folder: str) -> dict[str, Any]:
    mounts = {"volumeMounts": [{"name": "boot", "mountPath": folder, "readOnly": True}]} if folder else {}
    return {
        "name": "agent",
        "image": image,
        "command": ["tidemill", "node", "agent"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "192Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **mounts,
    }
