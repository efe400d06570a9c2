"""The packer keeps the rules between one pod and one node: resources, labels, taints, ports, volumes, groups."""

from __future__ import annotations

import pytest

from tests.packer.problems import (
    ZONE,
    existing,
    having,
    kind_of,
    option,
    pending,
    problem,
    replicas,
    running,
    term,
    unplaced_ids,
    where,
)
from tidemill.model.labels import Expression, Taint, Toleration


def choice(pod, *options):
    """The type opened for one pod."""
    return kind_of(problem([pod], [], options))[0]


# --- resources --------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-3")
@pytest.mark.parametrize(
    "resource", ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "aws.amazon.com/neuron",
                 "vpc.amazonaws.com/efa", "example.com/odd"],
)  # fmt: skip
def test_a_node_is_opened_that_has_the_requested_resource_whatever_its_name(resource):
    without, too_small, enough = (
        option(name, capacity={resource: amount}, price=price)
        for name, amount, price in (("without", 0, 1.0), ("small", 3, 2.0), ("enough", 4, 3.0))
    )
    pod = pending(cpu=1, requests={resource: 4})
    assert choice(pod, without, too_small, enough) == "enough"
    assert choice(pod, without, too_small) == "-"


def test_a_request_of_zero_fits_where_the_resource_is_missing():
    assert choice(pending(requests={"nvidia.com/gpu": 0}), option("m")) == "m"


def test_does_not_fill_a_node_beyond_any_of_its_resources():
    stated = problem(
        replicas(6, cpu=1000, requests={"memory": 4}),
        [existing(free={"cpu": 9000, "memory": 8, "pods": 9})],
        [option("m", capacity={"cpu": 2000, "memory": 100})],
    )
    assert sorted(where(stated)) == ["m@a:0", "m@a:0", "m@a:1", "m@a:1", "n1", "n1"]


def test_each_pod_takes_one_of_the_pods_a_node_may_have():
    stated = problem(
        replicas(5), [existing(free={"cpu": 9000, "pods": 2})], [option("m", capacity={"pods": 3})]
    )
    assert sorted(kind_of(stated)) == ["m", "m", "m", "n1", "n1"]


def test_an_over_committed_node_is_not_used():
    crowded = existing(free={"cpu": -500, "pods": 5})
    assert where(problem([pending(cpu=100)], [crowded], [option("m")])) == ["m@a:0"]
    assert where(problem([pending(cpu=100)], [crowded])) == ["-"]


# --- labels -----------------------------------------------------------------------------------------------


def test_a_node_selector_must_match():
    red, blue = (
        option("red", labels={"team": "red"}, price=1.0),
        option("blue", labels={"team": "blue"}, price=2.0),
    )
    assert choice(pending(selector={"team": "blue"}), red, blue) == "blue"
    assert choice(pending(selector={"team": "blue"}), red) == "-"
    existing_nodes = [existing("n1", labels={"team": "red"}), existing("n2", labels={"team": "blue"})]
    assert where(problem([pending(selector={"team": "blue"})], existing_nodes)) == ["n2"]


def test_a_pod_that_names_its_host_gets_no_new_node():
    named = pending(selector={"kubernetes.io/hostname": "n2"})
    existing_nodes = [existing(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
    assert where(problem([named], existing_nodes, [option("m")])) == ["n2"]
    assert where(problem([named], existing_nodes[:1], [option("m")])) == ["-"]


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
        option("three", labels={"n": "3"}, price=2.0), option("seven", labels={"n": "7"}, price=3.0),
        option("word", labels={"n": "many"}, price=9.0), option("none", price=1.0),
    ]  # fmt: skip
    assert choice(pending(node_terms=((Expression("n", operator, values),),)), *offered) == chosen


def test_all_expressions_of_a_term_must_hold_and_one_term_is_enough():
    offered = [
        option("a", labels={"x": "1"}, price=1.0),
        option("b", labels={"x": "1", "y": "1"}, price=2.0),
    ]
    both = (*having("x", "1"), *having("y", "1"))
    assert choice(pending(node_terms=(both,)), *offered) == "b"
    assert choice(pending(node_terms=(having("y", "9"), having("x", "1"))), *offered) == "a"
    assert choice(pending(node_terms=(having("y", "9"), having("x", "9"))), *offered) == "-"


def test_pods_with_different_node_selectors_do_not_share_a_node():
    wants = [pending("p1", selector={"size": "s"}), pending("p2", selector={"size": "l"}), pending("p3")]
    offered = [option("s", labels={"size": "s"}, price=1.0), option("l", labels={"size": "l"}, price=1.5)]
    assert kind_of(problem(wants, [], offered))[:2] == ["s", "l"]


def test_preferences_keep_no_pod_unplaced():
    wishes = {
        "preferred_nodes": ((9, having(ZONE, "z")),),
        "preferred_affinity": ((9, term(ZONE, app="nobody")),),
        "preferred_anti_affinity": ((9, term(ZONE, app="x")),),
    }
    stated = problem(replicas(3, labels={"app": "x"}, **wishes), [existing()], [option("m")])
    assert unplaced_ids(stated) == set()


# --- taints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_out_pods_without_a_toleration(effect):
    tainted = option("tainted", taints=(Taint("gpu", "yes", effect),), price=1.0)
    plain = option("plain", price=2.0)
    assert choice(pending(), tainted, plain) == "plain"
    assert choice(pending(), tainted) == "-"
    for toleration in [
        Toleration("gpu", "Equal", "yes"),
        Toleration("gpu", "Exists"),
        Toleration(operator="Exists"),
        Toleration("gpu", "Equal", "yes", effect),
    ]:
        assert choice(pending(tolerations=(toleration,)), tainted, plain) == "tainted"
    for useless in [
        Toleration("gpu", "Equal", "no"),
        Toleration("other", "Exists"),
        Toleration("gpu", "Exists", effect="PreferNoSchedule"),
    ]:
        assert choice(pending(tolerations=(useless,)), tainted, plain) == "plain"


def test_every_taint_of_a_node_must_be_tolerated():
    existing_nodes = [existing(taints=(Taint("a"), Taint("b")))]
    one, two = Toleration("a", "Exists"), Toleration("b", "Exists")
    assert where(problem([pending(tolerations=(one,)), pending(tolerations=(one, two))], existing_nodes)) == [
        "-",
        "n1",
    ]


def test_a_prefer_no_schedule_taint_keeps_no_pod_out():
    assert choice(pending(), option("m", taints=(Taint("soft", effect="PreferNoSchedule"),))) == "m"


# --- ports and volumes ------------------------------------------------------------------------------------


def test_a_host_port_is_used_once_per_node():
    web = replicas(3, host_ports=(("TCP", 80, ""),))
    assert sorted(where(problem(web, [existing("n1"), existing("n2")]))) == ["-", "n1", "n2"]
    assert sorted(where(problem(web, [], [option("m")]))) == ["m@a:0", "m@a:1", "m@a:2"]


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
    pods = [pending("p1", host_ports=(one,)), pending("p2", host_ports=(other,))]
    assert unplaced_ids(problem(pods, [existing()])) == (set() if together else {"p2"})


def test_an_existing_pod_keeps_its_host_port():
    taken = existing(existing_pods=(running(host_ports=(("TCP", 80, ""),)),))
    assert where(problem([pending(host_ports=(("TCP", 80, ""),))], [taken, existing("n2")])) == ["n2"]


def test_volumes_bind_a_pod_to_their_zones():
    near, far = option("m", "a", price=1.0), option("m", "b", price=2.0)
    assert where(problem([pending(volume_zones=("b", "c"))], [], [near, far])) == ["m@b:0"]
    assert where(problem([pending(volume_zones=("c",))], [existing()], [near, far])) == ["-"]


# --- groups that a pod refuses ----------------------------------------------------------------------------


def test_a_pod_gets_no_new_node_of_a_group_it_refuses():
    block = option("block", price=0.0, group="block")
    assert choice(pending(), block, option("m")) == "block"
    assert choice(pending(refuses=["block"]), block, option("m")) == "m"
    assert choice(pending(refuses=["block"]), block) == "-"


def test_a_pod_gets_no_existing_node_of_a_group_it_refuses():
    assert where(problem([pending()], [existing(group="block")])) == ["n1"]
    assert where(problem([pending(refuses=["other"])], [existing(group="block")])) == ["n1"]
    assert where(problem([pending(refuses=["block"])], [existing(group="block")])) == ["-"]


def test_pods_that_refuse_different_groups_share_a_node_that_neither_refuses():
    pods = [pending("a", refuses=["x"]), pending("b", refuses=["y"])]
    nodes = [existing("n1", group="x", free={"cpu": 150, "pods": 9}), existing("n2", group="z")]
    assert where(problem(pods, nodes)) == ["n2", "n1"]
    assert where(problem(pods, nodes[1:])) == ["n2", "n2"]


@pytest.mark.requirement("PE-18")
def test_only_pods_that_opted_in_use_capacity_paid_by_the_hour():
    prepaid = option("block", price=0.0, stock="cr-1", rank=(0,))
    hourly = option("hourly", price=1.0, group="hourly", rank=(1,))
    modest, eager = pending("modest", cpu=9000, refuses=["hourly"]), pending("eager", cpu=9000)
    assert kind_of(problem([modest], [], [prepaid, hourly], stocks={"cr-1": 0})) == ["-"]
    assert kind_of(problem([eager], [], [prepaid, hourly], stocks={"cr-1": 0})) == ["hourly"]
    assert where(problem([modest], [existing(group="hourly")], [hourly])) == ["-"]
    assert where(problem([eager], [existing(group="hourly")], [hourly])) == ["n1"]


def test_a_volume_and_a_selector_in_different_zones_leave_the_pod_unplaced():
    pod = pending(volume_zones=("a",), selector={ZONE: "b"})
    assert where(problem([pod], [existing("n1", "a"), existing("n2", "b")])) == ["-"]
