"""The webhook answers whatever comes, quickly, and one client does not delay another."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.admission import objects
from tests.kube.admission.certificates import self_signed
from tidemill.kube.admission import webhook
from tidemill.kube.admission.cel import Scope
from tidemill.kube.admission.webhook import BadReview, WebhookServer, answer, webhook_object
from tidemill.model.errors import SpecError


def review(created, **request):
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps(document | {"request": objects.request(created, **request)}).encode()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return self_signed(tmp_path_factory.mktemp("certificate"))


@contextmanager
def serving(files):
    with WebhookServer(("127.0.0.1", 0), *files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(files):
    with serving(files) as server:
        yield server


def client(server, files, **options):
    trusting = ssl.create_default_context(cafile=str(files[0]))
    return http.client.HTTPSConnection(
        "127.0.0.1", server.server_port, context=trusting, timeout=10, **options
    )


def post(server, files, body, path="/mutate/namespaces", headers=None):
    connection = client(server, files)
    connection.request("POST", path, body, headers or {})
    response = connection.getresponse()
    said = response.read()
    connection.close()
    return response.status, said


def test_the_answer_is_a_patch_or_plain_consent():
    held = json.loads(answer(review(objects.job()), Scope.NAMESPACES))["response"]
    assert (held["uid"], held["allowed"], held["patchType"]) == ("1", True, "JSONPatch")
    assert {"op": "add", "path": "/spec/suspend", "value": True} in json.loads(
        base64.b64decode(held["patch"])
    )
    left = json.loads(answer(review(objects.job()), Scope.OBJECTS))["response"]
    assert left == {"uid": "1", "allowed": True}


def test_it_is_served_over_tls(server, files):
    status, said = post(server, files, review(objects.pod()))
    assert status == 200
    assert json.loads(said)["response"]["patchType"] == "JSONPatch"
    status, said = post(server, files, review(objects.pod()), "/mutate/objects?timeout=5s")
    assert (status, json.loads(said)["response"]) == (200, {"uid": "1", "allowed": True})


def test_one_connection_serves_many_requests(server, files):
    connection = client(server, files)
    for number in range(20):
        connection.request("POST", "/mutate/objects", review(objects.pod(), uid=str(number)))
        assert json.loads(connection.getresponse().read())["response"]["uid"] == str(number)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"request": {}}', b'{"request": {"uid": "1"}}',
        b'{"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "1"}}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": {"uid": 7}}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_body_that_is_no_review_is_a_bad_request(server, files, body):
    status, _ = post(server, files, body)
    assert status == 400
    assert post(server, files, review(objects.pod()))[0] == 200


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["metadata", "spec", "labels", "ownerReferences", "schedulingGates", "tolerations", "a"]), inner
    ),
)  # fmt: skip


@given(JSON_VALUES, st.sampled_from(sorted(objects.API_VERSIONS)))
def test_an_object_of_any_form_is_answered_or_refused(created, kind):
    whole = objects.request(objects.thing(kind, {})) | {"object": created}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "request": whole}).encode()
    with suppress(BadReview):
        assert json.loads(answer(body, Scope.NAMESPACES))["response"]["allowed"]


def test_a_huge_body_is_refused_before_it_is_read(server, files):
    status, _ = post(server, files, b"", headers={"Content-Length": str(1 << 40)})
    assert status == 413
    status, _ = post(server, files, b"", headers={"Content-Length": "-1"})
    assert status == 411
    assert post(server, files, b"{}", "/elsewhere")[0] == 404


def test_silent_clients_delay_nobody(server, files):
    silent = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(30)]
    try:
        began = time.monotonic()
        assert post(server, files, review(objects.pod()))[0] == 200
        assert time.monotonic() - began < 3
    finally:
        for each in silent:
            each.close()


def test_connections_have_a_limit_and_free_it_again(files, monkeypatch):
    monkeypatch.setattr(webhook, "MAX_CONNECTIONS", 2)
    with serving(files) as server:
        held = [client(server, files) for _ in range(2)]
        for each in held:
            each.request("GET", "/healthz")
            each.getresponse().read()
        with pytest.raises(OSError):  # closed in the handshake
            post(server, files, review(objects.pod()))
        held.pop().close()
        for _ in range(100):
            try:
                assert post(server, files, review(objects.pod()))[0] == 200
                break
            except OSError:
                time.sleep(0.05)
        else:
            pytest.fail("the closed connection still counts")
        held.pop().close()


def test_a_connection_that_asks_for_nothing_is_closed_soon(files, monkeypatch):
    monkeypatch.setattr(webhook, "FIRST_REQUEST_TIMEOUT_S", 0.2)
    with serving(files) as server:
        connection = client(server, files)
        connection.connect()
        assert connection.sock.recv(1) == b"", "the server closed it"
        connection.close()


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path):
    certificate, key = self_signed(tmp_path)
    with serving((certificate, key)) as server:
        assert post(server, (certificate, key), review(objects.pod()))[0] == 200
        renewed, new_key = self_signed(tmp_path, "renewed")
        key.write_bytes(new_key.read_bytes())  # half of it: the old pair goes on
        with pytest.raises(ssl.SSLError):
            post(server, (renewed, new_key), review(objects.pod()))
        certificate.write_bytes(renewed.read_bytes())
        assert post(server, (renewed, new_key), review(objects.pod()))[0] == 200


def test_wrong_files_are_a_mistake_of_the_user(tmp_path, files):
    with pytest.raises(SpecError, match="cannot use the certificate"):
        WebhookServer(("127.0.0.1", 0), tmp_path / "none.crt", files[1])
    with pytest.raises(SpecError, match="cannot use the certificate"):
        WebhookServer(("127.0.0.1", 0), files[1], files[0])


def test_every_webhook_leaves_out_what_is_not_ours():
    made = webhook_object({"service": {"namespace": "tidemill-system", "name": "w"}}, ca=b"pem")["webhooks"]
    for each in made:
        terms = {term["key"]: term for term in each["namespaceSelector"]["matchExpressions"]}
        assert "kube-system" in terms["kubernetes.io/metadata.name"]["values"]
        assert "tidemill-system" in terms["kubernetes.io/metadata.name"]["values"]
        assert each["rules"][0]["operations"] == ["CREATE"]
        assert each["matchConditions"][0]["name"] == "ours"
        by_namespace = terms["tidemill.dev/managed"]["operator"] == "In"
        by_object = each.get("objectSelector") == {"matchLabels": {"tidemill.dev/managed": "true"}}
        # A selector cannot see the label of a Job's template: the first condition does.
        assert by_namespace or by_object or each["rules"][0]["resources"] == ["jobs"]
    assert {each["failurePolicy"] for each in made if each["name"].startswith("services.")} == {"Ignore"}
