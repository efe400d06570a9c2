"""Names for people: block names instead of reservation ids, short node names, instants in two time zones.

For screens that are watched. Ids that people copy into other commands must stay whole and do not come here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo

from tidemill.render.figures import short_instant

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_RESERVATION = re.compile(r"(block )?\b(cr-[0-9a-f]{17})\b")
_PURCHASE = re.compile(r"\btp-[0-9a-f]{18}\b")
# Eight hex digits are enough to tell the nodes of a screen apart.
_INSTANCE = re.compile(r"\b(i-[0-9a-f]{8})[0-9a-f]{9}\b(\.ec2\.internal)?")


class DisplayNames:
    """`zone` is the reader's time zone; None: the machine's."""

    def __init__(self, blocks: Mapping[str, str], zone: tzinfo | None = None) -> None:
        self.blocks = blocks
        self._zone = zone

    def block(self, id_: str) -> str:
        return self.blocks.get(id_, id_)

    def readable(self, sentence: str) -> str:
        """A sentence with every id and instant replaced by its name for people."""
        text = _RESERVATION.sub(lambda found: f"block {self.block(found[2])}", sentence)
        text = _PURCHASE.sub("the purchase", _INSTANCE.sub(lambda found: found[1], text))
        return _INSTANT.sub(lambda found: self.both(datetime.fromisoformat(found[0])), text)

    def node(self, name: str) -> str:
        return _INSTANCE.sub(lambda found: found[1], name)

    def local(self, at: datetime) -> str:
        return f"{at.astimezone(self._zone):%H:%M}"

    def zone_name(self, at: datetime) -> str:
        return at.astimezone(self._zone).tzname() or "local"

    def is_elsewhere(self, at: datetime) -> bool:
        """Whether the reader's time zone differs from UTC."""
        return at.astimezone(self._zone).utcoffset() != at.astimezone(UTC).utcoffset()

    def both(self, at: datetime) -> str:
        """UTC first, as EC2 uses it; then the reader's time zone if it differs."""
        here = f" ({self.local(at)} {self.zone_name(at)})" if self.is_elsewhere(at) else ""
        return f"{short_instant(at)} UTC{here}"
