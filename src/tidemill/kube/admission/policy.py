"""The rules as MutatingAdmissionPolicies (admissionregistration.k8s.io/v1): the API server applies them by itself.

Selectors come first and never fail: what is in a namespace without our label and has no label of ours is not looked at
(a Job is, for the label of its template). Hence two policies for each rule: one for namespaces of ours, one for objects
that say so themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidemill.kube.admission.cel import RULES, Rule, Scope, match_conditions
from tidemill.spec.names import GROUP, MANAGED

OBJECTS_API = "admissionregistration.k8s.io/v1"
LABELS = {"app.kubernetes.io/part-of": "tidemill"}
NAMESPACE_NAME = "kubernetes.io/metadata.name"
CONTROLLER_NAMESPACE = "tidemill-system"
SYSTEM_NAMESPACES = ("kube-node-lease", "kube-public", "kube-system")  # never ours, whatever their labels say


def policy_objects(excluded: Sequence[str] = (CONTROLLER_NAMESPACE,)) -> list[dict[str, Any]]:
    """Policies and bindings; `excluded` are namespaces that are never ours, beside those of Kubernetes itself."""
    return [
        made for rule, scope in entries() for made in (_policy(rule, scope, excluded), _binding(rule, scope))
    ]


def entries() -> Iterator[tuple[Rule, Scope]]:
    """What there is one policy, or one webhook, for."""
    for rule in RULES:
        yield rule, Scope.NAMESPACES
        if rule.by_object_label:
            yield rule, Scope.OBJECTS


def name_of(rule: Rule, scope: Scope) -> str:
    return f"{rule.name}.{scope}.admission.{GROUP}"


def selectors(rule: Rule, scope: Scope, excluded: Sequence[str]) -> dict[str, Any]:
    """Which objects are looked at, as fields of `matchConstraints` and of a webhook alike."""
    names = sorted({*SYSTEM_NAMESPACES, *excluded})
    terms = [
        {"key": MANAGED, "operator": "In" if scope is Scope.NAMESPACES else "NotIn", "values": ["true"]},
        {"key": NAMESPACE_NAME, "operator": "NotIn", "values": names},
    ]
    chosen: dict[str, Any] = {"namespaceSelector": {"matchExpressions": terms}}
    if scope is Scope.OBJECTS and len(rule.own_label_at) == 1:  # a selector does not see a template's labels
        chosen["objectSelector"] = {"matchLabels": {MANAGED: "true"}}
    return chosen


def resource_rule(rule: Rule) -> dict[str, Any]:
    return {
        "apiGroups": [rule.group],
        "apiVersions": ["*"],
        "resources": [rule.resource],
        "operations": ["CREATE"],
        "scope": "Namespaced",
    }


def _policy(rule: Rule, scope: Scope, excluded: Sequence[str]) -> dict[str, Any]:
    if rule.apply:
        mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": rule.apply}}
    else:
        mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": rule.json_patch}}
    return {
        "apiVersion": OBJECTS_API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name_of(rule, scope), "labels": dict(LABELS)},
        "spec": {
            "matchConstraints": {
                **selectors(rule, scope, excluded),
                "resourceRules": [resource_rule(rule)],
            },
            "matchConditions": match_conditions(rule, scope),
            "mutations": [mutation],
            "failurePolicy": rule.failure.value,
            # Another policy or webhook may replace a list that we added to.
            "reinvocationPolicy": "IfNeeded",
        },
    }


def _binding(rule: Rule, scope: Scope) -> dict[str, Any]:
    return {
        "apiVersion": OBJECTS_API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name_of(rule, scope), "labels": dict(LABELS)},
        "spec": {"policyName": name_of(rule, scope)},
    }
