"""`tidemill run` beside the same cluster, with a simulated AWS in real time.

A launch is made when RunInstances has answered. The nodes of the cluster are nobody's, or instances of this account
that carry our tags: as the engine launched them, and as they would have registered.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.cluster.large_cluster import NAMESPACE, TYPE, node, pending
from controlplane.api import eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.controller import Controller
from tests.cluster.documents import NAME as DEPLOYMENT
from tests.cluster.documents import by_the_hour, platform
from tests.cluster.stage import Stage
from tidemill.spec import names

NAME = "bench"
SPARE = 50  # nodes that may be launched beside those that are there
AT_ONCE = 200  # instances of one RunInstances call


@dataclass(frozen=True, slots=True)
class Ticks:
    """How long they took: the whole, and the medians of its parts."""

    count: int
    median_s: float
    worst_s: float
    observe_s: float
    decide_s: float
    act_s: float
    actions: int


class TidemillRun:
    def __init__(
        self, plane: ControlPlane, processes: Processes, folder: Path, *, own: int = 0, policy: str = "WhenEmpty"
    ) -> None:  # fmt: skip
        """`own`: so many instances are launched at once; `own_node` is what each registers as."""
        self._api = plane.admin()
        self._processes = processes
        pool = by_the_hour(
            NAME, requirements={"instanceTypes": [TYPE]}, limits={"nodes": own + SPARE}, labels={},
            disruption={"consolidationPolicy": policy},
        )  # fmt: skip
        rich = platform(budget={"monthlyUsd": 1_000_000_000})  # nothing is drained to save money
        self._stage = Stage.open(
            plane, processes, folder, [rich, pool], speed=1, start="", admission=False, boots=not own
        )
        self._controller: Controller | None = None
        self._instances = self._launch(own)

    def _launch(self, count: int) -> list[Mapping[str, Any]]:
        account = self._stage.account
        ours = {names.TAG_OWNER: DEPLOYMENT, names.TAG_POOL: NAME, names.TAG_PROVISIONER: "native"}
        tags = [{"Key": key, "Value": value} for key, value in ours.items()]
        subnets = [subnet for in_zone in account.aws.told["subnets"].values() for subnet in in_zone]
        found: list[Mapping[str, Any]] = []
        while len(found) < count:
            now = min(AT_ONCE, count - len(found))
            answer = account.ec2.run_instances(
                ImageId=account.aws.told["images"]["x86_64"], InstanceType=TYPE, MinCount=now, MaxCount=now,
                SubnetId=subnets[len(found) // AT_ONCE % len(subnets)],
                TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            )  # fmt: skip
            found += answer["Instances"]
        return found

    def own_node(self, number: int) -> dict[str, Any]:
        """A node that is up: without the startup taint."""
        made, instance = node(number), self._instances[number]
        zone = instance["Placement"]["AvailabilityZone"]
        made["spec"]["providerID"] = f"aws:///{zone}/{instance['InstanceId']}"
        labels = {names.LABEL_POOL: NAME, names.LABEL_SOURCE: "on-demand", names.LABEL_ZONE: zone}
        made["metadata"]["labels"] |= labels
        return made

    def start(self) -> int:
        """Its process id."""
        self._controller = self._stage.run("run")
        return self._processes.pid("run")

    def wait_ready(self, timeout_s: float) -> None:
        """Synced: the first tick is done, and the probe says so."""
        assert self._controller is not None
        self._controller.wait_for("ticked", timeout_s=timeout_s)
        eventually(self._controller.is_ready, timeout_s=timeout_s, what="tidemill run is ready")

    def check_own(self) -> None:
        """All nodes are seen as its own and up; the metric is renewed every few seconds."""
        sample = f'tidemill_nodes{{phase="ready",pool="{NAME}"}}'
        controller, wanted = self._controller, len(self._instances)
        assert controller is not None
        eventually(
            lambda: controller.metric(sample) == wanted, timeout_s=60, what=f"{wanted} nodes are its own"
        )

    def pending_to_launch_s(self, count: int) -> list[float]:
        """For pods one after the other, each of which needs a node of its own: until RunInstances has answered."""
        found = []
        for number in range(count):
            known = len(self._launches())
            began = time.time()
            pod = pending(f"pending-run-{number}", 4, {names.LABEL_POOL: NAME})
            self._api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
            eventually(lambda known=known: len(self._launches()) > known, timeout_s=120)  # type: ignore[misc]
            found.append(self._launches()[known] - began)
        return found

    def ticks(self, since: float = 0.0) -> Ticks:
        """Those that have ended since then."""
        assert self._controller is not None
        lines = [line for line in self._controller.events("ticked") if _at(line) >= since]
        parts = [(line["observe_s"], line["decide_s"], line["act_s"]) for line in lines] or [(0.0, 0.0, 0.0)]
        took_s = [sum(each) for each in parts]
        actions = sum(line["actions"] for line in lines)
        observe_s, decide_s, act_s = (statistics.median(each) for each in zip(*parts, strict=True))
        return Ticks(
            len(lines),
            round(statistics.median(took_s), 3),
            round(max(took_s), 3),
            observe_s,
            decide_s,
            act_s,
            actions,
        )

    def _launches(self) -> list[float]:
        """When it logged a launch that was made. EC2 shows the instance seconds later, here as in reality."""
        assert self._controller is not None
        return [_at(line) for line in self._controller.events("acted") if line["action"] == "Launch"]


def _at(line: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
