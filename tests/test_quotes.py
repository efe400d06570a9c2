"""What a pod costs where it runs, which type would hold it, and how that is said."""

from __future__ import annotations

import pytest

from tests.decide.builders import (
    BLOCK,
    ON_DEMAND,
    SPOT,
    block,
    daemon,
    hourly_pool,
    node,
    pod,
    pool,
    spec,
    world,
)
from tidemill.model.plan import Plan
from tidemill.render.price_text import price_text
from tidemill.report import pods
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-16")
G6 = spec(hourly_pool("g6"))


def price(spec_, name, *things):
    (row,) = (row for row in pods(spec_, world(*things), Plan()) if row.name == f"ml/{name}")
    return row.price


def on(type_name, source=ON_DEMAND, id="i-1", pool="g6"):
    return node(id, source=source, instance_type=type_name, pool=pool)


# --- where it runs ------------------------------------------------------------------------------------


def test_a_pod_alone_on_a_large_node_is_told_the_small_one_that_would_do():
    large = on("g6.48xlarge")
    found = price(G6, "eval", large, pod("eval", gpus=1, on=large), daemon("agent", large))
    assert (found.node.type, found.in_pools.type, found.neighbours) == ("g6.48xlarge", "g6.xlarge", 0)
    assert price_text(found) == (
        "It runs alone on g6.48xlarge, $13.35 an hour; g6.xlarge at $0.80 would hold it."
    )


def test_a_pod_on_the_cheapest_type_of_its_pools_is_told_so():
    small = on("g6.xlarge")
    found = price(G6, "eval", small, pod("eval", gpus=1, on=small))
    assert price_text(found) == (
        "It runs alone on g6.xlarge, $0.80 an hour, the cheapest type of its pools that holds it."
    )


def test_a_shared_node_is_no_waste_of_one_pods():
    large = on("g6.48xlarge")
    crowd = [pod(f"eval-{n}", gpus=1, on=large) for n in range(4)]
    said = price_text(price(G6, "eval-0", large, crowd))
    assert said == (
        "It shares g6.48xlarge, $13.35 an hour, with 3 other pods; alone it would need g6.xlarge at $0.80."
    )


def test_a_prepaid_node_is_compared_with_nothing_but_its_own_price_on_demand():
    paid = on("p5.48xlarge", BLOCK, pool="p5")
    found = price(spec(), "eval", block(), paid, pod("eval", gpus=1, on=paid), pod("other", gpus=1, on=paid))
    assert (found.prepaid, found.paid_as) == (True, "block")
    assert price_text(found) == (
        "Its node is prepaid; on demand a p5.48xlarge would be $55.04 an hour, shared with 1 other pod."
    )


def test_a_prepaid_type_with_no_known_price_is_not_guessed_at():
    taken = spec(pool("p5e", requirements={"instanceTypes": ["p5e.48xlarge"]}))
    paid = on("p5e.48xlarge", BLOCK, pool="p5e")
    found = price(taken, "eval", block(instance_type="p5e.48xlarge"), paid, pod("eval", gpus=8, on=paid))
    assert price_text(found) == "Its node is prepaid; no on-demand price is known for p5e.48xlarge."


def test_spot_is_compared_at_prices_on_demand_and_says_so():
    large = on("g6.48xlarge", SPOT)
    said = price_text(price(G6, "eval", large, pod("eval", gpus=1, on=large)))
    assert "g6.48xlarge, $13.35 an hour on demand; g6.xlarge at $0.80 would hold it" in said


# --- what would hold it -------------------------------------------------------------------------------


def test_a_cheaper_type_outside_its_pools_is_named_with_its_gpus():
    found = price(spec(hourly_pool("g6e", "g6e.2xlarge")), "eval", pod("eval", gpus=1))
    assert (found.in_pools.type, found.in_catalog.type) == ("g6e.2xlarge", "g6.xlarge")
    assert price_text(found) == (
        "The cheapest type of its pools that holds it is g6e.2xlarge, $2.24 an hour on demand. "
        "Outside its pools g6.xlarge (1 x L4) at $0.80 would hold it."
    )


def test_a_pod_no_pool_holds_is_told_the_type_that_would():
    found = price(G6, "huge", pod("huge", gpus=8, memory="1000Gi"))
    assert found.in_pools is None
    assert price_text(found).startswith("No type of its pools holds it; p4d.24xlarge (8 x A100) at $21.96")


def test_a_pod_nothing_holds_is_told_no_price():
    assert price_text(price(G6, "huge", pod("huge", gpus=64))) == ""


def test_a_type_the_pod_itself_rules_out_is_not_suggested():
    picky = pod("eval", gpus=1, selector={names.LABEL_TYPE: "g6.4xlarge"})
    found = price(G6, "eval", picky)
    assert (found.in_pools.type, found.in_catalog) == ("g6.4xlarge", None)


def test_only_pools_whose_labels_taints_and_namespaces_let_it_in_count():
    cheap = [
        hourly_pool("labelled", "g6.xlarge", labels={"use": "web"}),
        hourly_pool("tainted", "g6.xlarge", taints=[{"key": "dedicated", "effect": "NoSchedule"}]),
        hourly_pool("theirs", "g6.xlarge", allowedNamespaces=["serving"]),
    ]
    dear = hourly_pool("dear", "g6.8xlarge", labels={"use": "eval"})
    found = price(spec(*cheap, dear), "eval", pod("eval", gpus=1, selector={"use": "eval"}))
    assert found.in_pools.type == "g6.8xlarge"


def test_the_source_a_pod_was_pinned_to_does_not_bind_the_comparison():
    large = on("g6.48xlarge")
    pinned = pod("eval", gpus=1, on=large, selector={names.LABEL_SOURCE: "on-demand"})
    assert price(G6, "eval", large, pinned).in_pools.type == "g6.xlarge"
    elsewhere = pod("eval", gpus=1, selector={names.LABEL_SOURCE: "cr-1"})
    assert price(G6, "eval", elsewhere).in_pools.type == "g6.xlarge"


def test_daemons_that_were_seen_count_and_not_the_guess():
    large = on("g6.48xlarge")
    things = large, pod("eval", gpus=1, on=large), daemon("agent", large, cpu="3500m")
    assert price(G6, "eval", *things).in_pools.type == "g6.2xlarge"
