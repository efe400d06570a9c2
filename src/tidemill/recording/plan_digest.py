"""A digest of everything a plan says, cheap from plan to plan: pods that wait on for one reason are not read again.

Each waiting pod gives a number, of what is said of it and of the pod before it; their sum stands for the list. What
looks like a secret is left out of actions and warnings, as it is left out of the world that a replay decides on; a
pod's reason holds names and amounts, no text of anybody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from tidemill.model.plan import Plan, Unmet
from tidemill.model.reasons import HoldReason
from tidemill.recording.secrets import clean
from tidemill.recording.world_codec import splices

_MOST_REASONS = 10_000
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_encode = _encoder.encode


class PlanDigests:
    """The same digest for equal plans, whatever came before: what is kept only saves time."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._said: tuple[bytes, bytes] = (b"", b"")
        self._unmet: tuple[Unmet, ...] = ()
        self._marks: list[int] = []  # of each pod that waits
        self._sum = 0
        self._reasons: dict[int, tuple[HoldReason, bytes]] = {}  # by identity, which the entry keeps

    def of(self, plan: Plan) -> tuple[bytes, bytes]:
        """The digest, and the actions as msgpack: what a plan without the same digest is compared by."""
        if plan is not self._plan:
            if plan.unmet is not self._unmet:
                self._follow(plan.unmet)
            actions = clean(_encode(plan.actions))
            rest = clean(_encode((plan.warnings, plan.wake_at)))
            said = b"%b%b%x %x" % (actions, rest, len(self._marks), self._sum % 2**64)
            self._plan, self._said = plan, (blake2b(said, digest_size=12).digest(), actions)
        return self._said

    def _follow(self, unmet: tuple[Unmet, ...]) -> None:
        before, self._unmet, moved = self._unmet, unmet, 0
        for at, went, start, stop in splices(before, unmet):
            # The pod behind the place has another one before it now.
            more = int(stop < len(unmet))
            first, last = at + moved, at + moved + went + more
            fresh = list(self._marks_of(unmet, start, stop + more))
            self._sum += sum(fresh) - sum(self._marks[first:last])
            self._marks[first:last] = fresh
            moved += stop - start - went

    def _marks_of(self, unmet: tuple[Unmet, ...], start: int, stop: int) -> Iterator[int]:
        behind = unmet[start - 1].pod if start else ""
        for one in unmet[start:stop]:
            said = self._reason(one.reason) + _encode((one.pod, one.name, one.code, one.earliest, behind))
            yield int.from_bytes(blake2b(said, digest_size=8).digest(), "big")
            behind = one.pod

    def _reason(self, reason: HoldReason) -> bytes:
        known = self._reasons.get(id(reason))
        if known is None:
            if len(self._reasons) >= _MOST_REASONS:
                self._reasons.clear()
            known = self._reasons[id(reason)] = reason, _encode(reason)
        return known[1]


def digest(plan: Plan) -> bytes:
    """Of one plan by itself."""
    return PlanDigests().of(plan)[0]
