"""All of it for a run loop: `with Alerting(spec, ledger.alerts, clock) as alerting:`, and `after` each tick.

What `after` costs a tick is a look at the world, and a write to the ledger where something changed. It sends nothing.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from types import TracebackType

from tidemill.engine.loop import Tick
from tidemill.notify.delivery import Courier
from tidemill.notify.targets import senders
from tidemill.notify.watch import Watch
from tidemill.ports import AlertBook, Clock
from tidemill.spec import Spec

log = logging.getLogger("tidemill.notify")

# A pod that is told to end has thirty seconds by default; what is not sent by then waits in the ledger.
FLUSH = timedelta(seconds=15)


class Alerting:
    def __init__(self, spec: Spec, book: AlertBook, clock: Clock) -> None:
        self._watch = Watch(spec, book)
        self._courier = Courier(spec.platform, senders(spec.platform), book, clock)

    def __enter__(self) -> Alerting:
        self._courier.start()
        return self

    def after(self, tick: Tick) -> None:
        """Whatever goes wrong here, the next tick comes: a drain matters more than word of it."""
        try:
            news = self._watch.after(tick)
        except Exception:
            log.exception("cannot work out which alerts hold")
            return
        if news:
            self._courier.ring()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._courier.stop(FLUSH)
