"""What a pod costs where it runs, which cheaper type would hold it, and the text about it."""

from __future__ import annotations

import pytest

from tests.decide import builders as given
from tests.decide.builders import BLOCK, ON_DEMAND, SPOT, spec, world
from tidemill.model.plan import Plan
from tidemill.render.price_text import price_text
from tidemill.report import pods
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-16")
G6 = spec(given.hourly_pool("g6"))


def price(spec_, name, *things):
    (row,) = (row for row in pods(spec_, world(*things), Plan()) if row.name == f"ml/{name}")
    return row.price


def on(type_name, source=ON_DEMAND, id="i-1", pool="g6"):
    return given.node(id, source=source, instance_type=type_name, pool=pool)


# --- where it runs ------------------------------------------------------------------------------------


def test_a_pod_alone_on_a_large_node_shows_the_cheaper_type():
    large = on("g6.48xlarge")
    found = price(G6, "eval", large, given.pod("eval", gpus=1, on=large), given.daemon("agent", large))
    assert (found.node.type, found.in_pools.type, found.neighbours) == ("g6.48xlarge", "g6.xlarge", 0)
    assert price_text(found) == (
        "It runs alone on g6.48xlarge, $13.35 an hour; g6.xlarge at $0.80 would hold it."
    )


def test_a_pod_on_the_cheapest_type_of_its_pools_says_so():
    small = on("g6.xlarge")
    found = price(G6, "eval", small, given.pod("eval", gpus=1, on=small))
    assert price_text(found) == (
        "It runs alone on g6.xlarge, $0.80 an hour, the cheapest type of its pools that holds it."
    )


def test_a_pod_on_a_shared_node_shows_the_type_it_would_need_alone():
    large = on("g6.48xlarge")
    crowd = [given.pod(f"eval-{n}", gpus=1, on=large) for n in range(4)]
    said = price_text(price(G6, "eval-0", large, crowd))
    assert said == (
        "It shares g6.48xlarge, $13.35 an hour, with 3 other pods; alone it would need g6.xlarge at $0.80."
    )


def test_a_prepaid_node_shows_only_its_own_on_demand_price():
    paid = on("p5.48xlarge", BLOCK, pool="p5")
    found = price(
        spec(),
        "eval",
        given.block(),
        paid,
        given.pod("eval", gpus=1, on=paid),
        given.pod("other", gpus=1, on=paid),
    )
    assert (found.prepaid, found.paid_as) == (True, "block")
    assert price_text(found) == (
        "Its node is prepaid; on demand a p5.48xlarge would be $55.04 an hour, shared with 1 other pod."
    )


def test_a_prepaid_type_without_a_price_says_so():
    taken = spec(given.pool("p5e", requirements={"instanceTypes": ["p5e.48xlarge"]}))
    paid = on("p5e.48xlarge", BLOCK, pool="p5e")
    found = price(
        taken, "eval", given.block(instance_type="p5e.48xlarge"), paid, given.pod("eval", gpus=8, on=paid)
    )
    assert price_text(found) == "Its node is prepaid; no on-demand price is known for p5e.48xlarge."


def test_spot_is_compared_by_on_demand_prices():
    large = on("g6.48xlarge", SPOT)
    said = price_text(price(G6, "eval", large, given.pod("eval", gpus=1, on=large)))
    assert "g6.48xlarge, $13.35 an hour on demand; g6.xlarge at $0.80 would hold it" in said


# --- what would hold it -------------------------------------------------------------------------------


def test_a_cheaper_type_outside_its_pools_is_named_with_its_gpus():
    found = price(spec(given.hourly_pool("g6e", "g6e.2xlarge")), "eval", given.pod("eval", gpus=1))
    assert (found.in_pools.type, found.in_catalog.type) == ("g6e.2xlarge", "g6.xlarge")
    assert price_text(found) == (
        "The cheapest type of its pools that holds it is g6e.2xlarge, $2.24 an hour on demand. "
        "Outside its pools g6.xlarge (1 x L4) at $0.80 would hold it."
    )


def test_a_pod_too_large_for_its_pools_shows_a_type_that_would_hold_it():
    found = price(G6, "huge", given.pod("huge", gpus=8, memory="1000Gi"))
    assert found.in_pools is None
    assert price_text(found).startswith("No type of its pools holds it; p4d.24xlarge (8 x A100) at $21.96")


def test_a_pod_that_no_type_holds_has_no_price():
    assert price_text(price(G6, "huge", given.pod("huge", gpus=64))) == ""


def test_a_type_that_the_pods_selector_excludes_is_not_suggested():
    picky = given.pod("eval", gpus=1, selector={names.LABEL_TYPE: "g6.4xlarge"})
    found = price(G6, "eval", picky)
    assert (found.in_pools.type, found.in_catalog) == ("g6.4xlarge", None)


def test_only_pools_whose_labels_taints_and_namespaces_allow_the_pod_count():
    cheap = [
        given.hourly_pool("labelled", "g6.xlarge", labels={"use": "web"}),
        given.hourly_pool("tainted", "g6.xlarge", taints=[{"key": "dedicated", "effect": "NoSchedule"}]),
        given.hourly_pool("theirs", "g6.xlarge", allowedNamespaces=["serving"]),
    ]
    dear = given.hourly_pool("dear", "g6.8xlarge", labels={"use": "eval"})
    found = price(spec(*cheap, dear), "eval", given.pod("eval", gpus=1, selector={"use": "eval"}))
    assert found.in_pools.type == "g6.8xlarge"


def test_the_source_a_pod_is_pinned_to_does_not_limit_the_comparison():
    large = on("g6.48xlarge")
    pinned = given.pod("eval", gpus=1, on=large, selector={names.LABEL_SOURCE: "on-demand"})
    assert price(G6, "eval", large, pinned).in_pools.type == "g6.xlarge"
    elsewhere = given.pod("eval", gpus=1, selector={names.LABEL_SOURCE: "cr-1"})
    assert price(G6, "eval", elsewhere).in_pools.type == "g6.xlarge"


def test_the_requests_of_real_daemons_replace_the_default():
    large = on("g6.48xlarge")
    things = large, given.pod("eval", gpus=1, on=large), given.daemon("agent", large, cpu="3500m")
    assert price(G6, "eval", *things).in_pools.type == "g6.2xlarge"
