"""Reading on a real API server: whatever happens on the way, the view is that of a fresh list, object by object."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import Api, ApiError, eventually
from controlplane.start import ControlPlane
from tidemill.engine.clock import WallClock
from tidemill.kube.cluster_view import KINDS, ClusterReader
from tidemill.kube.connect import connect
from tidemill.model.pods import Gang
from tidemill.model.resources import amount
from tidemill.ports import ClusterView
from tidemill.spec import names

# Far shorter than in production, so that a test sees many watches.
QUICK = {"watch_s": (2, 5), "backoff_s": (0.05, 0.5), "absent_s": 0.5, "page": 20}


@contextlib.contextmanager
def reading(kubeconfig: Path, *, wait: bool = True, **options: Any) -> Iterator[ClusterReader]:
    api = connect(str(kubeconfig))
    reader = ClusterReader(api, WallClock(), **{**QUICK, **options})
    reader.start()
    try:
        assert not wait or reader.wait_synced(60), reader.errors()
        yield reader
    finally:
        began = time.monotonic()
        reader.stop()
        assert time.monotonic() - began < 2
        api.close()


def plain(view: ClusterView) -> dict[str, dict[str, Any]]:
    """What two readings must agree on: not when a reader saw things happen."""
    seen = {"last_pod_event_at": None, "accelerators_registered_at": None}
    return {
        "pods": {pod.uid: pod for pod in view.pods},
        "order": {str(number): pod.uid for number, pod in enumerate(view.pods)},
        "bound": {name: [pod.uid for pod in pods] for name, pods in view.pods_by_node.items()},
        "nodes": {node.name: replace(node, **seen) for node in view.nodes},  # type: ignore[arg-type]
        "budgets": {budget.workload: budget for budget in view.budgets},
        "workloads": {workload.name: workload for workload in view.workloads},
    }


def check_agrees(reader: ClusterReader, cluster: ControlPlane) -> None:
    """With what another client lists, and with what a reader that begins now sees."""
    admin = cluster.admin()

    def same_versions() -> bool:
        for reflector in reader.reflectors:
            if reflector.served:
                listed = admin.items(reflector.kind.path)
                wanted = {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in listed}
                if reflector._held != wanted:
                    return False
        return True

    eventually(same_versions, timeout_s=60, what="every object in its newest version")
    with reading(cluster.kubeconfig) as fresh:
        mine, theirs = plain(reader.view()), plain(fresh.view())
        for part, objects in theirs.items():
            assert mine[part].keys() == objects.keys(), part
            for name, one in objects.items():
                assert mine[part][name] == one, f"{part} {name}"


# --- writers --------------------------------------------------------------------------------------------


class Writer:
    """Creates, changes and deletes objects of every kind by chance. What the API server refuses does not matter."""

    def __init__(self, api: Api, namespace: str, seed: int) -> None:
        self._api, self._chance = api, random.Random(seed)
        self._in = f"/api/v1/namespaces/{namespace}"
        self._batch = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._apps = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self._budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        self.steps = self.refused = 0

    def step(self) -> None:
        chance = self._chance
        name = f"x{chance.randrange(25)}"
        kind = chance.choice(["pod", "pod", "pod", "node", "job", "deployment", "budget", "claim", "volume"])
        try:
            getattr(self, f"_{kind}")(name, chance.random())
            self.steps += 1
        except (ApiError, OSError, TimeoutError):
            self.refused += 1

    def _pod(self, name: str, what: float) -> None:
        path = f"{self._in}/pods"
        if what < 0.45:
            spec: dict[str, Any] = {
                "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}}],
                "terminationGracePeriodSeconds": self._chance.choice([0, 30]),
            }
            if what < 0.2:
                spec["schedulingGates"] = [{"name": names.GATE}]
            elif what < 0.3:
                spec["nodeName"] = f"n{self._chance.randrange(8)}"
            if what < 0.1:
                spec["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": name}}]
            self._api.create(path, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
        elif what < 0.7:
            notes = {names.TEAM: f"t{self._chance.randrange(9)}", names.ENDS_AT: "2027-01-01T00:00:00.5Z"}
            self._api.patch(f"{path}/{name}", {"metadata": {"annotations": notes}})
        elif what < 0.8:
            phase = self._chance.choice(["Running", "Succeeded", "Failed"])
            self._api.patch(f"{path}/{name}/status", {"status": {"phase": phase}})
        else:
            self._api.delete(f"{path}/{name}", gracePeriodSeconds=0)

    def _node(self, name: str, what: float) -> None:
        name = f"n{self._chance.randrange(8)}"
        if what < 0.4:
            spec = {"providerID": f"aws:///us-east-1a/i-{self._chance.randrange(16**8):017x}"}
            labels = {names.LABEL_TYPE: "p5.48xlarge"}
            self._api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": spec})
        elif what < 0.8:
            room = {"cpu": str(self._chance.randrange(1, 192)), "nvidia.com/gpu": "8", "pods": "110"}
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-16T06:00:00Z"}
            status = {"capacity": room, "allocatable": room, "conditions": [ready]}
            self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        else:
            self._api.delete(f"/api/v1/nodes/{name}")

    def _job(self, name: str, what: float) -> None:
        if what < 0.5:
            pod = {"containers": [{"name": "c", "image": "none"}], "restartPolicy": "Never"}
            spec = {"suspend": True, "parallelism": 3, "completions": 3, "template": {"spec": pod}}
            labels = {names.HELD_BY: names.HELD_BY_US, names.GANG: name}
            self._api.create(self._batch, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        elif what < 0.75:
            self._api.patch(f"{self._batch}/{name}", {"spec": {"suspend": what < 0.65}})
        else:
            self._api.delete(f"{self._batch}/{name}", propagationPolicy="Background")

    def _deployment(self, name: str, what: float) -> None:
        name = f"d{self._chance.randrange(4)}"
        if what < 0.4:
            labels = {"app": name}
            pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
            spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod}
            self._api.create(self._apps, {"metadata": {"name": name}, "spec": spec})
        elif what < 0.8:
            self._api.patch(f"{self._apps}/{name}", {"spec": {"replicas": self._chance.randrange(4)}})
        else:
            self._api.delete(f"{self._apps}/{name}", propagationPolicy="Background")

    def _budget(self, name: str, what: float) -> None:
        name = f"d{self._chance.randrange(4)}"
        if what < 0.6:
            spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
            self._api.create(self._budgets, {"metadata": {"name": name}, "spec": spec})
        else:
            self._api.delete(f"{self._budgets}/{name}")

    def _claim(self, name: str, what: float) -> None:
        if what < 0.6:
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "none", "volumeName": f"v{self._chance.randrange(4)}"}  # fmt: skip
            self._api.create(f"{self._in}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec})
        else:
            self._api.delete(f"{self._in}/persistentvolumeclaims/{name}")

    def _volume(self, name: str, what: float) -> None:
        name = f"v{self._chance.randrange(4)}"
        if what < 0.6:
            zone = {"key": names.LABEL_ZONE, "operator": "In", "values": [self._chance.choice("abc")]}
            spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "none",
                    "hostPath": {"path": "/x"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}}  # fmt: skip
            self._api.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        else:
            self._api.delete(f"/api/v1/persistentvolumes/{name}")

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        over = threading.Event()

        def write() -> None:
            while not over.is_set():
                self.step()

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30)
            assert self.steps > 20, f"{self.steps} writes, {self.refused} refused"


# --- the tests ------------------------------------------------------------------------------------------


def test_the_view_is_that_of_a_fresh_list_while_watches_are_cut_every_two_seconds(cluster, namespace):
    with cluster.through_proxy() as (proxy, kubeconfig), reading(kubeconfig) as reader:
        with Writer(cluster.admin(), namespace, 1).going_on(), proxy.cut_every(2):
            time.sleep(12)
        check_agrees(reader, cluster)
        assert proxy.cuts > 20
        assert all(reflector.lists == 1 for reflector in reader.reflectors if reflector.served), (
            "it listed again"
        )


def test_the_view_is_that_of_a_fresh_list_after_the_history_is_forgotten(cluster, namespace):
    """Etcd compacted and the API server killed: every place is lost (410), and deletes happened meanwhile."""
    with cluster.through_proxy() as (proxy, kubeconfig), reading(kubeconfig) as reader:
        writer = Writer(cluster.admin(), namespace, 2)
        for _ in range(80):
            writer.step()
        for _ in range(2):
            with proxy.held():  # nothing is told of what follows
                for _ in range(60):
                    writer.step()
                cluster.forget_history()
                proxy.cut()
            check_agrees(reader, cluster)
        assert sum(reflector.lists for reflector in reader.reflectors) > 2 * 9, "nothing was listed again"


def test_the_view_is_that_of_a_fresh_list_after_restarts_and_a_slow_etcd(cluster, namespace):
    with reading(cluster.kubeconfig) as reader:
        with Writer(cluster.admin(), namespace, 3).going_on():
            with cluster.slow_etcd():
                time.sleep(4)
            cluster.restart("kube-apiserver", kill=True, down_s=1)
            time.sleep(2)
        check_agrees(reader, cluster)


def test_unchanged_objects_keep_their_identity_over_a_new_list(cluster, namespace, api):
    make_pods(
        api, namespace, 30, schedulingGates=[{"name": names.GATE}]
    )  # so that kube-scheduler says nothing new
    with cluster.through_proxy() as (proxy, kubeconfig), reading(kubeconfig) as reader:
        eventually(lambda: len(reader.view().pods) == 30)
        before = {pod.uid: pod for pod in reader.view().pods}
        with proxy.held():
            for number in range(3):  # so that our place lies before what is forgotten
                api.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": f"c{number}"}})
            cluster.forget_history()
            proxy.cut()
        pods = next(one for one in reader.reflectors if one.kind.name == "Pod")
        eventually(lambda: pods.lists > 1, timeout_s=60, what="pods are listed again")
        after = {pod.uid: pod for pod in reader.view().pods}
        assert all(after[uid] is pod for uid, pod in before.items())


def make_pods(api: Api, namespace: str, count: int, **spec: Any) -> None:
    base = {"containers": [{"name": "c", "image": "none"}]}
    for number in range(count):
        api.create(
            f"/api/v1/namespaces/{namespace}/pods",
            {"metadata": {"name": f"p{number}"}, "spec": {**base, **spec}},
        )


def test_huge_annotations_and_two_hundred_containers(cluster, namespace, api):
    path = f"/api/v1/namespaces/{namespace}/pods"
    many = [{"name": f"c{n}", "image": "none", "resources": {"requests": {"cpu": "10m"}}} for n in range(200)]
    api.create(path, {"metadata": {"name": "many"}, "spec": {"containers": many}})
    large = {"other/blob": "x" * 250_000, names.TEAM: "nlp"}
    spec = {"containers": [{"name": "c", "image": "none", "args": ["y" * 900_000]}]}
    api.create(path, {"metadata": {"name": "large", "annotations": large}, "spec": spec})
    with reading(cluster.kubeconfig) as reader:
        pods = {pod.name: pod for pod in reader.view().pods}
        assert amount(pods["many"].shape.requests, "cpu") == 2000
        assert pods["large"].terms.team == "nlp"
        api.patch(f"{path}/large", {"metadata": {"annotations": {"other/blob": "z" * 250_000}}})
        make_pods(api, namespace, 1)
        eventually(lambda: len(reader.view().pods) == 3, what="the watch goes on after a large object")


def test_a_held_job_is_seen_and_its_real_pods_after_it_started(cluster, namespace, api):
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    pod = {"containers": [{"name": "c", "image": "none"}], "restartPolicy": "Never"}
    template = {"spec": pod, "metadata": {"annotations": {names.EXPECTED_DURATION: "2h"}}}
    labels = {names.HELD_BY: names.HELD_BY_US, names.GANG: "g"}
    spec = {"suspend": True, "parallelism": 3, "completions": 3, "template": template}
    api.create(path, {"metadata": {"name": "train", "labels": labels}, "spec": spec})
    with reading(cluster.kubeconfig) as reader:
        eventually(lambda: len(reader.view().pods) == 3)
        shown = reader.view().pods
        assert [one.uid.rpartition(".")[2] for one in shown] == ["0", "1", "2"]
        assert all(one.gated and one.gang == Gang("g", 3) for one in shown)
        job = reader.job_of(shown[0].uid)
        assert job is not None
        assert job.path == f"{path}/train"
        patch = {
            "metadata": {"labels": {names.HELD_BY: None}, "annotations": {names.PINS: names.LABEL_SOURCE}},
            "spec": {
                "suspend": False,
                "template": {
                    "spec": {
                        "nodeSelector": {names.LABEL_SOURCE: "cr-1"},
                        "tolerations": [{"key": names.TAINT_HELD, "operator": "Exists"}],
                    }
                },
            },
        }
        counts: list[int] = []
        api.patch(job.path, patch)

        def all_real() -> bool:
            pods = reader.view().pods
            counts.append(len(pods))
            return len(pods) == 3 and all("." not in one.uid for one in pods)

        eventually(all_real, what="the Job's own pods")
        assert set(counts) == {3}, "their room was not claimed all the time"
        assert {(one.pinned_to, one.gang, one.workload) for one in reader.view().pods} == {
            ("cr-1", Gang("g", 3), f"Job/{namespace}/train")
        }


def test_a_kind_whose_definition_comes_later_is_read_then(cluster, api, namespace):
    group, plural = "jobset.x-k8s.io", "jobsets"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": "jobset", "kind": "JobSet", "listKind": "JobSetList"},
            "versions": [{"name": "v1alpha2", "served": True, "storage": True, "schema": schema}],
        },
    }
    with reading(cluster.kubeconfig) as reader:
        job_sets = next(one for one in reader.reflectors if one.kind.name == "JobSet")
        assert not job_sets.served
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        pod = {"spec": {"containers": [{"name": "c", "image": "none"}]}}
        job = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": pod}}}
        one = {
            "apiVersion": f"{group}/v1alpha2",
            "kind": "JobSet",
            "spec": {"suspend": True, "replicatedJobs": [job]},
        }
        one["metadata"] = {"name": "big", "labels": {names.HELD_BY: names.HELD_BY_US}}
        path = f"/apis/{group}/v1alpha2/namespaces/{namespace}/{plural}"
        eventually(lambda: api.create(path, one), what="the API server takes a JobSet")
        eventually(lambda: len(reader.view().pods) == 4, what="the pods of the JobSet")
        api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}")
        eventually(lambda: not reader.view().pods, what="its objects go with the definition")


def test_what_is_not_allowed_is_named_and_the_rest_goes_on(cluster, api, namespace):
    """All but one of the kinds may be read."""
    rules = [
        {"apiGroups": ["*"], "resources": [kind.path.rpartition("/")[2]], "verbs": ["list", "watch"]}
        for kind in KINDS
        if kind.name != "Job"
    ]
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    api.create(role, {"metadata": {"name": "almost"}, "rules": rules})
    account = cluster.service_account(namespace, "reader")
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    binding = {
        "metadata": {"name": "almost"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "almost"},
        "subjects": [subject],
    }
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    with reading(account, wait=False) as reader:

        def all_but_one() -> bool:
            others = (one for one in reader.reflectors if one.kind.name != "Job")
            return set(reader.errors()) == {"Job"} and all(one.synced for one in others)

        eventually(all_but_one, what="every kind but one is read")
        said = str(reader.errors()["Job"])
        assert "cannot list resource" in said
        assert "jobs" in said
        assert f"system:serviceaccount:{namespace}:reader" in said
        assert not reader.synced
        api.patch(f"{role}/almost", {"rules": [*rules, {**rules[0], "resources": ["jobs"]}]})
        assert reader.wait_synced(30)
        assert not reader.errors()


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_api_server_that_is_away(cluster, namespace, api, when):
    if when == "after":
        with reading(cluster.kubeconfig) as reader:
            before = reader.view()
            cluster.processes.kill("kube-apiserver")
            eventually(lambda: len(reader.errors()) > 5, what="it is noticed")
            assert all(error.code in ("unreachable", "connection") for error in reader.errors().values())
            assert reader.view().nodes is before.nodes  # the last reading stays
            cluster.processes.start_again("kube-apiserver")
            cluster.wait_for("kube-apiserver")
            make_pods(api, namespace, 1)
            eventually(lambda: len(reader.view().pods) == 1, what="it reads again")
            eventually(lambda: not reader.errors(), what="no error stays")
        return
    cluster.processes.kill("kube-apiserver")
    with reading(cluster.kubeconfig, wait=False) as reader:
        time.sleep(1)
        assert not reader.synced
        cluster.processes.start_again("kube-apiserver")
        assert reader.wait_synced(60)


def test_a_silent_network_is_noticed_and_left_behind(cluster, namespace, api):
    with cluster.through_proxy() as (proxy, kubeconfig), reading(kubeconfig, spare_s=1) as reader:
        with proxy.held():
            make_pods(api, namespace, 2)
            eventually(reader.errors, what="silence is an error")
            assert reader.lag_s > 1
            proxy.cut()
        eventually(lambda: len(reader.view().pods) == 2, what="it goes on")
