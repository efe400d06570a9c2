"""The checker finds each broken rule between one pod and one node, and accepts the same thing done right."""

from __future__ import annotations

import dataclasses

import pytest

from tests.benchmarks import problems as make
from tests.benchmarks.problems import SOURCE, ZONE, fault_kinds, having, problem, written_solution
from tidemill.bench.checker.check import check
from tidemill.decide.packer.problem import NewNode, Solution
from tidemill.model.labels import Expression, Taint, Toleration

# --- every pod once ---------------------------------------------------------------------------------------


def test_accepts_a_solution_with_every_pod_once():
    stated = problem(
        [make.pending("a"), make.pending("b"), make.pending("c")], [make.existing("n1")], [make.option("m")]
    )
    assert fault_kinds(stated, "n1 m -") == []


def test_finds_a_pod_that_is_nowhere():
    stated = problem([make.pending("a"), make.pending("b")], [make.existing()])
    (fault,) = check(stated, Solution({0: [0]}))
    assert (fault.kind, fault.objects) == ("lost", ("b",))


@pytest.mark.parametrize(
    "solution",
    [Solution({0: [0, 0]}), Solution({0: [0]}, unplaced={0: "why"}), Solution({0: [0], 1: [0]})],
    ids=["same-place", "placed-and-left-out", "two-places"],
)
def test_finds_a_pod_that_is_placed_twice(solution):
    stated = problem([make.pending()], [make.existing("n1"), make.existing("n2")])
    assert [fault.kind for fault in check(stated, solution)] == ["twice"]


def test_finds_nodes_and_pods_that_the_problem_does_not_have():
    stated = problem([make.pending()], [make.existing()], [make.option("m")])
    foreign = NewNode(make.option("m"), [0])  # equal to one of the problem's, and still not one of them
    assert [f.kind for f in check(stated, Solution(opened=[foreign]))] == ["stranger"]
    assert "stranger" in [f.kind for f in check(stated, Solution({7: [0]}))]
    assert "stranger" in [f.kind for f in check(stated, Solution({0: [0, 5]}))]


def test_finds_a_node_without_pods_and_an_unplaced_pod_without_reason():
    stated = problem([make.pending()], [make.existing()], [make.option()])
    assert [f.kind for f in check(stated, Solution({0: [0]}, [NewNode(stated.options[0])]))] == ["empty-node"]
    assert [f.kind for f in check(stated, Solution(unplaced={0: ""}))] == ["no-reason"]


# --- resources --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("each", "found"), [(5_000, []), (5_001, ["resources"])])
def test_adds_up_requests_on_existing_and_opened_nodes(each, found):
    two = [make.pending("a", cpu=each), make.pending("b", cpu=each)]
    assert fault_kinds(problem(two, [make.existing("n1")]), "n1 n1") == found
    assert fault_kinds(problem(two, [], [make.option("m")]), "m m") == found


def test_a_node_has_none_of_a_resource_it_does_not_list():
    stated = problem([make.pending(requests={"nvidia.com/gpu": 1})], [make.existing("n1")])
    assert fault_kinds(stated, "n1") == ["resources"]
    stated = problem([make.pending(requests={"nvidia.com/gpu": 0})], [make.existing("n1")])
    assert fault_kinds(stated, "n1") == []


def test_any_resource_counts():
    room = {"cpu": 1000, "pods": 9, "vpc.amazonaws.com/efa": 4}
    stated = problem(
        [make.pending("a", requests={"vpc.amazonaws.com/efa": 4}), make.pending("b")],
        [make.existing("n1", free=room)],
    )
    assert fault_kinds(stated, "n1 n1") == []
    stated = problem([make.pending(requests={"vpc.amazonaws.com/efa": 5})], [make.existing("n1", free=room)])
    assert fault_kinds(stated, "n1") == ["resources"]


@pytest.mark.parametrize(("slots", "found"), [(2, []), (1, ["resources"])])
def test_each_pod_takes_one_of_the_pod_slots(slots, found):
    stated = problem(
        [make.pending("a"), make.pending("b")], [make.existing("n1", free={"cpu": 10_000, "pods": slots})]
    )
    assert fault_kinds(stated, "n1 n1") == found


def test_a_request_of_zero_fits_on_an_over_committed_node():
    stated = problem([make.pending(cpu=0)], [make.existing("n1", free={"cpu": -50, "pods": 1})])
    assert fault_kinds(stated, "n1") == []
    stated = problem([make.pending(cpu=1)], [make.existing("n1", free={"cpu": -50, "pods": 1})])
    assert fault_kinds(stated, "n1") == ["resources"]


# --- labels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "values", "label", "fits"),
    [
        ("In", ("x", "y"), "y", True),
        ("In", ("x",), "y", False),
        ("In", ("x",), None, False),
        ("In", (), "x", False),
        ("NotIn", ("x",), "y", True),
        ("NotIn", ("x",), "x", False),
        ("NotIn", ("x",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "x", False),
        ("Gt", ("8",), "9", True),
        ("Gt", ("8",), "10", True),  # as numbers, not as words
        ("Gt", ("8",), "8", False),
        ("Gt", ("8",), "many", False),
        ("Gt", ("8",), "1_0", False),
        ("Gt", ("8",), None, False),
        ("Lt", ("8",), "7", True),
        ("Lt", ("8",), "-3", True),
        ("Lt", ("8",), "8", False),
        ("Lt", ("8",), None, False),
    ],
)
def test_reads_node_affinity_operators_as_kubernetes_does(operator, values, label, fits):
    labels = {} if label is None else {"k": label}
    picky = make.pending(node_terms=((Expression("k", operator, values),),))
    expected = [] if fits else ["node-affinity"]
    assert fault_kinds(problem([picky], [make.existing("n1", labels=labels)]), "n1") == expected
    assert fault_kinds(problem([picky], [], [make.option("m", labels=labels)]), "m") == expected


def test_an_unknown_operator_is_an_error():
    stated = problem([make.pending(node_terms=(having("k", "v", operator="Near"),))], [make.existing("n1")])
    with pytest.raises(ValueError, match="no such operator"):
        fault_kinds(stated, "n1")


def test_node_affinity_terms_are_alternatives_and_their_expressions_are_not():
    both = (*having("k", "1"), *having("j", "2"))
    node = make.existing("n1", labels={"k": "1"})
    assert fault_kinds(problem([make.pending(node_terms=(both,))], [node]), "n1") == ["node-affinity"]
    assert fault_kinds(problem([make.pending(node_terms=(both, having("k", "1")))], [node]), "n1") == []


def test_a_node_selector_and_node_affinity_must_both_hold():
    node = make.existing("n1", labels={"k": "1"})
    assert fault_kinds(problem([make.pending(node_selector=(("k", "1"),))], [node]), "n1") == []
    assert fault_kinds(problem([make.pending(node_selector=(("k", "2"),))], [node]), "n1") == [
        "node-affinity"
    ]
    assert fault_kinds(problem([make.pending(node_selector=(("z", "1"),))], [node]), "n1") == [
        "node-affinity"
    ]
    mixed = make.pending(node_selector=(("k", "1"),), node_terms=(having("k", "9"),))
    assert fault_kinds(problem([mixed], [node]), "n1") == ["node-affinity"]


def test_a_pod_may_name_its_host():
    pinned = make.pending(node_selector=(("kubernetes.io/hostname", "n2"),))
    stated = problem([pinned], [make.existing("n1"), make.existing("n2")], [make.option("m")])
    assert fault_kinds(stated, "n2") == []
    assert fault_kinds(stated, "n1") == ["node-affinity"]
    assert fault_kinds(stated, "m") == ["node-affinity"]


def test_preferences_are_not_rules():
    wishing = make.pending(preferred_nodes=((1, having("k", "never")),))
    assert fault_kinds(problem([wishing], [make.existing("n1")]), "n1") == []


# --- taints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (None, False),
        (Toleration("team", "Equal", "red"), True),
        (Toleration("team", "Equal", "blue"), False),
        (Toleration("other", "Equal", "red"), False),
        (Toleration("team", "Exists"), True),
        (Toleration("team", "Exists", effect="NoSchedule"), True),
        (Toleration("team", "Exists", effect="NoExecute"), False),
        (Toleration("", "Exists"), True),
    ],
)
def test_reads_tolerations_as_kubernetes_does(toleration, fits):
    tolerant = make.pending(tolerations=(toleration,) if toleration else ())
    taints = (Taint("team", "red"),)
    expected = [] if fits else ["taint"]
    assert fault_kinds(problem([tolerant], [make.existing("n1", taints=taints)]), "n1") == expected
    assert fault_kinds(problem([tolerant], [], [make.option("m", taints=taints)]), "m") == expected


@pytest.mark.parametrize(
    ("effect", "found"), [("NoSchedule", ["taint"]), ("NoExecute", ["taint"]), ("PreferNoSchedule", [])]
)
def test_only_taints_that_repel_count(effect, found):
    assert (
        fault_kinds(problem([make.pending()], [make.existing("n1", taints=(Taint("k", "v", effect),))]), "n1")
        == found
    )


def test_every_taint_needs_its_toleration():
    half = make.pending(tolerations=(Toleration("one", "Exists"),))
    assert fault_kinds(problem([half], [make.existing("n1", taints=(Taint("one"), Taint("two")))]), "n1") == [
        "taint"
    ]


# --- ports and volumes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (("TCP", 80, ""), ("TCP", 80, ""), True),
        (("TCP", 80, ""), ("TCP", 81, ""), False),
        (("TCP", 80, ""), ("UDP", 80, ""), False),
        (("", 80, ""), ("TCP", 80, ""), True),
        (("TCP", 80, "10.0.0.1"), ("TCP", 80, "10.0.0.2"), False),
        (("TCP", 80, "10.0.0.1"), ("TCP", 80, "10.0.0.1"), True),
        (("TCP", 80, "0.0.0.0"), ("TCP", 80, "10.0.0.1"), True),
        (("TCP", 80, ""), ("TCP", 80, "10.0.0.1"), True),
    ],
)
def test_ports_clash_by_protocol_number_and_address(one, other, clash):
    expected = ["host-port"] if clash else []
    two = [make.pending("a", host_ports=(one,)), make.pending("b", host_ports=(other,))]
    assert fault_kinds(problem(two, [make.existing("n1"), make.existing("n2")]), "n1 n1") == expected
    assert fault_kinds(problem(two, [make.existing("n1"), make.existing("n2")]), "n1 n2") == []
    settled = make.existing("n1", existing_pods=(make.running(host_ports=(other,)),))
    assert fault_kinds(problem(two[:1], [settled]), "n1") == expected


def test_a_pod_follows_its_volumes():
    bound = make.pending(volume_zones=("b", "c"))
    existing_nodes = [
        make.existing("n1", zone="a"),
        make.existing("n2", zone="b"),
        make.existing("n3", zone=None),
    ]
    stated = problem([bound], existing_nodes, [make.option("m", zone="a"), make.option("m", zone="c")])
    assert fault_kinds(stated, "n1") == ["volume-zone"]
    assert fault_kinds(stated, "n2") == []
    assert fault_kinds(stated, "n3") == ["volume-zone"]
    assert fault_kinds(stated, "m@a") == ["volume-zone"]
    assert fault_kinds(stated, "m@c") == []


# --- refused groups and money -----------------------------------------------------------------------------


def test_a_pod_may_not_use_an_existing_node_of_a_group_it_refuses():
    stated = problem(
        [make.pending(refuses=["ends-soon"])],
        [make.existing("n1", group="ends-soon"), make.existing("n2", group="lasts")],
    )
    assert fault_kinds(stated, "n1") == ["refused"]
    assert fault_kinds(stated, "n2") == []


def test_a_pod_may_not_use_a_new_node_of_a_group_it_refuses():
    stated = problem(
        [make.pending(refuses=["ends-soon"])],
        [],
        [make.option("m", group="ends-soon"), make.option("k", group="lasts")],
    )
    assert fault_kinds(stated, "m") == ["refused"]
    assert fault_kinds(stated, "k") == []


def test_a_pod_that_refuses_nothing_may_use_every_group():
    stated = problem(
        [make.pending("a"), make.pending("b")],
        [make.existing("n1", group="ends-soon")],
        [make.option("m", group="lasts")],
    )
    assert fault_kinds(stated, "n1 m") == []


@pytest.mark.requirement("PE-18")
def test_only_pods_that_opted_in_use_capacity_paid_by_the_hour():
    stated = problem(
        [make.pending("no", refuses=["hourly"]), make.pending("yes")],
        [make.existing("n1", group="hourly")],
        [make.option("m", group="hourly")],
    )
    assert fault_kinds(stated, "- n1") == []
    assert fault_kinds(stated, "n1 -") == ["refused"]
    assert fault_kinds(stated, "m -") == ["refused"]


@pytest.mark.requirement("PE-5")
def test_a_batch_may_reach_a_limit_and_not_exceed_it():
    big = make.option("m", budget="pool", consumes={"cpu": 4000, "nodes": 1})
    replicas = [make.pending("a"), make.pending("b"), make.pending("c")]
    stated = problem(replicas, [], [big], budgets={"pool": {"cpu": 8000}})
    assert fault_kinds(stated, "m:1 m:2 m:2") == []
    assert fault_kinds(stated, "m:1 m:2 m:3") == ["limit"]
    assert fault_kinds(
        dataclasses.replace(stated, budgets={"pool": {"cpu": 9**9, "nodes": 2}}), "m:1 m:2 m:3"
    ) == ["limit"]
    assert fault_kinds(dataclasses.replace(stated, budgets={"pool": {}}), "m:1 m:2 m:3") == []
    assert fault_kinds(dataclasses.replace(stated, budgets={}), "m:1 m:2 m:3") == ["limit"]


def test_options_that_share_a_budget_or_a_stock_are_counted_together():
    pair = [make.option(n, stock="cr-1", budget="pool", consumes={"nodes": 1}) for n in ("m", "k")]
    stated = problem(
        [make.pending("a"), make.pending("b")], [], pair, stocks={"cr-1": 2}, budgets={"pool": {"nodes": 1}}
    )
    assert fault_kinds(stated, "m k") == ["limit"]
    stated = dataclasses.replace(stated, stocks={"cr-1": 1}, budgets={"pool": {"nodes": 2}})
    assert fault_kinds(stated, "m k") == ["stock"]
    assert fault_kinds(stated, "m m") == []
    assert fault_kinds(dataclasses.replace(stated, stocks={}), "m m") == ["stock"]


# --- gangs ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-11")
def test_a_gang_is_placed_whole_or_not_at_all():
    stated = problem(
        [make.pending("a", gang="g"), make.pending("b", gang="g")], [make.existing("n1"), make.existing("n2")]
    )
    assert fault_kinds(stated, "n1 n2") == []
    assert fault_kinds(stated, "- -") == []
    assert fault_kinds(stated, "n1 -") == ["gang"]


def test_a_gang_of_which_members_are_missing_does_not_start():
    stated = problem(
        [make.pending("a", gang="g", size=3), make.pending("b", gang="g", size=3)], [make.existing("n1")]
    )
    assert fault_kinds(stated, "n1 n1") == ["gang"]
    assert fault_kinds(stated, "- -") == []


def test_gangs_of_one_name_in_two_namespaces_are_two():
    stated = problem(
        [make.pending("a", gang="g"), make.pending("b", gang="g", namespace="other")], [make.existing("n1")]
    )
    assert fault_kinds(stated, "n1 n1") == ["gang"]


@pytest.mark.requirement("PE-11")
def test_a_gang_stays_in_one_zone_and_on_one_source():
    pair = [make.pending("a", gang="g"), make.pending("b", gang="g")]
    zones = problem(
        pair, [make.existing("n1", zone="a"), make.existing("n2", zone="b"), make.existing("n3", zone="a")]
    )
    assert fault_kinds(zones, "n1 n2") == ["gang"]
    assert fault_kinds(zones, "n1 n3") == []
    first, second = {SOURCE: "cr-1"}, {SOURCE: "cr-2"}
    sources = [
        make.existing("n1", labels=first),
        make.existing("n2", labels=second),
        make.existing("n3", labels=first),
        make.existing("n4"),
    ]
    stated = problem(pair, sources, [make.option("m", labels=first)])
    assert fault_kinds(stated, "n1 n2") == ["gang"]
    assert fault_kinds(stated, "n1 n4") == ["gang"]  # a node of no known source is not of the same one
    assert fault_kinds(stated, "n1 n3") == []
    assert fault_kinds(stated, "n1 m") == []


def test_a_fault_names_what_it_is_about():
    stated = problem([make.pending("a", node_selector=((ZONE, "b"),))], [make.existing("n1")])
    (fault,) = check(stated, written_solution(stated, "n1"))
    assert fault.objects == ("a", "n1")
    assert fault.sentence == (
        "a is on n1, but its node selector or required node affinity does not match the labels"
    )
