"""When the engine was last heard of, whether that is too long ago, and the alert that it is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.model.alerts import Alert, AlertKind, Severity
from tidemill.spec.platform import Platform
from tidemill.spec.units import format_duration, format_instant


@dataclass(frozen=True, slots=True)
class Heard:
    """`last` is the last heartbeat; None: there was none, or `trouble` says why it cannot be read."""

    at: datetime
    last: datetime | None
    is_silent: bool
    trouble: str = ""

    def sentence(self) -> str:
        if self.trouble:
            return f"the ledger cannot be read: {self.trouble}"
        if self.last is None:
            return "the engine has not been heard of in this ledger yet"
        ago = format_duration(self.at - self.last)
        if self.is_silent:
            return f"the engine is silent since {format_instant(self.last)}, for {ago}"
        return f"the engine was heard {ago} ago"


def engine_silent(platform: Platform, heard: Heard, since: datetime) -> Alert:
    """The last heartbeat is the occasion: one silence, one alert. `since` is for an engine never heard of."""
    occasion = "the-ledger-is-away" if heard.trouble else format_instant(heard.last or since)
    title = (
        "The ledger cannot be read, so nobody knows whether the engine is there"
        if heard.trouble
        else f"The engine has not been heard of since {occasion}"
    )
    return Alert(
        f"engine-silent/{occasion}",
        AlertKind.ENGINE_SILENT,
        Severity.CRITICAL,
        platform.spec.deployment,
        title,
        "See whether its pod runs, what its log says and whether it reaches AWS, the API server and the ledger;"
        " meanwhile nothing is bought, launched or drained by it.",
        (("last heard", format_instant(heard.last) if heard.last else "never"), ("now", heard.sentence())),
    )
