"""Carries out a fault of `spec.faults` on a simulated account, for scenarios, the wire and account files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tidemill.sim.cloud.cloud import SimCloud
from tidemill.spec.faults import ACCOUNT_FAULTS, Call, FaultKind


def strike_account(
    cloud: SimCloud, kind: FaultKind, count: int, duration: timedelta, target: str, call: Call
) -> tuple[str, ...]:
    """Arms it, or lets it strike at once; the ids of the instances it has struck."""
    match kind:
        case FaultKind.LAUNCH_FAILS:
            cloud.fail_next_launches(count, "retryable", target)
        case FaultKind.NO_CAPACITY:
            cloud.no_capacity_for(duration, target)
        case FaultKind.NODE_DIES:
            return _struck(count, lambda: cloud.kill_instance(target))
        case FaultKind.SPOT_INTERRUPTION:
            return _struck(count, lambda: cloud.interrupt_spot(target))
        case FaultKind.RETIREMENT:
            return _struck(1, lambda: cloud.retire(target, duration))
        case FaultKind.SHORT_DELIVERY:
            cloud.short_delivery(count, target)
        case FaultKind.PAYMENT_FAILS:
            cloud.fail_next_payment(count)
        case FaultKind.SHOWN_LATE:
            cloud.show_purchases_late(duration)
        case FaultKind.THROTTLE:
            cloud.throttle(duration)
        case FaultKind.LOST_ANSWER:
            cloud.timeout_after_commit(count, call)
        case FaultKind.LOST_REQUEST:
            cloud.lose_requests(count, call)
        case FaultKind.EVENT_LOST:
            cloud.lose_events(count)
        case FaultKind.EVENT_DOUBLED:
            cloud.double_events(count)
        case FaultKind.EVENT_LATE:
            cloud.delay_events(count, duration)
        case _:
            assert kind not in ACCOUNT_FAULTS, f"no way to carry out {kind}"
            raise ValueError(f"{kind} is no fault of an account")
    return ()


def _struck(count: int, strike: Callable[[], str | None]) -> tuple[str, ...]:
    return tuple(filter(None, (strike() for _ in range(count))))
