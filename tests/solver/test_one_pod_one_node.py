"""The solver on the rules between one pod and one node: resources, labels, taints, ports, volumes and time."""

from __future__ import annotations

import pytest

from tests.solver.problems import (
    ZONE,
    ask,
    asks,
    flavour,
    having,
    kind_of,
    left_out,
    place,
    problem,
    resident,
    term,
    where,
)
from tidemill.model.labels import Expression, Taint, Toleration


def choice(pod, *flavours):
    """The type opened for one pod."""
    return kind_of(problem([pod], [], flavours))[0]


# --- resources --------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-3")
@pytest.mark.parametrize(
    "resource", ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "aws.amazon.com/neuron",
                 "vpc.amazonaws.com/efa", "example.com/odd"],
)  # fmt: skip
def test_opens_a_node_that_has_what_is_asked_for_whatever_its_name(resource):
    without, too_small, enough = (
        flavour(name, capacity={resource: amount}, price=price)
        for name, amount, price in (("without", 0, 1.0), ("small", 3, 2.0), ("enough", 4, 3.0))
    )
    pod = ask(cpu=1, requests={resource: 4})
    assert choice(pod, without, too_small, enough) == "enough"
    assert choice(pod, without, too_small) == "-"


def test_a_request_of_nothing_fits_where_there_is_none():
    assert choice(ask(requests={"nvidia.com/gpu": 0}), flavour("m")) == "m"


def test_does_not_fill_a_node_beyond_any_of_its_resources():
    stated = problem(
        asks(6, cpu=1000, requests={"memory": 4}),
        [place(free={"cpu": 9000, "memory": 8, "pods": 9})],
        [flavour("m", capacity={"cpu": 2000, "memory": 100})],
    )
    assert sorted(where(stated)) == ["m@a:0", "m@a:0", "m@a:1", "m@a:1", "n1", "n1"]


def test_each_pod_takes_one_of_the_pods_a_node_may_have():
    stated = problem(asks(5), [place(free={"cpu": 9000, "pods": 2})], [flavour("m", capacity={"pods": 3})])
    assert sorted(kind_of(stated)) == ["m", "m", "m", "n1", "n1"]


def test_leaves_an_over_committed_node_alone():
    crowded = place(free={"cpu": -500, "pods": 5})
    assert where(problem([ask(cpu=100)], [crowded], [flavour("m")])) == ["m@a:0"]
    assert where(problem([ask(cpu=100)], [crowded])) == ["-"]


# --- labels -----------------------------------------------------------------------------------------------


def test_a_node_selector_must_match():
    red, blue = (
        flavour("red", labels={"team": "red"}, price=1.0),
        flavour("blue", labels={"team": "blue"}, price=2.0),
    )
    assert choice(ask(selector={"team": "blue"}), red, blue) == "blue"
    assert choice(ask(selector={"team": "blue"}), red) == "-"
    places = [place("n1", labels={"team": "red"}), place("n2", labels={"team": "blue"})]
    assert where(problem([ask(selector={"team": "blue"})], places)) == ["n2"]


def test_a_host_that_is_named_can_only_be_one_that_is_there():
    named = ask(selector={"kubernetes.io/hostname": "n2"})
    places = [place(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
    assert where(problem([named], places, [flavour("m")])) == ["n2"]
    assert where(problem([named], places[:1], [flavour("m")])) == ["-"]


@pytest.mark.parametrize(
    ("operator", "values", "chosen"),
    [
        ("In", ("5", "7"), "seven"),
        ("NotIn", ("3",), "none"),  # a node without the label is not in
        ("NotIn", ("3", "7"), "none"),
        ("Exists", (), "three"),
        ("DoesNotExist", (), "none"),
        ("Gt", ("3",), "seven"),
        ("Gt", ("-1",), "three"),
        ("Gt", ("7",), "-"),
        ("Lt", ("7",), "three"),
        ("Lt", ("3",), "-"),
    ],
)
def test_required_node_affinity(operator, values, chosen):
    offered = [
        flavour("three", labels={"n": "3"}, price=2.0), flavour("seven", labels={"n": "7"}, price=3.0),
        flavour("word", labels={"n": "many"}, price=9.0), flavour("none", price=1.0),
    ]  # fmt: skip
    assert choice(ask(node_terms=((Expression("n", operator, values),),)), *offered) == chosen


def test_all_expressions_of_a_term_must_hold_and_one_term_is_enough():
    offered = [
        flavour("a", labels={"x": "1"}, price=1.0),
        flavour("b", labels={"x": "1", "y": "1"}, price=2.0),
    ]
    both = (*having("x", "1"), *having("y", "1"))
    assert choice(ask(node_terms=(both,)), *offered) == "b"
    assert choice(ask(node_terms=(having("y", "9"), having("x", "1"))), *offered) == "a"
    assert choice(ask(node_terms=(having("y", "9"), having("x", "9"))), *offered) == "-"


def test_pods_that_want_different_nodes_are_not_put_on_one():
    wants = [ask("p1", selector={"size": "s"}), ask("p2", selector={"size": "l"}), ask("p3")]
    offered = [flavour("s", labels={"size": "s"}, price=1.0), flavour("l", labels={"size": "l"}, price=1.5)]
    assert kind_of(problem(wants, [], offered))[:2] == ["s", "l"]


def test_a_wish_for_certain_nodes_or_neighbours_keeps_nobody_waiting():
    wishes = {
        "preferred_nodes": ((9, having(ZONE, "z")),),
        "preferred_affinity": ((9, term(ZONE, app="nobody")),),
        "preferred_anti_affinity": ((9, term(ZONE, app="x")),),
    }
    stated = problem(asks(3, labels={"app": "x"}, **wishes), [place()], [flavour("m")])
    assert left_out(stated) == set()


# --- taints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_out_who_does_not_tolerate_it(effect):
    tainted = flavour("tainted", taints=(Taint("gpu", "yes", effect),), price=1.0)
    plain = flavour("plain", price=2.0)
    assert choice(ask(), tainted, plain) == "plain"
    assert choice(ask(), tainted) == "-"
    for toleration in [
        Toleration("gpu", "Equal", "yes"),
        Toleration("gpu", "Exists"),
        Toleration(operator="Exists"),
        Toleration("gpu", "Equal", "yes", effect),
    ]:
        assert choice(ask(tolerations=(toleration,)), tainted, plain) == "tainted"
    for useless in [
        Toleration("gpu", "Equal", "no"),
        Toleration("other", "Exists"),
        Toleration("gpu", "Exists", effect="PreferNoSchedule"),
    ]:
        assert choice(ask(tolerations=(useless,)), tainted, plain) == "plain"


def test_every_taint_of_a_node_must_be_tolerated():
    places = [place(taints=(Taint("a"), Taint("b")))]
    one, two = Toleration("a", "Exists"), Toleration("b", "Exists")
    assert where(problem([ask(tolerations=(one,)), ask(tolerations=(one, two))], places)) == ["-", "n1"]


def test_a_taint_that_only_prefers_keeps_nobody_out():
    assert choice(ask(), flavour("m", taints=(Taint("soft", effect="PreferNoSchedule"),))) == "m"


# --- ports and volumes ------------------------------------------------------------------------------------


def test_one_host_port_is_given_once_a_node():
    web = asks(3, host_ports=(("TCP", 80, ""),))
    assert sorted(where(problem(web, [place("n1"), place("n2")]))) == ["-", "n1", "n2"]
    assert sorted(where(problem(web, [], [flavour("m")]))) == ["m@a:0", "m@a:1", "m@a:2"]


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (("TCP", 80, ""), ("TCP", 81, ""), True),
        (("TCP", 80, ""), ("UDP", 80, ""), True),
        (("TCP", 80, "10.0.0.1"), ("TCP", 80, "10.0.0.2"), True),
        (("TCP", 80, "10.0.0.1"), ("TCP", 80, "10.0.0.1"), False),
        (("TCP", 80, "10.0.0.1"), ("TCP", 80, ""), False),
        (("TCP", 80, "0.0.0.0"), ("TCP", 80, "10.0.0.1"), False),
    ],
)
def test_ports_clash_by_protocol_number_and_address(one, other, together):
    pods = [ask("p1", host_ports=(one,)), ask("p2", host_ports=(other,))]
    assert left_out(problem(pods, [place()])) == (set() if together else {"p2"})


def test_a_resident_keeps_its_port():
    taken = place(residents=(resident(host_ports=(("TCP", 80, ""),)),))
    assert where(problem([ask(host_ports=(("TCP", 80, ""),))], [taken, place("n2")])) == ["n2"]


def test_volumes_bind_a_pod_to_their_zones():
    near, far = flavour("m", "a", price=1.0), flavour("m", "b", price=2.0)
    assert where(problem([ask(volume_zones=("b", "c"))], [], [near, far])) == ["m@b:0"]
    assert where(problem([ask(volume_zones=("c",))], [place()], [near, far])) == ["-"]


# --- groups that a pod refuses ----------------------------------------------------------------------------


def test_a_pod_gets_no_new_node_of_a_group_it_refuses():
    block = flavour("block", price=0.0, group="block")
    assert choice(ask(), block, flavour("m")) == "block"
    assert choice(ask(refuses=["block"]), block, flavour("m")) == "m"
    assert choice(ask(refuses=["block"]), block) == "-"


def test_a_pod_gets_no_existing_node_of_a_group_it_refuses():
    assert where(problem([ask()], [place(group="block")])) == ["n1"]
    assert where(problem([ask(refuses=["other"])], [place(group="block")])) == ["n1"]
    assert where(problem([ask(refuses=["block"])], [place(group="block")])) == ["-"]


def test_pods_that_refuse_different_groups_share_a_node_that_neither_refuses():
    pods = [ask("a", refuses=["x"]), ask("b", refuses=["y"])]
    nodes = [place("n1", group="x", free={"cpu": 150, "pods": 9}), place("n2", group="z")]
    assert where(problem(pods, nodes)) == ["n2", "n1"]
    assert where(problem(pods, nodes[1:])) == ["n2", "n2"]


@pytest.mark.requirement("PE-18")
def test_capacity_paid_by_the_hour_is_for_those_who_said_so():
    prepaid = flavour("block", price=0.0, stock="cr-1", rank=(0,))
    hourly = flavour("hourly", price=1.0, group="hourly", rank=(1,))
    modest, eager = ask("modest", cpu=9000, refuses=["hourly"]), ask("eager", cpu=9000)
    assert kind_of(problem([modest], [], [prepaid, hourly], stocks={"cr-1": 0})) == ["-"]
    assert kind_of(problem([eager], [], [prepaid, hourly], stocks={"cr-1": 0})) == ["hourly"]
    assert where(problem([modest], [place(group="hourly")], [hourly])) == ["-"]
    assert where(problem([eager], [place(group="hourly")], [hourly])) == ["n1"]


def test_a_volume_and_a_selector_that_name_different_zones_cannot_both_be_had():
    pod = ask(volume_zones=("a",), selector={ZONE: "b"})
    assert where(problem([pod], [place("n1", "a"), place("n2", "b")])) == ["-"]
