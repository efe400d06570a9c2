"""What pods would rather have: granted where it costs neither money nor anybody's rule, and not otherwise."""

from __future__ import annotations

import pytest

from tests.solver.problems import HOST, ZONE, ask, asks, flavour, place, problem, resident, sound, term, where
from tests.solver.problems import zones_of as zones
from tidemill.model.labels import Expression
from tidemill.model.pods import Spread

DISK = (Expression("disk", "In", ("fast",)),)
NEAR_DB = {"preferred_affinity": ((50, term(ZONE, app="db")),)}
AWAY_FROM_DB = {"preferred_anti_affinity": ((50, term(HOST, app="db")),)}


@pytest.mark.parametrize("order", [1, -1])
def test_the_preferred_node_is_taken_where_both_have_room(order):
    places = [place("slow"), place("fast", labels={"disk": "fast"})][::order]
    assert where(problem([ask(preferred_nodes=((10, DISK),))], places)) == ["fast"]


@pytest.mark.parametrize("order", [1, -1])
def test_the_preferred_zone_is_opened_at_the_same_price(order):
    offered = [flavour("m", zone) for zone in "abc"][::order]
    liked = ((10, (Expression(ZONE, "In", ("b",)),)),)
    assert zones(problem([ask(preferred_nodes=liked)], [], offered)) == ["b"]


def test_a_preference_never_costs_money():
    offered = [flavour("m", "a", price=1.0), flavour("m", "b", price=1.01)]
    liked = ((100, (Expression(ZONE, "In", ("b",)),)),)
    assert zones(problem([ask(preferred_nodes=liked)], [], offered)) == ["a"]
    assert where(problem([ask(preferred_nodes=liked)], [place("n1", "a")], offered)) == ["n1"]


def test_a_preference_opens_no_further_node():
    pods = asks(2, labels={"app": "x"}, preferred_anti_affinity=((100, term(HOST, app="x")),))
    assert len(sound(problem(pods, [], [flavour("m")])).opened) == 1


def test_a_preference_takes_nothing_of_a_higher_rank():
    places = [place("block", rank=(0,)), place("hourly", rank=(1,), labels={"disk": "fast"})]
    assert where(problem([ask(preferred_nodes=((100, DISK),))], places)) == ["block"]


@pytest.mark.parametrize("order", [1, -1])
def test_preferred_company_is_found(order):
    database = resident(labels={"app": "db"})
    places = [place("n1", "a"), place("n2", "b", residents=(database,))][::order]
    assert where(problem([ask(**NEAR_DB)], places)) == ["n2"]


@pytest.mark.parametrize("order", [1, -1])
def test_company_that_is_not_liked_is_avoided(order):
    database = resident(labels={"app": "db"})
    places = [place("n1", "a", residents=(database,)), place("n2", "a")][::order]
    assert where(problem([ask(**AWAY_FROM_DB)], places)) == ["n2"]


def test_pods_that_would_rather_be_spread_are_where_there_is_room():
    rule = Spread(ZONE, (Expression("app", "In", ("x",)),), hard=False)
    places = [place("n1", "a"), place("n2", "b")]
    pods = asks(4, labels={"app": "x"}, spread=(rule,))
    assert sorted(where(problem(pods, places))) == ["n1", "n1", "n2", "n2"]


def test_a_preference_does_not_overrule_a_rule():
    database = resident(labels={"app": "db"})
    places = [place("n1", "a"), place("n2", "a", residents=(database,), labels={"disk": "fast"})]
    shy = ask(preferred_nodes=((100, DISK),), anti_affinity=(term(HOST, app="db"),))
    assert where(problem([shy], places)) == ["n1"]
