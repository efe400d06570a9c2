"""Jobs that are held by suspension, as a cluster's adapter shows them: by the pods they will make.

A suspended Job has no pods. It is shown as gated ones, `<job uid>.<index>`. Admission is one patch of the Job; until
its controller has made the real pods, which have uids of their own, those that are missing are shown ungated and
pinned. Nobody schedules what is only shown. Deleting a pod of such a Job suspends it: the others stop with their grace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.model.pods import Gang, Pod, PodPhase, PodShape
from tidemill.sim.cluster.api_server import ApiServer
from tidemill.sim.cluster.workloads import JobTruth, Pin
from tidemill.sim.timeline import stream

_MADE_S = (1, 4)  # from the patch of a Job to each of its pods; a busy controller manager takes seconds


class SuspendedJobs:
    def __init__(self, api: ApiServer, seed: int, stop: Callable[[Pod], None]) -> None:
        """`stop`: deletes a pod with its own grace."""
        self._api, self._seed, self._stop = api, seed, stop

    def create(self, job: JobTruth, index: int, message: str = "") -> None:
        """A pod is missing: shown at once, and made a moment later unless the Job is suspended."""
        self.show(job, index)
        if job.pin is not None:
            self._make_soon(job, index, message)

    def show(self, job: JobTruth, index: int) -> None:
        pin, uid = job.pin, _shown_uid(job, index)
        self._api.shown_only.add(uid)
        job.members[index] = uid
        pod = Pod(
            uid, job.namespace, f"{job.name}-{index}", pin.shape if pin else job.shape, job.terms,
            PodPhase.PENDING, job.submitted, job.workload, gang=_gang(job), gated=pin is None,
            pinned_to=pin.source if pin else "", ends_at=pin.ends_at if pin else None,
        )  # fmt: skip
        if uid in self._api.pods:
            self._api.put_pod(pod)
        else:
            self._api.create_pod(pod, f"a pod that {job.workload} will make")

    def admit(self, job: JobTruth, source: str, ends_at: datetime | None, shape: PodShape) -> None:
        """One patch: the whole Job."""
        if job.pin is not None:
            return
        job.pin = Pin(source, ends_at, shape)
        for index in range(job.pods):
            self.create(job, index)

    def suspend(self, job: JobTruth, but: str = "") -> None:
        """Its pods stop, all but one that the caller deletes, and it is shown as held again."""
        if job.pin is None or job.over:
            return
        job.pin = None
        pods = [self._api.pods[uid] for uid in job.members.values() if uid in self._api.pods]
        for index in range(job.pods):
            job.attempts[index] += 1
            self.show(job, index)
        for pod in pods:
            if pod.uid not in self._api.shown_only and pod.uid != but:
                self._stop(pod)

    def _make_soon(self, job: JobTruth, index: int, message: str) -> None:
        pin, attempt = job.pin, job.attempts[index]
        delay_s = stream(self._seed, "made", f"{job.name}/{index}/{attempt}").randint(*_MADE_S)

        def made() -> None:
            if job.pin is pin and job.attempts[index] == attempt and not job.over:
                self._make(job, index, message)

        self._api.timeline.after(timedelta(seconds=delay_s), made)

    def _make(self, job: JobTruth, index: int, message: str) -> None:
        shown = self._api.drop_pod(_shown_uid(job, index))
        name = f"{job.name}-{index}-{job.attempts[index]}"
        uid = job.members[index] = f"uid-{job.namespace}-{name}"
        pod = replace(shown, uid=uid, name=name, created_at=self._api.timeline.now(), message=message)
        self._api.create_pod(pod, f"a pod of {job.workload}")


def _shown_uid(job: JobTruth, index: int) -> str:
    return f"job-{job.namespace}-{job.name}.{index}"


def _gang(job: JobTruth) -> Gang | None:
    return Gang(job.name, job.pods) if job.pods > 1 else None
