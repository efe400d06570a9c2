"""What we wrote is shown at once, and a watch that is behind does not take it back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tidemill.kube.codec import Codec
from tidemill.kube.objects import PodObject
from tidemill.kube.written import Written

CODEC = Codec(PodObject)


class State:
    """What it was told last, by uid: the label `v`."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}
        self.told = 0
        self.fault: Exception | None = None  # raised once

    def apply(self, kind: str, changed: Sequence[Any], removed: Sequence[str], *, listed: bool) -> None:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        self.told += len(changed)
        for uid in removed:
            self.shown.pop(uid, None)
        for one in changed:
            self.shown[one.metadata.uid] = one.metadata.labels["v"]


def body(version: int, label: str, uid: str = "u1") -> bytes:
    meta = {
        "name": "p",
        "namespace": "n",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"v": label},
    }
    return json.dumps({"metadata": meta}).encode()


def watched(version: int, label: str, uid: str = "u1") -> Any:
    return CODEC.one(body(version, label, uid))


class Both:
    def __init__(self) -> None:
        self.state = State()
        self.written = Written(self.state, {"Pod": CODEC})

    def watch(self, *events: Any, listed: bool = False) -> None:
        self.written.apply("Pod", events, (), listed=listed)

    def removed(self, uid: str = "u1") -> None:
        self.written.apply("Pod", (), (uid,), listed=False)

    def answer(self, version: int, label: str) -> None:
        self.written.learn("Pod", body(version, label))

    @property
    def shown(self) -> str | None:
        return self.state.shown.get("u1")


@pytest.fixture
def both() -> Both:
    made = Both()
    made.watch(watched(5, "old"), listed=True)
    return made


def test_an_answer_is_shown_at_once(both: Both) -> None:
    both.answer(7, "ours")
    assert both.shown == "ours"


def test_a_watch_that_is_behind_does_not_take_it_back(both: Both) -> None:
    both.answer(7, "ours")
    both.watch(watched(6, "before ours"))
    assert both.shown == "ours"
    both.watch(watched(7, "ours"))
    both.watch(watched(8, "after ours"))
    assert both.shown == "after ours"


def test_an_answer_that_comes_late_does_not_take_back_what_was_watched(both: Both) -> None:
    both.watch(watched(9, "newer"))
    both.answer(7, "ours")
    assert both.shown == "newer"


def test_an_answer_after_the_delete_makes_no_ghost(both: Both) -> None:
    both.removed()
    both.answer(7, "ours")
    assert both.shown is None


def test_what_is_forgotten_stays_so_until_the_watch_has_caught_up(both: Both) -> None:
    both.written.forget("Pod", "u1")
    assert both.shown is None
    both.watch(watched(6, "before the delete"))
    assert both.shown is None
    both.removed()
    both.written.forget("Pod", "u1")
    both.watch(watched(20, "another", uid="u2"))
    assert both.state.shown == {"u2": "another"}


def test_the_same_version_is_told_once(both: Both) -> None:
    both.answer(7, "ours")
    told = both.state.told
    both.watch(watched(7, "ours"))
    assert both.state.told == told


def test_what_the_state_could_not_take_is_told_again(both: Both) -> None:
    both.state.fault = RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        both.watch(watched(6, "new"))
    both.watch(watched(6, "new"), listed=True)
    assert both.shown == "new"


def test_a_list_is_believed_even_if_versions_went_back(both: Both) -> None:
    """A restored etcd begins again with lower numbers."""
    both.watch(watched(90, "lost with the restore"))
    both.watch(watched(20, "restored"), listed=True)
    assert both.shown == "restored"


def test_a_list_that_begins_after_an_answer_is_believed_though_it_shows_less(both: Both) -> None:
    """Etcd was restored: the answer is lost with it, and its number may not come again for days."""
    both.answer(90, "lost with the restore")
    assert set(both.written.begin_list("Node")) == set()
    both.written.apply("Node", (), (), listed=True)
    assert both.shown == "lost with the restore", "a list of another kind says nothing about it"
    assert set(both.written.begin_list("Pod")) == {"u1"}
    both.watch(watched(20, "restored"), listed=True)
    assert both.shown == "restored"
    both.watch(watched(21, "written after it"))
    assert both.shown == "written after it"


def test_what_was_gone_and_is_listed_afterwards_is_there_again(both: Both) -> None:
    both.written.forget("Pod", "u1")
    assert set(both.written.begin_list("Pod")) == {"u1"}
    both.watch(watched(5, "restored"), listed=True)
    assert both.shown == "restored"


def test_an_answer_during_a_list_is_newer_than_the_list(both: Both) -> None:
    both.answer(7, "ours")
    both.written.begin_list("Pod")
    both.answer(8, "ours, again")
    both.watch(watched(7, "listed before"), listed=True)
    assert both.shown == "ours, again"
    both.written.begin_list("Pod")
    both.written.forget("Pod", "u1")
    both.watch(watched(8, "listed before"), listed=True)
    assert both.shown is None


def test_a_list_that_began_before_an_answer_does_not_take_it_back(both: Both) -> None:
    both.answer(7, "ours")
    both.watch(watched(6, "listed before"), listed=True)
    assert both.shown == "ours"
