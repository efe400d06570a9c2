"""Two controllers on one ledger in PostgreSQL: one acts, and whoever is killed or frozen does no harm."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from controlplane.api import Api, eventually
from tests.cluster.controller import LEADS, Controller
from tests.cluster.documents import by_the_hour
from tests.cluster.objects import create, job, job_is_complete, pod
from tests.cluster.stage import LEASE_S, Stage
from tests.store.postgres import Server


@pytest.fixture
def scene(postgres: Server, stage: Callable[..., Stage]) -> Stage:
    return stage(by_the_hour("train"), speed=60, admission=False, ledger=postgres.new_database())


def _two(scene: Stage) -> tuple[Controller, Controller]:
    """The leader, and the one that waits."""
    first = scene.run("first", "--replicas", "2")
    first.wait_for(LEADS)
    second = scene.run("second", "--replicas", "2")
    _wait_ready(second)
    return first, second


def _wait_ready(controller: Controller) -> None:
    eventually(controller.is_ready, timeout_s=120, what="the standby is ready")


@pytest.mark.requirement("CB-4")
def test_a_killed_leader_is_replaced_within_the_lease_and_nothing_is_launched_twice(
    scene: Stage, api: Api, namespace: str
):
    leader, standby = _two(scene)
    create(api, namespace, job("train", parallelism=2, gpus=4, lasts="10m"))
    terms = {leader.name: 1, standby.name: 0}
    for _ in range(3):
        eventually(partial(leader.events, "ticked"), timeout_s=60, what="it acts")
        scene.processes.kill(leader.name)
        killed_s = time.monotonic()
        terms[standby.name] += 1
        standby.wait_for(LEADS, count=terms[standby.name])
        assert time.monotonic() - killed_s < LEASE_S + 10  # of a machine that is busy
        scene.processes.start_again(leader.name)
        leader, standby = standby, leader
        _wait_ready(standby)
    eventually(lambda: job_is_complete(api, namespace, "train"), timeout_s=120, what="the Job completes")
    assert len(scene.account.instances()) == 2  # of four GPUs each


@pytest.mark.requirement("CB-4")
def test_a_leader_that_was_frozen_past_its_lease_writes_nothing(scene: Stage, api: Api, namespace: str):
    frozen, standby = _two(scene)
    scene.processes.pause(frozen.name)
    standby.wait_for(LEADS)
    create(api, namespace, pod("waits", gpus=2))
    eventually(scene.account.instances, timeout_s=60, what="the new leader launches")
    acted = len(frozen.events("acted"))
    scene.processes.resume(frozen.name)
    frozen.wait_for("the lease is lost: nothing is begun before it is held again")
    time.sleep(5)
    assert len(frozen.events("acted")) == acted
    assert frozen.get("readyz")[0] == 200
    assert len(scene.account.instances()) == 1
    assert standby.metric("tidemill_leader") == 1
    assert frozen.metric("tidemill_leader") == 0
