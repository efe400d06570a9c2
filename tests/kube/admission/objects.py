"""Objects to create, written by hand and generated, and a JSON patch applied to one."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

CONTAINER = {"name": "main", "image": "registry.example/none"}
MANAGED = "tidemill.dev/managed"
HELD_BY = "tidemill.dev/held-by"
GATE = "tidemill.dev/admission"
QUEUE = "kueue.x-k8s.io/queue-name"
SOURCE = "tidemill.dev/source"
ADMITTED = {"tidemill.dev/admitted": "true"}  # annotation
TOLERATION = {"key": "tidemill.dev/held", "operator": "Exists", "effect": "NoSchedule"}
UID = "5a1f3c1e-0000-4000-8000-000000000000"

API_VERSIONS = {
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "PyTorchJob": "kubeflow.org/v1",
    "Pod": "v1",
}


def owner(api_version: str, kind: str, *, controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": UID, "controller": controller}


def thing(kind: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSIONS[kind],
        "kind": kind,
        "metadata": {"name": "thing"} | metadata,
        "spec": spec,
    }


def pod(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    # A mounted token is a volume with a random name.
    plain = {"containers": [CONTAINER], "automountServiceAccountToken": False}
    return thing("Pod", plain | (spec or {}), **metadata)


def job(
    spec: dict[str, Any] | None = None, *, template: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    made = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    if template is not None:
        made["metadata"] = template
    return thing("Job", {"template": made, **(spec or {})}, **metadata)


def job_set(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    inner = {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}
    replicated = [{"name": "workers", "replicas": 2, "template": {"spec": inner}}]
    return thing("JobSet", {"replicatedJobs": replicated, **(spec or {})}, **metadata)


def pytorch_job(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    worker = {"replicas": 2, "template": {"spec": {"containers": [{**CONTAINER, "name": "pytorch"}]}}}
    return thing("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": worker}, **(spec or {})}, **metadata)


def request(created: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The request of an AdmissionReview, as far as it is read."""
    group, _, version = created["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": created["kind"]}
    return {"uid": "1", "operation": "CREATE", "kind": kind, "namespace": "any", "object": created} | more


def patched(created: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902, as far as patches of ours use it: `add`."""
    after = deepcopy(created)
    for step in patch:
        assert step["op"] == "add"
        *path, last = (key.replace("~1", "/").replace("~0", "~") for key in step["path"].split("/")[1:])
        within: Any = after
        for key in path:
            within = within[key]
        if isinstance(within, list):
            assert last == "-"
            within.append(step["value"])
        else:
            within[last] = step["value"]
    return after


# --- generated ------------------------------------------------------------------------------------------

OWNERS = (
    ("batch/v1", "Job"), ("batch/v1", "CronJob"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"), ("v1", "ReplicationController"), ("v1", "Node"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"), ("kubeflow.org/v1", "PyTorchJob"), ("ray.io/v1", "RayCluster"),
    ("batch.volcano.sh/v1alpha1", "Job"), ("apps.kruise.io/v1beta1", "StatefulSet"),
)  # fmt: skip
TOLERATIONS: tuple[dict[str, str], ...] = (
    TOLERATION, {"operator": "Exists"}, {"key": "nvidia.com/gpu", "operator": "Exists"},
    {"key": "tidemill.dev/held", "operator": "Exists", "effect": "NoExecute"},
    {"key": "tidemill.dev/held", "operator": "Exists"}, {"key": "tidemill.dev/held", "operator": "Equal", "value": "x"},
)  # fmt: skip


def one_thing_at_a_time() -> list[dict[str, Any]]:
    """Every owner with every label, every toleration of a service, and every other thing that a rule looks at."""
    marks: list[dict[str, Any]] = [{}, {"labels": {MANAGED: "true"}}, {"labels": {MANAGED: "false"}}]
    makers = (pod, job, job_set, pytorch_job)
    owned: list[dict[str, Any]] = [{"ownerReferences": [owner(*each)]} for each in OWNERS]
    service = owner("apps/v1", "ReplicaSet")
    return [
        *(make(**mark, **by) for make in makers for mark in marks for by in [{}, *owned]),
        *(make(ownerReferences=[owner(*OWNERS[7], controller=False)]) for make in makers),
        *(make(labels={QUEUE: "research"}) for make in makers),
        *(make({"suspend": value}) for make in (job, job_set) for value in (True, False)),
        *(pytorch_job({"runPolicy": policy}) for policy in ({}, {"suspend": True}, {"suspend": False})),
        *(
            job(template={"labels": {MANAGED: value}}, **mark)
            for value in ("true", "false")
            for mark in marks
        ),
        *(job(template={"labels": {MANAGED: value}}, labels={"app": "a"}) for value in ("true", "false")),
        *(pod({"tolerations": [each]}, ownerReferences=[service]) for each in TOLERATIONS),
        *(pod({"nodeName": "n"}, **mark) for mark in marks),
        *(
            pod({"nodeSelector": {SOURCE: "cr-1"}, "tolerations": [TOLERATION]}, **mark, **by, **noted)
            for mark in marks
            for by in [{}, *owned]
            for noted in ({}, {"annotations": ADMITTED})
        ),
        *(pod({"schedulingGates": [{"name": name}]}) for name in (GATE, "kueue.x-k8s.io/admission")),
    ]


_LABEL_VALUES = st.sampled_from(["true", "true", "true", "false", "yes", ""])
_OWNERS = st.sampled_from(OWNERS)


@st.composite
def labels(draw: st.DrawFn) -> dict[str, str]:
    made = {}
    if draw(st.booleans()):
        made[MANAGED] = draw(_LABEL_VALUES)
    if draw(st.integers(0, 5)) == 0:
        made[QUEUE] = draw(st.sampled_from(["default", ""]))
    if draw(st.integers(0, 7)) == 0:
        made[HELD_BY] = draw(st.sampled_from(["tidemill", "somebody"]))
    if draw(st.booleans()):
        made["app"] = "any"
    return made


@st.composite
def metadata(draw: st.DrawFn) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if draw(st.booleans()):
        made["labels"] = draw(labels())
    if draw(st.integers(0, 3)) == 0:
        made["annotations"] = draw(st.sampled_from([{}, ADMITTED, {"team": "a"}]))
    if draw(st.integers(0, 2)) == 0:
        controlled = draw(st.integers(0, 4)) > 0
        made["ownerReferences"] = [owner(*draw(_OWNERS), controller=controlled)]
    return made


@st.composite
def _pods(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if draw(st.integers(0, 5)) == 0:
        spec["nodeName"] = "some-node"
    elif draw(st.integers(0, 2)) == 0:
        gates = draw(st.lists(st.sampled_from([GATE, "kueue.x-k8s.io/admission", "a/b"]), unique=True))
        spec["schedulingGates"] = [{"name": name} for name in gates]
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = draw(st.sampled_from([{}, {SOURCE: "cr-1"}, {"a": "b"}]))
    if draw(st.integers(0, 2)) == 0:
        spec["tolerations"] = draw(st.lists(st.sampled_from(TOLERATIONS), max_size=3))
    if draw(st.integers(0, 3)) == 0:  # allowed by the API server, and a trap for merging by key
        doubled = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
        spec["containers"] = [CONTAINER | {"env": doubled}]
    return pod(spec, **draw(metadata()))


_SUSPEND = st.sampled_from([{}, {}, {"suspend": True}, {"suspend": False}])


@st.composite
def _jobs(draw: st.DrawFn) -> dict[str, Any]:
    template: dict[str, Any] | None = draw(
        st.none() | st.just({}) | labels().map(lambda own: {"labels": own})
    )
    return job(draw(_SUSPEND), template=template, **draw(metadata()))


@st.composite
def _custom(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return job_set(draw(_SUSPEND), **draw(metadata()))
    run_policy = draw(st.sampled_from([None, {}, {"suspend": True}, {"suspend": False}, {"backoffLimit": 2}]))
    return pytorch_job({} if run_policy is None else {"runPolicy": run_policy}, **draw(metadata()))


def anything() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(_pods(), _jobs(), _custom())
