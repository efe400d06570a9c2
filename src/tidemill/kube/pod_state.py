"""The pods of the cluster and those that held Jobs will make, translated and kept up to date.

A pod depends on more than itself: its Job says what gang it is of, its claims where it can run, a priority class how
its template ranks. When one of these changes the pods concerned are translated again. Not thread-safe: `cluster_state`
holds the lock.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.engine.clock import MappedClock
from tidemill.kube.codec import Unreadable
from tidemill.kube.held_jobs import (
    HeldJob,
    Members,
    gang_rule,
    gates_its_pods,
    part_of,
    pods_it_will_make,
)
from tidemill.kube.objects import Key, PodObject, PodTemplate, PriorityClassObject
from tidemill.kube.pod_index import PodIndex
from tidemill.kube.pods import (
    FINISHED,
    GangRule,
    at,
    is_daemon,
    keep_own_annotations,
    pod_of,
    unreadable_pod,
    workload_of,
)
from tidemill.kube.templates import Said, Template, Templates
from tidemill.kube.unmade import UnmadePods
from tidemill.kube.volumes import Volumes, claims_of
from tidemill.kube.workloads import Population
from tidemill.model.pods import JOB_KINDS, Pod

log = logging.getLogger("tidemill.kube.pod_state")

_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NOBODY_SAID: Said = {}
_Labels = tuple[tuple[str, str], ...]


class PodState:
    def __init__(self, clock: MappedClock, changed: Callable[[Pod | None, Pod | None, bool], None]) -> None:
        """`changed`: told of every pod before and after, and whether it failed."""
        self._clock, self._changed = clock, changed
        self.templates = Templates()
        self.volumes = Volumes()
        self.index = PodIndex()
        self.objects: dict[str, PodObject] = {}  # unfinished ones
        self.jobs: dict[str, HeldJob] = {}  # by uid
        self.jobs_by_workload: dict[str, HeldJob] = {}
        self._pods_of_claim: dict[Key, set[str]] = {}
        self._pods_of_workload: dict[str, set[str]] = {}
        self._shown: dict[str, frozenset[str]] = {}  # by job uid: uids of the pods it will make
        self._gangs: dict[str, GangRule] = {}  # by job uid
        self._present: dict[str, dict[str, Members]] = {}  # by workload and part: what Jobs have there
        self._member_of: dict[str, str] = {}  # by pod uid: finished ones too
        self._recounted: set[str] = set()
        self._unmade = UnmadePods(clock)
        self._classes: dict[str, PriorityClassObject] = {}
        # By workload: how many pods have which labels. Budgets select by them.
        self._labels_of: dict[str, _Labels] = {}
        self._populations: dict[tuple[str, str], Counter[_Labels]] = {}
        self.population_changes = 0
        self._not_understood: set[str] = set()  # uids that were logged

    # --- pods ---------------------------------------------------------------------------------------

    def put(self, changed: Iterable[PodObject | Unreadable]) -> None:
        translated = []
        for one in changed:
            uid = one.metadata.uid
            if isinstance(one, Unreadable):
                if uid not in self.objects:  # what was read before is better than nothing
                    known = self.index.by_uid.get(uid)
                    first_seen = known.created_at if known is not None else self._clock.now()
                    translated.append(unreadable_pod(one, first_seen))
            elif one.status.phase in FINISHED:
                self._count(one)
                # Whoever is told to end, by a scale-down say, may exit with any code: that is no failure.
                by_itself = one.metadata.deletion_timestamp is None
                self.drop(uid, failed=one.status.phase == "Failed" and by_itself)
            else:
                keep_own_annotations(one.metadata)
                self.templates.shared(one.spec)
                known_as = self.objects.get(uid)
                if known_as is None or _links(known_as) != _links(one):
                    if known_as is not None:
                        self._unlink(known_as)
                    self._link(one)
                self.objects[uid] = one
                self._count(one)
                translated.append(self._translated(one))
        self._keep(translated)

    def remove(self, uid: str) -> None:
        """It is no longer there."""
        workload = self._member_of.pop(uid, None)
        if workload is not None:
            for members in self._present[workload].values():
                for those in (members.active, members.leaving, members.succeeded):
                    those.discard(uid)
            self._recounted.add(workload)
        self.drop(uid)

    def drop(self, uid: str, *, failed: bool = False) -> None:
        """It is no longer shown."""
        one = self.objects.pop(uid, None)
        self._not_understood.discard(uid)
        if one is not None:
            self._unlink(one)
        pod = self.index.drop(uid)
        if pod is not None:
            self._changed(pod, None, failed)

    def _translated(self, one: PodObject) -> Pod:
        """A fault of ours in one pod must not leave the others unread for ever: it counts as unreadable."""
        try:
            return self._read(one)
        except Exception as error:
            uid = one.metadata.uid
            if uid not in self._not_understood:
                self._not_understood.add(uid)
                log.exception("pod %s is not understood", one.metadata.full_name)
            bad = Unreadable(one.metadata, one.spec.node_name, f"{type(error).__name__}: {error}")
            known = self.index.by_uid.get(uid)
            return unreadable_pod(bad, known.created_at if known is not None else self._clock.now())

    def _read(self, one: PodObject) -> Pod:
        meta, spec = one.metadata, one.spec
        job = self.jobs_by_workload.get(workload_of(meta))
        template = self.templates.of(
            meta, spec, priority=spec.priority or 0, zones=self.volumes.zones_of(one),
            said=job.said if job is not None else _NOBODY_SAID, daemon=is_daemon(meta),
        )  # fmt: skip
        gang = self._gangs.get(job.meta.uid) if job is not None else None
        pod = pod_of(one, template, self._clock, gang)
        assert pod is not None  # finished ones were sorted out
        if job is not None and not job.whole and gates_its_pods(job):
            # Nobody overtakes it because its pods were made late.
            pod = replace(pod, created_at=at(job.meta.creation_timestamp, self._clock) or pod.created_at)
        return pod

    def _keep(self, pods: Iterable[Pod]) -> None:
        """Those that are equal to what is held are left as they are: unchanged pods keep their identity."""
        fresh = []
        for pod in pods:
            before = self.index.by_uid.get(pod.uid)
            if before != pod:
                fresh.append(pod)
                self._changed(before, pod, False)
        self.index.put_all(fresh)

    def _link(self, one: PodObject) -> None:
        uid = one.metadata.uid
        for claim in claims_of(one):
            self._pods_of_claim.setdefault(claim, set()).add(uid)
        workload = workload_of(one.metadata)
        if workload:
            self._pods_of_workload.setdefault(workload, set()).add(uid)
            labels = tuple(sorted((one.metadata.labels or {}).items()))
            self._labels_of[uid] = labels
            counts = self._populations.setdefault((one.metadata.namespace, workload), Counter())
            self.population_changes += labels not in counts
            counts[labels] += 1

    def _unlink(self, one: PodObject) -> None:
        uid = one.metadata.uid
        for claim in claims_of(one):
            _discard(self._pods_of_claim, claim, uid)
        workload = workload_of(one.metadata)
        if workload:
            _discard(self._pods_of_workload, workload, uid)
            key, labels = (one.metadata.namespace, workload), self._labels_of.pop(uid)
            counts = self._populations[key]
            counts[labels] -= 1
            if not counts[labels]:
                del counts[labels]
                self.population_changes += 1
            if not counts:
                del self._populations[key]

    def populations(self) -> list[Population]:
        return [
            Population(workload, namespace, tuple((dict(labels), count) for labels, count in counts.items()))
            for (namespace, workload), counts in self._populations.items()
        ]

    # --- Jobs ---------------------------------------------------------------------------------------

    def _count(self, one: PodObject) -> None:
        """As what its Job has there: unfinished, being deleted, or succeeded. One that failed is not there."""
        meta = one.metadata
        workload = workload_of(meta)
        if workload.partition("/")[0] not in JOB_KINDS:
            return
        uid, phase = meta.uid, one.status.phase
        parts = self._present.setdefault(workload, {})
        members = parts.setdefault(part_of(meta.labels or {}), Members())
        self._member_of[uid] = workload
        before = (uid in members.active, uid in members.leaving, uid in members.succeeded)
        active = phase not in FINISHED
        after = (active, active and meta.deletion_timestamp is not None, phase == "Succeeded")
        if before == after:
            return
        for those, belongs in zip((members.active, members.leaving, members.succeeded), after, strict=True):
            (those.add if belongs else those.discard)(uid)
        self._recounted.add(workload)

    def recount(self) -> None:
        """Jobs whose pods came or went make others than before. Asked for before anything is read: the pods of a large
        Job come one by one, and all that it will make are shown anew each time."""
        while self._recounted:
            workload = self._recounted.pop()
            parts = self._present.get(workload, {})
            for name in [name for name, one in parts.items() if not (one.active or one.succeeded)]:
                del parts[name]
            if not parts:
                self._present.pop(workload, None)
            job = self.jobs_by_workload.get(workload)
            if job is not None:
                self._show(job)

    def put_job(self, uid: str, job: HeldJob | None) -> None:
        before = self.jobs.pop(uid, None)
        if before is not None and self.jobs_by_workload.get(before.workload) is before:
            del self.jobs_by_workload[before.workload]
        if job is None:
            self._gangs.pop(uid, None)
            self._unmade.forget(uid)
            for gone in self._shown.pop(uid, ()):
                self.drop(gone)
        else:
            keep_own_annotations(job.meta)
            for part in job.parts:
                keep_own_annotations(part.template.metadata)
                self.templates.shared(part.template.spec)
            self.jobs[uid] = self.jobs_by_workload[job.workload] = job
            self._show(job)
        told = [
            (one.said, one.whole, gates_its_pods(one)) if one is not None else None for one in (before, job)
        ]
        if told[0] != told[1]:
            one = job or before
            assert one is not None
            self._translate(self._pods_of_workload.get(one.workload, ()))

    def _show(self, job: HeldJob) -> None:
        """The pods it will make, and its gang, from what of it is there now."""
        uid, present = job.meta.uid, self._present.get(job.workload, {})
        before = self._shown.pop(uid, frozenset())
        pods = {one.uid: one for one in pods_it_will_make(job, present, self.of_template, self._clock)}
        in_turn = job.staged and any(members.active for members in present.values())
        pods = self._unmade.shown(job, pods, part_runs=self._runs(present), in_turn=in_turn)
        for gone in before - pods.keys():
            self.drop(gone)
        if pods:
            self._shown[uid] = frozenset(pods)
            self._keep(pods.values())
        gang = gang_rule(job, present)
        if self._gangs.get(uid) != gang:
            if gang is None:
                del self._gangs[uid]
            else:
                self._gangs[uid] = gang
            self._translate(self._pods_of_workload.get(job.workload, ()))

    def _runs(self, present: Mapping[str, Members]) -> bool:
        there = (self.index.by_uid.get(uid) for members in present.values() for uid in members.active)
        return any(pod is not None and pod.started_at is not None for pod in there)

    def pass_time(self) -> None:
        """Show Jobs anew that were given too long to make their pods."""
        for uid in self._unmade.due():
            if uid in self.jobs:
                self._unmade.give_up(self.jobs[uid])
                self._show(self.jobs[uid])

    # --- what pods depend on ------------------------------------------------------------------------

    def of_template(self, one: PodTemplate, said: Said = _NOBODY_SAID) -> Template:
        """A template of a service or a Job; the Job may say more than it."""
        spec = one.spec
        priority = spec.priority if spec.priority is not None else self._priority(spec.priority_class_name)
        return self.templates.of(one.metadata, spec, priority=priority, zones=(), said=said, daemon=False)

    def _priority(self, name: str) -> int:
        if name in _SYSTEM_CLASSES:
            return _SYSTEM_CLASSES[name]
        for one in self._classes.values():
            if one.metadata.name == name or (not name and one.global_default):
                return one.value
        return 0

    def put_class(self, uid: str, one: PriorityClassObject | None) -> None:
        if one is None:
            self._classes.pop(uid, None)
        else:
            self._classes[uid] = one
        self.translate_held()

    def translate_held(self) -> None:
        for job in list(self.jobs.values()):
            self._show(job)

    def translate_claims(self, claims: Iterable[Key]) -> None:
        for claim in claims:
            self._translate(self._pods_of_claim.get(claim, ()))

    def translate_all(self) -> None:
        self._translate(self.objects)
        self.translate_held()

    def _translate(self, uids: Iterable[str]) -> None:
        self._keep([self._translated(self.objects[uid]) for uid in uids])


def _links(one: PodObject) -> tuple[Any, Any]:
    return one.metadata.labels, one.metadata.owner_references


def _discard(index: dict[Any, set[str]], key: Any, uid: str) -> None:
    held = index.get(key)
    if held is not None:
        held.discard(uid)
        if not held:
            del index[key]
