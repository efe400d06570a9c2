"""Keeps every tick in a folder: segments that each begin with the documents and a whole world.

A segment is one file, compressed as it grows, so that a process that is killed loses the last second at most. The
oldest segments are removed when there are too many bytes. Nothing in a recording is a secret: documents name secrets
and do not hold them, and addresses of webhooks and user data, which may, are left out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

from tidemill import __version__
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.recording.world_codec import WorldEncoder, WorldFrame, encode
from tidemill.spec import Spec
from tidemill.spec.document import Document

SUFFIX: Final = ".tidemill"
FORMAT: Final = 1
LENGTH_BYTES: Final = 4
DEFAULT_LIMIT: Final = 512 * 2**20
_SEGMENT = 16 * 2**20  # of bytes on the disk; a whole world is written once for each
_FLUSH_S = 1.0
_LEVEL = 3
_LEFT_OUT = "left out of the recording"
_SEGMENT_NAME = re.compile(r"(\d{8})\.tidemill")


class Header(msgspec.Struct):
    """The first message of a segment."""

    format: int
    version: str  # of Tidemill: another one may decide otherwise
    documents: list[Any]
    catalog: Any
    began: datetime


class TickFrame(msgspec.Struct, array_like=True):
    world: WorldFrame
    plan: bytes  # its digest
    woken_by: list[str]
    failed: list[str]  # actions that did not work, with why


_digests = msgspec.msgpack.Encoder(order="deterministic")


def digest(plan: Plan) -> bytes:
    """Of everything that a plan says."""
    said = (plan.actions, plan.unmet, plan.warnings, plan.wake_at)
    return blake2b(_digests.encode(said), digest_size=12).digest()


class Recorder:
    """`spec` first, then every tick; a new `spec` begins a new segment. Raises OSError where it cannot write."""

    def __init__(
        self, folder: Path, *, limit: int = DEFAULT_LIMIT, segment: int = _SEGMENT,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._limit, self._segment_bytes, self._now_s = (
            folder,
            limit,
            min(segment, limit // 4),
            now_s,
        )
        self._worlds = WorldEncoder()
        self._file: Any = None
        self._stream: Any = None
        self._path = folder
        self._flushed_s = 0.0
        self._spec: Spec | None = None
        self._plan: tuple[Plan, bytes] = (Plan(), digest(Plan()))

    def tick(
        self,
        spec: Spec,
        world: World,
        plan: Plan,
        woken_by: tuple[str, ...] = (),
        failed: tuple[str, ...] = (),
    ) -> None:
        if spec is not self._spec or self._is_full():
            self._begin(spec, world.now)
        if plan is not self._plan[0]:
            self._plan = (plan, digest(plan))
        self._write(TickFrame(self._worlds.frame(world), self._plan[1], list(woken_by), list(failed)))
        if self._now_s() - self._flushed_s >= _FLUSH_S:
            self._flushed_s = self._now_s()
            self._stream.flush()
            self._file.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _is_full(self) -> bool:
        return self._stream is None or self._file.tell() >= self._segment_bytes

    def _begin(self, spec: Spec, now: datetime) -> None:
        self.close()
        self._spec = spec
        self._make_room()
        number = max((int(path.stem) for path in segments(self._folder)), default=0) + 1
        self._path = self._folder / f"{number:08}{SUFFIX}"
        self._file = self._path.open("xb")
        self._stream = zstandard.ZstdCompressor(level=_LEVEL).stream_writer(self._file)
        self._worlds.restart()
        self._write(Header(FORMAT, __version__, documents(spec), spec.catalog, now))

    def _make_room(self) -> None:
        """For one more segment within the limit."""
        kept = segments(self._folder)
        sizes = [path.stat().st_size for path in kept]
        next_one = max(
            [self._segment_bytes, *sizes[-1:]]
        )  # the documents alone may be larger than a segment is to be
        while kept and sum(sizes) > self._limit - next_one:
            sizes.pop(0)
            kept.pop(0).unlink()

    def _write(self, message: Any) -> None:
        data = encode(message)
        self._stream.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)


def segments(folder: Path) -> list[Path]:
    """The files of a recording, the oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if _SEGMENT_NAME.fullmatch(path.name))


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
                target["url"] = f"https://{_LEFT_OUT.replace(' ', '-')}"
        if document["spec"].get("userData"):
            document["spec"]["userData"] = f"# {_LEFT_OUT}"
    return plain
