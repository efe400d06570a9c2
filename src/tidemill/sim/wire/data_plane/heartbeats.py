"""Heartbeats of the nodes that are up: a Lease each, in wall time whatever the speed of the clock.

The controller manager knows no other time: a node without a renewal for fifty seconds is NotReady. Their writes have a
queue of their own, so that many pods that start at once do not make nodes look dead.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from tidemill.engine.clock import wall_now
from tidemill.sim.wire.data_plane import node_object
from tidemill.sim.wire.data_plane.api_client import ApiClient, ApiError
from tidemill.sim.wire.data_plane.node_object import BootedNode
from tidemill.sim.wire.data_plane.nodes import Nodes
from tidemill.sim.wire.data_plane.write_queue import WriteQueue

_LASTS_S = 40  # a kubelet's default, renewed after a quarter of it
_RENEW_S = 10.0
_MOST_PER_S = 100  # above a thousand nodes they renew less often: at 2,000 every 20 s
_STATUS_S = 300.0  # a kubelet repeats an unchanged status this often
_LOOK_S = 0.5
_WRITERS = 16  # they mostly wait for a busy API server
_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Heartbeats:
    def __init__(self, nodes: Nodes, client: ApiClient) -> None:
        self._nodes, self._client = nodes, client
        self._writes = WriteQueue("heartbeats", _WRITERS)
        self._due: dict[str, float] = {}  # node -> when its lease is due, on the monotonic clock
        self._status_due: dict[str, float] = {}
        self._leases: dict[str, dict[str, Any]] = {}  # as the API server last answered
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemill-heartbeats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._writes.close()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            up, now = self._nodes.up(), time.monotonic()
            every_s = max(_RENEW_S, len(up) / _MOST_PER_S)
            for node in up:
                if node.uid:
                    self._beat(node, now, every_s)

    def _beat(self, node: BootedNode, now: float, every_s: float) -> None:
        if now >= self._due.get(node.name, 0.0):
            self._due[node.name] = now + every_s
            self._writes.submit(f"lease {node.name}", lambda: self._renew(node))
        if now >= self._status_due.setdefault(node.name, now + _STATUS_S):
            self._status_due[node.name] = now + _STATUS_S
            self._writes.submit(f"heartbeat of {node.name}", lambda: self._nodes.send(node))

    def _renew(self, node: BootedNode) -> None:
        if node.dead_at is not None or node.gone:
            return
        known = self._leases.pop(node.name, None)  # gone, if the renewal fails: it is read or made anew
        if known is not None:
            known["spec"]["renewTime"] = node_object.format_micro(wall_now())
            answer = self._client.send("PUT", f"{_PATH}/{node.name}", known)
        else:
            answer = self._make(node)
        self._leases[node.name] = json.loads(answer)

    def _make(self, node: BootedNode) -> bytes:
        try:
            return self._client.send("POST", _PATH, node_object.as_lease(node, wall_now(), _LASTS_S))
        except ApiError as error:
            if error.status != 409:
                raise
            return self._client.send("GET", f"{_PATH}/{node.name}")
