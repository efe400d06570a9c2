"""A dry run decides and reports, and writes nothing anywhere."""

from __future__ import annotations

import inspect

import pytest

from tests.decide.builders import hourly_pool, node, pod, spec
from tests.engine.ports import Outside
from tidemill.controller.dry_run import DRY_RUN, ReadOnlyCloud, ReadOnlyCluster, ReadOnlyLedger
from tidemill.engine.loop import Engine
from tidemill.model.errors import Refused
from tidemill.model.plan import Launch
from tidemill.ports import Account, Cloud, Cluster, Ledger

READS = {
    "view", "is_empty", "reservations", "instances", "search_offers", "search_extensions", "extensions", "identity",
    "console_output",
    "durable", "deployment", "launches", "purchases", "adoptions", "pause", "block_hours", "metered", "spending",
}  # fmt: skip
LEFT_OUT = {"remember", "meter", "write_block_hours"}


class Untouchable:
    """A port that fails the test when it is written to."""

    def __getattr__(self, name: str) -> object:
        assert name in READS, f"{name} was passed on"
        return lambda *given: name


def methods(port: type) -> set[str]:
    return {name for name in vars(port) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("guard", "ports"),
    [(ReadOnlyCluster, (Cluster,)), (ReadOnlyCloud, (Cloud, Account)), (ReadOnlyLedger, (Ledger,))],
)
def test_every_method_of_a_port_is_a_read_or_refused(guard: type, ports: tuple[type, ...]):
    asked = set().union(*(methods(port) for port in ports))
    guarded = guard(Untouchable())
    for name in sorted(asked - READS - LEFT_OUT):
        method = getattr(guarded, name)
        given = {
            parameter.name: None
            for parameter in inspect.signature(method).parameters.values()
            if parameter.default is parameter.empty
        }
        with pytest.raises(Refused, match="dry run: would") as refused:
            method(**given)
        assert refused.value.code == DRY_RUN
    for name in sorted(asked & LEFT_OUT):
        method = getattr(guarded, name)
        assert method(*[None] * len(inspect.signature(method).parameters)) is None
    assert asked <= set(dir(guard))


def test_a_tick_over_such_ports_decides_and_does_nothing():
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge")))
    outside.cluster.pods = [pod(gpus=1)]
    outside.has(node())
    clock, cloud, cluster, ledger = outside._ports
    engine = Engine(
        outside.spec, clock, ReadOnlyCloud(cloud), ReadOnlyCluster(cluster), ReadOnlyLedger(ledger)
    )
    before = dict(outside.cloud.running)
    tick = engine.tick()
    assert tick is not None
    assert any(isinstance(action, Launch) for action in tick.plan.actions)
    assert all(outcome.error == "refused" for outcome in tick.outcomes)
    assert outside.cloud.running == before
    assert outside.cluster.asked == []
    assert outside.books.launches() == ()
    assert outside.books.metered() == ()
