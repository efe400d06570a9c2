"""Events are told once, counted, bounded, and never in the way."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tidemill.kube.api import KubeApi
from tidemill.kube.events import EventRecorder, Subject
from tidemill.model.errors import Gone, Retryable

POD = Subject("Pod", "train-0", "research", "uid-1")
NODE = Subject("Node", "ip-10-0-0-1", uid="uid-2")


class Server:
    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.paths: list[str] = []
        self.fails: Exception | None = None

    def send(self, method: str, path: str, body: bytes, *, content_type: str = "") -> bytes:
        if self.fails is not None:
            raise self.fails
        self.paths.append(path)
        content = json.loads(body)
        if method == "POST":
            self.events[content["metadata"]["name"]] = content
        else:
            name = path.rpartition("/")[2]
            if name not in self.events:
                raise Gone("it lived for an hour")
            self.events[name] |= content
        return b"{}"


class Recorder:
    """A recorder whose time the test moves, and which has sent everything when it is asked."""

    def __init__(self) -> None:
        self.server = Server()
        self.now_s = 0.0
        self.recorder = EventRecorder(
            cast(KubeApi, self.server), instance="engine-0", monotonic=lambda: self.now_s
        )

    def tell(self, subject: Subject = POD, reason: str = "Held", note: str = "No room.") -> None:
        self.recorder.tell(subject, reason, note, action="Admit")

    def sent(self) -> list[dict[str, Any]]:
        self.recorder.start()
        self.recorder.stop()
        return list(self.server.events.values())


@pytest.fixture
def at() -> Recorder:
    return Recorder()


def test_an_event_says_what_about_which_object(at: Recorder) -> None:
    at.recorder.tell(NODE, "NodeDrains", "Its block ends at noon.", action="Drain", warning=True)
    (event,) = at.sent()
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE.name, "uid": "uid-2"}
    assert (event["reason"], event["note"], event["type"]) == (
        "NodeDrains",
        "Its block ends at noon.",
        "Warning",
    )
    assert at.server.paths == ["/apis/events.k8s.io/v1/namespaces/default/events"], "a node has no namespace"


def test_the_same_reason_is_not_repeated_within_ten_minutes(at: Recorder) -> None:
    for second in range(0, 600, 5):
        at.now_s = second
        at.tell(note=f"{second} pods are before it.")
    assert [event["note"] for event in at.sent()] == ["0 pods are before it."]


def test_a_reason_that_lasts_is_one_event_with_a_count(at: Recorder) -> None:
    for second in range(0, 1_800, 10):
        at.now_s = second
        at.tell()
    (event,) = at.sent()
    assert event["series"]["count"] == 121, "as of the last time it was told, at 1,200 s"
    assert len(at.server.paths) == 3


def test_an_event_that_is_gone_is_made_again(at: Recorder) -> None:
    at.tell()
    at.sent()
    at.server.events.clear()
    at.now_s = 4_000
    at.tell()
    (event,) = at.sent()
    assert event["note"] == "No room."


def test_other_objects_and_other_reasons_are_told(at: Recorder) -> None:
    at.tell()
    at.tell(reason="Admitted")
    at.tell(subject=NODE)
    assert len(at.sent()) == 3


def test_a_flood_is_cut_and_counted(at: Recorder) -> None:
    for number in range(1_000):
        at.tell(Subject("Pod", f"train-{number}", "research", f"uid-{number}"))
    assert len(at.sent()) == 50
    assert at.recorder.dropped == 950
    at.now_s += 10
    for number in range(1_000):
        at.tell(Subject("Pod", f"train-{number}", "research", f"other-{number}"))
    assert len(at.sent()) == 60


def test_an_api_server_that_is_away_hurts_nobody(at: Recorder) -> None:
    at.server.fails = Retryable("away")
    at.tell()
    assert at.sent() == []
    assert (at.recorder.sent, at.recorder.dropped) == (0, 1)


def test_a_long_sentence_is_cut(at: Recorder) -> None:
    at.tell(note="x" * 5_000)
    (event,) = at.sent()
    assert len(event["note"]) == 1_000


@pytest.mark.requirement("PE-15")
def test_facts_are_annotations_and_stay_up_to_date(at: Recorder) -> None:
    for now_s, start in ((0.0, "11:30"), (700.0, "12:30")):
        at.now_s = now_s
        at.recorder.tell(
            POD, "WaitingHeld", "No room.", action="Place", facts={"tidemill.dev/earliest": start}
        )
        (event,) = at.sent()
        assert event["metadata"]["annotations"] == {"tidemill.dev/earliest": start}
