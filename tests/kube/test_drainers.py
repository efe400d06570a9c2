"""A second drainer on our nodes is found; one that keeps to other nodes is not."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tidemill.kube.api import KubeApi
from tidemill.kube.drainers import Drainer, DrainerKind, find_drainers
from tidemill.model.errors import Gone, NotAllowed
from tidemill.spec import names
from tidemill.spec.compute_pool import Provisioner

NTH = "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1.25.6"
CA = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.37.0@sha256:00"
POOLS = {"p5": Provisioner.NATIVE, "trn2": Provisioner.ASG, "g6": Provisioner.MANAGED}


class Cluster:
    """Lists of objects by path, a page at a time."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {
            path: [] for path in ("/api/v1/nodes", "/apis/apps/v1/daemonsets", "/apis/apps/v1/deployments")
        }

    def get(self, path: str, params: dict[str, Any]) -> bytes:
        if path not in self.objects:
            raise Gone("the server could not find it", code="not-served")
        begin = int(params.get("continue", 0))
        rest = len(self.objects[path]) > begin + 1
        items = self.objects[path][begin : begin + 1]
        metadata = {"continue": str(begin + 1)} if rest else {}
        return json.dumps({"metadata": metadata, "items": items}).encode()

    def node(self, name: str, pool: str, **labels: str) -> None:
        labels = {names.LABEL_POOL: pool, **{key.replace("__", "/"): value for key, value in labels.items()}}
        self.objects["/api/v1/nodes"].append({"metadata": {"name": name, "labels": labels}})

    def run(self, kind: str, name: str, image: str, **spec: Any) -> None:
        container = {"image": image, **spec.pop("container", {})}
        template = {"metadata": {}, "spec": {"containers": [container], **spec.pop("pod", {})}}
        made = {
            "metadata": {"namespace": "kube-system", "name": name},
            "spec": {"template": template, **spec},
        }
        self.objects[f"/apis/apps/v1/{kind}s"].append(made)

    def found(self, **pools: Provisioner) -> list[Drainer]:
        return list(find_drainers(cast(KubeApi, self), pools or POOLS))


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.node("ip-1", "p5")
    made.node("ip-2", "g6", eks_amazonaws_com__nodegroup="g6")
    return made


def test_a_cluster_without_another_drainer_has_none(cluster: Cluster) -> None:
    cluster.run("deployment", "coredns", "eks/coredns:v1.11")
    cluster.run("daemonset", "aws-node", "amazon-k8s-cni:v1.19")
    assert cluster.found() == []


def test_a_node_termination_handler_on_our_nodes_is_found(cluster: Cluster) -> None:
    cluster.run("daemonset", "aws-node", "amazon-k8s-cni:v1.19")
    cluster.run("daemonset", "nth", NTH, pod={"nodeSelector": {}})
    (drainer,) = cluster.found()
    assert (drainer.kind, drainer.certain) == (DrainerKind.NODE_TERMINATION_HANDLER, True)
    assert (drainer.pools, drainer.nodes) == (("g6", "p5", "trn2"), ("ip-1", "ip-2"))
    assert str(drainer) == (
        "DaemonSet/kube-system/nth is a aws-node-termination-handler and acts on nodes of g6, p5, trn2 (on ip-1, ip-2)"
    )


def test_one_that_keeps_off_our_nodes_is_no_second_drainer(cluster: Cluster) -> None:
    away = [{"matchExpressions": [{"key": names.LABEL_POOL, "operator": "DoesNotExist"}]}]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": away}}
    cluster.run("daemonset", "nth", NTH, pod={"affinity": {"nodeAffinity": affinity}})
    assert cluster.found() == []


def test_one_that_keeps_to_nodes_of_another_kind_may_come_to_a_pool_without_nodes(cluster: Cluster) -> None:
    cluster.run("daemonset", "nth", NTH, pod={"nodeSelector": {"team": "web"}})
    (drainer,) = cluster.found()
    assert drainer.pools == ("trn2",), "nodes of the others are there, and have no such label"


@pytest.mark.parametrize(
    ("container", "certain"),
    [
        ({}, False),
        ({"args": ["--check-tag-before-draining=false"]}, True),
        ({"env": [{"name": "CHECK_TAG_BEFORE_DRAINING", "value": "false"}]}, True),
        ({"env": [{"name": "CHECK_TAG_BEFORE_DRAINING", "value": "true"}]}, False),
    ],
)
def test_one_with_a_queue_is_certain_only_where_it_asks_no_tag(
    cluster: Cluster, container: dict[str, Any], certain: bool
) -> None:
    cluster.run("deployment", "nth", NTH, container=container)
    assert [drainer.certain for drainer in cluster.found()] == [certain]


def test_a_cluster_autoscaler_acts_on_groups(cluster: Cluster) -> None:
    cluster.run("deployment", "autoscaler", CA, replicas=1)
    (drainer,) = cluster.found()
    assert (drainer.kind, drainer.pools, drainer.certain) == (
        DrainerKind.CLUSTER_AUTOSCALER,
        ("g6", "trn2"),
        True,
    )
    assert cluster.found(p5=Provisioner.NATIVE) == [], "it leaves alone what has no group"
    (drainer,) = cluster.found(trn2=Provisioner.ASG)
    assert not drainer.certain, "whether it looks after this group is in the group's tags"


def test_one_that_was_scaled_to_nothing_does_nothing(cluster: Cluster) -> None:
    cluster.run("deployment", "autoscaler", CA, replicas=0)
    assert cluster.found() == []


def test_karpenter_with_nodes_of_its_own_is_a_neighbour(cluster: Cluster) -> None:
    cluster.run("deployment", "karpenter", "public.ecr.aws/karpenter/controller:1.14.1")
    own = {"metadata": {"name": "web"}, "spec": {"template": {"metadata": {"labels": {"team": "web"}}}}}
    cluster.objects["/apis/karpenter.sh/v1/nodepools"] = [own]
    assert cluster.found() == []


def test_karpenter_with_nodes_of_ours_is_found(cluster: Cluster) -> None:
    labels = {names.LABEL_POOL: "p5"}
    pool = {"metadata": {"name": "gpu"}, "spec": {"template": {"metadata": {"labels": labels}}}}
    cluster.objects["/apis/karpenter.sh/v1/nodepools"] = [pool]
    cluster.node("ip-3", "g6", karpenter_sh__nodepool="x")
    cluster.objects["/api/v1/nodes"][-1]["metadata"]["labels"]["karpenter.sh/nodepool"] = "old"
    found = [(drainer.name, drainer.pools, drainer.nodes) for drainer in cluster.found()]
    assert found == [("NodePool/gpu", ("p5",), ()), ("NodePool/old", ("g6",), ("ip-3",))]
    assert cluster.found(p5=Provisioner.KARPENTER) == [], "its nodes are Karpenter's"


def test_eks_node_repair_may_act_on_managed_node_groups(cluster: Cluster) -> None:
    cluster.run("daemonset", "eks-node-monitoring-agent", "eks/eks-node-monitoring-agent:v1.4")
    (drainer,) = cluster.found()
    assert (drainer.kind, drainer.pools, drainer.certain) == (DrainerKind.NODE_REPAIR, ("g6",), False)


def test_what_may_not_be_read_is_not_an_absence(cluster: Cluster) -> None:
    def refuse(path: str, params: dict[str, Any]) -> bytes:
        raise NotAllowed("may not list nodes")

    cluster.get = refuse  # type: ignore[method-assign]
    with pytest.raises(NotAllowed):
        cluster.found()
