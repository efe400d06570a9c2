"""Chaos on money once more, with AWS's own protocol between the engine and the account that sells.

    python -m benchmarks.chaos_wire [--runs 500] [--from SEED] [--json]

The same runs, the same judge. But the engine reaches the account through boto3, and calls fail on the wire: 503s,
connections that close before or after a purchase took effect, errors that come although it did. The adapter must turn
all of it into the right errors.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, cast

from benchmarks.chaos.fault_injector import FaultInjector, FaultyPort, PortFailures
from benchmarks.chaos.judge import Mistakes
from benchmarks.chaos.simulate import NeverIdle, Run, simulate
from benchmarks.chaos_money import sweep
from tidemill.aws import session
from tidemill.aws.account import AwsAccount
from tidemill.aws.session import Aws, RateLimits
from tidemill.ports import Cloud
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.timeline import Timeline
from tidemill.sim.wire import WireServer
from tidemill.sim.wire.faults import Kind, WireFault
from tidemill.spec import Spec

_ACTIONS = {
    "reservations": "DescribeCapacityReservations",
    "instances": "DescribeInstances",
    "extensions": "DescribeCapacityBlockExtensionHistory",
    "search_offers": "DescribeCapacityBlockOfferings",
    "search_extensions": "DescribeCapacityBlockExtensionOfferings",
    "purchase": "PurchaseCapacityBlock",
    "purchase_extension": "PurchaseCapacityBlockExtension",
}
# How a service says that it cannot: only some of it is a definite no.
_ERRORS = (("Unavailable", 503), ("InternalError", 500), ("RequestLimitExceeded", 503), ("SomethingNew", 400))
_AFTER = (("InternalError", 500), ("ServiceUnavailable", 503), ("SomethingNew", 400))


class WireFailures:
    """Failures that the server makes; the adapter has to make sense of them."""

    def __init__(self, server: WireServer, rng: Random) -> None:
        self._server, self._rng = server, rng
        self._port_failures = PortFailures(rng)

    def fails(self, name: str, call: Callable[[], Any]) -> Any:
        return self._under("error", name, call, *self._rng.choice(_ERRORS))

    def request_lost(self, name: str, call: Callable[[], Any]) -> Any:
        return self._under("lost-request", name, call)

    def answer_lost(self, name: str, call: Callable[[], Any]) -> Any:
        return self._under("lost-answer", name, call)

    def fails_after(self, name: str, call: Callable[[], Any]) -> Any:
        return self._under("error-after", name, call, *self._rng.choice(_AFTER))

    def _under(
        self, kind: Kind, name: str, call: Callable[[], Any], code: str = "", status: int = 500
    ) -> Any:
        if name not in _ACTIONS:
            return self._port_failures.fails(name, call)
        faults = self._server.wire.faults
        faults.arm(WireFault(kind, _ACTIONS[name], code=code, status=status))
        try:
            return call()
        finally:
            faults.clear()


@contextmanager
def on_the_wire(
    cloud: SimCloud, timeline: Timeline, injector: FaultInjector, spec: Spec
) -> Iterator[Callable[[], Cloud]]:
    platform = spec.platform.spec
    server = WireServer(
        cloud, timeline, roles=[platform.node_role.rpartition("/")[2]] if platform.node_role else [],
        security_groups=platform.security_groups,
    )  # fmt: skip
    server.start()
    aws: Aws | None = None
    try:
        os.environ.update(server.environment)
        aws = Aws(
            spec.platform.spec.region,
            rate_limits=RateLimits(lambda: timeline.now().timestamp(), lambda _: None),
        )

        def reach() -> Cloud:
            """Each engine that starts knows nothing of what the one before it read."""
            account = AwsAccount(aws, timeline, spec.catalog, owner=spec.platform.spec.deployment)
            return cast(Cloud, FaultyPort(account, injector, WireFailures(server, injector.rng)))

        yield reach
    finally:
        if aws is not None:
            aws.close()
        server.stop()


def _simulate_seed(seed: int) -> tuple[int, Run]:
    logging.disable(logging.CRITICAL)  # everything fails here, and every failure is logged
    session.ATTEMPTS = 1  # the SDK's own tries sleep; purchases have but one anyway
    try:
        return seed, simulate(seed, reaches=on_the_wire)
    except NeverIdle as never_idle:
        return seed, Run(Mistakes(lost=[str(never_idle)]), 0, 0, Counter())


def main() -> int:
    return sweep(_simulate_seed, __doc__ or "", usual=500, at_a_time=1)


if __name__ == "__main__":
    sys.exit(main())
