"""The two ways in which workloads are held, installed side by side, each for namespaces of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.api import Api, ApiError, eventually
from controlplane.start import ControlPlane
from tests.kube.admission import objects
from tests.kube.admission.certificates import self_signed
from tidemill.kube.admission.install import install
from tidemill.kube.admission.policy import policy_objects
from tidemill.kube.admission.webhook import WebhookServer, webhook_object
from tidemill.kube.connect import connect

PLURALS = {
    "Job": "apis/batch/v1/{}/jobs",
    "JobSet": "apis/jobset.x-k8s.io/v1alpha2/{}/jobsets",
    "PyTorchJob": "apis/kubeflow.org/v1/{}/pytorchjobs",
    "Pod": "api/v1/{}/pods",
}
# What an API server adds to every object by itself, differently each time.
_ITS_OWN = ("uid", "creationTimestamp", "managedFields", "resourceVersion", "namespace", "generation")


def path_of(kind: str, namespace: str, name: str = "") -> str:
    within = PLURALS[kind].format(f"namespaces/{namespace}")
    return f"/{within}/{name}" if name else f"/{within}"


def created(api: Api, thing: dict[str, Any], namespace: str, **params: str) -> Any:
    return api.call("POST", path_of(thing["kind"], namespace), thing, params=params)


def outcome(api: Api, thing: dict[str, Any], namespace: str) -> Any:
    """What would be stored, without what is different each time; or the status of the refusal."""
    try:
        made = created(api, thing, namespace, dryRun="All")
    except ApiError as error:
        return error.status
    return stripped(made)


def stripped(made: dict[str, Any]) -> dict[str, Any]:
    made = deepcopy(made)
    for key in _ITS_OWN:
        made["metadata"].pop(key, None)
    made.pop("status", None)
    if made["kind"] == "Job":
        made["spec"].pop("selector", None)
        # A Job without labels takes its template's once it is stored, with those that the API server put there.
        for labels in (made["metadata"].get("labels"), _template_labels(made)):
            for key in ("controller-uid", "job-name"):
                if labels:
                    labels.pop(key, None)
                    labels.pop(f"batch.kubernetes.io/{key}", None)
        if not made["metadata"].get("labels"):
            made["metadata"].pop("labels", None)
    return made


def _template_labels(made: dict[str, Any]) -> dict[str, str] | None:
    template = made["spec"].get("template") or {}
    labels: dict[str, str] | None = (template.get("metadata") or {}).get("labels")
    return labels


@contextmanager
def webhook_serving(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Its address, and the CA it is checked with."""
    certificate, key = self_signed(folder)
    with WebhookServer(("127.0.0.1", 0), certificate, key) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}", certificate.read_bytes()
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True, slots=True)
class Ways:
    """Namespaces by way ("policy", "webhook", "neither") and by what their label says ("true", "false", None...)."""

    api: Api
    namespaces: dict[tuple[str, str | None], str]


LABELS: tuple[str | None, ...] = (None, "true", "false")


@contextmanager
def both_ways(
    cluster: ControlPlane, api: Api, make_namespace: Callable[..., str], folder: Path
) -> Iterator[Ways]:
    made = {
        (way, label): make_namespace(**({} if label is None else {objects.MANAGED: label}))
        for way in ("policy", "webhook", "neither")
        for label in LABELS
    }
    others = {way: [name for (each, _), name in made.items() if each != way] for way in ("policy", "webhook")}
    with webhook_serving(folder) as (url, ca), closing(connect(str(cluster.kubeconfig))) as ours:
        webhook = webhook_object({"url": url}, ca=ca, excluded=others["webhook"])
        install(ours, [*policy_objects(others["policy"]), webhook])
        ways = Ways(api, made)
        for way in ("policy", "webhook"):
            wait_until_held(api, made[way, "true"])
        yield ways


def wait_until_held(api: Api, namespace: str) -> None:
    """The API server learns of new policies within a second or so."""
    service = [objects.owner("apps/v1", "ReplicaSet")]
    probes = [objects.job(), objects.pod(), objects.pod(ownerReferences=service)]
    if any(group["name"] == "kubeflow.org" for group in api.get("/apis")["groups"]):
        # A policy cannot change objects of a new CRD until the API server has its schema: 503 meanwhile.
        probes += [objects.job_set(), objects.pytorch_job()]
    plain = [stripped(created(api, probe, "default", dryRun="All"))["spec"] for probe in probes]

    def all_changed() -> bool:
        made = [outcome(api, probe, namespace) for probe in probes]
        return all(
            isinstance(each, dict) and each["spec"] != before
            for each, before in zip(made, plain, strict=True)
        )

    eventually(all_changed, what="the policies are in force")
