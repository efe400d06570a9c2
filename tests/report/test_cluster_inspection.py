"""`tidemill inspect --kube`: which pods would die with their block, and what is in the way."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.decide.builders import NOW, block, node, pod, spec
from tidemill.model.pods import DisruptionBudget
from tidemill.report.cluster_inspection import ClusterFacts, ClusterInspection, cluster_inspection
from tidemill.report.inspection import inspection
from tidemill.report.rows import plain
from tidemill.report.survey import Survey, surveyed_instances
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-22")
CATALOG = spec().catalog


def inspected(*pods, budgets=(), **more) -> ClusterInspection:
    one = node("i-1")
    assert one.instance is not None
    assert one.kube is not None
    held = block(ends_in="90m")
    seen = Survey(NOW, "us-east-1", "arn:aws:iam::1:user/u", (held,), surveyed_instances([one.instance]))
    facts = ClusterFacts("c", (one.kube,), tuple(pods), budgets, **more)
    return cluster_inspection(facts, inspection(seen, CATALOG), CATALOG)


def test_a_pod_that_would_be_done_in_time_does_not_die():
    on = node("i-1")
    found = inspected(
        pod("short", on=on, expected="31m"), pod("long", on=on, expected="9h"), pod("silent", on=on)
    )
    assert [one.pod for one in found.dying] == ["ml/long", "ml/silent"]
    assert found.dying[1].expected_end is None
    assert all(one.comes_back for one in found.dying)


def test_grace_is_held_against_the_time_that_is_left():
    on = node("i-1")
    found = inspected(pod("quick", on=on, grace="30s"), pod("slow", on=on, grace="3h"))
    assert {one.pod: one.has_time for one in found.dying} == {"ml/quick": True, "ml/slow": False}
    assert found.dying[0].left_s == (found.dying[0].ends_at - NOW).total_seconds()
    assert json.loads(json.dumps(plain(found)))["dying"][1]["grace_s"] == 3 * 3600


def test_nodes_of_a_reservation_are_counted_and_instances_elsewhere_are_named():
    found = inspected(pod("a", on=node("i-1")))
    (held,) = found.on_blocks
    assert (len(held.nodes), held.pods, held.missing) == (1, 1, ())
    away = cluster_inspection(
        ClusterFacts("c", (), (), ()),
        inspection(
            Survey(
                NOW,
                "us-east-1",
                "arn:aws:iam::1:user/u",
                (block(),),
                surveyed_instances([node("i-1").instance]),
            ),
            CATALOG,
        ),
        CATALOG,
    )
    assert away.on_blocks[0].missing == ("i-1",)


def test_what_is_in_the_way_is_listed():
    on = node("i-1")
    closed = DisruptionBudget("Deployment/chat", 2, 0)
    one = replace(pod("chat-1", on=on), workload="Deployment/chat")
    bare = replace(pod("bare", on=on), shape=replace(pod().shape, requests=((names.CPU, 0),)))
    found = inspected(one, bare, budgets=(closed,), autoscalers=("NodePool/default",))
    assert found.blocking == (("Deployment/chat", 1),)
    assert found.without_requests == ("ml/bare",)
    assert found.autoscalers == ("NodePool/default",)


def test_a_node_of_an_accelerated_type_without_devices_is_named():
    one = node("i-1")
    labels = ((names.LABEL_TYPE, "p5.48xlarge"),)
    kube = replace(one.kube, labels=labels, allocatable=((names.CPU, 1000),))
    facts = ClusterFacts("c", (kube,), (), ())
    seen = Survey(NOW, "us-east-1", "arn:aws:iam::1:user/u", ())
    assert cluster_inspection(facts, inspection(seen, CATALOG), CATALOG).without_devices == (kube.name,)
