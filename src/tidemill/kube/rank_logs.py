"""The logs of a job's pods as one stream of lines, each with its rank: as they are now, or as they come.

A thread for each pod reads its log. A connection that breaks is opened again from the last line that came, and a pod
that takes the place of another is read from its beginning.
"""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tidemill.kube.api import LineStream
from tidemill.kube.training_jobs import TrainingJobs
from tidemill.model.errors import Gone, NotAllowed, Refused, Retryable, TidemillError
from tidemill.report.training_jobs import PodRow, pod_rows

MOST_AT_ONCE = 48  # connections; the rest of the pool is for looking at the job
_WAITING_LINES = 10_000
_AGAIN_S = 2.0
_STARTED = ("Running", "Succeeded", "Failed")

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class LogLine:
    at: str  # as the kubelet writes it: RFC 3339 with nanoseconds, always as long
    rank: int
    text: str = field(compare=False)


@dataclass(slots=True)
class _Reader:
    """One pod's log. `last`: the instant of the last line that came."""

    pod: Object
    row: PodRow
    last: str = ""
    thread: threading.Thread | None = None
    stream: LineStream | None = None

    @property
    def reads(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class RankLogs:
    """`rank`: only this one. `tail`: at most so many lines of each that were written before."""

    def __init__(self, jobs: TrainingJobs, *, rank: int | None = None, tail: int | None = None) -> None:
        self._jobs, self._rank, self._tail = jobs, rank, tail
        self._queue: queue.Queue[LogLine] = queue.Queue(_WAITING_LINES)
        self._readers: dict[str, _Reader] = {}
        self._error: TidemillError | None = None
        self._closed = threading.Event()

    def now(self, pods: Iterable[Object]) -> Iterator[LogLine]:
        """What was written until now, in the order of time; of each rank the newest pod."""
        newest = {row.rank: (pod, row) for pod, row in self._wanted(pods) if row.phase in _STARTED}
        yield from heapq.merge(*(self._read_once(pod, row) for pod, row in newest.values()))

    def _read_once(self, pod: Object, row: PodRow) -> Iterator[LogLine]:
        with closing(self._jobs.log(pod, follow=False, tail=self._tail)) as stream:
            for raw in stream:
                yield _line(raw, row.rank)

    # --- as they come -------------------------------------------------------------------------------

    def look(self, pods: Iterable[Object]) -> None:
        """Read what these pods write, if it is not being read."""
        for pod, row in self._wanted(pods):
            reader = self._readers.get(row.uid)
            if row.phase not in _STARTED or (reader is not None and (reader.reads or row.phase != "Running")):
                continue
            if reader is None:
                reader = self._readers[row.uid] = _Reader(pod, row)
            reader.thread = threading.Thread(target=self._follow, args=(reader,), daemon=True)
            reader.thread.start()

    def lines(self, for_s: float) -> Iterator[LogLine]:
        """Those that come within this time. Raises what made reading impossible."""
        until = time.monotonic() + for_s
        while (left := until - time.monotonic()) > 0:
            if self._error is not None:
                raise self._error
            try:
                yield self._queue.get(timeout=left)
            except queue.Empty:
                return

    def rest(self) -> Iterator[LogLine]:
        """What was read and not taken yet."""
        while not self._queue.empty():
            yield self._queue.get()

    @property
    def finished(self) -> bool:
        return not any(reader.reads for reader in self._readers.values())

    def close(self) -> None:
        self._closed.set()
        for reader in self._readers.values():
            if reader.stream is not None:
                reader.stream.cancel()

    def _wanted(self, pods: Iterable[Object]) -> list[tuple[Object, PodRow]]:
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        rows = [row for row in pod_rows(by_uid.values()) if self._rank in (None, row.rank)]
        return [(by_uid[row.uid], row) for row in rows]

    def _follow(self, reader: _Reader) -> None:
        while not self._closed.is_set():
            try:
                self._read(reader)
                return
            except NotAllowed as error:
                self._error = error
                return
            except (Gone, Refused):  # it is no more, or its container has not started: the next look tells
                return
            except Retryable:
                self._closed.wait(_AGAIN_S)

    def _read(self, reader: _Reader) -> None:
        begun_after, tail = reader.last, None if reader.last else self._tail
        reader.stream = self._jobs.log(reader.pod, follow=True, tail=tail, since=_second(begun_after))
        with closing(reader.stream) as stream:
            for raw in stream:
                line = _line(raw, reader.row.rank)
                if line.at > begun_after:
                    reader.last = line.at
                    self._put(line)

    def _put(self, line: LogLine) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(line, timeout=1.0)
                return
            except queue.Full:  # whoever prints is slower: the kubelet waits with us
                continue


def _second(at: str) -> str:
    """`sinceTime` knows no fractions: lines of that second come again, and are left out."""
    return f"{at[:19]}Z" if at else ""


def _line(raw: bytes, rank: int) -> LogLine:
    at, _, text = raw.decode("utf-8", "replace").rstrip("\r").partition(" ")
    return LogLine(at, rank, text)
