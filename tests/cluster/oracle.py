"""kube-scheduler judges the packer: what it planned is put before it, on nodes that are objects and nothing more.

Three questions of each problem:
* *planned*: every pod is pinned to its node, by a resource that only that node has. All must be bound.
* *unplaced*: with those bound, pods that found no room. The scheduler must not find any either.
* *alone*: each kind of pod on an empty fleet of every shape that can be launched. Packer and scheduler must agree.
And one that is only counted, *free*: the same pods without pins, in any order; greedy as it is, it may fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from controlplane.api import Api
from controlplane.components import API_SERVER, ETCD, SCHEDULER, Options
from controlplane.start import ControlPlane
from tests.cluster.oracle_cases import case
from tests.cluster.oracle_objects import Object, Realm
from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import PendingPod, Problem, Solution
from tidemill.sim.cluster.scheduler_filters import PodSelector

_THREADS = 6
_SETTLED_S = 2.5  # no pod moved for this long: more than the scheduler's longest back-off
_SEEN_S = 0.5  # until the scheduler has seen the nodes and pods that were created before
_GIVE_UP_S = 60.0

# No controller manager: nobody adds taints, evicts or collects. Admission must not add to what is asked.
_WITHOUT = (
    "ServiceAccount,DefaultTolerationSeconds,TaintNodesByCondition,StorageObjectInUseProtection,LimitRanger"
)
_SCHEDULER_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: scheduler.conf, qps: 5000, burst: 5000}
leaderElection: {leaderElect: false}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
"""


def oracle_options(folder: Path) -> Options:
    """A control plane that schedules, fast, and does nothing else."""
    config = folder / "scheduler.yaml"
    config.write_text(_SCHEDULER_CONFIG)
    return Options(
        components=(ETCD, API_SERVER, SCHEDULER),
        arguments={
            SCHEDULER: ("--config", str(config)),
            API_SERVER: ("--disable-admission-plugins", _WITHOUT),
        },
    )


@dataclass(slots=True)
class Verdict:
    """What came of some problems. A disagreement says seed, question, pod and the scheduler's own words."""

    cases: int = 0
    planned: int = 0
    unplaced: int = 0
    alone_bound: int = 0
    alone_refused: int = 0
    free: int = 0  # of the planned: bound without pins
    disagreements: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        for name in ("cases", "planned", "unplaced", "alone_bound", "alone_refused", "free"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.disagreements += other.disagreements

    def disagree(self, asked: _Asked, what: str) -> None:
        self.disagreements.append(f"seed {asked.case.seed}: {asked.name}, {what}")

    def __str__(self) -> str:
        return (
            f"{self.cases} cases: {self.planned} pods planned, of which {self.free} are bound without pins too; "
            f"{self.unplaced} unplaced pods judged; alone {self.alone_bound} bound and {self.alone_refused} refused by "
            f"both; {len(self.disagreements)} disagreements"
        )


@dataclass(frozen=True, slots=True)
class _Case:
    seed: int
    realm: Realm
    problem: Problem
    solution: Solution

    def plan(self) -> list[tuple[int, str]]:
        """(index of a pod, name of its node)"""
        there = [
            (pod, self.problem.nodes[number].name)
            for number, pods in self.solution.existing.items()
            for pod in pods
        ]
        return there + [
            (pod, f"new{number}") for number, node in enumerate(self.solution.opened) for pod in node.pods
        ]

    @property
    def namespaces(self) -> set[str]:
        used = {pod.namespace for pod in self.problem.pods}
        used |= {pods.namespace for node in self.problem.nodes for pods in node.existing_pods}
        return {self.realm.namespace(name) for name in used}

    def nodes(self) -> list[Object]:
        existing, opened = self.solution.existing, self.solution.opened
        return [
            *(
                self.realm.existing_node(node, len(existing.get(i, ())))
                for i, node in enumerate(self.problem.nodes)
            ),
            *(
                self.realm.opened_node(f"new{i}", node.option, len(node.pods))
                for i, node in enumerate(opened)
            ),
        ]

    @property
    def empty_realm(self) -> Realm:
        return replace(self.realm, name=f"{self.realm.name}e")

    def fleet(self) -> list[Object]:
        """One empty node of every shape that can be launched."""
        return [
            self.empty_realm.opened_node(f"e{i}", option, 0) for i, option in enumerate(self.problem.options)
        ]

    def existing_pods(self) -> list[Object]:
        return [
            self.realm.pod(f"{node.name}-{number}-{copy}", pods.namespace, pods.shape, bound_to=node.name)
            for node in self.problem.nodes
            for number, pods in enumerate(node.existing_pods)
            for copy in range(pods.count)
        ]

    def is_judged_as_the_scheduler_does(self, pod: PendingPod) -> bool:
        """No rule of our own keeps it out, and none that we read more strictly.

        We keep skews at the end and not only at the moment of binding, and count on no order of binding: pods with a
        spread or an affinity, and pods that a spread counts.
        """
        if pod.gang is not None or pod.refuses or pod.shape.spread or pod.shape.affinity:
            return False
        return not any(
            PodSelector.of_spread(spread, other.namespace, other.shape.labels).matches(
                pod.namespace, dict(pod.shape.labels)
            )
            for other in self.problem.pods
            for spread in other.shape.spread
        )

    def kinds(self) -> list[PendingPod]:
        return list({(pod.shape, pod.namespace): pod for pod in self.problem.pods}.values())

    def fits_alone(self, kind: PendingPod) -> bool:
        """Whether the packer would place it on an empty fleet, without our own rules: limits, groups, gangs."""
        free = tuple(replace(option, stock="", budget="", group="") for option in self.problem.options)
        alone = Problem((replace(kind, gang=None, refuses=frozenset()),), (), free)
        return not solve(alone).unplaced


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pod that is put before the scheduler."""

    case: _Case
    pod: PendingPod
    realm: Realm
    pinned_to: str = ""

    @property
    def name(self) -> str:
        return self.pod.id

    @property
    def key(self) -> tuple[str, str]:
        return self.realm.namespace(self.pod.namespace), self.name

    def written(self) -> Object:
        return self.realm.pod(self.name, self.pod.namespace, self.pod.shape, pinned_to=self.pinned_to)


class Oracle:
    """Judges problems, many at a time."""

    def __init__(self, plane: ControlPlane) -> None:
        self._api = plane.admin()
        self._batches = 0

    def judge(self, seeds: Iterable[int], packer: Callable[[Problem], Solution] = solve) -> Verdict:
        self._batches += 1
        batch = f"b{self._batches}"
        cases = []
        for seed in seeds:
            problem = case(seed)
            cases.append(
                _Case(seed, Realm(f"{batch}c{seed}", batch, f"{batch}c{seed}"), problem, packer(problem))
            )
        verdict = Verdict(cases=len(cases))
        with ThreadPoolExecutor(_THREADS) as pool:
            run = _Run(self._api, batch, pool)
            try:
                run.prepare(cases)
                _ask_planned(run, cases, verdict)
                _ask_unplaced(run, cases, verdict)
                _ask_free(run, cases, verdict)
                _ask_alone(run, cases, verdict)
            finally:
                run.remove(cases)
        return verdict


# --- the questions ----------------------------------------------------------------------------------


def _ask_planned(run: _Run, cases: Sequence[_Case], verdict: Verdict) -> None:
    asked = [
        _Asked(one, one.problem.pods[index], one.realm, pinned_to=node)
        for one in cases
        for index, node in one.plan()
    ]
    refused = run.ask(asked, patient=True)
    if refused:  # an answer may be old: ask again, now that all others are bound
        again = [one for one in asked if one.key in refused]
        run.withdraw(again)
        refused = run.ask(again, patient=True)
    verdict.planned += len(asked)
    for one in asked:
        if one.key in refused:
            verdict.disagree(one, f"planned on {one.pinned_to}: {refused[one.key]}")


def _ask_unplaced(run: _Run, cases: Sequence[_Case], verdict: Verdict) -> None:
    asked = [
        _Asked(one, one.problem.pods[index], one.realm)
        for one in cases
        for index in one.solution.unplaced
        if one.is_judged_as_the_scheduler_does(one.problem.pods[index])
    ]
    refused = run.ask(asked)
    verdict.unplaced += len(asked)
    for one in asked:
        if one.key not in refused:
            verdict.disagree(one, f"called impossible: there is room on {run.node_of(one)}")
    run.withdraw(asked)


def _ask_free(run: _Run, cases: Sequence[_Case], verdict: Verdict) -> None:
    asked = [_Asked(one, one.problem.pods[index], one.realm) for one in cases for index, _ in one.plan()]
    run.withdraw(asked)
    verdict.free += len(asked) - len(run.ask(asked, patient=True))
    run.withdraw(asked)


def _ask_alone(run: _Run, cases: Sequence[_Case], verdict: Verdict) -> None:
    """One kind of each case at a time: beside another it would not be alone."""
    run.create("/api/v1/nodes", [node for one in cases for node in one.fleet()])
    time.sleep(_SEEN_S)
    for number in range(max(len(one.kinds()) for one in cases)):
        asked = [
            _Asked(one, replace(kind, id=f"alone{number}-{kind.id}"), one.empty_realm)
            for one in cases
            for kind in one.kinds()[number : number + 1]
        ]
        fits = {one.key for one in asked if one.case.fits_alone(one.pod)}
        refused = run.ask(asked, wanted=fits)
        for one in asked:
            if one.key in fits and one.key in refused:
                verdict.disagree(one, f"placed alone: {refused[one.key]}")
            elif one.key not in fits and one.key not in refused:
                verdict.disagree(one, f"called impossible alone: it is bound to {run.node_of(one)}")
        verdict.alone_bound += len(fits - refused.keys())
        verdict.alone_refused += len(refused.keys() - fits)
        run.withdraw(asked)


# --- the cluster ------------------------------------------------------------------------------------


class _Run:
    """One batch of problems in the cluster."""

    def __init__(self, api: Api, batch: str, pool: ThreadPoolExecutor) -> None:
        self._api, self._batch, self._pool = api, batch, pool

    def prepare(self, cases: Sequence[_Case]) -> None:
        self.create(
            "/api/v1/namespaces",
            [{"metadata": {"name": name}} for one in cases for name in sorted(one.namespaces)],
        )
        self.create("/api/v1/nodes", [node for one in cases for node in one.nodes()])
        self.create(
            "/api/v1/namespaces/{namespace}/pods", [pod for one in cases for pod in one.existing_pods()]
        )
        time.sleep(_SEEN_S)

    def ask(
        self, asked: Sequence[_Asked], *, wanted: Set[tuple[str, str]] = frozenset(), patient: bool = False
    ) -> dict[tuple[str, str], str]:
        """Create the pods, wait for the scheduler's answers; those it refuses, with its words.

        `wanted` may be refused at first, and a refusal counts when nothing moves any more; `patient`: all of them.
        """
        for one in asked:
            if one.pod.shape.volume_zones:
                volume, claim = one.realm.volume(one.name, one.pod.namespace, one.pod.shape.volume_zones)
                self.create("/api/v1/persistentvolumes", [volume])
                self.create("/api/v1/namespaces/{namespace}/persistentvolumeclaims", [claim])
        self.create("/api/v1/namespaces/{namespace}/pods", [one.written() for one in asked])
        last: dict[tuple[str, str], str] = {}
        since = time.monotonic()
        while True:
            unbound = self._unbound()
            if unbound.keys() != last.keys():
                since = time.monotonic()
            last = unbound
            judged = all(unbound.values())
            hoped = unbound if patient else unbound.keys() & wanted
            if judged and (not hoped or time.monotonic() > since + _SETTLED_S):
                return unbound
            if time.monotonic() > since + _GIVE_UP_S:
                raise TimeoutError(
                    f"kube-scheduler says nothing of {sum(not why for why in unbound.values())} pods"
                )
            time.sleep(0.2)

    def _unbound(self) -> dict[tuple[str, str], str]:
        """What the scheduler says of each pod that has no node; empty while it says nothing."""
        listed = self._api.items(
            "/api/v1/pods", fieldSelector="spec.nodeName=", labelSelector=f"batch={self._batch}"
        )
        found = {}
        for pod in listed:
            said = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
            found[pod["metadata"]["namespace"], pod["metadata"]["name"]] = (
                said[0].get("message", "") if said else ""
            )
        return found

    def node_of(self, asked: _Asked) -> str:
        namespace, name = asked.key
        found: str = self._api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"]["nodeName"]
        return found

    def withdraw(self, asked: Sequence[_Asked]) -> None:
        """Delete the pods, and their volumes."""
        paths = []
        for one in asked:
            namespace, name = one.key
            paths.append(f"/api/v1/namespaces/{namespace}/pods/{name}")
            if one.pod.shape.volume_zones:
                paths.append(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
                paths.append(f"/api/v1/persistentvolumes/{one.realm.name}-{one.pod.namespace}-{name}")
        list(self._pool.map(lambda path: self._api.delete(path, gracePeriodSeconds=0), paths))

    def create(self, path: str, objects: Sequence[Object]) -> None:
        def one(written: Object) -> None:
            self._api.create(path.format(namespace=written["metadata"].get("namespace")), written)

        list(self._pool.map(one, objects))

    def remove(self, cases: Sequence[_Case]) -> None:
        """Whatever is left of this batch, but its namespaces: nobody is here who could end them."""
        for kind in ("nodes", "persistentvolumes"):
            self._api.delete(f"/api/v1/{kind}?labelSelector=batch%3D{self._batch}")
        paths = [f"/api/v1/namespaces/{name}/pods" for one in cases for name in one.namespaces]
        list(self._pool.map(lambda path: self._api.delete(path, gracePeriodSeconds=0), paths))
