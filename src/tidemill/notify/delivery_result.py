"""What came of one try to send, in three words: sent, not now, never so. And when to try again.

Pure. Back-off is exponential with a jitter drawn from the message's own id, so that a hundred alerts of one outage do
not knock at the same second, and a test knows when each does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from typing import Literal

FIRST = timedelta(seconds=5)
LONGEST = timedelta(minutes=15)
# A receiver may ask for patience, but not for more than this: an alert of yesterday helps nobody.
MOST_PATIENCE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Answer:
    """`misconfigured`: the same would be refused again, so a person must change something."""

    outcome: Literal["sent", "retry", "misconfigured"]
    words: str
    retry_after: timedelta | None = None


def of_status(status: int, words: str, retry_after: str | None, now: datetime) -> Answer:
    """Of an HTTP answer. 408 and 425 ask for a repetition; a redirect is not followed, it would lose the body."""
    said = f"{status} {words}".strip()
    if 200 <= status < 300:
        return Answer("sent", said)
    if status in (408, 425, 429) or status >= 500:
        return Answer("retry", said, patience(retry_after, now))
    if 300 <= status < 400:
        return Answer("misconfigured", f"{said}: it redirects; give the address it redirects to")
    return Answer("misconfigured", said)


def patience(header: str | None, now: datetime) -> timedelta | None:
    """Retry-After: seconds, or an HTTP date. What cannot be read says nothing."""
    if header is None:
        return None
    if header.strip().isdigit():
        return min(timedelta(seconds=min(int(header), 86_400)), MOST_PATIENCE)
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    asked = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return min(max(asked, timedelta(0)), MOST_PATIENCE)


def next_try(id: str, target: str, attempts: int, answer: Answer, now: datetime) -> datetime:
    """After so many tries; never sooner than the receiver asked for."""
    grown = min(FIRST * (1 << min(max(attempts - 1, 0), 20)), LONGEST)
    drawn = blake2b(f"{id}|{target}|{attempts}".encode(), digest_size=8).digest()
    share = int.from_bytes(drawn) / 2**64
    return now + max(grown * (0.5 + share / 2), answer.retry_after or timedelta(0))
