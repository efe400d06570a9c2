"""Calls: recorded as RBAC names them, bounded, and every answer is one of our errors."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import pytest

from tests.kube.scripted_server import on_list, scripted_server
from tidemill.kube import api as kube_api
from tidemill.kube.api import Call, call_of
from tidemill.kube.errors import Asked, error_of
from tidemill.model.errors import Gone, NotAllowed, Refused, Retryable, Throttled

ASKED = Asked("patch", "pods", "https://api", "user 'me'")


@pytest.mark.parametrize(
    ("method", "path", "params", "call"),
    [
        ("GET", "/api/v1/pods", None, Call("list", "", "pods")),
        ("GET", "/api/v1/pods", {"watch": "1"}, Call("watch", "", "pods")),
        ("GET", "/api/v1/nodes/n1", None, Call("get", "", "nodes")),
        ("PATCH", "/api/v1/namespaces/a/pods/p/status", None, Call("patch", "", "pods", "status")),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", None, Call("create", "", "pods", "eviction")),
        ("DELETE", "/api/v1/nodes/n1", None, Call("delete", "", "nodes")),
        ("PATCH", "/apis/batch/v1/namespaces/a/jobs/j", None, Call("patch", "batch", "jobs")),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", None,
         Call("update", "coordination.k8s.io", "leases")),
        ("GET", "/api/v1/namespaces", None, Call("list", "", "namespaces")),
        ("GET", "/api/v1/namespaces/a", None, Call("get", "", "namespaces")),
        ("GET", "/version", None, None),
        ("GET", "/apis", None, None),
        ("GET", "/apis/batch/v1", None, None),
    ],
)  # fmt: skip
def test_a_call_as_rbac_names_it(method, path, params, call):
    assert call_of(method, path, params) == call


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> bytes:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("code", "body", "kind", "short"),
    [
        (401, status(401), NotAllowed, "unauthorized"),
        (403, status(403, "Forbidden", 'User "x" cannot patch resource "pods"'), NotAllowed, "forbidden"),
        (403, status(403, "Forbidden", causes=[{"reason": "NamespaceTerminating"}]), Gone, "terminating-namespace"),
        (404, status(404, "NotFound", name="p"), Gone, "not-found"),
        (404, b"404 page not found\n", Gone, "not-served"),
        (409, status(409, "Conflict", "the object has been modified"), Retryable, "conflict"),
        (409, status(409, "AlreadyExists"), Refused, "already-exists"),
        (409, status(409, "Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b"),
         Gone, "other-uid"),
        (409, status(409, "Conflict", "The UID in the precondition (a) does not match the UID in record (b)."),
         Gone, "other-uid"),
        (409, status(409, "Conflict", causes=[{"reason": "FieldManagerConflict", "field": ".spec.replicas",
                                               "message": 'conflict with "kubectl" using apps/v1'}]),
         Refused, "field-conflict"),
        (410, status(410, "Expired"), Retryable, "expired"),
        (422, status(422, "Invalid"), Refused, "invalid"),
        (429, status(429, "TooManyRequests", retryAfterSeconds=7), Throttled, "too-many-requests"),
        (429, status(429, "TooManyRequests", "Cannot evict pod", causes=[{"reason": "DisruptionBudget"}]),
         Refused, "disruption-budget"),
        (500, b"<html><body>Bad\nGateway</body></html>", Retryable, "status-500"),
        (504, b"", Retryable, "status-504"),
        (302, b"", Retryable, "status-302"),
        (400, b"\xff\x00", Refused, "status-400"),
        (409, b'{"details": {"causes": "odd"}}', Retryable, "conflict"),
    ],
)  # fmt: skip
def test_every_answer_is_one_of_our_errors(code, body, kind, short):
    error = error_of(code, body, ASKED)
    assert type(error) is kind
    assert error.code == short
    assert str(error)
    assert "\n" not in str(error)


def test_a_field_conflict_names_the_manager_and_the_field():
    causes = [
        {"reason": "FieldManagerConflict", "field": ".spec.replicas", "message": 'conflict with "helm"'}
    ]
    error = error_of(409, status(409, "Conflict", causes=causes), ASKED)
    assert ".spec.replicas" in str(error)
    assert "helm" in str(error)


def test_throttled_says_how_long_to_wait():
    error = error_of(429, b"{}", ASKED, "12")
    assert isinstance(error, Throttled)
    assert error.retry_after_s == 12


def test_a_forbidden_call_names_the_verb_the_resource_and_the_identity():
    plain = str(error_of(403, status(403, "Forbidden", "no"), ASKED))
    assert "patch pods" in plain
    assert "user 'me'" in plain
    assert "tidemill rbac" not in plain, "an admission policy that denies is not helped by more rights"
    no_right = 'pods "a" is forbidden: User "me" cannot patch resource "pods" in API group ""'
    assert "tidemill rbac" in str(error_of(403, status(403, "Forbidden", no_right), ASKED))


def test_calls_are_recorded_and_writes_ask_first():
    with scripted_server() as (_, api):
        api.get("/api/v1/pods")
        asked: list[float] = []

        def refuse(timeout_s: float) -> None:
            asked.append(timeout_s)
            raise Retryable("too little of the lease is left", code="lease")

        api.may_begin = refuse
        with pytest.raises(Retryable, match="lease"):
            api.send("PATCH", "/api/v1/nodes/n", b"{}", timeout_s=4)
        assert asked == [4]
        assert api.calls == {Call("list", "", "pods")}  # what was not begun was not called
        api.get("/api/v1/pods")
        with pytest.raises(Retryable):  # the server knows no PATCH: 501
            api.send("PATCH", "/api/v1/nodes/n", b"{}", unguarded=True)
        assert Call("patch", "", "nodes") in api.calls


@pytest.mark.requirement("CB-4")
def test_a_write_is_asked_for_again_when_its_token_is_there():
    """A plugin took as long as the lease lasted, or the process was frozen meanwhile."""
    left_s = [10.0]

    class SlowToken(httpx2.Auth):
        def sync_auth_flow(self, request):
            left_s[0] = 0.0
            yield request

    def may_begin(timeout_s: float) -> None:
        if left_s[0] <= timeout_s:
            raise Retryable("too little of the lease is left", code="lease")

    with scripted_server() as (store, api):
        before = len(store.requests)
        api._client.auth, api.may_begin = SlowToken(), may_begin
        with pytest.raises(Retryable, match="lease"):
            api.send("PATCH", "/api/v1/nodes/n", b"{}", timeout_s=4)
        assert len(store.requests) == before
        api.get("/api/v1/pods")  # whoever looks need not lead


def test_answers_are_bounded_in_size_and_time(monkeypatch):
    monkeypatch.setattr(kube_api, "MAX_BODY_BYTES", 1000)
    monkeypatch.setattr(kube_api, "MAX_LINE_BYTES", 1000)
    with scripted_server() as (store, api):
        store.faults.append(on_list(lambda handler, params: handler.answer(200, b"x" * 5000)))
        with pytest.raises(Retryable, match="more than"):
            api.get("/api/v1/pods")

        def drip(handler: Any, params: dict[str, str]) -> None:
            handler.begin_stream()
            for _ in range(40):
                handler.chunk(b"x")
                time.sleep(0.05)

        store.faults.append(on_list(drip))
        with pytest.raises(Retryable) as caught:
            api.get("/api/v1/pods", timeout_s=0.4)
        assert caught.value.code == "time-out"

        def long_line(handler: Any, params: dict[str, str]) -> None:
            handler.begin_stream()
            for _ in range(5):
                handler.chunk(b"x" * 400)
            handler.wfile.write(b"0\r\n\r\n")

        store.faults.append(on_list(long_line))
        with pytest.raises(Retryable, match="an object of more than"):
            list(api.stream("/api/v1/pods"))
