"""Preferences are satisfied where that costs no money and breaks no rule, and not otherwise."""

from __future__ import annotations

import pytest

from tests.packer import problems as make
from tests.packer.problems import HOST, ZONE, problem, sound, where, zones_of
from tidemill.model.labels import Expression
from tidemill.model.pods import Spread

DISK = (Expression("disk", "In", ("fast",)),)
NEAR_DB = {"preferred_affinity": ((50, make.term(ZONE, app="db")),)}
AWAY_FROM_DB = {"preferred_anti_affinity": ((50, make.term(HOST, app="db")),)}


@pytest.mark.parametrize("order", [1, -1])
def test_the_preferred_node_is_taken_where_both_have_room(order):
    existing_nodes = [make.existing("slow"), make.existing("fast", labels={"disk": "fast"})][::order]
    assert where(problem([make.pending(preferred_nodes=((10, DISK),))], existing_nodes)) == ["fast"]


@pytest.mark.parametrize("order", [1, -1])
def test_the_preferred_zone_is_opened_at_the_same_price(order):
    offered = [make.option("m", zone) for zone in "abc"][::order]
    liked = ((10, (Expression(ZONE, "In", ("b",)),)),)
    assert zones_of(problem([make.pending(preferred_nodes=liked)], [], offered)) == ["b"]


def test_a_preference_never_costs_money():
    offered = [make.option("m", "a", price=1.0), make.option("m", "b", price=1.01)]
    liked = ((100, (Expression(ZONE, "In", ("b",)),)),)
    assert zones_of(problem([make.pending(preferred_nodes=liked)], [], offered)) == ["a"]
    assert where(problem([make.pending(preferred_nodes=liked)], [make.existing("n1", "a")], offered)) == [
        "n1"
    ]


def test_a_preference_leads_nowhere_that_an_existing_pod_keeps_it_out_of():
    jealous = make.running(labels={"app": "db"}, anti_affinity=(make.term(ZONE, app="x"),))
    existing_nodes = [
        make.existing("slow", "a"),
        make.existing("fast", "b", labels={"disk": "fast"}, existing_pods=(jealous,)),
    ]
    wants = make.pending(labels={"app": "x"}, preferred_nodes=((10, DISK),))
    assert where(problem([wants], existing_nodes)) == ["slow"]


def test_a_preference_opens_no_further_node():
    pods = make.replicas(2, labels={"app": "x"}, preferred_anti_affinity=((100, make.term(HOST, app="x")),))
    assert len(sound(problem(pods, [], [make.option("m")])).opened) == 1


def test_a_preference_uses_no_node_of_a_higher_rank():
    existing_nodes = [
        make.existing("block", rank=(0,)),
        make.existing("hourly", rank=(1,), labels={"disk": "fast"}),
    ]
    assert where(problem([make.pending(preferred_nodes=((100, DISK),))], existing_nodes)) == ["block"]


@pytest.mark.parametrize("order", [1, -1])
def test_preferred_affinity_is_met(order):
    database = make.running(labels={"app": "db"})
    existing_nodes = [make.existing("n1", "a"), make.existing("n2", "b", existing_pods=(database,))][::order]
    assert where(problem([make.pending(**NEAR_DB)], existing_nodes)) == ["n2"]


@pytest.mark.parametrize("order", [1, -1])
def test_preferred_anti_affinity_is_met(order):
    database = make.running(labels={"app": "db"})
    existing_nodes = [make.existing("n1", "a", existing_pods=(database,)), make.existing("n2", "a")][::order]
    assert where(problem([make.pending(**AWAY_FROM_DB)], existing_nodes)) == ["n2"]


def test_a_soft_spread_is_met_where_there_is_room():
    rule = Spread(ZONE, (Expression("app", "In", ("x",)),), hard=False)
    existing_nodes = [make.existing("n1", "a"), make.existing("n2", "b")]
    pods = make.replicas(4, labels={"app": "x"}, spread=(rule,))
    assert sorted(where(problem(pods, existing_nodes))) == ["n1", "n1", "n2", "n2"]


def test_a_preference_does_not_overrule_a_rule():
    database = make.running(labels={"app": "db"})
    existing_nodes = [
        make.existing("n1", "a"),
        make.existing("n2", "a", existing_pods=(database,), labels={"disk": "fast"}),
    ]
    shy = make.pending(preferred_nodes=((100, DISK),), anti_affinity=(make.term(HOST, app="db"),))
    assert where(problem([shy], existing_nodes)) == ["n1"]
