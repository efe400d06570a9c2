"""The rules as a webhook, for API servers that do not serve v1 of MutatingAdmissionPolicy (before 1.36).

A small HTTPS server of the standard library, which cannot make certificates: they are given as files (of cert-manager,
or `openssl req`), and read again when they change. What it cannot read is answered with an HTTP error; the failure
policy of the webhook then decides, and only about objects of ours, for nothing else is sent here.
"""

from __future__ import annotations

import base64
import json
import logging
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tidemill.kube.admission.cel import Scope, match_conditions
from tidemill.kube.admission.policy import (
    CONTROLLER_NAMESPACE,
    LABELS,
    OBJECTS_API,
    entries,
    name_of,
    resource_rule,
    selectors,
)
from tidemill.kube.admission.rules import mutate
from tidemill.model.errors import SpecError
from tidemill.spec.names import GROUP

WEBHOOK_NAME = f"admission.{GROUP}"
CALL_TIMEOUT_S = 5
MAX_BODY_BYTES = 8 << 20  # an API server takes no object above 3 MiB
MAX_CONNECTIONS = 128
HANDSHAKE_TIMEOUT_S = 5.0
FIRST_REQUEST_TIMEOUT_S = 5.0
BODY_TIMEOUT_S = 5.0
IDLE_TIMEOUT_S = (
    120.0  # longer than an API server keeps an idle connection, so that it is the one to close it
)

_PATH = "/mutate/"
_log = logging.getLogger(__name__)


def webhook_object(
    client: Mapping[str, Any], *, ca: bytes = b"", excluded: Sequence[str] = (CONTROLLER_NAMESPACE,)
) -> dict[str, Any]:
    """The MutatingWebhookConfiguration. `client` is a `url`, or a `service` with its namespace, name and port."""
    webhooks = [
        {
            "name": name_of(rule, scope),
            "clientConfig": _client_config(client, scope, ca),
            "rules": [resource_rule(rule)],
            **selectors(rule, scope, excluded),
            "matchConditions": match_conditions(rule, scope),
            "failurePolicy": rule.failure.value,
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "None",
            "timeoutSeconds": CALL_TIMEOUT_S,
            "admissionReviewVersions": ["v1"],
        }
        for rule, scope in entries()
    ]
    return {
        "apiVersion": OBJECTS_API,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK_NAME, "labels": dict(LABELS)},
        "webhooks": webhooks,
    }


def _client_config(client: Mapping[str, Any], scope: Scope, ca: bytes) -> dict[str, Any]:
    path = f"{_PATH}{scope}"
    made: dict[str, Any] = (
        {"url": str(client["url"]).rstrip("/") + path}
        if "url" in client
        else {"service": {**client["service"], "path": path}}
    )
    if ca:
        made["caBundle"] = base64.b64encode(ca).decode()
    return made


class BadReview(ValueError):
    """The body is no AdmissionReview of version v1."""


def answer(body: bytes, scope: Scope) -> bytes:
    """The AdmissionReview that answers this one. What is no business of ours is allowed as it is."""
    try:
        review = json.loads(body)
        request = review["request"]
        uid = request["uid"]
        if review["apiVersion"] != "admission.k8s.io/v1" or not isinstance(uid, str):
            raise BadReview("not an AdmissionReview of admission.k8s.io/v1")
        patch = mutate(request, namespace_managed=scope is Scope.NAMESPACES)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadReview(f"cannot read the AdmissionReview: {type(error).__name__}") from error
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return json.dumps(document).encode()


class WebhookServer(ThreadingHTTPServer):
    """Serves until `shutdown`. One thread for each connection; a slow or silent one delays no other."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._read_at: tuple[int, int] | None = None
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        try:
            self._read_certificate()
        except (OSError, ssl.SSLError) as error:
            raise SpecError(f"cannot use the certificate {certificate} with the key {key}: {error}") from None
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise SpecError(f"cannot listen on {address[0]}:{address[1]}: {error.strerror}") from None

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, client = super().get_request()
        connection.settimeout(HANDSHAKE_TIMEOUT_S)
        self._renew_certificate()
        # The handshake waits for the client, so it belongs to the connection's own thread.
        secured = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return secured, client

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("connection from %s failed", client_address, exc_info=True)

    def _renew_certificate(self) -> None:
        """A renewed certificate counts from the next connection on. A half-written pair: the old one stays."""
        try:
            if self._stamp() != self._read_at:
                self._read_certificate()
        except (OSError, ssl.SSLError) as error:
            _log.warning("the certificate %s cannot be read again: %s", self._certificate, error)

    def _read_certificate(self) -> None:
        stamp = self._stamp()
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
        self._tls.load_cert_chain(self._certificate, self._key)
        self._read_at = stamp

    def _stamp(self) -> tuple[int, int]:
        return self._certificate.stat().st_mtime_ns, self._key.stat().st_mtime_ns


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tidemill", ""
    disable_nagle_algorithm = True  # an answer is two writes: the second must not wait for an acknowledgement

    def setup(self) -> None:
        self.request.do_handshake()
        # Only who has asked for a review may stay: others would keep an API server out by holding connections.
        self.request.settimeout(FIRST_REQUEST_TIMEOUT_S)
        super().setup()

    def do_GET(self) -> None:
        self._reply(HTTPStatus.OK if self.path == "/healthz" else HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        scopes = {f"{_PATH}{scope}": scope for scope in Scope}
        scope = scopes.get(self.path.partition("?")[0])
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED)
        elif int(length) > MAX_BODY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif scope is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        else:
            self._review(int(length), scope)

    def _review(self, length: int, scope: Scope) -> None:
        self.request.settimeout(BODY_TIMEOUT_S)
        body = self.rfile.read(length)
        self.request.settimeout(IDLE_TIMEOUT_S)
        if len(body) < length:
            self.close_connection = True
            return
        try:
            self._reply(HTTPStatus.OK, answer(body, scope))
        except BadReview as error:
            self._reply(HTTPStatus.BAD_REQUEST, str(error).encode(), "text/plain")

    def _refuse(self, status: HTTPStatus) -> None:
        """The body was not read, so the connection cannot be used again."""
        self.close_connection = True
        self._reply(status)

    def _reply(self, status: HTTPStatus, body: bytes = b"", content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)
