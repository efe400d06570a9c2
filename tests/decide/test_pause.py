"""A paused engine does what a deadline forces, and nothing else; who waits is told that it is paused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.decide import builders as given
from tests.decide.builders import NOW, ago, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.plan import (
    Admit,
    Evict,
    ForceDelete,
    Launch,
    Plan,
    RequestCheckpoint,
    StartDrain,
    Terminate,
)
from tidemill.model.purchases import Pause
from tidemill.model.reasons import HoldKind
from tidemill.model.world import World
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-21")
PAUSED = Pause(True, "arn:aws:iam::123456789012:user/ana", ago("5m"), "maintenance of the network")


def both(stated, there: World) -> tuple[Plan, Plan]:
    """Going on, and paused."""
    return decide(stated, there), decide(stated, replace(there, pause=PAUSED))


def test_nothing_is_admitted_and_the_pod_says_who_paused_it_and_why():
    pod = given.pod(gpus=8, expected="1h")
    free, held = both(spec(), world(given.block(), given.node(), pod))
    assert of(free, Admit)
    assert not of(held, Admit)
    assert why(held, pod).reason.kind is HoldKind.PAUSED
    assert sentence(why(held, pod).reason) == (
        "Tidemill is paused since 2026-11-16T11:55:00Z by arn:aws:iam::123456789012:user/ana, so nothing is admitted or"
        " launched: maintenance of the network"
    )
    assert "paused since" in sentence(held.warnings[0].reason)


def test_nothing_is_launched_neither_for_pods_nor_for_a_block_that_is_delivered():
    hourly = given.hourly_pool("p5", "p5.48xlarge")
    free, held = both(spec(hourly), world(given.pod(gpus=8, expected="1h")))
    assert of(free, Launch)
    assert not of(held, Launch)
    free, held = both(spec(), world(given.block(free=4)))
    assert of(free, Launch)
    assert not held.actions


def test_no_node_is_removed_to_save_money():
    hourly = given.hourly_pool("p5", "p5.48xlarge")
    idle = given.node(source=given.ON_DEMAND, joined="5h")
    free, held = both(spec(hourly), world(idle))
    assert of(free, StartDrain) or of(free, Terminate)
    assert not held.actions


def test_a_drain_that_a_deadline_forces_goes_on_to_its_end():
    node = given.node()
    pod = given.pod(gpus=8, on=node, checkpoint_every="10m", checkpoint_time="1m")
    free, held = both(spec(), world(given.block(ends_in="35m"), node, pod))
    assert of(held, StartDrain) == of(free, StartDrain) != []
    draining = given.node(phase="draining", drain_reason=given.block_ends(given.ahead("5m")))
    pod = given.pod(gpus=8, on=draining)
    free, held = both(spec(), world(given.block(ends_in="35m"), draining, pod))
    assert of(held, Evict) == of(free, Evict)
    assert of(held, Evict) or of(held, ForceDelete) or of(held, RequestCheckpoint)
    free, held = both(spec(), world(given.block(ends_in="35m"), draining))
    assert of(held, Terminate) == of(free, Terminate) != []


def test_it_looks_soon_whether_it_may_go_on():
    _, held = both(spec(), world())
    assert held.wake_at is not None
    assert (held.wake_at - NOW).total_seconds() == 30
