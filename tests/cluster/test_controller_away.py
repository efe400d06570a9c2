"""The controller is stopped two hours before a block's end and never comes back (CB-16, CB-10).

Everything is real but EC2 and the kubelets: `tidemill run` launched the nodes, kube-scheduler bound the pods, the
agents are processes with the tokens of the DaemonSet's pods. What became of the pods is what the kubelets recorded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.api import Api
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.agents import Agents
from tests.cluster.documents import pool
from tests.cluster.objects import SPARED, job, sim
from tests.cluster.programs import Kubectl
from tests.cluster.stage import Stage
from tidemill.node.deadline_agent import SPARE

pytestmark = [pytest.mark.requirement("CB-16"), pytest.mark.requirement("CB-10")]

END = datetime(2026, 11, 19, 11, 30, tzinfo=UTC)
DEADLINE = END - timedelta(minutes=30)
NODES = 2


@pytest.fixture
def scene(stage: Callable[..., Stage]) -> Stage:
    """A virtual minute is a second."""
    return stage(pool(limits={"nodes": NODES}), speed=60, admission=False)


@pytest.fixture
def agents(
    cluster: ControlPlane, api: Api, kubectl: Kubectl, processes: Processes, scene: Stage
) -> Iterator[Agents]:
    made = Agents(cluster, api, kubectl, processes)
    stop = threading.Event()
    following = threading.Thread(target=made.follow, args=(scene.account.aws.endpoint, stop))
    following.start()
    yield made
    stop.set()
    following.join(10)


def test_every_pod_gets_its_whole_grace_from_the_agents(scene: Stage, agents: Agents, namespace: str):
    account, gone = scene.account, DEADLINE - timedelta(hours=2)
    scene.buy(NODES, ends=END.isoformat())
    # Before there is a node: whoever is alone later trusts instants of wall time, which must not move any more.
    account.advance((gone - timedelta(minutes=80)).isoformat())
    scene.run()
    for name, grace_s in (("short", 30), ("long", 900)):
        slow = sim(stops_after=f"{grace_s}s")  # it does not end by itself, and takes its whole grace
        many = job(name, parallelism=4, lasts="3d", gpus=2, grace_s=grace_s, annotations=slow, spec=SPARED)
        scene.create(namespace, many)
    scene.eventually(lambda: account.now() >= gone, "two hours are left", timeout_s=120)
    scene.kill()
    rows = [row for row in account.kubelets()["pods"] if not row["daemon"]]
    running = [row["uid"] for row in rows if row["startedAt"] and row["endedAt"] is None]
    assert len(running) == 8, scene.log()[-3000:]

    while account.now() < DEADLINE + timedelta(minutes=2):  # EC2 has ended the instances
        time.sleep(0.5)
    seen = account.kubelets()
    assert seen["diedWithInstance"] == []
    assert seen["withoutFullGrace"] == []
    rows = [row for row in seen["pods"] if row["uid"] in running]
    for row in rows:
        grace = timedelta(seconds=row["graceS"])
        assert row["end"] == "stopped"
        assert row["graceGivenS"] == row["graceS"]
        assert DEADLINE - grace - SPARE <= datetime.fromisoformat(row["toldAt"])
        assert datetime.fromisoformat(row["endedAt"]) <= DEADLINE
    for name in ("short", "long"):
        status = scene.job(namespace, name)["status"]
        assert status.get("failed", 0) == 0
        assert not any(one["type"] == "Failed" for one in status.get("conditions") or ())
