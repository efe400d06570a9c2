"""Who may act: the holder of the Lease, while enough of it is left, with the ledger's newest epoch.

The Lease elects, the ledger's epoch fences. A leader that was frozen finds no lease left and begins nothing; one that
was overtaken is refused by the ledger, and the process ends: what it still remembers is worth nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import structlog

from tidemill.controller.wakes import Wakes
from tidemill.model.errors import Gone, NotAllowed, PortError, Refused, Throttled, TidemillError

# A call of AWS may take this share of a lease. It is renewed after a third, so there is time for a second try.
CALL_SHARE = 0.5
# Somebody who still holds the Lease after this many lease times has renewed it: it lives.
ALIVE_AFTER = 1.5
LOOK_EVERY_S = 0.5
TELL_EVERY_S = 60.0
# A Lease that cannot be had for this long for want of a namespace or a right will not come by itself. An API server
# that has just started forbids everything for a moment.
SURE_AFTER_S = 5.0

log = structlog.stdlib.get_logger("tidemill.controller.leadership")


class Elector(Protocol):
    """`kube.lease.LeaseElector`."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def other_holder(self) -> str: ...

    @property
    def trouble(self) -> str: ...

    @property
    def error(self) -> TidemillError | None: ...

    def left_s(self) -> float: ...


class FencedLedger(Protocol):
    """`store.sql.SqlLedger`: what of it a leader needs."""

    overtaken: bool

    def lead(self, may_lead: Callable[[], None]) -> int: ...


class Overtaken(Refused):
    """The ledger follows another leader. The process must end."""


class LeaseGuard:
    """Asked before every call that writes (`Aws`, `KubeApi`)."""

    def __init__(self, left_s: Callable[[], float]) -> None:
        self._left_s = left_s

    def may_begin(self, timeout_s: float) -> None:
        """Throttled: the call could outlive the lease. Nothing was sent: a purchase is not in doubt for it."""
        left_s = self._left_s()
        if left_s <= timeout_s:
            left = f"{left_s:.1f} s of the lease are left" if left_s > 0 else "this process does not lead"
            raise Throttled(f"not begun: {left}, and the call may take {timeout_s:g} s", code="no-lease")


def nothing_may_begin(timeout_s: float) -> None:
    """The guard of a process that only looks."""
    raise Throttled("not begun: this process only looks", code="read-only")


class Leadership:
    """Terms of leading, one after the other, until `stopping`."""

    def __init__(
        self,
        elector: Elector,
        ledger: FencedLedger,
        wakes: Wakes,
        *,
        lease_s: float,
        no_other: str = "",
        stopping: Callable[[], bool],
        beat: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`no_other`: why another live holder of the Lease is an error; empty: it is waited for."""
        self._elector, self._ledger, self._wakes, self._stopping = elector, ledger, wakes, stopping
        self._lease_s, self._no_other, self._beat, self._now_s = lease_s, no_other, beat, now_s
        self.epoch = 0  # of this term; 0: none yet

    @property
    def go_on(self) -> bool:
        """Asked before every action: is the term over, or the process to stop?"""
        return self._elector.is_leader and not self._ledger.overtaken and not self._stopping()

    def run(self, term: Callable[[], None]) -> None:
        """`term` returns when `go_on` is false. Overtaken: the ledger has another leader."""
        while self._wait():
            if not self._take_epoch():
                continue
            log.info("this process leads", epoch=self.epoch)
            term()
            if self._ledger.overtaken:
                raise Overtaken(
                    "another engine has become the leader in the ledger: this process ends", code="overtaken"
                )
            if not self._stopping():
                log.warning("the lease is lost: nothing is begun before it is held again")

    def _wait(self) -> bool:
        """Until this process holds the Lease. False: it is to stop. Refused: another lives, and only one may. Gone or
        NotAllowed, before the first term: there is no namespace for it, or no right."""
        since_s = told_s = well_s = self._now_s()
        told_of = ""
        while not self._stopping():
            self._beat()
            if self._elector.is_leader:
                return True
            now_s, other, error = self._now_s(), self._elector.other_holder, self._elector.error
            if not isinstance(error, Gone | NotAllowed):
                well_s = now_s
            elif not self.epoch and now_s - well_s >= SURE_AFTER_S:
                raise error
            if other != told_of:
                told_of = other
                if other:
                    ends = f"{ALIVE_AFTER * self._lease_s:g} s: {self._no_other}" if self._no_other else ""
                    log.info(
                        "another process leads, and this one waits", holder=other, ends_after=ends or "never"
                    )
            if self._elector.trouble or not other:
                since_s = now_s
            elif self._no_other and now_s - since_s > ALIVE_AFTER * self._lease_s:
                raise Refused(f"{other} leads, and {self._no_other}")
            if now_s - told_s >= TELL_EVERY_S:
                told_s = now_s
                log.info("waiting for the lease", holder=other, trouble=self._elector.trouble)
            self._wakes.wait(LOOK_EVERY_S)
        return False

    def _take_epoch(self) -> bool:
        """From now on the ledger refuses whoever led before. A ledger that is away is asked again.

        The Lease is looked at once more when the ledger is ours to write: it may have taken longer than a lease, and
        whoever leads by then must not be ended by us.
        """
        guard = LeaseGuard(self._elector.left_s)
        try:
            self.epoch = self._ledger.lead(lambda: guard.may_begin(CALL_SHARE * self._lease_s))
        except Throttled as late:
            log.warning(
                "the lease was nearly over when the ledger could be written; trying again", why=str(late)
            )
            return False
        except PortError as error:
            log.warning("cannot lead without the ledger; trying again", why=str(error))
            self._wakes.wait(LOOK_EVERY_S)
            return False
        return self.go_on
