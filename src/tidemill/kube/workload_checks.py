"""Writes to Kueue's Workloads and AdmissionChecks, beside those of the engine's own actions."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from functools import partial

from tidemill.engine.clock import wall_now
from tidemill.kube import kueue
from tidemill.kube.api import KubeApi
from tidemill.kube.cluster_view import ClusterReader
from tidemill.kube.held_jobs import HeldJob
from tidemill.kube.writes import Ref, Writer
from tidemill.model.errors import Gone


class WorkloadChecks:
    def __init__(self, api: KubeApi, reader: ClusterReader, field_manager: str = "tidemill") -> None:
        self._reader, self._writer = reader, Writer(api, reader, field_manager)

    def activate(self) -> None:
        """Say of every check of ours that we answer for it."""
        for check in self._reader.admission_checks():
            if not check.is_active:
                ref = Ref("AdmissionCheck", "", check.metadata.name, check.metadata.uid)
                with suppress(Gone):
                    self._writer.change(ref, partial(kueue.activated, at=_now()), "/status")

    def tell(self, job_uid: str, message: str, after_s: int) -> bool:
        """Why the Workload of a Job waits. `after_s`: it can never run; asked again so long after. False: nothing to
        tell."""
        job = self._reader.job_of(job_uid)
        if job is None or job.check is None or not job.check.pending or job.check.message == message:
            return False
        say = kueue.waiting
        if after_s:
            say = partial(kueue.given_back, after_s=after_s)
        with suppress(Gone):
            self._writer.change(
                ref_of(job), partial(say, check=job.check.name, message=message, at=_now()), "/status"
            )
        return True


def ref_of(job: HeldJob) -> Ref:
    assert job.check is not None
    return Ref("Workload", job.meta.namespace, job.check.workload, job.check.uid)


def _now() -> datetime:
    return wall_now().replace(microsecond=0)
