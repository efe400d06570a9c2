"""The rules of `rules.py` in CEL, one entry for each kind of object, for policies and for webhooks' match conditions.

Every expression is total: optional fields are read with `.?`, so that none of them can fail on a valid object. One
that failed would refuse the object, where the failure policy says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidemill.kube.admission.rules import (
    JOB_SET,
    NEVER_GATED,
    SERVICES,
    SUSPENDED_INSTEAD,
)
from tidemill.spec.names import ADMITTED, GATE, HELD_BY, HELD_BY_US, KUEUE_QUEUE, MANAGED, TAINT_HELD


class Failure(StrEnum):
    """What becomes of an object of ours when its rule cannot be evaluated, or its webhook does not answer."""

    REFUSE = "Fail"  # its creation fails with a message, and may be tried again
    LEAVE = "Ignore"  # it is created as it was written


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of object is treated at CREATE."""

    name: str
    group: str
    resource: str
    own_label_at: tuple[str, ...]  # CEL: where the label that decides may be, nearest first
    conditions: tuple[tuple[str, str], ...]  # name, CEL over `object`: all of them must hold
    failure: Failure
    apply: str = ""  # CEL of the apply configuration
    json_patch: str = ""  # CEL of a JSON patch, for lists that an apply configuration would replace whole
    by_object_label: bool = True  # also in namespaces without our label


class Scope(StrEnum):
    """Whose label makes an object ours. CEL cannot see the namespace in a match condition, a selector can."""

    NAMESPACES = "namespaces"  # its namespace has the label, unless the object says otherwise
    OBJECTS = "objects"  # its namespace has not; the object says so itself


def match_conditions(rule: Rule, scope: Scope) -> list[dict[str, str]]:
    """Conditions of a policy or webhook: the nearest label says "true", and what the rule asks for."""
    own = ".or(".join(rule.own_label_at) + ")" * (len(rule.own_label_at) - 1)
    default = "true" if scope is Scope.NAMESPACES else "false"
    conditions = (("ours", f'{own}.orValue("{default}") == "true"'), *rule.conditions)
    return [{"name": name, "expression": expression} for name, expression in conditions]


def _label_of(metadata: str) -> str:
    return f'{metadata}.?labels[?"{MANAGED}"]'


def _listed(kinds: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{kind}"' for kind in kinds) + "]"


_OWN_LABEL = _label_of("object.metadata")
_HAS_OWN_LABEL = f'"{MANAGED}" in object.metadata.?labels.orValue({{}})'
_HAS_MARK = f'"{ADMITTED}" in object.metadata.?annotations.orValue({{}})'
_OWNERS = "object.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false))"
_OWNER_KIND = 'o.apiVersion.split("/")[0] + "/" + o.kind'

_NO_QUEUE = ("not-in-a-queue", f'!("{KUEUE_QUEUE}" in object.metadata.?labels.orValue({{}}))')
_NO_CONTROLLER = ("no-controller", f"{_OWNERS}.size() == 0")


def _controlled_by(kinds: tuple[str, ...]) -> str:
    return f"{_OWNERS}.exists(o, ({_OWNER_KIND}) in {_listed(kinds)})"


def _suspension(inner: str) -> str:
    mark = f'metadata: Object.metadata{{labels: {{"{HELD_BY}": "{HELD_BY_US}"}}}}'
    return f"Object{{{mark}, spec: Object.spec{{{inner}}}}}"


_TOLERATION_VALUE = (
    f'Object.spec.tolerations{{key: "{TAINT_HELD}", operator: "Exists", effect: "NoSchedule"}}'
)
_TOLERATES = (
    f'object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue("") == "{TAINT_HELD}"'
    ' && t.?operator.orValue("") == "Exists" && t.?effect.orValue("") in ["", "NoSchedule"])'
)

RULES = (
    Rule(
        "jobs",
        "batch",
        "jobs",
        (_OWN_LABEL, _label_of("object.spec.template.?metadata")),
        (
            ("not-suspended", "!object.spec.?suspend.orValue(false)"),
            _NO_QUEUE,
            ("not-of-a-jobset", f"!{_controlled_by((JOB_SET,))}"),
        ),
        Failure.REFUSE,
        apply=_suspension("suspend: true"),
    ),
    Rule(
        "jobsets",
        "jobset.x-k8s.io",
        "jobsets",
        (_OWN_LABEL,),
        (("not-suspended", "!object.?spec.?suspend.orValue(false)"), _NO_QUEUE, _NO_CONTROLLER),
        Failure.REFUSE,
        apply=_suspension("suspend: true"),
    ),
    Rule(
        "pytorchjobs",
        "kubeflow.org",
        "pytorchjobs",
        (_OWN_LABEL,),
        (("not-suspended", "!object.?spec.?runPolicy.?suspend.orValue(false)"), _NO_QUEUE, _NO_CONTROLLER),
        Failure.REFUSE,
        apply=_suspension("runPolicy: Object.spec.runPolicy{suspend: true}"),
    ),
    Rule(
        "pods",
        "",
        "pods",
        (_OWN_LABEL,),
        (
            ("may-be-gated", f"!{_controlled_by(NEVER_GATED)}"),
            ("held-by-itself", f"{_HAS_OWN_LABEL} || !{_controlled_by((*SERVICES, *SUSPENDED_INSTEAD))}"),
            ("no-node", 'object.spec.?nodeName.orValue("") == ""'),
            ("not-admitted", f"!({_HAS_MARK} && {_controlled_by(SUSPENDED_INSTEAD)})"),
            ("not-gated", f'!object.spec.?schedulingGates.orValue([]).exists(g, g.name == "{GATE}")'),
        ),
        Failure.REFUSE,
        apply="Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: "
        f'"{GATE}"}}]}}}}',
    ),
    Rule(
        "services",
        "",
        "pods",
        (_OWN_LABEL,),
        (
            ("not-held-by-itself", f"!({_HAS_OWN_LABEL})"),
            ("of-a-service", _controlled_by(SERVICES)),
            ("not-tolerating", f"!{_TOLERATES}"),
        ),
        Failure.LEAVE,
        json_patch="size(object.spec.?tolerations.orValue([])) > 0"
        f' ? [JSONPatch{{op: "add", path: "/spec/tolerations/-", value: {_TOLERATION_VALUE}}}]'
        f' : [JSONPatch{{op: "add", path: "/spec/tolerations", value: [{_TOLERATION_VALUE}]}}]',
        by_object_label=False,
    ),
)
