"""Raw bytes to objects: pages of lists, and the lines of a watch.

An object that does not decode becomes an `Unreadable` with what can be said of it: a failure to look is not an absence,
and one bad object does not spoil the others.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from tidemill.kube.objects import NO_RAW, KubeObject, Meta


class Unreadable(Struct, gc=False):
    """An object that is there, and cannot be read."""

    metadata: Meta
    node_name: str  # of a pod
    error: str
    provider_id: str = ""  # of a node


class ListMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class _Envelope(Struct, gc=False):
    """As much of an unreadable object as may be readable."""

    metadata: Raw = NO_RAW
    spec: Raw = NO_RAW


class _BareMeta(Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _BareSpec(Struct, gc=False):
    node_name: str = field(default="", name="nodeName")
    provider_id: str = field(default="", name="providerID")


class _Page(Struct, gc=False):
    metadata: ListMeta = field(default_factory=ListMeta)
    items: list[Raw] | None = None


class Event(Struct, gc=False):
    type: str = ""
    object: Raw = NO_RAW


AnyObject = TypeVar("AnyObject", bound=KubeObject)

_ERRORS = (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError, OverflowError)
_page = msgspec.json.Decoder(_Page)
_event = msgspec.json.Decoder(Event)


class BadAnswer(ValueError):
    """The bytes are no list, or no watch event."""


class Codec(Generic[AnyObject]):
    """Bytes to objects of one kind."""

    def __init__(self, kind: type[AnyObject]) -> None:
        self._one = msgspec.json.Decoder(kind)
        page = msgspec.defstruct(
            "Page",
            [("metadata", ListMeta, field(default_factory=ListMeta)), ("items", list[kind] | None, None)],  # type: ignore[valid-type]
        )
        self._page: Any = msgspec.json.Decoder(page)

    def page(self, body: bytes) -> tuple[list[AnyObject | Unreadable], ListMeta]:
        try:
            page = self._page.decode(body)
            return page.items or [], page.metadata
        except _ERRORS:
            pass  # one bad object spoils the page: take them one by one
        try:
            raw = _page.decode(body)
        except _ERRORS as error:
            raise BadAnswer(f"not a list of objects: {error}") from None
        return [self.one(item) for item in raw.items or ()], raw.metadata

    def one(self, body: bytes | Raw) -> AnyObject | Unreadable:
        try:
            return self._one.decode(body)
        except _ERRORS as error:
            return unreadable(body, str(error))


def read_event(line: bytes) -> Event:
    try:
        return _event.decode(line)
    except _ERRORS as error:
        raise BadAnswer(f"not a watch event: {error}") from None


def unreadable(body: bytes | Raw, error: str) -> Unreadable:
    meta, spec = Meta(), _BareSpec()
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
        bare = msgspec.json.decode(envelope.metadata or b"{}", type=_BareMeta)
        meta = Meta(bare.name, bare.namespace, bare.uid, bare.resource_version)
        spec = msgspec.json.decode(envelope.spec or b"{}", type=_BareSpec)
    except _ERRORS:
        pass
    return Unreadable(meta, spec.node_name, error, spec.provider_id)
