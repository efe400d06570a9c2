"""The Job controller of the simulated cluster: it creates pods, replaces lost ones, and tracks the progress of work.

A job makes progress only while all its pods run. A lost pod is created again, gated; the other pods of a gang keep
their nodes until somebody stops them, as in a real cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from tidemill.model.pods import Gang, Pod, PodPhase, PodShape
from tidemill.sim.cluster.api_server import ApiServer, source_of
from tidemill.sim.cluster.kubelet import Kubelets, PodEnd
from tidemill.sim.cluster.suspended_jobs import SuspendedJobs
from tidemill.sim.cluster.workloads import JobTruth, Progress, shape_of, terms_of
from tidemill.spec.scenario import JobStream
from tidemill.spec.units import format_duration

# After a pod the kubelet refused: 10 s, doubled each time, as the Job controller does; held to five minutes
# (its own ceiling is ten) so that a pod is never far behind a device plugin that has come up.
_BACKOFF_S = 10
_BACKOFF_MAX_S = 300


def refusal_backoff(refusals: int) -> timedelta:
    return timedelta(seconds=min(_BACKOFF_S * 2 ** min(refusals, 10), _BACKOFF_MAX_S))


class Jobs:
    ready_at_start = True

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._kubelets: Kubelets
        self._finish: dict[str, Callable[[], None]] = {}  # by job: cancels the finish that was planned
        self._shapes: dict[PodShape, PodShape] = {}  # one object for equal shapes
        self._shape_of: dict[
            int, tuple[JobStream, PodShape]
        ] = {}  # by identity of the stream, which it keeps
        self._refusals: dict[str, int] = {}
        self.by_name: dict[str, JobTruth] = {}
        self.suspended: SuspendedJobs | None = (
            None  # set: Jobs are held by suspension, not by gates on their pods
        )

    def attach(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets

    def submit(self, stream: JobStream, name: str, duration: timedelta) -> JobTruth:
        job = JobTruth(
            name=name,
            stream=stream,
            duration=duration,
            submitted=self._api.timeline.now(),
            shape=self._shape(stream),
            terms=terms_of(stream, duration),
            progress=Progress(duration, stream.resumes_every),
            attempts=[0] * stream.nodes,
        )
        self.by_name[name] = job
        size = f"{stream.nodes} pods" if stream.nodes > 1 else "1 pod"
        self._api.journal.add(
            "job-submitted",
            name,
            f"{size}, {job.gpus} GPU{'' if job.gpus == 1 else 's'}, {format_duration(duration)} of work",
        )
        for index in range(stream.nodes):
            self._create(job, index)
        return job

    def restore(self, job: JobTruth, pods: Sequence[Pod]) -> None:
        """A job that was there before the simulation began, with its pods as they were. Work done counts."""
        self.by_name[job.name] = job
        job.members = {index: pod.uid for index, pod in enumerate(pods)}
        for pod in pods:
            self._api.put_pod(pod)
            if pod.node:
                job.sources.add(source_of(self._api.node(pod.node)))
        for index in range(len(pods), job.pods):
            self._create(job, index)
        if not self._all_running(job):
            return
        began = max(pod.started_at or self._api.timeline.now() for pod in pods)
        job.state, job.started = "running", began
        now, end = self._api.timeline.now(), job.begin(began, source_of(self._api.node(pods[0].node)))
        self._finish[job.name] = self._api.timeline.at(max(end, now), lambda: self._finished(job))

    def _shape(self, stream: JobStream) -> PodShape:
        known = self._shape_of.get(id(stream))
        if known is None:
            shape = shape_of(stream)
            known = self._shape_of[id(stream)] = (stream, self._shapes.setdefault(shape, shape))
        return known[1]

    def job_of(self, pod: Pod) -> JobTruth:
        return self.by_name[pod.workload.partition("/")[2]]

    def _create(self, job: JobTruth, index: int, message: str = "") -> None:
        if self.suspended is not None:
            self.suspended.create(job, index, message)
            return
        name = f"{job.name}-{index}-{job.attempts[index]}"
        pod = Pod(
            uid=f"uid-{job.namespace}-{name}",
            namespace=job.namespace,
            name=name,
            shape=job.shape,
            terms=job.terms,
            phase=PodPhase.PENDING,
            created_at=self._api.timeline.now(),
            workload=job.workload,
            gang=Gang(job.name, job.pods) if job.pods > 1 else None,
            gated=True,
            message=message,
        )
        job.members[index] = pod.uid
        self._api.create_pod(pod, f"a pod of {job.workload}")

    # --- what kubelets report -----------------------------------------------------------------------

    def pod_started(self, pod: Pod) -> None:
        job = self.job_of(pod)
        self._refusals.pop(pod.workload, None)
        job.sources.add(source_of(self._api.node(pod.node)))
        if not self._all_running(job):
            return
        now = self._api.timeline.now()
        job.state = "running"
        if job.started is None:
            job.started = now
            self._api.journal.add("job-started", job.name, f"all of its {job.pods} pods run")
        end = job.begin(now + job.stream.load, source_of(self._api.node(pod.node)))
        self._finish[job.name] = self._api.timeline.at(end, lambda: self._finished(job))

    def pod_leaving(self, pod: Pod, *, counts: bool) -> None:
        """Work stops when the first pod is deleted: what is done after that does not count."""
        job = self.job_of(pod)
        self._interrupt(job, f"{pod.name} was told to stop")
        if counts and not job.over:
            self._count_failure(job, f"{pod.name} was deleted without DisruptionTarget")

    def pod_gone(self, pod: Pod, end: PodEnd) -> None:
        job = self.job_of(pod)
        index = next((index for index, member in job.members.items() if member == pod.uid), None)
        if job.over or index is None:
            return
        if end is not PodEnd.STOPPED:
            self._interrupt(job, f"{pod.name} was {end.value}")
        # A pod an eviction had told to go carries DisruptionTarget: its death is not the job's failure.
        if end is PodEnd.CRASHED or (end is PodEnd.KILLED and pod.deleting_until is None):
            self._count_failure(job, f"{pod.name} was {end.value}")
        if not job.over:
            self._replace(job, index, pod, end)

    def _replace(self, job: JobTruth, index: int, lost: Pod, end: PodEnd) -> None:
        job.attempts[index] += 1
        attempt = job.attempts[index]
        if end is not PodEnd.REFUSED:
            self._create(job, index)
            return
        if self.suspended is not None:
            self.suspended.show(job, index)
        else:
            del job.members[index]
        refusals = self._refusals.get(job.workload, 0)
        self._refusals[job.workload] = refusals + 1
        message = f"{lost.name} was refused by {lost.node}: {lost.message}; trying again"

        def again() -> None:
            if not job.over and job.attempts[index] == attempt:
                self._create(job, index, message)

        self._api.timeline.after(refusal_backoff(refusals), again)

    # --- work ---------------------------------------------------------------------------------------

    def _all_running(self, job: JobTruth) -> bool:
        running = [
            pod for pod in self._present(job) if pod.phase is PodPhase.RUNNING and pod.deleting_until is None
        ]
        return len(running) == job.pods

    def _present(self, job: JobTruth) -> list[Pod]:
        pods = self._api.pods
        return [pods[uid] for uid in job.members.values() if uid in pods]

    def _interrupt(self, job: JobTruth, why: str) -> None:
        if job.state != "running":
            return
        job.state = "pending"
        job.restarts += 1
        self._finish.pop(job.name)()
        lost = job.interrupt(self._api.timeline.now())
        saved = format_duration(job.progress.saved)
        self._api.journal.add(
            "job-restarted", job.name, f"{why}; {format_duration(lost)} of work lost, it resumes from {saved}"
        )

    def _finished(self, job: JobTruth) -> None:
        now = self._api.timeline.now()
        job.finish(now)
        self._finish.pop(job.name)
        waited = format_duration((job.started or now) - job.submitted)
        self._api.journal.add(
            "job-finished", job.name, f"done after a wait of {waited} and {job.restarts} restarts"
        )
        for pod in self._present(job):
            self._kubelets.finish(pod)
        job.members.clear()
        self._api.wake(f"job {job.name} finished")

    def _count_failure(self, job: JobTruth, why: str) -> None:
        job.failures += 1
        if job.failures <= job.stream.backoff_limit:
            return
        job.state, job.finished, job.reason = "failed", self._api.timeline.now(), why
        self._api.journal.add(
            "job-failed",
            job.name,
            f"{why}: failure {job.failures} is past its back-off limit {job.stream.backoff_limit}",
        )
        for pod in self._present(job):
            self._kubelets.delete(pod)
        self._api.wake(f"job {job.name} failed")

    # --- checkpoints --------------------------------------------------------------------------------

    def checkpoint_requested(self, pod: Pod) -> None:
        """A pod that acknowledges has written its checkpoint after `checkpointTime`, if it is still there."""
        stream = self.job_of(pod).stream
        if stream.acknowledges and stream.resumes_every is not None and pod.phase is PodPhase.RUNNING:
            delay = max(stream.checkpoint_time, timedelta(seconds=1))
            self._api.timeline.after(delay, lambda: self._checkpoint_written(pod))

    def _checkpoint_written(self, asked_pod: Pod) -> None:
        pod = self._api.pods.get(asked_pod.uid)
        if pod is None or pod.checkpoint_requested_at != asked_pod.checkpoint_requested_at:
            return
        now = self._api.timeline.now()
        self._api.put_pod(replace(pod, checkpoint_done_at=now))
        self._api.journal.add("checkpoint-done", pod.full_name, "it has written its checkpoint")
        job = self.job_of(pod)
        asked = [
            member.checkpoint_requested_at
            for member in self._present(job)
            if member.checkpoint_requested_at is not None and member.checkpoint_done_at is not None
        ]
        if job.state == "running" and len(asked) == job.pods:
            job.progress.save(max(asked), now)
        self._api.wake(f"{pod.full_name} has checkpointed")
