"""The reading half of the adapter: a reflector for every kind, one state, one view.

`view()` raises Retryable until every kind was listed once: half a cluster is not a view. After that the last reading
stays what is true while the API server is away, for some minutes: a pod or a node may have come meanwhile, and who
still holds the lease would end instances for it. `lag_s` says how old it may be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

from tidemill.catalog import load
from tidemill.engine.clock import MappedClock
from tidemill.kube.api import KubeApi
from tidemill.kube.cluster_state import ClusterState
from tidemill.kube.codec import Codec, Unreadable
from tidemill.kube.held_jobs import HeldJob
from tidemill.kube.kueue import API as KUEUE_API
from tidemill.kube.kueue import AdmissionCheckObject, ResourceFlavorObject, WorkloadObject
from tidemill.kube.objects import (
    BudgetObject,
    ClaimObject,
    DaemonSetObject,
    JobObject,
    JobSetObject,
    NamespaceObject,
    NodeObject,
    PodObject,
    PriorityClassObject,
    PyTorchJobObject,
    ServiceObject,
    VolumeObject,
)
from tidemill.kube.reflector import WATCH_S, WATCH_SPARE_S, Kind, Reflector
from tidemill.kube.written import Written
from tidemill.model.errors import Gone, Retryable, TidemillError
from tidemill.model.pods import Pod
from tidemill.ports import ClusterView

KINDS: tuple[Kind[Any], ...] = (
    Kind("Node", "/api/v1/nodes", Codec(NodeObject)),
    Kind("Namespace", "/api/v1/namespaces", Codec(NamespaceObject)),
    Kind("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", Codec(PriorityClassObject)),
    Kind("PersistentVolume", "/api/v1/persistentvolumes", Codec(VolumeObject)),
    Kind("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims", Codec(ClaimObject)),
    Kind("Job", "/apis/batch/v1/jobs", Codec(JobObject)),
    Kind("Deployment", "/apis/apps/v1/deployments", Codec(ServiceObject)),
    Kind("StatefulSet", "/apis/apps/v1/statefulsets", Codec(ServiceObject)),
    Kind("DaemonSet", "/apis/apps/v1/daemonsets", Codec(DaemonSetObject)),
    Kind("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets", Codec(BudgetObject)),
    Kind("Pod", "/api/v1/pods", Codec(PodObject)),
    Kind("JobSet", "/apis/jobset.x-k8s.io/v1alpha2/jobsets", Codec(JobSetObject), optional=True),
    Kind("PyTorchJob", "/apis/kubeflow.org/v1/pytorchjobs", Codec(PyTorchJobObject), optional=True),
    Kind("AdmissionCheck", f"{KUEUE_API}/admissionchecks", Codec(AdmissionCheckObject), optional=True),
    Kind("ResourceFlavor", f"{KUEUE_API}/resourceflavors", Codec(ResourceFlavorObject), optional=True),
    Kind("Workload", f"{KUEUE_API}/workloads", Codec(WorkloadObject), optional=True),
)
_STOP_S = 3.0
# A watch that is well says something every minute (bookmarks), or at least begins anew within this time.
LONGEST_LAG_S = WATCH_S[1] + WATCH_SPARE_S + 30.0


@cache
def _accelerated_types() -> frozenset[str]:
    return frozenset(name for name, one in load().types.items() if one.accelerator is not None)


def has_accelerators(instance_type: str) -> bool:
    """As the shipped catalog knows. A type that it does not know is one that no pool of ours launches."""
    return instance_type in _accelerated_types()


class ClusterReader:
    def __init__(
        self,
        api: KubeApi,
        clock: MappedClock,
        *,
        wake: Callable[[str], None] = lambda why: None,
        has_accelerators: Callable[[str], bool] = has_accelerators,
        kinds: tuple[Kind[Any], ...] = KINDS,
        **reflector_options: Any,
    ) -> None:
        self.api = api
        self._state = ClusterState(clock, wake=wake, has_accelerators=has_accelerators)
        self._written = Written(self._state, {kind.name: kind.codec for kind in kinds})
        self.reflectors = tuple(
            Reflector(api, kind, self._written, begin_list=self._written.begin_list, **reflector_options)
            for kind in kinds
        )

    # --- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        for reflector in self.reflectors:
            reflector.start()

    def stop(self) -> None:
        for reflector in self.reflectors:
            reflector.stop()
        deadline = time.monotonic() + _STOP_S
        for reflector in self.reflectors:
            reflector.join(max(0.0, deadline - time.monotonic()))

    def wait_synced(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self.synced and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.synced

    @property
    def synced(self) -> bool:
        """Every kind was listed once."""
        return all(reflector.synced for reflector in self.reflectors)

    @property
    def lag_s(self) -> float:
        """Since the API server last said anything, of the kind that heard nothing for longest."""
        return max(reflector.lag_s for reflector in self.reflectors)

    def lags(self) -> dict[str, float]:
        return {reflector.kind.name: reflector.lag_s for reflector in self.reflectors}

    def errors(self) -> dict[str, TidemillError]:
        """By kind: why it cannot be read now."""
        return {reflector.kind.name: reflector.error for reflector in self.reflectors if reflector.error}

    # --- what writes tell ---------------------------------------------------------------------------

    def learn(self, kind: str, body: bytes) -> None:
        """An object as the API server has just answered it: the next view shows it so."""
        self._written.learn(kind, body)

    def forget(self, kind: str, uid: str) -> None:
        """An object that is certainly gone."""
        self._written.forget(kind, uid)

    # --- reading ------------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        if not self.synced:
            missing = [reflector for reflector in self.reflectors if not reflector.synced]
            why = next((str(reflector.error) for reflector in missing if reflector.error), "")
            names = ", ".join(reflector.kind.name for reflector in missing)
            raise Retryable(f"not read yet: {names}{f' ({why})' if why else ''}", code="not-synced")
        late = max(self.reflectors, key=lambda reflector: reflector.lag_s)
        if late.lag_s > LONGEST_LAG_S:
            why = f" ({late.error})" if late.error else ""
            raise Retryable(
                f"nothing was heard of {late.kind.name} for {late.lag_s:.0f} s{why}", code="not-heard"
            )
        return self._state.view()

    def pod(self, uid: str) -> PodObject:
        """As it is in the cluster; of a pod that a held Job will make there is none. Gone: it is not there."""
        found = self._state.pod(uid)
        if found is None:
            raise Gone(f"there is no pod {uid}")
        return found

    def model_pod(self, uid: str) -> Pod:
        """As the engine sees it, those of held Jobs included."""
        found = self._state.model_pod(uid)
        if found is None:
            raise Gone(f"there is no pod {uid}")
        return found

    def node(self, name: str) -> NodeObject:
        found = self._state.node(name)
        if found is None:
            raise Gone(f"there is no node {name}")
        return found

    def job_of(self, uid: str) -> HeldJob | None:
        """The Job, JobSet or PyTorchJob of a pod, real or yet to be made; None: it has none, or a finished one."""
        return self._state.job(uid)

    def admission_checks(self) -> tuple[AdmissionCheckObject, ...]:
        """Those of Kueue that are ours to answer."""
        return self._state.admission_checks()

    def service(self, workload: str) -> ServiceObject:
        found = self._state.service(workload)
        if found is None:
            raise Gone(f"there is no {workload}")
        return found

    def unreadable(self) -> tuple[tuple[str, Unreadable], ...]:
        return self._state.unreadable()
