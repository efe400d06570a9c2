"""Keeps every tick in a folder, in a thread of its own: a tick hands over what it saw and goes on.

What cannot be kept (a disk that is full or read-only, more ticks than the thread can write) is counted and told, and
stops nobody.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Full, Queue

import structlog

from tidemill.controller.loop import TickReport
from tidemill.controller.worker import Worker
from tidemill.recording.writer import Recorder, size

log = structlog.stdlib.get_logger("tidemill.controller.recording")

# A minute of a busy cluster. Worlds share what did not change, so the queue is small.
MOST_WAITING = 1_000
IDLE_S = 0.5
# After a failure; what happens meanwhile is lost, and counted.
RETRY_S = 30.0
STOP_WITHIN_S = 5.0


class FlightRecorder(Worker):
    """A reporter of ticks."""

    def __init__(self, folder: Path, limit: int, *, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__("recording")
        self._folder, self._limit, self._now_s = folder, limit, now_s
        self._waiting: Queue[TickReport] = Queue(MOST_WAITING)
        self._recorder: Recorder | None = None
        self._retry_at_s = float("-inf")
        self.kept = 0
        self.lost = 0
        self.trouble = ""  # why nothing is kept just now
        self._told: tuple[str, int | None] | None = None  # which trouble the log has
        self._behind = False

    @property
    def bytes_used(self) -> int:
        return size(self._folder)

    def report(self, report: TickReport) -> None:
        if report.seen is None:
            return  # nothing was seen: there is nothing to decide again
        try:
            self._waiting.put_nowait(report)
        except Full:
            self.lost += 1
            if not self._behind:
                log.warning("the recording is behind: ticks are left out of it")
            self._behind = True

    def stop(self) -> None:
        """Writes what is waiting, for a few seconds at most."""
        super().stop()
        if self.alive:
            self._thread.join(STOP_WITHIN_S)

    def _run(self) -> None:
        began_s = time.process_time()
        while True:
            try:
                self._keep(self._waiting.get(timeout=IDLE_S))
                self._behind = self._behind and self._waiting.full()
            except Empty:
                self._flush()
                if self._stopping.is_set():
                    break
        self._close()
        log.info(
            "the recording ends", folder=str(self._folder), kept=self.kept, lost=self.lost,
            cpu_s=round(time.thread_time(), 3), of_cpu_s=round(time.process_time() - began_s, 3),
        )  # fmt: skip

    def _keep(self, report: TickReport) -> None:
        if self._now_s() < self._retry_at_s:
            self.lost += 1
            return
        try:
            self._write(report)
        except OSError as error:
            self._failed(error)
        except Exception as bug:  # of ours: the engine goes on, and so does the thread
            log.exception("a tick cannot be recorded")
            self._failed(bug)
        else:
            self.kept += 1
            if self.trouble:
                log.info("ticks are recorded again", folder=str(self._folder))
                self.trouble, self._told = "", None

    def _write(self, report: TickReport) -> None:
        if self._recorder is None:
            self._recorder = Recorder(self._folder, limit=self._limit)
        assert report.seen is not None
        world, plan = report.seen
        failed = tuple(
            f"{type(one.action).__name__}: {one.error}: {one.detail}"
            for one in (report.tick.outcomes if report.tick is not None else ())
            if one.failed
        )
        error = "" if report.error is None else "".join(traceback.format_exception(report.error))
        self._recorder.tick(report.spec, world, plan, report.woken_by, failed, error)

    def _flush(self) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.lost += 1
        self._retry_at_s = self._now_s() + RETRY_S
        kind = type(error).__name__, getattr(error, "errno", None)
        self.trouble = getattr(error, "strerror", None) or str(error) or kind[0]
        if kind != self._told:
            log.error(
                "ticks cannot be recorded; the engine goes on", folder=str(self._folder), why=self.trouble
            )
        self._told = kind
        self._close()

    def _close(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            try:
                recorder.close()
            except OSError as error:
                log.warning("the end of the recording is lost", why=error.strerror or str(error))
