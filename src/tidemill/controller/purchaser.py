"""The process that alone may buy: it submits what is approved, by the rule of `decide`, and does nothing else.

Engine and purchaser share the ledger and nothing else. The engine proposes, settles and voids; the purchaser moves an
approved intent to submitted, calls EC2 and writes the answer. Both compare-and-set, so whoever comes second is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from tidemill.controller.documents import Version
from tidemill.controller.dry_run import ReadOnlyCluster, ReadOnlyLedger
from tidemill.controller.metrics import Defined
from tidemill.controller.wakes import Wakes
from tidemill.decide.read_models import purchases_to_submit
from tidemill.engine.buyer import Buyer
from tidemill.engine.observe import Observer
from tidemill.model.errors import PortError, TidemillError, label
from tidemill.model.purchases import NOT_SUBMITTED, PurchaseIntent
from tidemill.ports import Clock, Cloud, ClusterView, Ledger
from tidemill.spec import Spec

# Of wall time. The ledger is read so often: an approval is acted on within seconds.
LOOK_EVERY_S = 2.0
# AWS is asked this often while something is open and the ledger does not change: prices and offers may.
ASK_AWS_EVERY_S = 60.0

log = structlog.stdlib.get_logger("tidemill.purchaser")

CloudOf = Callable[[Spec], Cloud]
Lacks = Callable[[Spec, str], Sequence[str]]


class _NoCluster:
    """A purchaser sees no cluster. What may be bought does not depend on pods or nodes."""

    def view(self) -> ClusterView:
        return ClusterView((), (), (), {})


_SUBMITTED = Defined(
    "tidemill_purchases_submitted", "counter", ("error",),
    "Purchases that `tidemill purchaser` tried, by error class; empty: bought.",
)  # fmt: skip
_LEADS = Defined("tidemill_purchaser_leader", "gauge", (), "1: this purchaser is the one that buys.")
_LOOKED = Defined(
    "tidemill_purchaser_last_look_timestamp_seconds", "gauge", (), "When a purchaser last read the ledger."
)


class PurchaserMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.submitted = Counter(
            _SUBMITTED.name, _SUBMITTED.meaning, _SUBMITTED.labels, registry=self.registry
        )
        self.leads = Gauge(_LEADS.name, _LEADS.meaning, registry=self.registry)
        self.looked = Gauge(_LOOKED.name, _LOOKED.meaning, registry=self.registry)

    def defined(self) -> tuple[Defined, ...]:
        """Every metric there is, for the reference."""
        return _SUBMITTED, _LEADS, _LOOKED


class Purchaser:
    """One version of the documents. `go_on` is asked before every purchase."""

    def __init__(
        self, spec: Spec, clock: Clock, cloud: Cloud, ledger: Ledger, lacks: Callable[[str], Sequence[str]],
        go_on: Callable[[], bool], *, now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._spec, self._ledger, self._go_on, self._now_s = spec, ledger, go_on, now_s
        self._observer = Observer(
            clock, cloud, ReadOnlyCluster(_NoCluster()), ReadOnlyLedger(ledger), spec.platform.spec.deployment
        )
        self._buyer = Buyer(spec, clock, cloud, ledger, lacks)
        self._last: tuple[PurchaseIntent, ...] = ()
        self._asked_s = float("-inf")

    def look(self) -> list[tuple[PurchaseIntent, str]]:
        """Buy what may be bought now: each purchase that was tried, with the class of its error. Retryable: the ledger
        or AWS cannot be read."""
        purchases = self._ledger.purchases()
        unchanged = purchases == self._last and self._now_s() - self._asked_s < ASK_AWS_EVERY_S
        if unchanged or not any(purchase.state in NOT_SUBMITTED for purchase in purchases):
            return []
        world = self._observer.look()
        self._last, self._asked_s = purchases, self._now_s()
        tried = []
        for action in purchases_to_submit(self._spec, world):
            if not self._go_on():
                break
            tried.append((action.intent, self._submit(action.intent)))
        return tried

    def _submit(self, intent: PurchaseIntent) -> str:
        told = {"intent": intent.id, "pool": intent.pool}
        try:
            log.info("purchase", **told, outcome=self._buyer.submit(intent))
        except TidemillError as error:
            log.warning("not bought", **told, error=label(error), why=str(error))
            return label(error)
        return ""


class PurchaserLoop:
    """Looks until `go_on` says no; a failed look is tried again."""

    def __init__(
        self, documents: Callable[[], Version], clock: Clock, cloud_of: CloudOf, ledger: Ledger, lacks: Lacks,
        wakes: Wakes, metrics: PurchaserMetrics,
    ) -> None:  # fmt: skip
        self._documents, self._clock, self._cloud_of, self._ledger = documents, clock, cloud_of, ledger
        self._lacks, self._wakes, self._metrics = lacks, wakes, metrics
        self.beat_s = time.monotonic()
        self.looking_since_s: float | None = None

    def run(self, go_on: Callable[[], bool]) -> None:
        version, purchaser = 0, None
        while go_on():
            documents = self._documents()
            if purchaser is None or documents.number != version:
                version, purchaser = documents.number, self._purchaser(documents.spec, go_on)
            self.looking_since_s = time.monotonic()
            try:
                for _, error in purchaser.look():
                    self._metrics.submitted.labels(error).inc()
                self._metrics.looked.set_to_current_time()
            except PortError as error:
                log.warning("cannot look; trying again", why=str(error))
            except Exception:
                log.exception("a look failed; trying again")
                purchaser = None
            self.looking_since_s, self.beat_s = None, time.monotonic()
            if go_on():
                self._wakes.wait(LOOK_EVERY_S)

    def _purchaser(self, spec: Spec, go_on: Callable[[], bool]) -> Purchaser:
        def lacks(pool: str) -> Sequence[str]:
            return self._lacks(spec, pool)

        return Purchaser(spec, self._clock, self._cloud_of(spec), self._ledger, lacks, go_on)
