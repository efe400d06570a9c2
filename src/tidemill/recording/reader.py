"""Reads a recording: its documents and worlds in order. What cannot be read is named, and the rest is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import msgspec
import zstandard
from pydantic import TypeAdapter, ValidationError

from tidemill import __version__
from tidemill.catalog import Catalog
from tidemill.model.errors import SpecError
from tidemill.model.world import World
from tidemill.recording.world_codec import WorldDecoder
from tidemill.recording.writer import FORMAT, HEAD_BYTES, Header, TickFrame, segments
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.read import KINDS

_format = msgspec.msgpack.Decoder(dict[str, Any])
_header = msgspec.msgpack.Decoder(Header)
_batch = msgspec.msgpack.Decoder(list[TickFrame])
_catalog: TypeAdapter[Catalog] = TypeAdapter(Catalog)
_LONGEST = 2**30  # of a message; a damaged length may be anything
NOT_THERE = "no recording there (files 00000001.tidemill and so on, or one exported tick)"


@dataclass(frozen=True, slots=True)
class RecordedTick:
    spec: Spec
    version: str  # of the Tidemill that made it
    world: World
    plan: bytes  # the digest of its plan; empty: none was made
    actions: bytes  # of its plan, as msgpack
    woken_by: tuple[str, ...]
    failed: tuple[str, ...]
    error: str = ""  # the traceback, where the tick failed


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of a recording that cannot be read."""

    file: str
    why: str
    after: datetime | None = None  # the last tick of that file that was read; None: none of it was


class _Damaged(Exception):
    """This segment cannot be read from here on."""


class _Bytes(Protocol):
    def read(self, size: int) -> bytes: ...


class Recording:
    """A folder of segments, or one file. SpecError: there is no recording of ours.

    `unread` fills as ticks are read. A segment whose end is missing because its process was killed just ends earlier.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = [path] if path.is_file() else segments(path)
        if not self.files:
            raise SpecError(f"{path}: {NOT_THERE}")
        self.unread: list[Unread] = []
        self.versions: set[str] = set()

    def ticks(self, *, since: datetime | None = None) -> Iterator[RecordedTick]:
        """Every tick, or those from the segment that holds `since` on. SpecError: no segment can be read."""
        self.unread.clear()
        headers = list(self._headers())
        if not headers:
            first = self.unread[0]
            raise SpecError(f"{first.file}: not a segment of a recording that can be read: {first.why}")
        begun = 0 if since is None else max(sum(one.began <= since for _, one in headers) - 1, 0)
        for path, header in headers[begun:]:
            yield from self._segment(path, header)

    def _headers(self) -> Iterator[tuple[Path, Header]]:
        for path in self.files:
            try:
                yield path, _begin(_messages(path))
            except (_Damaged, OSError) as damaged:
                self.unread.append(Unread(path.name, str(damaged)))

    def _segment(self, path: Path, header: Header) -> Iterator[RecordedTick]:
        worlds, last = WorldDecoder(), None
        self.versions.add(header.version)
        messages = _messages(path)
        try:
            next(messages)  # the header
            spec = _spec(header)
            for message in messages:
                for frame in _batch.decode(message):
                    world = worlds.world(frame.world)
                    last = world.now
                    yield RecordedTick(
                        spec, header.version, world, frame.plan, bytes(frame.actions), tuple(frame.woken_by),
                        tuple(frame.failed), frame.error,
                    )  # fmt: skip
        except (_Damaged, OSError, msgspec.DecodeError, ValidationError, KeyError) as error:
            self.unread.append(Unread(path.name, _why(error, header.version), last))


def _why(error: Exception, version: str) -> str:
    if isinstance(error, _Damaged | OSError) or version == __version__:
        return str(error)
    return f"Tidemill {version} wrote it, and this is {__version__}, which knows other worlds: {error}"


def _begin(messages: Iterator[bytes]) -> Header:
    try:
        message = next(messages)
        begun = _format.decode(message)
        if begun.get("format") != FORMAT:
            raise _Damaged(
                f"format {begun.get('format')} of Tidemill {begun.get('version')}; this one reads format {FORMAT}: "
                "replay it with that version"
            )
        return _header.decode(message)
    except StopIteration:
        raise _Damaged("it is empty") from None
    except msgspec.DecodeError as error:
        raise _Damaged(str(error)) from None


def _messages(path: Path) -> Iterator[bytes]:
    """_Damaged: what follows is not what was written."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        while len(head := _read(stream, HEAD_BYTES)) == HEAD_BYTES:
            size, checksum = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
            if size > _LONGEST:
                raise _Damaged("damaged: a length that cannot be")
            message = _read(stream, size)
            if len(message) < size:
                return
            if crc32(message) != checksum:
                raise _Damaged("damaged: a wrong checksum")
            yield message


def _read(stream: _Bytes, size: int) -> bytes:
    """Fewer bytes only at the end, also where the end was never written."""
    parts: list[bytes] = []
    left = size
    while left:
        try:
            part = stream.read(left)
        except zstandard.ZstdError as error:
            raise _Damaged(f"damaged: {error}") from None
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _spec(header: Header) -> Spec:
    by_kind: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for data in header.documents:
        document = KINDS[data["kind"]].model_validate(data)
        by_kind[data["kind"]][document.name] = document
    platform = next(iter(by_kind[Platform.__name__].values()))
    return Spec(
        platform=platform,
        catalog=_catalog.validate_python(header.catalog),
        node_classes=by_kind[NodeClass.__name__],
        pools=by_kind[ComputePool.__name__],
        plans=by_kind[CapacityPlan.__name__],
    )
