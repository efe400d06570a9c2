"""What Tidemill changes in a workload at CREATE: the decision of the webhook, and what the policies must equal.

Pure: an AdmissionReview's request in, a JSON patch out. The same rules are written in CEL in `cel.py`, for the API
server to evaluate; the tests compare the two object by object. The rules in words: designs/0006-kubernetes.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.spec.names import ADMITTED, GATE, HELD_BY, HELD_BY_US, KUEUE_QUEUE, MANAGED, TAINT_HELD

Object = Mapping[str, Any]
Patch = list[dict[str, Any]]

TOLERATION = {"key": TAINT_HELD, "operator": "Exists", "effect": "NoSchedule"}

JOB, JOB_SET, PYTORCH_JOB, POD = "batch/Job", "jobset.x-k8s.io/JobSet", "kubeflow.org/PyTorchJob", "v1/Pod"

# Controllers of pods, as "group/kind" ("v1" for the core group).
SERVICES = ("apps/ReplicaSet", "apps/StatefulSet", "v1/ReplicationController")
NEVER_GATED = ("apps/DaemonSet", "v1/Node")  # one pod for each node; v1/Node: the mirror of a static pod
SUSPENDED_INSTEAD = (JOB, PYTORCH_JOB)  # their pods are made when they are admitted


def mutate(request: Object, *, namespace_managed: bool) -> Patch:
    """The patch for a request to create something; empty: it is left as it is.

    `namespace_managed` says whether the namespace has our label: an AdmissionReview does not carry the namespace.
    """
    created = request.get("object")
    if request.get("operation") != "CREATE" or request.get("subResource") or not isinstance(created, Mapping):
        return []
    match _kind(request):
        case "batch/Job":
            return _hold_job(created, namespace_managed)
        case "jobset.x-k8s.io/JobSet":
            return _hold_custom(created, ("spec",), namespace_managed)
        case "kubeflow.org/PyTorchJob":
            return _hold_custom(created, ("spec", "runPolicy"), namespace_managed)
        case "v1/Pod":
            return _pod(created, namespace_managed)
    return []


def _hold_job(job: Object, namespace_managed: bool) -> Patch:
    template = _at(job, "spec", "template", "metadata", "labels")
    if not _managed((_labels(job), template), namespace_managed) or _controller(job) == JOB_SET:
        return []
    return _suspend(job, ("spec",))


def _hold_custom(workload: Object, holder: tuple[str, ...], namespace_managed: bool) -> Patch:
    """A JobSet or PyTorchJob. One that another controller made is suspended and started by that controller."""
    if not _managed((_labels(workload),), namespace_managed) or _controller(workload):
        return []
    return _suspend(workload, holder)


def _suspend(workload: Object, holder: tuple[str, ...]) -> Patch:
    if _at(workload, *holder).get("suspend") is True or KUEUE_QUEUE in _labels(workload):
        return []
    return [
        *_set(workload, ("metadata", "labels", HELD_BY), HELD_BY_US),
        *_set(workload, (*holder, "suspend"), True),
    ]


def _pod(pod: Object, namespace_managed: bool) -> Patch:
    labels, spec, controller = _labels(pod), _at(pod, "spec"), _controller(pod)
    if not _managed((labels,), namespace_managed):
        return []
    if MANAGED not in labels and controller in SERVICES:
        tolerations = spec.get("tolerations") or ()
        return [] if any(map(_tolerates, tolerations)) else _append(pod, ("spec", "tolerations"), TOLERATION)
    if controller in NEVER_GATED or (MANAGED not in labels and controller in SUSPENDED_INSTEAD):
        return []
    if controller in SUSPENDED_INSTEAD and ADMITTED in _at(pod, "metadata", "annotations"):
        return []  # admitted with its whole Job. A pin is no sign of it: users select a source too
    if spec.get("nodeName"):  # the API server refuses a gate on a pod that has its node
        return []
    if any(gate.get("name") == GATE for gate in spec.get("schedulingGates") or ()):
        return []
    return _append(pod, ("spec", "schedulingGates"), {"name": GATE})


def _managed(labels: Iterable[Object], namespace_managed: bool) -> bool:
    """The nearest label decides; without one the namespace does."""
    for near in labels:
        if MANAGED in near:
            return bool(near[MANAGED] == "true")
    return namespace_managed


def _tolerates(toleration: Object) -> bool:
    same = toleration.get("key") == TAINT_HELD and toleration.get("operator") == "Exists"
    return same and toleration.get("effect", "") in ("", "NoSchedule")


def _kind(request: Object) -> str:
    kind = _at(request, "kind")
    return f"{kind.get('group') or kind.get('version')}/{kind.get('kind')}"


def _controller(created: Object) -> str:
    for owner in _at(created, "metadata").get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{str(owner.get('apiVersion', '')).split('/')[0]}/{owner.get('kind')}"
    return ""


def _labels(created: Object) -> Object:
    return _at(created, "metadata", "labels")


def _at(within: Object, *path: str) -> Object:
    """The map at this path; an empty one if there is none."""
    for key in path:
        inner = within.get(key)
        if not isinstance(inner, Mapping):
            return {}
        within = inner
    return within


def _set(created: Object, path: tuple[str, ...], value: Any) -> Patch:
    """Add a value, and the maps around it that are missing."""
    known = 0
    within: Any = created
    while known < len(path) - 1 and isinstance(within.get(path[known]), Mapping):
        within = within[path[known]]
        known += 1
    for key in reversed(path[known + 1 :]):
        value = {key: value}
    return [{"op": "add", "path": _pointer(path[: known + 1]), "value": value}]


def _append(created: Object, path: tuple[str, ...], item: Object) -> Patch:
    if _at(created, *path[:-1]).get(path[-1]):
        return [{"op": "add", "path": _pointer((*path, "-")), "value": dict(item)}]
    return _set(created, path, [dict(item)])


def _pointer(path: tuple[str, ...]) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in path)
