"""The packer keeps the rules between one pod and one node: resources, labels, taints, ports, volumes, groups."""

from __future__ import annotations

import pytest

from tests.packer import problems as make
from tests.packer.problems import ZONE, having, kind_of, problem, unplaced_ids, where
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
        make.option(name, capacity={resource: amount}, price=price)
        for name, amount, price in (("without", 0, 1.0), ("small", 3, 2.0), ("enough", 4, 3.0))
    )
    pod = make.pending(cpu=1, requests={resource: 4})
    assert choice(pod, without, too_small, enough) == "enough"
    assert choice(pod, without, too_small) == "-"


def test_a_request_of_zero_fits_where_the_resource_is_missing():
    assert choice(make.pending(requests={"nvidia.com/gpu": 0}), make.option("m")) == "m"


def test_does_not_fill_a_node_beyond_any_of_its_resources():
    stated = problem(
        make.replicas(6, cpu=1000, requests={"memory": 4}),
        [make.existing(free={"cpu": 9000, "memory": 8, "pods": 9})],
        [make.option("m", capacity={"cpu": 2000, "memory": 100})],
    )
    assert sorted(where(stated)) == ["m@a:0", "m@a:0", "m@a:1", "m@a:1", "n1", "n1"]


def test_each_pod_takes_one_of_the_pods_a_node_may_have():
    stated = problem(
        make.replicas(5),
        [make.existing(free={"cpu": 9000, "pods": 2})],
        [make.option("m", capacity={"pods": 3})],
    )
    assert sorted(kind_of(stated)) == ["m", "m", "m", "n1", "n1"]


def test_an_over_committed_node_is_not_used():
    crowded = make.existing(free={"cpu": -500, "pods": 5})
    assert where(problem([make.pending(cpu=100)], [crowded], [make.option("m")])) == ["m@a:0"]
    assert where(problem([make.pending(cpu=100)], [crowded])) == ["-"]


# --- labels -----------------------------------------------------------------------------------------------


def test_a_node_selector_must_match():
    red, blue = (
        make.option("red", labels={"team": "red"}, price=1.0),
        make.option("blue", labels={"team": "blue"}, price=2.0),
    )
    assert choice(make.pending(selector={"team": "blue"}), red, blue) == "blue"
    assert choice(make.pending(selector={"team": "blue"}), red) == "-"
    existing_nodes = [
        make.existing("n1", labels={"team": "red"}),
        make.existing("n2", labels={"team": "blue"}),
    ]
    assert where(problem([make.pending(selector={"team": "blue"})], existing_nodes)) == ["n2"]


def test_a_pod_that_names_its_host_gets_no_new_node():
    named = make.pending(selector={"kubernetes.io/hostname": "n2"})
    existing_nodes = [make.existing(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
    assert where(problem([named], existing_nodes, [make.option("m")])) == ["n2"]
    assert where(problem([named], existing_nodes[:1], [make.option("m")])) == ["-"]


@pytest.mark.parametrize(
    ("operator", "values", "chosen"),
    [
        ("In", ("5", "7"), "seven"),
        ("NotIn", ("3",), "none"),  # a node without the label is not in
        ("NotIn", ("3", "7"), "none"),
        ("Exists", (), "huge"),
        ("DoesNotExist", (), "none"),
        ("Gt", ("3",), "seven"),
        ("Gt", ("-1",), "three"),
        ("Gt", ("7",), "-"),
        ("Lt", ("7",), "three"),
        ("Lt", ("3",), "-"),
        ("Lt", (str(2**63),), "-"),  # more than 64 bits is not a number to Kubernetes
    ],
)
def test_required_node_affinity(operator, values, chosen):
    offered = [
        make.option("three", labels={"n": "3"}, price=2.0), make.option("seven", labels={"n": "7"}, price=3.0),
        make.option("word", labels={"n": "many"}, price=9.0), make.option("none", price=1.0),
        make.option("huge", labels={"n": str(2**63)}, price=1.5),
    ]  # fmt: skip
    assert choice(make.pending(node_terms=((Expression("n", operator, values),),)), *offered) == chosen


def test_all_expressions_of_a_term_must_hold_and_one_term_is_enough():
    offered = [
        make.option("a", labels={"x": "1"}, price=1.0),
        make.option("b", labels={"x": "1", "y": "1"}, price=2.0),
    ]
    both = (*having("x", "1"), *having("y", "1"))
    assert choice(make.pending(node_terms=(both,)), *offered) == "b"
    assert choice(make.pending(node_terms=(having("y", "9"), having("x", "1"))), *offered) == "a"
    assert choice(make.pending(node_terms=(having("y", "9"), having("x", "9"))), *offered) == "-"


def test_pods_with_different_node_selectors_do_not_share_a_node():
    wants = [
        make.pending("p1", selector={"size": "s"}),
        make.pending("p2", selector={"size": "l"}),
        make.pending("p3"),
    ]
    offered = [
        make.option("s", labels={"size": "s"}, price=1.0),
        make.option("l", labels={"size": "l"}, price=1.5),
    ]
    assert kind_of(problem(wants, [], offered))[:2] == ["s", "l"]


def test_preferences_keep_no_pod_unplaced():
    wishes = {
        "preferred_nodes": ((9, having(ZONE, "z")),),
        "preferred_affinity": ((9, make.term(ZONE, app="nobody")),),
        "preferred_anti_affinity": ((9, make.term(ZONE, app="x")),),
    }
    stated = problem(make.replicas(3, labels={"app": "x"}, **wishes), [make.existing()], [make.option("m")])
    assert unplaced_ids(stated) == set()


# --- taints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_out_pods_without_a_toleration(effect):
    tainted = make.option("tainted", taints=(Taint("gpu", "yes", effect),), price=1.0)
    plain = make.option("plain", price=2.0)
    assert choice(make.pending(), tainted, plain) == "plain"
    assert choice(make.pending(), tainted) == "-"
    for toleration in [
        Toleration("gpu", "Equal", "yes"),
        Toleration("gpu", "Exists"),
        Toleration(operator="Exists"),
        Toleration("gpu", "Equal", "yes", effect),
    ]:
        assert choice(make.pending(tolerations=(toleration,)), tainted, plain) == "tainted"
    for useless in [
        Toleration("gpu", "Equal", "no"),
        Toleration("other", "Exists"),
        Toleration("gpu", "Exists", effect="PreferNoSchedule"),
    ]:
        assert choice(make.pending(tolerations=(useless,)), tainted, plain) == "plain"


def test_every_taint_of_a_node_must_be_tolerated():
    existing_nodes = [make.existing(taints=(Taint("a"), Taint("b")))]
    one, two = Toleration("a", "Exists"), Toleration("b", "Exists")
    assert where(
        problem([make.pending(tolerations=(one,)), make.pending(tolerations=(one, two))], existing_nodes)
    ) == [
        "-",
        "n1",
    ]


def test_a_prefer_no_schedule_taint_keeps_no_pod_out():
    assert choice(make.pending(), make.option("m", taints=(Taint("soft", effect="PreferNoSchedule"),))) == "m"


# --- ports and volumes ------------------------------------------------------------------------------------


def test_a_host_port_is_used_once_per_node():
    web = make.replicas(3, host_ports=(("TCP", 80, ""),))
    assert sorted(where(problem(web, [make.existing("n1"), make.existing("n2")]))) == ["-", "n1", "n2"]
    assert sorted(where(problem(web, [], [make.option("m")]))) == ["m@a:0", "m@a:1", "m@a:2"]


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
    pods = [make.pending("p1", host_ports=(one,)), make.pending("p2", host_ports=(other,))]
    assert unplaced_ids(problem(pods, [make.existing()])) == (set() if together else {"p2"})


def test_an_existing_pod_keeps_its_host_port():
    taken = make.existing(existing_pods=(make.running(host_ports=(("TCP", 80, ""),)),))
    assert where(problem([make.pending(host_ports=(("TCP", 80, ""),))], [taken, make.existing("n2")])) == [
        "n2"
    ]


def test_volumes_bind_a_pod_to_their_zones():
    near, far = make.option("m", "a", price=1.0), make.option("m", "b", price=2.0)
    assert where(problem([make.pending(volume_zones=("b", "c"))], [], [near, far])) == ["m@b:0"]
    assert where(problem([make.pending(volume_zones=("c",))], [make.existing()], [near, far])) == ["-"]


# --- groups that a pod refuses ----------------------------------------------------------------------------


def test_a_pod_gets_no_new_node_of_a_group_it_refuses():
    block = make.option("block", price=0.0, group="block")
    assert choice(make.pending(), block, make.option("m")) == "block"
    assert choice(make.pending(refuses=["block"]), block, make.option("m")) == "m"
    assert choice(make.pending(refuses=["block"]), block) == "-"


def test_a_pod_gets_no_existing_node_of_a_group_it_refuses():
    assert where(problem([make.pending()], [make.existing(group="block")])) == ["n1"]
    assert where(problem([make.pending(refuses=["other"])], [make.existing(group="block")])) == ["n1"]
    assert where(problem([make.pending(refuses=["block"])], [make.existing(group="block")])) == ["-"]


def test_pods_that_refuse_different_groups_share_a_node_that_neither_refuses():
    pods = [make.pending("a", refuses=["x"]), make.pending("b", refuses=["y"])]
    nodes = [make.existing("n1", group="x", free={"cpu": 150, "pods": 9}), make.existing("n2", group="z")]
    assert where(problem(pods, nodes)) == ["n2", "n1"]
    assert where(problem(pods, nodes[1:])) == ["n2", "n2"]


@pytest.mark.requirement("PE-18")
def test_only_pods_that_opted_in_use_capacity_paid_by_the_hour():
    prepaid = make.option("block", price=0.0, stock="cr-1", rank=(0,))
    hourly = make.option("hourly", price=1.0, group="hourly", rank=(1,))
    modest, eager = make.pending("modest", cpu=9000, refuses=["hourly"]), make.pending("eager", cpu=9000)
    assert kind_of(problem([modest], [], [prepaid, hourly], stocks={"cr-1": 0})) == ["-"]
    assert kind_of(problem([eager], [], [prepaid, hourly], stocks={"cr-1": 0})) == ["hourly"]
    assert where(problem([modest], [make.existing(group="hourly")], [hourly])) == ["-"]
    assert where(problem([eager], [make.existing(group="hourly")], [hourly])) == ["n1"]


def test_a_volume_and_a_selector_in_different_zones_leave_the_pod_unplaced():
    pod = make.pending(volume_zones=("a",), selector={ZONE: "b"})
    assert where(problem([pod], [make.existing("n1", "a"), make.existing("n2", "b")])) == ["-"]
