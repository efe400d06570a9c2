"""A simulated cluster of identical nodes in several zones, and builders for pods with rules about other pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.simulated_cluster import SimulatedCluster
from tidemill.model.labels import Expression, Selector
from tidemill.model.pods import Pod, PodShape, PodTerm, Spread, Terms
from tidemill.spec import names
from tidemill.spec.units import parse_duration

ZONE, HOST = names.LABEL_ZONE, names.LABEL_HOSTNAME


def labels_in(**labels: str) -> Selector:
    return tuple(Expression(key, "In", (value,)) for key, value in labels.items())


def term(key: str, *namespaces: str, **labels: str) -> PodTerm:
    return PodTerm(key, labels_in(**labels), namespaces)


def spread(key: str, max_skew: int = 1, app: str = "x", **more: Any) -> Spread:
    return Spread(key, labels_in(app=app), max_skew, **more)


def shape(cpu: int = 1, gpus: int = 0, labels: dict[str, str] | None = None, **rules: Any) -> PodShape:
    requests = {names.CPU: cpu * 1000, names.MEMORY: 2**30, names.NVIDIA_GPU: gpus}
    return PodShape(
        requests=tuple((name, count) for name, count in requests.items() if count),
        labels=tuple((labels or {"app": "x"}).items()),
        **rules,
    )


class ZonedCluster(SimulatedCluster):
    """Ready p5 nodes of 8 GPUs: `Town(a=2, b=1)` has a1 and a2 in zone us-west-2a and b1 in us-west-2b."""

    def __init__(self, taints: Sequence[dict[str, str]] = (), **zones: int) -> None:
        super().__init__(taints=taints)
        for zone, count in zones.items():
            ids = [f"i-{zone}{number}" for number in range(1, count + 1)]
            self.ready_nodes(*ids, zone=f"us-west-2{zone}")

    def create_pod(
        self, name: str, made: PodShape | None = None, *, priority: int = 0, grace: str = "30s", **how: Any
    ) -> Pod:
        terms = Terms(priority=priority, grace=parse_duration(grace))
        return self.cluster.create_pod(name, made or shape(), terms, **how)

    def bind_directly(self, name: str, at: str, made: PodShape | None = None, **how: Any) -> Pod:
        """A pod that is there already, put there by name."""
        pod = self.create_pod(name, made, node=self.node(f"i-{at}").name, **how)
        self.pass_time("20s")
        return pod

    def schedule(self, name: str, made: PodShape | None = None, **how: Any) -> str:
        """Where the scheduler puts it: `a1`; empty: it waits."""
        self.create_pod(name, made, **how)
        self.pass_time("20s")
        return self.node_of(name, how.get("namespace", "default"))

    def node_of(self, name: str, namespace: str = "default") -> str:
        pod = self.pod(f"uid-{namespace}-{name}")
        if pod is None or not pod.node:
            return ""
        node = next(node for node in self.cluster.view().nodes if node.name == pod.node)
        return node.instance_id.removeprefix("i-")

    def scheduler_message(self, name: str) -> str:
        pod = self.pod(f"uid-default-{name}")
        assert pod is not None
        return pod.message
