"""What goes wrong in the simulated account: faults that strike at once, and those that wait for the next call.

A target is a pool, a block's name or id, a type, a zone, a kind of source; empty: whatever comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

from tidemill.model.capacity import SourceKind
from tidemill.model.ec2_facts import SPOT_NOTICE
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.reasons import InstanceEndKind
from tidemill.sim.cloud.extensions import ExtensionPurchases
from tidemill.sim.cloud.faults import ArmedFaults, matches_target
from tidemill.sim.cloud.instances import InstanceHistory, Instances
from tidemill.sim.cloud.purchases import BlockPurchases
from tidemill.sim.cloud.reservations import Reservations
from tidemill.sim.timeline import Timeline
from tidemill.sim.wakes import Wakes
from tidemill.spec.faults import Call


class FaultyAccount:
    """The part of `SimCloud` that scenarios and tests strike with. Its parts are those of the account."""

    _timeline: Timeline
    _faults: ArmedFaults
    _wakes: Wakes
    _reservations: Reservations
    _instances: Instances
    _purchases: BlockPurchases
    _extensions: ExtensionPurchases

    def fail_next_launches(
        self, n: int, error: Literal["retryable", "no-capacity"] = "retryable", target: str = ""
    ) -> None:
        self._faults.fail_launches(n, error, target)

    def no_capacity_for(self, duration: timedelta, target: str = "") -> None:
        self._faults.shortage(self._timeline.now() + duration, target)

    def throttle(self, duration: timedelta) -> None:
        """Until then every call of the port raises Throttled."""
        self._faults.throttle(self._timeline.now() + duration)

    def timeout_after_commit(self, n: int, call: Call) -> None:
        self._faults.time_out_after_commit(n, call)

    def lose_requests(self, n: int, call: Call) -> None:
        """The call times out and has not taken effect: to the caller it looks like a time-out after commit."""
        self._faults.lose_requests(n, call)

    def show_purchases_late(self, up_to: timedelta) -> None:
        """What is bought from now on shows in reads only later, up to `up_to`."""
        self._purchases.seen_after_max_s = self._extensions.seen_after_max_s = int(up_to.total_seconds())

    def fail_next_payment(self, n: int = 1) -> None:
        self._faults.fail_payments(n)

    def short_delivery(self, n: int, target: str = "") -> None:
        """The next block to start brings `n` fewer instances than bought."""
        self._faults.deliver_short(n, target)

    def kill_instance(self, target: str = "") -> str | None:
        """The first running instance the target names dies; None: there is none."""
        for history in self._running(target):
            self._instances.shut_down(history.now.id, by="hardware", why="the host failed")
            return history.now.id
        return None

    def interrupt_spot(self, target: str = "") -> str | None:
        for history in self._running(target):
            if history.now.source.kind is SourceKind.SPOT and history.now.ends_at is None:
                self._instances.announce_end(
                    history.now.id, self._timeline.now() + SPOT_NOTICE, InstanceEndKind.SPOT_INTERRUPTION
                )
                return history.now.id
        return None

    def retire(self, target: str = "", in_: timedelta = timedelta(hours=24)) -> str | None:
        for history in self._running(target):
            if history.now.ends_at is None:
                self._instances.announce_end(
                    history.now.id, self._timeline.now() + in_, InstanceEndKind.RETIREMENT
                )
                return history.now.id
        return None

    def lose_events(self, n: int = 1) -> None:
        self._wakes.lose(n)

    def double_events(self, n: int = 1) -> None:
        self._wakes.double(n)

    def delay_events(self, n: int = 1, by: timedelta = timedelta(minutes=10)) -> None:
        self._wakes.delay(n, by)

    def _running(self, target: str) -> Iterator[InstanceHistory]:
        """Instances of other owners only where the target is their id."""
        for history in self._instances.alive():
            if not history.now.owner and target != history.now.id:
                continue
            if history.now.state is InstanceState.RUNNING and matches_target(
                target, self._fault_targets(history.now)
            ):
                yield history

    def _fault_targets(self, instance: Instance) -> tuple[str, ...]:
        own = (instance.id, instance.pool, instance.instance_type, instance.zone, instance.source.kind.value)
        return own + (self._reservations.fault_targets(instance.source.id) if instance.source.id else ())
