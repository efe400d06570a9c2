"""A delivered block gets its nodes at once: all of them, some, or none, as its pool says."""

from __future__ import annotations

import pytest

from tests.decide.builders import ahead, block, failed_launch, launch_intent, node, of, pod, pool, spec, world
from tidemill.decide import decide
from tidemill.model.capacity import ReservationState
from tidemill.model.plan import Launch, Plan
from tidemill.model.purchases import LaunchState
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-11")


def warmed(plan: Plan) -> list[tuple[str, int]]:
    return [(launch.intent.source.id, launch.intent.count) for launch in of(plan, Launch)]


@pytest.mark.parametrize(
    ("warm", "expected"),
    [(True, [("cr-1", 4)]), (2, [("cr-1", 2)]), (9, [("cr-1", 4)]), (0, []), (False, [])],
)
def test_a_delivered_block_gets_its_nodes_without_a_pod_asking(warm, expected):
    assert warmed(decide(spec(pool(warm=warm)), world(block(count=4, free=4)))) == expected


def test_a_warm_launch_says_which_block_it_is_for():
    (launch,) = of(decide(spec(), world(block(free=4))), Launch)
    assert sentence(launch.reason) == "block cr-1 is active: 4 nodes warm up"
    assert (launch.intent.zone, launch.intent.instance_type) == ("us-west-2a", "p5.48xlarge")


@pytest.mark.requirement("CB-5")
@pytest.mark.parametrize("state", [one for one in ReservationState if one is not ReservationState.ACTIVE])
def test_a_block_that_is_not_active_is_not_warmed(state: ReservationState):
    assert warmed(decide(spec(), world(block(free=4, state=state)))) == []


def test_what_is_on_its_way_is_not_launched_again():
    written = launch_intent(count=3)
    assert warmed(decide(spec(), world(block(free=4), written))) == [("cr-1", 1)]
    called = launch_intent(count=3, state=LaunchState.LAUNCHED, instance_ids=("i-1", "i-2", "i-3"))
    assert warmed(decide(spec(), world(block(free=4), called))) == [("cr-1", 1)]


def test_a_number_counts_the_nodes_that_are_already_there():
    there = [block(count=4, free=3), node()]
    assert warmed(decide(spec(pool(warm=3)), world(there))) == [("cr-1", 2)]


@pytest.mark.requirement("PE-17")
def test_a_short_delivery_is_warmed_as_far_as_it_goes():
    assert warmed(decide(spec(), world(block(count=3, free=3)))) == [("cr-1", 3)]


@pytest.mark.requirement("PE-17")
def test_a_slot_that_comes_back_is_filled_again():
    there = [block(count=4, free=1), *(node(f"i-{place}") for place in range(3))]
    assert warmed(decide(spec(), world(there))) == [("cr-1", 1)]


def test_a_block_whose_launch_just_failed_rests_before_the_next_try():
    there = [block(free=4), failed_launch(count=4)]
    plan = decide(spec(), world(there))
    assert warmed(plan) == []
    assert plan.wake_at == ahead("30s")
    assert warmed(decide(spec(), world(there, now=ahead("30s")))) == [("cr-1", 4)]


def test_an_on_demand_reservation_is_not_warmed():
    documents = spec(pool(sources=[{"type": "block"}, {"type": "odcr"}]))
    odcr = block("cr-o", kind="odcr", ends_in=None, free=4)
    assert warmed(decide(documents, world(odcr))) == []
    assert warmed(decide(documents, world(odcr, block(free=4)))) == [("cr-1", 4)]  # beside a block neither


def test_a_block_of_a_type_the_pool_does_not_allow_is_left_alone():
    assert warmed(decide(spec(), world(block(free=4, instance_type="p4d.24xlarge")))) == []


def test_a_block_tagged_for_one_pool_is_not_used_by_another():
    there = world(block(free=4, pool="train"))
    both = spec(pool("serve"), pool("train"))
    assert [launch.intent.pool for launch in of(decide(both, there), Launch)] == ["train"]


@pytest.mark.requirement("CB-18")
def test_a_pool_pinned_to_reservation_ids_uses_only_those():
    pinned = spec(pool(sources=[{"type": "block", "ids": ["cr-2"]}]))
    there = world(block("cr-1", free=4), block("cr-2", free=2, count=2))
    assert warmed(decide(pinned, there)) == [("cr-2", 2)]


@pytest.mark.requirement("CB-11", "CB-8")
def test_a_pool_that_selects_by_tag_uses_only_blocks_with_that_tag():
    tagged = spec(pool(sources=[{"type": "block", "tags": {"team": "vision"}}]))
    there = world(block("cr-1", free=4), block("cr-2", free=2, count=2, tags=(("team", "vision"),)))
    assert warmed(decide(tagged, there)) == [("cr-2", 2)]


def test_a_block_that_two_pools_share_is_kept_warm_by_neither():
    """Neither pool is named by the block: whoever warmed it first would keep it from the other."""
    assert not warmed(decide(spec(pool("serve"), pool("train")), world(block(count=4, free=4))))


def test_two_pools_that_share_a_block_never_ask_for_more_than_it_holds():
    pods = [pod(f"p{place}", gpus=8) for place in range(6)]
    plan = decide(spec(pool("serve"), pool("train")), world(block(count=4, free=4), pods))
    assert sum(count for _, count in warmed(plan)) == 4


def test_a_number_is_reached_and_not_doubled_when_two_blocks_are_delivered_at_once():
    there = world(block("cr-1", free=4), block("cr-2", free=4))
    assert sum(count for _, count in warmed(decide(spec(pool(warm=2)), there))) == 2


def test_a_number_warms_the_same_block_whichever_is_listed_first():
    one, other = block("cr-1", free=4), block("cr-2", free=4)
    documents = spec(pool(warm=2))
    assert warmed(decide(documents, world(one, other))) == warmed(decide(documents, world(other, one)))
