"""Who watches a stage from outside: kubectl in a process of its own, and what it was told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.cluster.objects import is_ready
from tests.cluster.stage import Stage


class KubectlWatch:
    """`kubectl get ... --watch` in a process of its own: every version of the objects that it was told of."""

    def __init__(self, stage: Stage, name: str, *what: str) -> None:
        self._file = stage.processes.logs / f"{name}.log"
        stage.processes.start(
            name,
            (
                str(stage.cluster.binaries / "kubectl"), "--kubeconfig", str(stage.cluster.kubeconfig), "get", *what,
                "--watch", "--output-watch-events", "-o", "json",
            ),
        )  # fmt: skip

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        text, place, decoder = self._file.read_text(), 0, json.JSONDecoder()
        while place < len(text):
            if text[place] != "{":
                place += 1
                continue
            try:
                event, place = decoder.raw_decode(text, place)
            except ValueError:
                return  # still being written
            yield event["type"], event["object"]


class ReadyObserver(KubectlWatch):
    """How many pods of a service were Ready, after every change."""

    def __init__(self, stage: Stage, namespace: str, app: str) -> None:
        super().__init__(stage, f"observer-{app}", "pods", "-n", namespace, "-l", f"app={app}")

    def counts(self) -> list[tuple[int, frozenset[str]]]:
        """After every event: how many were Ready, and on which nodes."""
        ready: dict[str, str] = {}
        seen = []
        for kind, pod in self.events():
            ready.pop(pod["metadata"]["uid"], None)
            if kind != "DELETED" and is_ready(pod):
                ready[pod["metadata"]["uid"]] = pod["spec"].get("nodeName", "")
            seen.append((len(ready), frozenset(ready.values())))
        return seen

    def lowest_since_full(self, full: int) -> int:
        """The fewest that were Ready after `full` of them had been for the first time."""
        counts = [count for count, _ in self.counts()]
        assert full in counts, f"there never were {full} ready: {counts}"
        return min(counts[counts.index(full) :])
