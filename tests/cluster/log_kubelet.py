"""The part of a kubelet that serves logs, as the API server asks for them: over TLS, whole or followed.

A test says what a pod writes. `cut`: the next answer about this pod breaks after so many lines.
"""

from __future__ import annotations

import ssl
import threading
from collections import defaultdict
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_LOOK_S = 0.05


class LogKubelet:
    def __init__(self, certificate: Path, key: Path) -> None:
        self.written: dict[str, list[tuple[str, str]]] = defaultdict(list)  # pod -> (instant, text)
        self.ended: set[str] = set()
        self.cut: dict[str, int] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                kubelet._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._stopping = threading.Event()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def write(self, pod: str, *texts: str) -> None:
        for text in texts:
            at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
            self.written[pod].append((at, text))

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = urlsplit(handler.path)
        pod = path.path.split("/")[3]  # /containerLogs/NAMESPACE/POD/CONTAINER
        query = {key: values[0] for key, values in parse_qs(path.query).items()}
        self.asked.append((pod, query))
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        since = query.get("sinceTime", "")
        sent, cut = 0, self.cut.pop(pod, -1)
        while not self._stopping.wait(_LOOK_S):
            ended = pod in self.ended
            for at, text in self.written[pod][sent:]:
                if cut == sent:
                    handler.close_connection = True
                    handler.connection.close()
                    return
                sent += 1
                if f"{at[:19]}Z" >= since:
                    line = f"{at} {text}\n".encode()
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    handler.wfile.flush()
            if ended or query.get("follow") != "true":
                break
        handler.wfile.write(b"0\r\n\r\n")
