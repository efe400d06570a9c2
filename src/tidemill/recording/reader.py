"""Reads a recording: its documents and worlds in order, as far as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec
import zstandard
from pydantic import TypeAdapter

from tidemill.catalog import Catalog
from tidemill.model.errors import SpecError
from tidemill.model.world import World
from tidemill.recording.world_codec import WorldDecoder
from tidemill.recording.writer import FORMAT, LENGTH_BYTES, Header, TickFrame, segments
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.read import KINDS

_header = msgspec.msgpack.Decoder(Header)
_tick = msgspec.msgpack.Decoder(TickFrame)
_catalog: TypeAdapter[Catalog] = TypeAdapter(Catalog)


@dataclass(frozen=True, slots=True)
class RecordedTick:
    spec: Spec
    version: str  # of the Tidemill that made it
    world: World
    plan: bytes  # the digest of its plan
    woken_by: tuple[str, ...]
    failed: tuple[str, ...]


class _Bytes(Protocol):
    def read(self, size: int) -> bytes: ...


def read(folder: Path, *, since: datetime | None = None) -> Iterator[RecordedTick]:
    """Every tick, or those from the segment that holds `since` on. SpecError: there is no recording of ours.

    A segment whose end is missing, because its process was killed, ends earlier; nothing else is lost.
    """
    found = segments(folder)
    if not found:
        raise SpecError(f"{folder}: no recording there (files 00000001.tidemill and so on)")
    for path in found[_first(found, since) :]:
        yield from _segment(path)


def _first(found: list[Path], since: datetime | None) -> int:
    if since is None:
        return 0
    began = [_begin(path)[0].began for path in found]
    return max(sum(at <= since for at in began) - 1, 0)


def _begin(path: Path) -> tuple[Header, Iterator[bytes]]:
    messages = _messages(path)
    try:
        header = _header.decode(next(messages))
    except (StopIteration, msgspec.DecodeError, zstandard.ZstdError) as error:
        raise SpecError(f"{path}: not a segment of a recording: {str(error) or 'it is empty'}") from None
    if header.format != FORMAT:
        raise SpecError(
            f"{path}: written in format {header.format} by Tidemill {header.version}; this one reads {FORMAT}"
        )
    return header, messages


def _segment(path: Path) -> Iterator[RecordedTick]:
    header, messages = _begin(path)
    spec, worlds = _spec(header), WorldDecoder()
    for message in messages:
        frame = _tick.decode(message)
        world = worlds.world(frame.world)
        yield RecordedTick(
            spec, header.version, world, frame.plan, tuple(frame.woken_by), tuple(frame.failed)
        )


def _messages(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        while len(length := _read(stream, LENGTH_BYTES)) == LENGTH_BYTES:
            size = int.from_bytes(length, "big")
            message = _read(stream, size)
            if len(message) < size:
                return
            yield message


def _read(stream: _Bytes, size: int) -> bytes:
    """Fewer bytes only at the end, also where the end was never written."""
    parts: list[bytes] = []
    left = size
    while left:
        try:
            part = stream.read(left)
        except zstandard.ZstdError:
            break
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
