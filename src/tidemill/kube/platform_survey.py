"""Facts of the cluster for the checklist: what is installed, nodes of our pools, pods with GPUs. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tidemill.kube.api import KubeApi
from tidemill.kube.custom_objects import all_pages
from tidemill.model.errors import Gone, Retryable
from tidemill.platform.checklist.views import NodeFacts, PodFacts, WorkloadFacts
from tidemill.spec import names

_APPS = "/apis/apps/v1"
_KINDS = (("deployments", "Deployment"), ("daemonsets", "DaemonSet"), ("statefulsets", "StatefulSet"))


class KubePlatform:
    """`platform.checklist.ClusterView`. `namespace`: where the engine's Lease is."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def version(self) -> str:
        return str(self._object("/version").get("gitVersion") or "")

    def workloads(self, namespace: str = "") -> Sequence[WorkloadFacts]:
        where = f"/namespaces/{namespace}" if namespace else ""
        return [
            _workload(item)
            for plural, kind in _KINDS
            for item in all_pages(self._api, f"{_APPS}{where}/{plural}", kind)
        ]

    def engine_seen_at(self) -> datetime | None:
        try:
            lease = self._object(f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/tidemill")
        except Gone:
            return None
        return _instant(_at(lease, "spec", "renewTime"))

    def nodes(self) -> Sequence[NodeFacts]:
        return [_node(item) for item in all_pages(self._api, "/api/v1/nodes", "Node", names.LABEL_POOL)]

    def pods(self, namespace: str) -> Sequence[PodFacts]:
        return [_pod(item) for item in all_pages(self._api, f"/api/v1/namespaces/{namespace}/pods", "Pod")]

    def _object(self, path: str) -> Mapping[str, Any]:
        try:
            answer: Any = msgspec.json.decode(self._api.get(path))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Retryable(
                f"{self._api.server} sent an object that cannot be read: {error}", code="answer"
            ) from None
        return answer if isinstance(answer, dict) else {}


def _at(thing: Mapping[str, Any], *path: str) -> Any:
    found: Any = thing
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _workload(item: Mapping[str, Any]) -> WorkloadFacts:
    status = _at(item, "status") or {}
    daemons = status.get("desiredNumberScheduled")
    wanted = daemons if daemons is not None else _at(item, "spec", "replicas")
    ready = status.get("numberReady") if daemons is not None else status.get("readyReplicas")
    return WorkloadFacts(
        str(_at(item, "metadata", "name")), int(1 if wanted is None else wanted), int(ready or 0)
    )


def _node(item: Mapping[str, Any]) -> NodeFacts:
    labels = _at(item, "metadata", "labels") or {}
    conditions = _at(item, "status", "conditions") or ()
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return NodeFacts(
        name=str(_at(item, "metadata", "name")),
        pool=str(labels.get(names.LABEL_POOL) or ""),
        source=str(labels.get(names.LABEL_SOURCE) or ""),
        ready=ready,
        gpus=_gpus(_at(item, "status", "allocatable") or {}),
    )


def _pod(item: Mapping[str, Any]) -> PodFacts:
    conditions = _at(item, "status", "conditions") or ()
    return PodFacts(
        name=str(_at(item, "metadata", "name")),
        node=str(_at(item, "spec", "nodeName") or ""),
        ready=any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions),
        gpus=sum(_gpus(requests) for requests in _requests(item)),
    )


def _requests(item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for container in _at(item, "spec", "containers") or ():
        yield _at(container, "resources", "limits") or _at(container, "resources", "requests") or {}


def _gpus(amounts: Mapping[str, Any]) -> int:
    return sum(int(amounts.get(name) or 0) for name in names.ACCELERATORS)


def _instant(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
