"""Before the first tick: what is away is waited for with a line now and then, what is wrong ends the process.

Also who else drains our nodes: refused at the start, warned about later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

import structlog

from tidemill.controller.wakes import Wakes
from tidemill.controller.worker import Worker
from tidemill.model.errors import NotAllowed, Refused, Retryable, TidemillError

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
TELL_EVERY_S = 30.0
DRAINERS_EVERY_S = 60.0

log = structlog.stdlib.get_logger("tidemill.controller")


class Stopped(Exception):
    """A signal came before everything was there."""


class Patience:
    """Waits for what is away, until a signal comes."""

    def __init__(
        self,
        wakes: Wakes,
        stopping: Callable[[], bool],
        *,
        beat: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wakes, self._stopping, self._beat, self._now_s = wakes, stopping, beat, now_s

    def until(self, what: str, attempt: Callable[[], T], *, quiet_s: float = 0.0) -> T:
        """What `attempt` returns. Retryable: tried again; every other error is the caller's. `quiet_s`: it takes that
        long anyway, and nothing is said."""
        pause_s, told_s = FIRST_PAUSE_S, self._now_s() + quiet_s - TELL_EVERY_S
        while True:
            if self._stopping():
                raise Stopped
            self._beat()
            try:
                return attempt()
            except Retryable as error:
                if self._now_s() - told_s >= TELL_EVERY_S:
                    told_s = self._now_s()
                    log.warning("waiting for what is away", what=what, why=str(error))
            self._wakes.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class ReadKinds(Protocol):
    """`kube.cluster_view.ClusterReader`."""

    @property
    def synced(self) -> bool: ...

    def errors(self) -> Mapping[str, TidemillError]: ...


def check_synced(reader: ReadKinds) -> None:
    """Retryable: not everything was listed yet. NotAllowed: a right is missing, and it never will be."""
    if reader.synced:
        return
    errors = reader.errors()
    for error in errors.values():
        if isinstance(error, NotAllowed):
            raise error
    kind, why = next(iter(errors.items()), ("", ""))
    raise Retryable(f"{kind}: {why}" if kind else "the cluster is being listed")


# --- a second drainer ---------------------------------------------------------------------------------


class FoundDrainer(Protocol):
    """`kube.drainers.Drainer`."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def certain(self) -> bool: ...

    @property
    def pools(self) -> tuple[str, ...]: ...


class DrainerWatch(Worker):
    """Two that drain one node give its pods two notices, and neither counts what the other took."""

    def __init__(
        self,
        find: Callable[[], Collection[FoundDrainer]],
        accepted: Collection[str],
        wake: Callable[[str], None] = lambda why: None,
    ) -> None:
        super().__init__("drainers")
        self._find, self._accepted, self._wake = find, accepted, wake
        self._told: set[str] = set()
        self.refused_pools: tuple[tuple[str, str], ...] = ()  # whose nodes another certainly drains, and who

    def refuse(self) -> None:
        """Refused: somebody else certainly drains our nodes, and nobody accepted that."""
        certain = [one for one in self._others() if one.certain]
        if certain:
            first = certain[0]
            more = f" (and {len(certain) - 1} more)" if len(certain) > 1 else ""
            raise Refused(
                f"{first}{more}; two drainers end pods twice: remove it, keep it off these nodes, or start with"
                f" --accept-drainer {first.name}"
            )
        self.warn()

    def warn(self) -> None:
        """Those that came later: their pools are refused, the others go on."""
        others = self._others()
        refused = {pool: other.name for other in others if other.certain for pool in other.pools}
        if (found := tuple(sorted(refused.items()))) != self.refused_pools:
            self.refused_pools = found
            self._wake("another drainer came or went")
        for other in others:
            if other.name not in self._told:
                self._told.add(other.name)
                log.warning("another drainer", about=str(other), certain=other.certain)

    def _others(self) -> list[FoundDrainer]:
        return [one for one in self._find() if not {one.name, str(one.kind)} & set(self._accepted)]

    def _run(self) -> None:
        while not self._stopping.wait(DRAINERS_EVERY_S):
            try:
                self.warn()
            except TidemillError as error:
                log.info("cannot look for other drainers", why=str(error))
            except Exception:
                log.exception("cannot look for other drainers")
