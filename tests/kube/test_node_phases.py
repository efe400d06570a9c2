"""Phases for people: written once for each change, by a thread that nobody waits for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from tidemill.engine.clock import FasterClock
from tidemill.kube.api import KubeApi
from tidemill.kube.node_phases import NodePhasePublisher
from tidemill.model.errors import Gone, Retryable
from tidemill.report.node_phases import NodePhase
from tidemill.spec import names

CLOUD, WALL = datetime(2026, 12, 1, 11, 0, tzinfo=UTC), datetime(2026, 11, 16, 7, 0, tzinfo=UTC)
READY = NodePhase("n1", "ready", "p5", "cr-1", True, "", CLOUD.replace(hour=12))


class Api:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.fails: list[Exception] = []

    def send(self, method: str, path: str, body: bytes, **how: Any) -> bytes:
        if self.fails:
            raise self.fails.pop()
        self.sent.append((f"{method} {path}", json.loads(body)))
        return b"{}"


def publisher(api: Api) -> NodePhasePublisher:
    return NodePhasePublisher(cast(KubeApi, api), FasterClock(CLOUD, WALL, 60))


def drained(step: Callable[[], float]) -> None:
    while step():
        pass


def test_a_change_is_written_once_as_an_annotation_and_a_condition_in_wall_time() -> None:
    api = Api()
    publishing = publisher(api)
    for _ in range(3):
        publishing.tell([READY])
        drained(publishing.step)
    ((call, body),) = api.sent
    assert call == "PATCH /api/v1/nodes/n1/status"
    assert body["metadata"]["annotations"] == {names.NODE_PHASE: "ready"}
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        names.CONDITION_TAKES_PODS, "True", "Ready",
    )  # fmt: skip
    assert condition["message"] == "empty by 2026-11-16T07:01:00Z"
    publishing.tell([replace(READY, phase="draining", takes_pods=False, why="cr-1 ends")])
    drained(publishing.step)
    assert api.sent[-1][1]["status"]["conditions"][0]["message"] == "cr-1 ends; empty by 2026-11-16T07:01:00Z"


def test_only_the_newest_word_is_sent_and_a_failure_is_tried_again() -> None:
    api = Api()
    publishing = publisher(api)
    api.fails = [Retryable("away")]
    publishing.tell([replace(READY, phase="verifying", takes_pods=False)])
    assert publishing.step() > 1
    publishing.tell([READY])
    drained(publishing.step)
    assert [body["metadata"]["annotations"][names.NODE_PHASE] for _, body in api.sent] == ["ready"]


def test_a_node_that_is_gone_is_forgotten() -> None:
    api = Api()
    publishing = publisher(api)
    api.fails = [Gone("no such node")]
    publishing.tell([READY])
    drained(publishing.step)
    publishing.tell([])
    assert not api.sent
    assert publishing.step() == 0.0


def test_one_node_that_cannot_be_written_delays_no_other_and_is_said_once(caplog: Any) -> None:
    api = Api()
    publishing = publisher(api)
    publishing.tell([READY, replace(READY, node="n2")])
    api.fails = [Retryable("this process does not lead")] * 3
    for _ in range(3):
        assert publishing.step() > 0
    assert len(caplog.records) == 1
    drained(publishing.step)
    assert [call for call, _ in api.sent] == [f"PATCH /api/v1/nodes/{name}/status" for name in ("n2", "n1")]
