"""The reflector against a scripted API server: what it holds is what the server has, whatever happens on the way."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.kube.scripted_server import Store, on_list, on_watch, scripted_server
from tidemill.kube.codec import Codec, Unreadable
from tidemill.kube.objects import PodObject
from tidemill.kube.reflector import Kind, Reflector

PODS = Kind("Pod", "/api/v1/pods", Codec(PodObject))


class Recorder:
    """A sink that holds what it was told, and complains about what cannot be."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.deleted: list[str] = []
        self.listings = 0
        self.complaints: list[str] = []
        self.faults: list[Exception] = []  # raised once each
        self.on_changed: Callable[[Any], object] = lambda one: None

    def apply(self, kind: str, changed: Sequence[Any], removed: Sequence[str], *, listed: bool) -> None:
        if self.faults:
            raise self.faults.pop()
        self.listings += listed
        for uid in removed:
            self.held.pop(uid, None)
            self.deleted.append(uid)
        for one in changed:
            self.on_changed(one)
            known = self.held.get(one.metadata.uid)
            if known is not None and known.metadata.resource_version == one.metadata.resource_version:
                self.complaints.append(f"{one.metadata.uid} was told twice")
            self.held[one.metadata.uid] = one


def small(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a", "uid": f"u-{name}", "labels": labels}}


class Rig:
    def __init__(self, store: Store, api: Any, **options: Any) -> None:
        self.store, self.sink = store, Recorder()
        options = {
            "page": 3,
            "watch_s": (5, 5),
            "spare_s": 1,
            "backoff_s": (0.02, 0.1),
            "absent_s": 0.1,
            **options,
        }
        kind = options.pop("kind", PODS)
        self.reflector = Reflector(api, kind, self.sink, **options)

    def __enter__(self) -> Rig:
        self.reflector.start()
        return self

    def __exit__(self, *error: object) -> None:
        began = time.monotonic()
        self.reflector.stop()
        assert self.reflector.join(2), "it did not stop"
        assert time.monotonic() - began < 1.5
        assert not self.sink.complaints

    def agrees(self) -> bool:
        with self.store.lock:
            wanted = {uid: one["metadata"]["resourceVersion"] for uid, one in self.store.objects.items()}
        held = {uid: one.metadata.resource_version for uid, one in dict(self.sink.held).items()}
        return self.reflector.synced and held == wanted

    def settle(self, timeout_s: float = 10) -> None:
        wait_for(self.agrees, timeout_s)


def wait_for(what: Any, timeout_s: float = 10) -> None:
    ends = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.01)


def test_lists_in_pages_and_follows_the_watch():
    with scripted_server() as (store, api):
        for number in range(8):
            store.put(small(f"p{number}"))
        with Rig(store, api) as rig:
            rig.settle()
            assert [one.get("limit") for one in store.requests[:3]] == ["3", "3", "3"]
            store.put(small("p3", changed="yes"))
            store.put(small("late"))
            store.delete("u-p0")
            rig.settle()
            assert rig.sink.held["u-p3"].metadata.labels == {"changed": "yes"}
            assert rig.reflector.lists == 1
            watch = next(one for one in store.requests if one.get("watch"))
            assert watch["allowWatchBookmarks"] == "true"
            assert watch["timeoutSeconds"] == "5"


def test_resumes_where_a_cut_watch_stopped_without_a_new_list():
    with scripted_server() as (store, api):
        store.put(small("a"))

        def cut(handler: Any, params: dict[str, str]) -> None:
            handler.begin_stream()
            handler.wfile.write(b'40\r\n{"type":"ADD')  # in the middle of an event
            handler.wfile.flush()
            handler.connection.shutdown(2)

        store.faults += [on_watch(cut), on_watch(cut), on_watch(cut)]
        with Rig(store, api) as rig:
            rig.settle()
            store.put(small("b"))
            store.delete("u-a")
            rig.settle()
            wait_for(lambda: not store.faults)
            store.put(small("c"))
            rig.settle()
            assert rig.reflector.lists == 1


@pytest.mark.parametrize("how", ["answer", "event"])
def test_a_delete_during_a_gap_is_seen_after_410(how):
    with scripted_server() as (store, api):
        for name in "abcde":
            store.put(small(name))
        blocked, go = threading.Event(), threading.Event()

        def hang(handler: Any, params: dict[str, str]) -> None:
            blocked.set()
            go.wait(5)
            if how == "event":
                handler.begin_stream()
                handler.event(
                    "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                )
                handler.wfile.write(b"0\r\n\r\n")
            else:
                handler.fail(410, "Gone", "too old resource version")

        store.faults.append(on_watch(hang))
        with Rig(store, api) as rig:
            assert blocked.wait(5)
            store.delete("u-b")
            store.delete("u-c")
            store.put(small("c"))  # made again: the same uid here, so also with another one
            store.put({"metadata": {"name": "b", "namespace": "a", "uid": "u-b-2"}})
            store.put(small("a", changed="yes"))
            store.compact()
            go.set()
            rig.settle()
            assert "u-b" in rig.sink.deleted
            assert "u-b-2" in rig.sink.held
            assert rig.reflector.lists == 2


def test_a_watch_that_is_compacted_under_way_lists_again():
    with scripted_server() as (store, api), Rig(store, api) as rig:
        store.bookmarks = False
        rig.settle()
        for round_number in range(5):
            with store.lock:
                store.put(small(f"n{round_number}"))
                store.compact()
            rig.settle()
        assert rig.reflector.lists >= 2


def test_bookmarks_move_the_place():
    """Without them a quiet kind would fall out of the history and list again."""
    with scripted_server() as (store, api), Rig(store, api, watch_s=(1, 1)) as rig:
        rig.settle()
        with store.lock:
            store.version += 50  # other kinds moved on
            store.lock.notify_all()
        wait_for(lambda: rig.reflector._version == str(store.version))
        store.compact()
        before = len(store.requests)
        wait_for(lambda: len(store.requests) > before)
        store.put(small("after"))
        rig.settle()
        assert rig.reflector.lists == 1


def test_a_continue_token_that_expires_begins_the_list_anew():
    with scripted_server() as (store, api):
        for number in range(9):
            store.put(small(f"p{number}"))

        def expire(handler: Any, params: dict[str, str]) -> None:
            store.delete("u-p0")
            handler.fail(410, "Expired", "the provided continue parameter is too old")

        store.faults.append(on_list(expire, continued=True))
        with Rig(store, api) as rig:
            rig.settle()
            assert "u-p0" not in rig.sink.held


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"oops"),
        (503, b"<html>busy</html>"),
        (429, b"{}"),
        (200, b"not json"),
        (200, b"[]"),
        (200, b'{"items":[]}'),
    ],
)
def test_bad_answers_are_tried_again(status, body):
    with scripted_server() as (store, api):
        store.put(small("a"))
        store.faults += [on_list(lambda handler, params: handler.answer(status, body)) for _ in range(2)]
        with Rig(store, api) as rig:
            rig.settle()
            assert rig.reflector.error is None


def test_garbage_in_a_watch_is_not_a_traceback(caplog):
    with scripted_server() as (store, api):

        def garbage(handler: Any, params: dict[str, str]) -> None:
            handler.begin_stream()
            handler.chunk(b"\x00\xff garbage\n")
            handler.wfile.write(b"0\r\n\r\n")

        store.faults += [on_watch(garbage), on_watch(garbage)]
        with Rig(store, api) as rig:
            rig.settle()
            wait_for(lambda: not store.faults)
            store.put(small("b"))
            rig.settle()
    assert "Traceback" not in caplog.text


def test_bytes_that_trickle_are_an_event_in_the_end():
    with scripted_server() as (store, api), Rig(store, api, watch_s=(1, 1)) as rig:
        rig.settle()
        one = small("slow")
        store.put(one)
        rig.settle()

        def trickle(handler: Any, params: dict[str, str]) -> None:
            handler.begin_stream()
            with store.lock:
                store.put(small("slow", changed="yes"))
                line = json.dumps({"type": "MODIFIED", "object": store.objects["u-slow"]}).encode() + b"\n"
            for at in range(0, len(line), 7):
                handler.chunk(line[at : at + 7])
                time.sleep(0.005)
            handler.wfile.write(b"0\r\n\r\n")

        store.faults.append(on_watch(trickle))
        wait_for(lambda: not store.faults)
        rig.settle()
        assert rig.sink.held["u-slow"].metadata.labels == {"changed": "yes"}


def test_silence_is_a_dead_connection():
    with scripted_server() as (store, api):
        go = threading.Event()

        def silent(handler: Any, params: dict[str, str]) -> None:
            handler.begin_stream()
            go.wait(10)

        store.faults.append(on_watch(silent))
        with Rig(store, api, watch_s=(1, 1), spare_s=0.3) as rig:
            wait_for(lambda: rig.reflector.error is not None)
            assert rig.reflector.error is not None
            assert rig.reflector.error.code == "time-out"
            assert rig.reflector.lag_s > 0.2
            go.set()
            store.put(small("a"))
            rig.settle()


def test_one_object_that_cannot_be_read_does_not_stop_the_others():
    with scripted_server() as (store, api):
        store.put(small("good"))
        store.put(
            {"metadata": {"name": "bad", "namespace": "a", "uid": "u-bad"}, "spec": {"priority": "high"}}
        )
        with Rig(store, api) as rig:
            rig.settle()
            assert isinstance(rig.sink.held["u-bad"], Unreadable)
            store.put({"metadata": {"name": "bad2", "namespace": "a", "uid": "u-bad2"}, "spec": []})
            store.put(small("good2"))
            rig.settle()
            assert isinstance(rig.sink.held["u-bad2"], Unreadable)
            store.delete("u-bad")
            rig.settle()


def test_an_optional_kind_is_looked_for_again():
    kind = Kind("JobSet", "/apis/x/v1/jobsets", Codec(PodObject), optional=True)
    with scripted_server() as (store, api):
        absent = [
            on_list(lambda handler, params: handler.answer(404, b"404 page not found\n")) for _ in range(3)
        ]
        store.faults += absent
        with Rig(store, api, kind=kind) as rig:
            wait_for(lambda: rig.reflector.synced)
            assert not rig.reflector.served
            assert rig.reflector.error is None
            assert rig.reflector.lag_s == 0
            store.put(small("first"))
            rig.settle()
            assert rig.reflector.served


def test_a_list_tells_of_what_it_is_asked_about_though_it_did_not_change():
    """Else an answer that a restore of etcd took back would be shown for ever."""
    with scripted_server() as (store, api):
        store.put(small("same"))
        store.put(small("other"))
        asked: list[str] = []

        def begin(kind: str) -> list[str]:
            asked.append(kind)
            return ["u-same"] if len(asked) > 1 else []

        with Rig(store, api, begin_list=begin) as rig:
            rig.settle()
            told: list[str] = []
            rig.sink.on_changed = lambda one: told.append(one.metadata.uid)
            with store.lock:
                store.version += 1
            store.compact()
            wait_for(lambda: told == ["u-same"])
            assert asked == ["Pod", "Pod"]
            assert rig.sink.complaints == ["u-same was told twice"]
            rig.sink.complaints.clear()


@pytest.mark.parametrize("absent", [True, False])
def test_a_sink_that_fails_once_is_told_again(absent: bool):
    """Also of a kind that is not served: there the thread ended without a word."""
    kind = Kind("JobSet", "/apis/x/v1/jobsets", Codec(PodObject), optional=True)
    with scripted_server() as (store, api):
        if absent:
            gone = on_list(lambda handler, params: handler.answer(404, b"404 page not found\n"))
            store.faults += [gone, gone]
        with Rig(store, api, kind=kind) as rig:
            rig.sink.faults.append(RuntimeError("a bug"))
            store.put(small("first"))
            rig.settle()
            assert rig.reflector.alive
            assert not rig.sink.faults


def test_a_required_kind_that_may_not_be_read_says_so_and_goes_on_trying():
    with scripted_server() as (store, api):

        def forbidden(handler: Any, params: dict[str, str]) -> None:
            handler.fail(403, "Forbidden", 'User "x" cannot list resource "pods"')

        store.faults += [on_list(forbidden) for _ in range(3)]
        with Rig(store, api) as rig:
            wait_for(lambda: rig.reflector.error is not None)
            assert rig.reflector.error is not None
            assert "cannot list resource" in str(rig.reflector.error)
            rig.settle()
            assert rig.reflector.error is None


def test_a_place_in_the_future_is_given_up_for_a_list():
    """As after etcd was restored from a backup."""
    with scripted_server() as (store, api):
        store.put(small("a"))

        def too_large(handler: Any, params: dict[str, str]) -> None:
            handler.fail(504, "Timeout", "Too large resource version: 900, current: 101")

        store.faults += [on_watch(too_large) for _ in range(5)]
        with Rig(store, api) as rig:
            wait_for(lambda: rig.reflector.lists > 1)
            store.put(small("b"))
            rig.settle()


def test_an_event_that_nobody_can_read_is_passed_by_a_list():
    with scripted_server() as (store, api), Rig(store, api) as rig:
        rig.settle()
        with store.lock:  # no uid: it can be neither held nor passed over
            store.version += 1
            bad = {"metadata": {"resourceVersion": str(store.version)}}
            store.history.append((store.version, "ADDED", bad))
            store.lock.notify_all()
        wait_for(lambda: rig.reflector.lists > 1)
        store.put(small("b"))
        rig.settle()


def test_a_fault_of_the_sink_leads_to_a_new_list():
    with scripted_server() as (store, api):
        store.put(small("a"))
        rig = Rig(store, api)
        apply, broken = rig.sink.apply, [True]

        def failing(*args: Any, **options: Any) -> None:
            if rig.reflector.lists and broken:
                broken.clear()
                raise RuntimeError("a fault of ours")
            apply(*args, **options)

        rig.sink.apply = failing
        with rig:
            rig.settle()
            store.put(small("b"))
            rig.settle()
            assert not broken
            assert rig.reflector.lists == 2


def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop():
    with scripted_server() as (store, api), Rig(store, api, watch_s=(0, 0), backoff_s=(0.2, 0.4)) as rig:
        rig.settle()
        time.sleep(1)
        assert len(store.requests) < 15


def test_random_writes_and_faults_never_lose_anything():
    chance = random.Random(7)
    with scripted_server() as (store, api), Rig(store, api, watch_s=(1, 1)) as rig:
        for step in range(400):
            names = list(store.objects)
            what = chance.random()
            if what < 0.5 or not names:
                store.put(small(f"x{chance.randrange(40)}", step=str(step)))
            elif what < 0.85:
                store.delete(chance.choice(names))
            elif what < 0.9:
                store.compact()
            elif what < 0.95:
                store.faults.append(on_watch(lambda handler, params: handler.connection.shutdown(2)))
            else:
                time.sleep(0.02)
        store.faults.clear()
        rig.settle(20)


def test_what_was_read_of_an_optional_kind_does_not_go_at_the_first_refusal():
    """An API server that starts forbids everything until it has read its roles."""
    kind = Kind("JobSet", "/api/v1/pods", Codec(PodObject), optional=True)
    with scripted_server() as (store, api):
        store.put(small("a"))

        def forbidden(handler: Any, params: dict[str, str]) -> None:
            handler.fail(403, "Forbidden", 'User "x" cannot watch resource "jobsets"')

        with Rig(store, api, kind=kind, watch_s=(1, 1)) as rig:
            rig.settle()
            store.faults += [on_watch(forbidden) for _ in range(3)]
            wait_for(lambda: not store.faults)
            store.put(small("b"))
            rig.settle()
            assert rig.sink.deleted == []
            store.faults += [on_watch(forbidden) for _ in range(8)]
            wait_for(lambda: rig.sink.held == {})
