"""Kubeconfigs and credentials: every mistake is one sentence, tokens are found again, and none is ever printed."""

from __future__ import annotations

import json
import stat
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.kube.admission.certificates import self_signed
from tidemill.kube.connect import connect
from tidemill.model.errors import NotAllowed, Retryable, SpecError


class Gate(BaseHTTPRequestHandler):
    """Lets in whoever has the token of the moment."""

    token = "first"
    seen: list[str]

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        self.seen.append(given)
        good = given == f"Bearer {type(self).token}"
        body = b'{"items": []}' if good else b'{"kind":"Status","message":"Unauthorized","code":401}'
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def gate() -> Iterator[Any]:
    handler = type("OneGate", (Gate,), {"token": "first", "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    handler.address = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _no_cluster_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def config(server: str, user: Any = None, **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "prod", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user if user is not None else {"token": "first"}}],
        "contexts": [{"name": "main", "context": {"cluster": "prod", "user": "me"}}],
    }


def write(path: Path, document: Any) -> str:
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_token_of_a_kubeconfig(gate, tmp_path):
    api = connect(write(tmp_path / "c", config(gate.address)))
    assert api.get("/api/v1/pods") == b'{"items": []}'
    assert (api.name, api.server) == ("prod", gate.address)


def test_several_files_are_one_and_the_first_wins(gate, tmp_path, monkeypatch):
    first = {"contexts": [{"name": "other", "context": {"cluster": "prod", "user": "me"}}], "users": None}
    second = config("http://127.0.0.1:1")
    second["clusters"][0]["cluster"]["server"] = gate.address
    third = config("http://127.0.0.1:2", {"token": "wrong"})
    paths = [write(tmp_path / str(n), one) for n, one in enumerate((first, second, third))]
    monkeypatch.setenv("KUBECONFIG", ":".join([str(tmp_path / "missing"), *paths]))
    assert connect(context="other").get("/version")


def test_files_are_relative_to_the_kubeconfig(gate, tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "token").write_text("first\n")
    path = write(tmp_path / "deep" / "c", config(gate.address, {"tokenFile": "token"}))
    monkeypatch.chdir("/")
    assert connect(path).get("/version")


def test_a_kubeconfig_named_by_a_relative_path_finds_its_files(gate, tmp_path, monkeypatch):
    certificate, _ = self_signed(tmp_path, "ca")
    write(
        tmp_path / "c",
        config(gate.address, {"token": "first"}, **{"certificate-authority": certificate.name}),
    )
    monkeypatch.chdir(tmp_path)
    assert connect("c").get("/version")


def jwt(subject: str) -> str:
    """As Kubernetes writes them; nobody signed it."""
    parts = ({"alg": "RS256"}, {"iss": "https://k", "sub": subject})
    return (
        ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".sig"
    )


@pytest.mark.parametrize(
    ("user", "identity"),
    [
        ({"token": jwt("system:serviceaccount:tidemill-system:tidemill-controller")},
         "service account tidemill-system/tidemill-controller"),
        ({"token": jwt("ana@example.com")}, "user 'me'"),
        ({"token": "opaque"}, "user 'me'"),
        ({"token": "a.b.c"}, "user 'me'"),
        ({"token": "t", "as": "system:serviceaccount:ml:bot"}, "service account ml/bot"),
        ({"token": "t", "as": "ana"}, "user 'ana'"),
    ],
)  # fmt: skip
def test_a_service_account_is_called_one(gate, tmp_path, user, identity):
    assert connect(write(tmp_path / "c", config(gate.address, user))).identity == identity
    if set(user) == {"token"}:
        (tmp_path / "token").write_text(user["token"] + "\n")
        by_file = config(gate.address, {"tokenFile": "token"})
        assert connect(write(tmp_path / "d", by_file)).identity == identity


@pytest.mark.parametrize(
    ("document", "context", "says"),
    [
        ("{", None, "is not YAML"),
        ("[1]", None, "is not a mapping"),
        ({"clusters": "x"}, None, "'clusters' is not a list"),
        ({"clusters": [{}]}, None, "clusters[0] has no name"),
        ({}, None, "is no kubeconfig: it has no contexts"),
        ({"kind": "Platform", "spec": {}}, None, "is no kubeconfig: it has no contexts"),
        ("", None, "is no kubeconfig: it has no contexts"),
        ("a: 1\n---\nb: 2\n", None, "has several YAML documents"),
        (
            {**config("http://h"), "current-context": ""},
            None,
            "has no current-context; name one of its contexts: main",
        ),
        (
            {**config("http://h"), "contexts": [{"name": "main", "context": {"cluster": [1], "user": "me"}}]},
            None,
            "must name a cluster and a user",
        ),
        (config("https://h", {"client-key-data": "aGFsbG8="}), None, "it needs both, or none"),
        (
            config("https://h", {"client-certificate-data": "aGFsbG8=", "client-key-data": "aGFsbG8="}),
            None,
            "'client-certificate-data' is no certificate or key in PEM",
        ),
        (config("https://h", **{"proxy-url": "nonsense"}), None, "nonsense"),
        (config("http://h"), "prd", "has no context 'prd'; it has: main"),
        ({**config("http://h"), "clusters": []}, None, "names the cluster 'prod', which is not there"),
        ({**config("http://h"), "users": []}, None, "names the user 'me', which is not there"),
        (config("ftp://h"), None, "is not an http(s) address"),
        (config(""), None, "has no server"),
        (config("https://h", {"token": 5}), None, "Expected `str | null`"),
        (config("https://h", **{"certificate-authority": "/no/such"}), None, "cannot be read"),
        (config("https://h", **{"certificate-authority-data": "!!"}), None, "certificate"),
        (config("https://h", {"client-certificate-data": "aGFsbG8="}), None, "certificate"),
        (config("https://h", {"auth-provider": {"name": "gcp"}}), None, "auth-provider"),
        (config("http://h", {"exec": {"apiVersion": "v9", "command": "x"}}), None, "speaks v9; known are"),
    ],
)
def test_a_bad_kubeconfig_is_one_sentence(document, context, says, tmp_path):
    with pytest.raises(SpecError) as caught:
        connect(write(tmp_path / "c", document), context)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_kubeconfig_at_all(tmp_path):
    with pytest.raises(SpecError, match="there is no kubeconfig"):
        connect(str(tmp_path / "missing"))
    with pytest.raises(SpecError, match="no cluster is named"):
        connect()


def test_the_service_account_of_a_pod_and_its_rotating_token(gate, tmp_path, monkeypatch):
    account = tmp_path / "account"
    account.mkdir()
    (account / "namespace").write_text("tidemill")
    (account / "token").write_text("first")
    host, port = gate.address.removeprefix("http://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    with pytest.raises(SpecError, match="certificate"):  # no ca.crt there
        connect(service_account=str(account))
    path = write(tmp_path / "c", config(gate.address, {"tokenFile": str(account / "token")}))
    api = connect(path)
    assert api.get("/version")
    gate.token = "second"
    (account / "token").write_text("second!")
    with pytest.raises(NotAllowed, match="does not accept the credentials of user 'me'"):
        api.get("/version")
    (account / "token").write_text("second")
    assert api.get("/version")


PLUGIN = """
echo run >> {log}
test -n "$KUBERNETES_EXEC_INFO" || exit 7
printf '%s' '{answer}'
"""


def plugin(tmp_path: Path, token: str, expires_in: timedelta | None, **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"token": token}
    if expires_in is not None:
        status["expirationTimestamp"] = (datetime.now(UTC) + expires_in).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    command = script(tmp_path / "get-token", PLUGIN.format(log=tmp_path / "log", answer=json.dumps(answer)))
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never",
                     "provideClusterInfo": False, **more}}  # fmt: skip


def runs(tmp_path: Path) -> int:
    log = tmp_path / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_an_exec_plugin_of_v1_is_run_once_until_its_token_expires(gate, tmp_path):
    api = connect(write(tmp_path / "c", config(gate.address, plugin(tmp_path, "first", timedelta(hours=1)))))
    for _ in range(3):
        assert api.get("/version")
    assert runs(tmp_path) == 1


def test_an_exec_plugin_is_run_again_when_its_token_expired(gate, tmp_path):
    api = connect(
        write(tmp_path / "c", config(gate.address, plugin(tmp_path, "first", timedelta(seconds=-5))))
    )
    api.get("/version")
    api.get("/version")
    assert runs(tmp_path) == 2


def test_an_exec_plugin_is_run_again_after_401(gate, tmp_path):
    api = connect(write(tmp_path / "c", config(gate.address, plugin(tmp_path, "first", None))))
    api.get("/version")
    gate.token = "second"
    plugin(tmp_path, "second", None)
    assert api.get("/version")
    assert runs(tmp_path) == 2
    assert gate.seen[-2:] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "echo 'Unable to locate credentials' >&2; exit 255",
            "failed with status 255: Unable to locate credentials",
        ),
        ("echo secret-token-not-json", "printed no ExecCredential"),
        ("""echo '{"status": {"clientCertificateData": "secret-token"}}'""", "gave no token"),
        (
            """echo '{"status": {"token": "secret-token", "expirationTimestamp": "soon"}}'""",
            "no ExecCredential",
        ),
        ("""echo '{"status": "secret-token"}'""", "no ExecCredential"),
    ],
)
def test_an_exec_plugin_that_fails_is_one_sentence_without_its_output(gate, tmp_path, text, says):
    command = script(tmp_path / "bad", text)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command}}
    api = connect(write(tmp_path / "c", config(gate.address, user)))
    with pytest.raises(NotAllowed) as caught:
        api.get("/version")
    assert says in str(caught.value)
    assert "secret-token" not in str(caught.value)
    assert caught.value.code == "exec"


def test_an_exec_plugin_that_is_not_installed_says_how_to_get_it(gate, tmp_path):
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-program",
                     "installHint": "Install it\nfrom there."}}  # fmt: skip
    api = connect(write(tmp_path / "c", config(gate.address, user)))
    with pytest.raises(
        NotAllowed, match=r"no-such-program of the kubeconfig is not installed: Install it from there\."
    ):
        api.get("/version")


def test_an_expired_token_names_the_server_and_the_user(gate, tmp_path):
    api = connect(write(tmp_path / "c", config(gate.address, {"token": "old"})))
    with pytest.raises(NotAllowed) as caught:
        api.get("/api/v1/pods")
    assert str(caught.value) == (
        f"{gate.address} does not accept the credentials of user 'me' (401 to list pods): Unauthorized"
    )
    assert "old" not in repr(api.__dict__.get("identity"))


def test_a_server_that_is_away(tmp_path):
    api = connect(write(tmp_path / "c", config("http://127.0.0.1:1")))
    with pytest.raises(Retryable, match="cannot be reached") as caught:
        api.get("/api/v1/pods")
    assert caught.value.code == "unreachable"


def test_tls_to_a_server_that_has_none(gate, tmp_path):
    address = gate.address.replace("http:", "https:")
    api = connect(write(tmp_path / "c", config(address)))
    with pytest.raises(NotAllowed) as caught:
        api.get("/api/v1/pods")
    assert caught.value.code == "tls"
