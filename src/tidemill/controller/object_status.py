"""Writes the status of our objects: whether each document is accepted, and what the engine knows after its last tick.

In a thread of its own, seconds behind the ticks: an API server that is away costs nothing but news.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from tidemill.controller.cluster_documents import ClusterDocuments
from tidemill.controller.loop import TickReport
from tidemill.controller.worker import Worker
from tidemill.engine.clock import MappedClock
from tidemill.kube.events import Subject
from tidemill.model.errors import Gone, TidemillError
from tidemill.report.object_status import Projection, block_statuses, document_status
from tidemill.report.status import status
from tidemill.spec.accept import Object, Verdict, name_of
from tidemill.spec.names import API_VERSION

EVERY_S = 5.0

log = structlog.stdlib.get_logger("tidemill.controller.status")


class Objects(Protocol):
    """`kube.own_objects.OwnObjects`."""

    def blocks(self) -> list[Mapping[str, Any]]: ...

    def write_block(self, name: str, spec: Mapping[str, Any]) -> None: ...

    def remove_block(self, name: str) -> None: ...

    def write_status(self, kind: str, name: str, status: Mapping[str, Any]) -> None: ...


Tell = Callable[..., None]


class StatusWriter(Worker):
    """A reporter, and the thread that writes. Only who leads writes."""

    def __init__(
        self,
        objects: Objects,
        documents: ClusterDocuments,
        clock: MappedClock,
        leads: Callable[[], bool],
        tell: Tell,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__("object-status")
        self._objects, self._documents, self._clock = objects, documents, clock
        self._leads, self._tell, self._wall = leads, tell, wall
        self._report: TickReport | None = None
        self._written: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._blocks: set[str] | None = None  # those in the cluster; None: not listed yet
        self._verdicts: dict[str, Verdict] = {}
        self._trouble = ""

    def report(self, report: TickReport) -> None:
        if report.tick is not None:
            self._report = report

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            if self._leads():
                self.step()

    def step(self) -> None:
        try:
            self.write()
        except TidemillError as error:
            if str(error) != self._trouble:
                log.warning("cannot write the status of our objects; trying again", why=str(error))
            self._trouble = str(error)
        except Exception:
            log.exception("cannot write the status of our objects")
        else:
            self._trouble = ""

    def write(self) -> None:
        now, seen = self._wall(), self._projection()
        for thing in self._documents.objects:
            self._tell_of(thing, self._documents.accepted.verdict(thing))
            self._write(thing["kind"], thing["metadata"]["name"], document_status(
                thing, self._documents.accepted, now, seen
            ))  # fmt: skip
        if seen is not None:
            self._write_blocks(seen)

    def _projection(self) -> Projection | None:
        report = self._report
        if report is None or report.tick is None:
            return None
        known = status(report.spec, report.tick.world, report.tick.plan)
        return Projection(report.spec, known, self._wall(), self._clock.to_wall)

    def _write_blocks(self, seen: Projection) -> None:
        statuses = block_statuses(seen)
        if self._blocks is None:
            self._blocks = {block["metadata"]["name"] for block in self._objects.blocks()}
        for name in sorted(self._blocks - statuses.keys()):  # EC2 shows it no longer
            self._objects.remove_block(name)
            self._blocks.discard(name)
            self._written.pop(("CapacityBlock", name), None)
        for name, body in statuses.items():
            if name not in self._blocks:
                self._objects.write_block(name, {"reservationId": name})
                self._blocks.add(name)
            self._write("CapacityBlock", name, body)

    def _write(self, kind: str, name: str, body: Mapping[str, Any]) -> None:
        if self._written.get((kind, name)) == body:
            return
        try:
            self._objects.write_status(kind, name, body)
        except Gone:
            if kind == "CapacityBlock" and self._blocks is not None:
                self._blocks.discard(name)  # somebody deleted it: made again
            return
        self._written[kind, name] = body

    def _tell_of(self, thing: Object, verdict: Verdict) -> None:
        """An Event where a version is not used, and when it is again."""
        name = name_of(thing)
        before = self._verdicts.get(name)
        self._verdicts[name] = verdict
        if before == verdict or (before is None and verdict.accepted):
            return
        subject = Subject(
            thing["kind"], thing["metadata"]["name"], uid=thing["metadata"].get("uid", ""),
            api_version=API_VERSION,
        )  # fmt: skip
        note = verdict.message or "this version is used"
        self._tell(subject, verdict.reason, note, action="Accept", warning=not verdict.accepted)
