"""When a leader is killed: inside a drain, a launch or a purchase, seen from outside, and at random within it.

A drain that comes just when it is wanted: EC2 retires an instance under a service.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from controlplane.api import eventually
from tests.cluster.leader_scene import SPEED, STEADY_GRACE_S, LeaderScene
from tests.cluster.objects import taints
from tidemill.spec import names

PATIENCE_S = 20.0  # for the thing that the leader is to be killed in
DRAIN_S = STEADY_GRACE_S / SPEED + 1.0  # from the taint until the pod is gone: it takes its whole grace
CALL_S = 0.1  # after a line of the ledger: a call of AWS takes as long


class Aim(StrEnum):
    DRAIN = "drain"
    LAUNCH = "launch"
    PURCHASE = "purchase"
    ANY_TIME = "any time"


class Activity(StrEnum):
    """What is under way; several may be at once."""

    DRAIN_WITH_PODS = "drain, pods on the node"
    DRAIN_EMPTY = "drain, node empty"
    LAUNCH = "launch"
    PURCHASE = "purchase"
    EXTENSION = "extension"


DRAINS = frozenset({Activity.DRAIN_WITH_PODS, Activity.DRAIN_EMPTY})


def wait_for(scene: LeaderScene, aim: Aim) -> None:
    """Return at a random moment inside the thing aimed at, or after a while if it does not come."""
    chance = scene.chance
    match aim:
        case Aim.DRAIN:
            if _has_pods_to_drain(scene) or _comes(scene.retire, every_s=0.5):
                _comes(lambda: _has_pods_to_drain(scene), every_s=0.1)
                time.sleep(chance.uniform(0.0, DRAIN_S))
        case Aim.LAUNCH:
            _wait_for_line(scene, "what = 'launch'")
        case Aim.PURCHASE:
            _wait_for_line(scene, "what = 'purchase' AND after->>'state' IN ('approved', 'submitted')")
        case Aim.ANY_TIME:
            time.sleep(chance.uniform(0.0, 3.0))


def under_way(scene: LeaderScene) -> tuple[Activity, ...]:
    """By the API server and the ledger: asked while the leader is stopped, so that nothing moves on."""
    found = _draining(scene)
    if scene.rows("SELECT id FROM launches WHERE state IN ('written', 'asked', 'launched')"):
        found.add(Activity.LAUNCH)
    for row in scene.rows("SELECT extends FROM purchases WHERE state IN ('approved', 'submitted')"):
        found.add(Activity.EXTENSION if row["extends"] else Activity.PURCHASE)
    return tuple(sorted(found))


def _has_pods_to_drain(scene: LeaderScene) -> bool:
    return Activity.DRAIN_WITH_PODS in _draining(scene)


def _draining(scene: LeaderScene) -> set[Activity]:
    nodes = {one["metadata"]["name"] for one in scene.stage.nodes() if names.TAINT_DRAINING in taints(one)}
    if not nodes:
        return set()
    on = {pod["spec"].get("nodeName", "") for pod in scene.stage.api().items("/api/v1/pods") if _runs(pod)}
    with_pods = {Activity.DRAIN_WITH_PODS} if nodes & on else set()
    return with_pods | ({Activity.DRAIN_EMPTY} if nodes - on else set())


def _runs(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Pending", "Running")


def _wait_for_line(scene: LeaderScene, which: str) -> None:
    def last() -> int:
        (row,) = scene.rows(f"SELECT coalesce(max(seq), 0) AS seq FROM audit WHERE {which}")
        return int(row["seq"])

    before = last()
    if _comes(lambda: last() > before, every_s=0.005):
        time.sleep(scene.chance.uniform(0.0, CALL_S))


def _comes(look: Callable[[], bool], *, every_s: float) -> bool:
    try:
        return bool(eventually(look, timeout_s=PATIENCE_S, every_s=every_s))
    except TimeoutError:
        return False
