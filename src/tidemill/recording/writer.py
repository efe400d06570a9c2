"""Keeps every tick in a folder: segments that each begin with the documents and a whole world.

A segment is one file, compressed as it grows, so that a process that is killed loses the last second at most. The
oldest segments are removed when there are too many bytes. Nothing in a recording is a secret: documents name secrets
and do not hold them; addresses of webhooks and user data, which may, are left out, and so is what looks like one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec
import zstandard

from tidemill import __version__
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.recording.plan_digest import PlanDigests
from tidemill.recording.secrets import LEFT_OUT, cleaned, without_secrets
from tidemill.recording.world_codec import WorldEncoder, WorldFrame
from tidemill.spec import Spec
from tidemill.spec.document import Document

SUFFIX: Final = ".tidemill"
FORMAT: Final = 2
HEAD_BYTES: Final = 8  # before a message: its length and its checksum
DEFAULT_LIMIT: Final = 512 * 2**20
_SEGMENT = 16 * 2**20  # of bytes on the disk
_SEGMENT_S = 3600.0  # a whole world is written once for each; what is damaged costs an hour at most
_FLUSH_S = 1.0
_BATCH = 64  # ticks that are written together, where they come so fast
_LEVEL = 3
_NO_ACTIONS = b"\x90"  # an empty list
_SEGMENT_NAME = re.compile(r"(\d{8})\.tidemill")
_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Header(msgspec.Struct):
    """The first message of a segment."""

    format: int
    version: str  # of Tidemill: another one may decide otherwise
    documents: list[Any]
    catalog: Any
    began: datetime


class TickFrame(msgspec.Struct, array_like=True):
    world: WorldFrame
    plan: bytes  # its digest; empty: there was none, the tick failed before
    actions: msgspec.Raw  # of the plan
    woken_by: list[str]
    failed: list[str]  # actions that did not work, with why
    error: str = ""  # the traceback of a tick that failed


class Recorder:
    """`spec` first, then every tick; a new `spec` begins a new segment. Raises OSError where it cannot write."""

    def __init__(
        self, folder: Path, *, limit: int = DEFAULT_LIMIT, segment: int = _SEGMENT,
        now_s: Callable[[], float] = time.monotonic, version: str = __version__,
    ) -> None:  # fmt: skip
        """`version`: of the Tidemill that decided, where a tick of another recording is written again."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._limit, self._now_s, self._version = folder, limit, now_s, version
        self._segment_bytes = min(segment, limit // 4)
        self._worlds, self._plans = WorldEncoder(), PlanDigests()
        self._file: Any = None
        self._stream: Any = None
        self._batch: list[TickFrame] = []
        self._flushed_s = self._began_s = 0.0
        self._spec: Spec | None = None

    def tick(
        self,
        spec: Spec,
        world: World,
        plan: Plan | None,
        woken_by: tuple[str, ...] = (),
        failed: tuple[str, ...] = (),
        error: str = "",
    ) -> None:
        digest, actions = (b"", _NO_ACTIONS) if plan is None else self._plans.of(plan)
        self.rewrite(spec, world, digest, actions, woken_by, failed, error)

    def rewrite(
        self,
        spec: Spec,
        world: World,
        digest: bytes,
        actions: bytes,
        woken_by: tuple[str, ...],
        failed: tuple[str, ...],
        error: str,
    ) -> None:
        """A tick as it is in a recording: its plan as digest and actions."""
        now_s = self._now_s()
        if spec is not self._spec or self._is_full(now_s):
            self._begin(spec, world.now, now_s)
        frame = self._worlds.frame(world)
        told = [without_secrets(one) for one in failed]
        self._batch.append(
            TickFrame(frame, digest, msgspec.Raw(actions), list(woken_by), told, without_secrets(error))
        )
        if now_s - self._flushed_s >= _FLUSH_S or error:
            self._flushed_s = now_s
            self.flush()
        elif len(self._batch) >= _BATCH:
            self._write_batch()

    def flush(self) -> None:
        """Everything up to now can be read by others."""
        self._write_batch()
        if self._stream is not None:
            self._stream.flush()
            self._file.flush()

    def close(self) -> None:
        stream, file = self._stream, self._file
        try:
            if stream is not None:
                self._write_batch()
                stream.close()
        finally:  # also where the disk is full: the next tick begins a new segment
            self._stream = self._file = None
            self._batch.clear()
            if file is not None:
                file.close()

    def _is_full(self, now_s: float) -> bool:
        return (
            self._stream is None
            or now_s - self._began_s >= _SEGMENT_S
            or self._file.tell() >= self._segment_bytes
        )

    def _begin(self, spec: Spec, now: datetime, now_s: float) -> None:
        self.close()
        self._make_room()
        self._file = self._new_file()
        self._stream = zstandard.ZstdCompressor(level=_LEVEL).stream_writer(self._file, closefd=False)
        self._spec, self._began_s = spec, now_s
        self._worlds.restart()
        self._write(Header(FORMAT, self._version, documents(spec), spec.catalog, now))

    def _new_file(self) -> Any:
        number = max((int(path.stem) for path in segments(self._folder)), default=0)
        while True:  # another process may write there too, such as the one that led before
            number += 1
            try:
                return (self._folder / f"{number:08}{SUFFIX}").open("xb")
            except FileExistsError:
                continue

    def _make_room(self) -> None:
        """For one more segment within the limit."""
        kept = segments(self._folder)
        sizes = [path.stat().st_size for path in kept]
        # The documents alone may be larger than a segment is to be.
        next_one = max([self._segment_bytes, *sizes[-1:]])
        while kept and sum(sizes) > self._limit - next_one:
            sizes.pop(0)
            kept.pop(0).unlink(missing_ok=True)

    def _write_batch(self) -> None:
        if self._batch:
            batch, self._batch = self._batch, []
            self._write(batch)

    def _write(self, message: Any) -> None:
        data = _encoder.encode(message)
        self._stream.write(len(data).to_bytes(4, "big") + crc32(data).to_bytes(4, "big") + data)


def segments(folder: Path) -> list[Path]:
    """The files of a recording, the oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if _SEGMENT_NAME.fullmatch(path.name))


def size(folder: Path) -> int:
    """Bytes of all segments."""
    found = 0
    for path in segments(folder):
        try:
            found += path.stat().st_size
        except FileNotFoundError:  # removed meanwhile, to make room
            continue
    return found


def documents(spec: Spec) -> list[Any]:
    """As people write them, without what may be secret."""
    all_of_them: list[Document] = [
        spec.platform, *spec.node_classes.values(), *spec.pools.values(), *spec.plans.values()
    ]  # fmt: skip
    plain = [one.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in all_of_them]
    for document, one in zip(plain, all_of_them, strict=True):
        document["kind"] = type(one).__name__
        for target in document["spec"].get("notifications", ()):
            if "url" in target:
                target["url"] = f"https://{LEFT_OUT}"
        if document["spec"].get("userData"):
            document["spec"]["userData"] = f"# {LEFT_OUT}"
    return [cleaned(document) for document in plain]
