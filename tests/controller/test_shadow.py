"""`tidemill run --shadow`: the nodes of others count as the engine's own, nothing is written, and wishes are told."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.controller.running import Running
from tests.decide.builders import NOW, block, hourly_pool, node, pod, spec
from tidemill.controller.shadow import Assumptions, ShadowCloud, ShadowCluster, ShadowLedger, ShadowReporter
from tidemill.engine.loop import Engine
from tidemill.model.capacity import SourceKind
from tidemill.model.errors import Refused
from tidemill.model.pods import Pod
from tidemill.ports import ClusterView
from tidemill.render.shadow_text import shadow_text
from tidemill.report.shadow import ShadowReport
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-22")
POOL = hourly_pool("g6", "g6.xlarge")
SPEC = spec(POOL)


class Theirs:
    """A cluster that somebody else runs."""

    def __init__(self) -> None:
        kube = node("i-1").kube
        assert kube is not None
        capacity = ("karpenter.sh/capacity-type", "spot")
        labels = ((names.LABEL_TYPE, "g6.xlarge"), (names.LABEL_ZONE, "us-east-1a"), capacity)
        self.node = replace(kube, name="ip-10-0-0-1", instance_id="", labels=labels)
        self.pods: tuple[Pod, ...] = ()

    def view(self) -> ClusterView:
        return ClusterView((self.node,), self.pods, (), {})


def test_a_node_of_others_counts_as_launched_by_the_pool_that_may_use_its_type():
    theirs, assumed = Theirs(), Assumptions(SPEC)
    (node,) = ShadowCluster(theirs, assumed).view().nodes
    (instance,) = assumed.seen(theirs.view())[1]
    labels = dict(node.labels)
    assert (labels[names.LABEL_POOL], labels[names.LABEL_SOURCE]) == ("g6", "spot")
    assert (instance.id, instance.owner, instance.pool) == (
        "ip-10-0-0-1",
        SPEC.platform.spec.deployment,
        "g6",
    )
    assert instance.source.kind is SourceKind.SPOT
    assert assumed.nodes == 1


def test_what_did_not_change_is_the_same_object_at_the_next_look():
    theirs, assumed = Theirs(), Assumptions(SPEC)
    assert assumed.seen(theirs.view())[0][0] is assumed.seen(theirs.view())[0][0]


@pytest.mark.parametrize("label", [(names.LABEL_POOL, "g6"), (names.LABEL_TYPE, "unheard.of")])
def test_a_node_of_ours_or_of_a_type_that_no_pool_has_is_left_as_it_is(label: tuple[str, str]):
    theirs, assumed = Theirs(), Assumptions(SPEC)
    theirs.node = replace(
        theirs.node, labels=tuple(sorted({**dict(theirs.node.labels), label[0]: label[1]}.items()))
    )
    assert assumed.seen(theirs.view()) == ((theirs.node,), ())


def shadow(running: Running, reporter: ShadowReporter, theirs: Theirs) -> None:
    outside = running.outside
    clock, cloud, _, ledger = outside._ports

    def engine_of(spec: object, go_on: object) -> Engine:
        assumed = reporter.assumed = Assumptions(SPEC)
        return Engine(
            SPEC, clock, ShadowCloud(cloud, theirs, assumed), ShadowCluster(theirs, assumed),
            ShadowLedger(ledger, cloud, clock, assumed),
        )  # fmt: skip

    running.loop._engine_of = engine_of


def test_wishes_are_told_once_each_and_nothing_is_written(tmp_path: Path):
    told: list[ShadowReport] = []
    file = tmp_path / "report.jsonl"
    reporter = ShadowReporter(timedelta(hours=24), told.append, file)
    running, theirs = Running(SPEC, reporter), Theirs()
    theirs.node = replace(
        theirs.node, last_pod_event_at=NOW - timedelta(hours=3), joined_at=NOW - timedelta(hours=5)
    )
    theirs.pods = (pod(name="waits", gpus=1, selector={"only": "here"}), pod(name="starts", gpus=1))
    shadow(running, reporter, theirs)
    running.run_for(600)
    reporter.tell()
    (report,) = told
    assert report.ticks > 1
    assert report.assumed_nodes == 1
    assert running.outside.cloud.running == {}
    assert running.outside.cluster.asked == []
    assert running.outside.books.launches() == ()
    assert json.loads(file.read_text())["ticks"] == report.ticks
    text = shadow_text(report)
    assert "Nothing was changed." in text
    assert "Nodes of others that a pool may use, 1 at most, count as Tidemill's own" in text
    assert report.most_waiting >= 1


def test_every_write_is_refused():
    theirs, assumed = Theirs(), Assumptions(SPEC)
    cluster = ShadowCluster(theirs, assumed)
    for write in (
        lambda: cluster.evict("uid"),
        lambda: cluster.remove_node("n"),
        lambda: cluster.mark_ready("n"),
    ):
        with pytest.raises(Refused):
            write()


def test_an_untagged_block_that_a_pool_may_use_counts_as_adopted():
    of_others = replace(block(), owner="", pool="")
    running = Running(spec())
    running.outside.cloud.held = [of_others]
    clock, cloud, _, ledger = running.outside._ports
    assumed = Assumptions(spec())
    (adopted,) = ShadowLedger(ledger, cloud, clock, assumed).adoptions()
    assert adopted.reservation_id == of_others.id
    assert assumed.blocks == (of_others.id,)
    assert ledger.adoptions() == ()


def test_a_report_that_cannot_be_written_stops_nobody(tmp_path: Path):
    told: list[ShadowReport] = []
    reporter = ShadowReporter(timedelta(minutes=1), told.append, tmp_path)
    running = Running(SPEC, reporter)
    running.run_for(1300)
    assert told
