"""The reading half of the adapter alone, in a process of its own: `python -m benchmarks.cluster.reader KUBECONFIG`.

It says when it is synced, takes a view every second as a tick does, and at the end of its input says what views cost.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from tidemill.engine.clock import WallClock
from tidemill.kube.cluster_view import ClusterReader
from tidemill.kube.connect import connect

EVERY_S = 1.0


def main(kubeconfig: str) -> None:
    began_cpu, began = sum(os.times()[:2]), time.monotonic()
    reader = ClusterReader(connect(kubeconfig), WallClock())
    reader.start()
    assert reader.wait_synced(600), reader.errors()
    first = time.monotonic()
    view = reader.view()
    done = time.monotonic()
    said = {
        "sync_s": first - began, "first_view_s": done - first, "cpu_s": sum(os.times()[:2]) - began_cpu,
        "nodes": len(view.nodes), "pods": len(view.pods), "unreadable": len(reader.unreadable()),
    }  # fmt: skip
    print(json.dumps(said), flush=True)
    over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(over,), daemon=True).start()
    views_ms = []
    while not over.wait(EVERY_S):
        at = time.monotonic()
        view = reader.view()
        views_ms.append(1000 * (time.monotonic() - at))
    views_ms.sort()
    last = {"views": len(views_ms), "view_ms": views_ms[len(views_ms) // 2], "worst_view_ms": views_ms[-1]}
    print(json.dumps({**last, "pods": len(view.pods), "lag_s": reader.lag_s}), flush=True)
    reader.stop()


def _wait_for_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    main(sys.argv[1])
