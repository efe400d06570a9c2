"""The parts of the data plane, put together and taken apart."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidemill.sim.timeline import Timeline
from tidemill.sim.wire.data_plane.api_client import ApiClient, KubeApi
from tidemill.sim.wire.data_plane.heartbeats import Heartbeats
from tidemill.sim.wire.data_plane.kubelets import Kubelets
from tidemill.sim.wire.data_plane.nodes import FAST, USUAL, Nodes
from tidemill.sim.wire.data_plane.pod_watch import Change, PodWatch
from tidemill.sim.wire.data_plane.pod_writes import PodWriter
from tidemill.sim.wire.data_plane.records import report
from tidemill.sim.wire.data_plane.write_queue import WriteQueue
from tidemill.spec.faults import FaultKind

if TYPE_CHECKING:
    from tidemill.sim.wire.state import Wire

_WRITERS = 16  # they mostly wait for a busy API server; two thousand nodes may join within two minutes


class DataPlane:
    def __init__(
        self, wire: Wire, timeline: Timeline, api: KubeApi, *, fast: bool = False, startup_taints: Iterable[str] = ()
    ) -> None:  # fmt: skip
        """`startup_taints`: keys that others take off when a node is ready for them."""
        self._wire = wire
        timings = FAST if fast else USUAL
        wire.cloud.boot_at_once(yes=fast)
        self._client = ApiClient(api)
        self._writes = WriteQueue("kubelets", _WRITERS)
        self.nodes = Nodes(wire, timeline, self._client, self._writes, timings, startup_taints)
        self.kubelets = Kubelets(wire, timeline, self.nodes, PodWriter(self._client, self._writes), timings)
        self._closed = False
        self._heartbeats = Heartbeats(self.nodes, self._client)
        self._watch = PodWatch(self._client, self._tell)

    def close(self) -> None:
        self._closed = True
        self._watch.stop()
        self._client.end_streams()
        self._heartbeats.close()
        self._writes.close()
        self._watch.join()
        self._client.close()
        self.nodes.close()

    def flush(self, timeout_s: float) -> bool:
        """Waits until the API server has been told everything that happened so far."""
        return self._writes.flush(timeout_s)

    def arm(self, kind: FaultKind, count: int, target: str, duration: timedelta) -> tuple[str, ...]:
        """A fault of the cluster. The nodes that it struck at once."""
        if kind is FaultKind.GPU_FAILS:
            return tuple(filter(None, (self.nodes.fail_gpu(target) for _ in range(count))))
        self.nodes.arm(kind, count, target, duration)
        return ()

    def as_json(self) -> dict[str, Any]:
        return report(list(self.nodes.by_instance.values()), self.kubelets.records)

    def _tell(self, changes: list[Change]) -> None:
        with self._wire.clock.turn():
            if not self._closed:
                self.kubelets.take(changes)
