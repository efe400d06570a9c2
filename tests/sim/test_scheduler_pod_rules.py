"""Rules about other pods: host ports, affinity, anti-affinity and topology spread, bound pod by pod."""

from __future__ import annotations

import pytest

from tests.sim.simulated_cluster import BLOCK
from tests.sim.zoned_cluster import HOST, ZONE, ZonedCluster, shape, spread, term
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.labels import Expression, Toleration
from tidemill.model.pods import PodTerm

APART = shape(anti_affinity=(term(HOST, app="x"),))
APART_BY_ZONE = shape(anti_affinity=(term(ZONE, app="x"),))
PLAIN = shape()
OTHER = shape(labels={"app": "y"})
ONLY_A = ((ZONE, "us-west-2a"),)


# --- host ports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (("TCP", 80, ""), False),
        (("TCP", 81, ""), True),
        (("UDP", 80, ""), True),
        (("TCP", 80, "10.0.0.2"), False),
    ],
)
def test_two_pods_on_a_node_cannot_have_the_same_host_port(wanted: tuple[str, int, str], fits: bool) -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("web", "a1", shape(host_ports=(("TCP", 80, ""),)))
    assert bool(simulated.schedule("other", shape(host_ports=(wanted,)))) is fits
    if not fits:
        assert "1 node(s) didn't have free ports for the requested pod ports" in simulated.scheduler_message(
            "other"
        )


def test_ports_on_two_addresses_do_not_clash() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("web", "a1", shape(host_ports=(("TCP", 80, "10.0.0.1"),)))
    assert simulated.schedule("other", shape(host_ports=(("TCP", 80, "10.0.0.2"),))) == "a1"


# --- anti-affinity ------------------------------------------------------------------------------------


def test_keeps_off_hosts_with_pods_of_its_anti_affinity() -> None:
    simulated = ZonedCluster(a=2)
    assert {simulated.schedule("one", APART), simulated.schedule("two", APART)} == {"a1", "a2"}
    assert simulated.schedule("three", APART) == ""
    assert "2 node(s) didn't match pod anti-affinity rules" in simulated.scheduler_message("three")


def test_keeps_off_zones_with_pods_of_its_anti_affinity() -> None:
    simulated = ZonedCluster(a=2, b=1)
    simulated.bind_directly("one", "a1")
    assert simulated.schedule("two", APART_BY_ZONE) == "b1"


def test_a_bound_pod_keeps_others_off_by_its_own_anti_affinity() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("hermit", "a1", APART)
    assert simulated.schedule("guest", PLAIN) == ""
    assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in simulated.scheduler_message(
        "guest"
    )
    assert simulated.schedule("stranger", OTHER) == "a1"


def test_a_terminating_pod_still_keeps_others_off_by_anti_affinity() -> None:
    simulated = ZonedCluster(a=1)
    hermit = simulated.bind_directly("hermit", "a1", APART, grace="10m")
    simulated.cluster.evict(hermit.uid)
    assert simulated.schedule("guest", PLAIN) == ""
    simulated.pass_time("10m")
    assert simulated.node_of("guest") == "a1"


def test_a_pod_affinity_term_selects_in_its_own_namespace_unless_it_names_others() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("one", "a1", namespace="elsewhere")
    assert simulated.schedule("two", APART) == "a1"
    assert simulated.schedule("three", shape(anti_affinity=(term(HOST, "elsewhere", app="x"),))) == ""


def test_anti_affinity_by_a_key_that_the_node_lacks_rejects_nobody() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("one", "a1")
    assert simulated.schedule("two", shape(anti_affinity=(term("rack", app="x"),))) == "a1"


# --- affinity -----------------------------------------------------------------------------------------


def test_goes_where_the_pods_of_its_affinity_are() -> None:
    simulated = ZonedCluster(a=1, b=2)
    simulated.bind_directly("db", "b1", OTHER, grace="1s")
    simulated.bind_directly("filler", "b1", shape(cpu=150, labels={"app": "z"}))
    assert simulated.schedule("web", shape(cpu=50, affinity=(term(ZONE, app="y"),))) == "b2"


def test_waits_for_the_pods_of_its_affinity_and_follows_them() -> None:
    simulated = ZonedCluster(a=1, b=1)
    assert simulated.schedule("web", shape(affinity=(term(HOST, app="y"),))) == ""
    assert "2 node(s) didn't match pod affinity rules" in simulated.scheduler_message("web")
    simulated.bind_directly("db", "b1", OTHER)
    assert simulated.node_of("web") == "b1"


def test_the_first_of_a_kind_that_wants_its_own_kind_may_start_anywhere() -> None:
    simulated = ZonedCluster(a=1, b=1)
    together = shape(cpu=100, affinity=(term(ZONE, app="x"),))
    assert simulated.schedule("one", together) == "a1"
    assert simulated.schedule("two", together) == ""  # a1 is full, and zone b is not where the first one is
    assert "1 node(s) didn't match pod affinity rules" in simulated.scheduler_message("two")


def test_one_pod_must_match_all_affinity_terms() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("db", "a1", shape(labels={"app": "y"}))
    simulated.bind_directly("cache", "a1", shape(labels={"role": "cache"}))
    both = shape(affinity=(term(ZONE, app="y"), term(ZONE, role="cache")))
    assert simulated.schedule("web", both) == ""
    simulated.bind_directly("combined", "a1", shape(labels={"app": "y", "role": "cache"}))
    assert simulated.node_of("web") == "a1"


# --- topology spread ----------------------------------------------------------------------------------


def test_spreads_over_zones_pod_by_pod() -> None:
    simulated = ZonedCluster(a=3, b=1, c=1)
    even = shape(spread=(spread(ZONE),))
    zones = [simulated.schedule(f"p{number}", even)[0] for number in range(6)]
    assert sorted(zones[:3]) == ["a", "b", "c"]
    assert sorted(zones[3:]) == ["a", "b", "c"]


def test_waits_rather_than_exceed_the_skew_of_a_zone() -> None:
    simulated = ZonedCluster(a=1, b=1)
    simulated.bind_directly("filler", "b1", shape(cpu=190, labels={"app": "z"}))
    even = shape(cpu=4, spread=(spread(ZONE),))
    assert simulated.schedule("one", even) == "a1"
    assert simulated.schedule("two", even) == ""
    assert (
        "1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints."
        in simulated.scheduler_message("two")
    )
    assert simulated.schedule("looser", shape(cpu=4, spread=(spread(ZONE, 2),))) == "a1"


def test_a_pod_bound_in_another_zone_lets_the_next_one_be_bound() -> None:
    simulated = ZonedCluster(a=1, b=1)
    simulated.bind_directly("one", "a1")
    even = shape(spread=(spread(ZONE, honor_affinity=False),), node_selector=ONLY_A)
    assert simulated.schedule("two", even) == ""
    simulated.bind_directly("three", "b1")
    assert simulated.node_of("two") == "a1"


def test_only_zones_its_own_selector_allows_count_unless_told_otherwise() -> None:
    simulated = ZonedCluster(a=1, b=1)
    simulated.bind_directly("one", "a1")
    assert simulated.schedule("two", shape(spread=(spread(ZONE),), node_selector=ONLY_A)) == "a1"


def test_a_pin_counts_as_a_selector() -> None:
    simulated = ZonedCluster(a=1)
    simulated.ready_nodes("i-b1", zone="us-west-2b", source=Source(SourceKind.ON_DEMAND))
    simulated.bind_directly("one", "a1")
    pod = simulated.create_pod("two", shape(spread=(spread(ZONE),)), gated=True)
    simulated.cluster.admit([pod.uid], BLOCK.label, None)
    simulated.pass_time("20s")
    assert simulated.node_of("two") == "a1"


def test_tainted_nodes_count_unless_taints_are_honoured() -> None:
    simulated = ZonedCluster(a=1)
    simulated.ready_nodes("i-b1", zone="us-west-2b", pool="g6", kind="g6.48xlarge")
    simulated.bind_directly("one", "a1")
    assert simulated.schedule("two", shape(spread=(spread(ZONE),))) == ""
    assert simulated.schedule("three", shape(spread=(spread(ZONE, honor_taints=True),))) == "a1"
    tolerant = shape(spread=(spread(ZONE, honor_taints=True),), tolerations=(Toleration(operator="Exists"),))
    assert simulated.schedule("four", tolerant) == "b1"


def test_fewer_domains_than_min_domains_count_as_an_empty_one() -> None:
    simulated = ZonedCluster(a=1, b=1)
    even = shape(spread=(spread(ZONE, min_domains=3),))
    assert {simulated.schedule("one", even), simulated.schedule("two", even)} == {"a1", "b1"}
    assert simulated.schedule("three", even) == ""
    simulated.ready_nodes("i-c1", zone="us-west-2c")
    assert simulated.node_of("three") == "c1"


def test_match_label_keys_count_only_its_own_revision() -> None:
    simulated = ZonedCluster(a=1, b=1)
    simulated.bind_directly("old", "a1", shape(labels={"app": "x", "rev": "1"}))
    by_rev = spread(ZONE, match_label_keys=("rev",), honor_affinity=False)
    assert (
        simulated.schedule(
            "same", shape(labels={"app": "x", "rev": "1"}, spread=(by_rev,), node_selector=ONLY_A)
        )
        == ""
    )
    assert (
        simulated.schedule(
            "new", shape(labels={"app": "x", "rev": "2"}, spread=(by_rev,), node_selector=ONLY_A)
        )
        == "a1"
    )


def test_pods_that_are_leaving_do_not_count_for_a_spread() -> None:
    simulated = ZonedCluster(a=1, b=1)
    leaving = simulated.bind_directly("one", "a1", grace="1h")
    simulated.bind_directly("filler", "b1", shape(cpu=190, labels={"app": "z"}))
    even = shape(cpu=4, spread=(spread(ZONE),))
    assert simulated.schedule("two", even) == ""
    simulated.cluster.evict(leaving.uid)
    simulated.pass_time("20s")
    assert simulated.node_of("two") == "a1"


def test_nodes_without_the_topology_key_are_rejected() -> None:
    simulated = ZonedCluster(a=1)
    assert simulated.schedule("one", shape(spread=(spread("rack"),))) == ""
    assert "topology spread constraints (missing required label)" in simulated.scheduler_message("one")


def test_a_pod_that_its_own_spread_does_not_select_adds_nothing() -> None:
    simulated = ZonedCluster(a=1, b=1)
    simulated.bind_directly("one", "a1")
    watcher = shape(labels={"app": "y"}, spread=(spread(ZONE),), node_selector=ONLY_A)
    counted_over_both = shape(
        labels={"app": "y"},
        spread=(spread(ZONE, honor_affinity=False),),
        node_selector=ONLY_A,
    )
    assert simulated.schedule("watcher", watcher) == "a1"
    assert simulated.schedule("second", counted_over_both) == "a1"


def test_a_selector_with_other_operators_is_understood() -> None:
    simulated = ZonedCluster(a=2)
    simulated.bind_directly("one", "a1")
    selector = (Expression("app", "Exists"), Expression("app", "NotIn", ("y",)))
    loner = shape(anti_affinity=(PodTerm(HOST, selector),))
    assert simulated.schedule("two", loner) == "a2"
