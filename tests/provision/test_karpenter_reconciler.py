"""What the reconciler does to Karpenter's objects: above all, which of them it never removes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.provision.documents import documents
from tests.provision.test_karpenter import NOW, block, pool
from tidemill.model.capacity import ReservationState, Source, SourceKind
from tidemill.model.errors import Gone, PortError
from tidemill.model.nodes import Instance, InstanceState, KubeNode, Node
from tidemill.model.pods import Pod, PodPhase, PodShape, Terms
from tidemill.model.purchases import Spending
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.model.world import World
from tidemill.provision.karpenter.reconciler import KarpenterReconciler
from tidemill.provision.karpenter.room import NOT_WORTH_LAUNCHING
from tidemill.spec.units import parse_duration
from tidemill.wording import sentence

A = Source(SourceKind.BLOCK, "cr-a")
LATER = timedelta(minutes=5)
KARPENTER = {"karpenter": {"version": "1.8.2"}}
OVER = timedelta(minutes=40)
PINNED = {"sources": [{"type": "block", "ids": ["cr-a", "cr-b"]}], "limits": {"nodes": 8}}


class Cluster:
    """Objects as an API server keeps them: what one manager applied and does not apply any more goes."""

    def __init__(self):
        self.objects, self.calls = {}, []

    def apply(self, wanted):
        self.objects[wanted["kind"], wanted["metadata"]["name"]] = wanted
        self.calls.append(("apply", wanted["kind"], wanted["metadata"]["name"]))

    def remove(self, kind, name):
        if self.objects.pop((kind, name), None) is None:
            raise Gone(name)
        self.calls.append(("remove", kind, name))

    def listed(self, kind):
        return [one for (of, _), one in self.objects.items() if of == kind]

    @property
    def removed(self):
        return [(kind, name) for verb, kind, name in self.calls if verb == "remove"]

    def node_pool(self, name="train-cr-a"):
        return self.objects["NodePool", name]["spec"]


def node(source=A, *, provisioner="karpenter", state=InstanceState.RUNNING, name="i-1"):
    facts = {"instance_type": "p5.48xlarge", "zone": "us-east-1a", "launched_at": NOW, "owner": "tides"}
    return Node(
        Instance(id=name, source=source, state=state, pool="train", provisioner=provisioner, **facts), None
    )


def world(*blocks, nodes=(), now=NOW, **more):
    return World(now, reservations=blocks, nodes=nodes, **more)


def kept(spec=None, *blocks):
    """A cluster with the objects of a pool on a running block."""
    cluster = Cluster()
    KarpenterReconciler(spec or pool()[0], cluster).reconcile(world(*(blocks or (block("cr-a"),))))
    cluster.calls.clear()
    return cluster


def looked(cluster, spec=None, *worlds):
    """One reconciler after the other has looked: what it warned of, last."""
    reconciler = KarpenterReconciler(spec or pool()[0], cluster)
    told = ()
    for world in worlds:
        told = reconciler.reconcile(world)
    return " ".join(sentence(warning.reason) for warning in told)


# --- the money of overflow ---------------------------------------------------------------------------


@pytest.mark.requirement("PE-18")
@pytest.mark.parametrize(
    ("spent_usd", "cpus"), [(0, "837"), (800, "837"), (900, "446"), (985, "0"), (1000, "0")]
)
def test_karpenter_may_launch_nothing_by_the_hour_when_the_money_is_spent(spent_usd, cpus):
    """It knows no month: it would launch again what the engine ends, for as long as pods wait. And no more than the
    rest of the money is enough for: four nodes would have to leave before anything ran on them, two would not."""
    overflow = {"type": "on-demand", "maxHourlyUsd": 240, "maxMonthlyUsd": 1000}
    money = {**KARPENTER, "budget": {"monthlyUsd": 5000}}
    sources = [{"type": "block"}, overflow]
    spec = documents(platform=money, provisioner="karpenter", sources=sources, limits={"nodes": 9})
    spending = Spending(0, ((("train", SourceKind.ON_DEMAND), float(spent_usd)),))
    cluster = Cluster()
    reconciler = KarpenterReconciler(spec, cluster)
    reconciler.reconcile(world(block("cr-a")))
    reconciler.reconcile(world(block("cr-a"), spending=spending))
    assert cluster.node_pool("train-on-demand")["limits"]["cpu"] == cpus


MONEY = DrainReason(DrainKind.MONEY_ENDS, NOW, "on-demand", "train")


@pytest.mark.requirement("PE-18")
@pytest.mark.parametrize(
    ("grace", "drained", "launches"), [("30s", None, True), ("3h", None, False), ("30s", MONEY, False)]
)
def test_karpenter_may_launch_nothing_that_the_engine_would_drain_at_once_for_want_of_money(
    grace, drained, launches
):
    """Money for less than three hours more. How early a source is drained, its pods decide, not the pool alone."""
    overflow = {"type": "on-demand", "maxHourlyUsd": 240, "maxMonthlyUsd": 1000}
    money = {**KARPENTER, "budget": {"monthlyUsd": 5000}}
    sources = [{"type": "block"}, overflow]
    spec = documents(platform=money, provisioner="karpenter", sources=sources, limits={"nodes": 9})
    spending = Spending(0, ((("train", SourceKind.ON_DEMAND), 850.0),))
    pod = Pod("one", "ml", "one", PodShape(), Terms(grace=parse_duration(grace)), PodPhase.PENDING, NOW)
    machine = KubeNode("n-1", "i-1", NOW, True, (), draining_since=NOW, drain_reason=drained)
    nodes = (Node(node(Source(SourceKind.ON_DEMAND)).instance, machine),) if drained else ()
    cluster = Cluster()
    seen = world(nodes=nodes, pods=(pod,), spending=spending)
    KarpenterReconciler(spec, cluster).reconcile(seen)
    assert (cluster.node_pool("train-on-demand")["limits"]["cpu"] != "0") == launches


# --- a slip in a document ---------------------------------------------------------------------------


@pytest.mark.requirement("KP-4")
@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (pool(platform={"nodeRole": ""})[0], "nodeRole is not set"),
        (pool("1.5.0")[0], "upgrade it to 1.6"),
        (documents(provisioner="karpenter"), "karpenter.version"),
        (replace(pool()[0], node_classes={}), "no NodeClass"),
    ],
)
@pytest.mark.parametrize("nodes", [(), (node(),)])
def test_a_pool_with_an_error_keeps_all_its_objects(spec, told, nodes):
    cluster = kept()
    before = dict(cluster.objects)
    shown = [world(block("cr-a"), now=NOW + LATER * n, nodes=nodes) for n in range(3)]
    sentences = looked(cluster, spec, *shown)
    assert cluster.objects == before
    assert told in sentences
    assert "stay as they are" in sentences


@pytest.mark.requirement("KP-4")
@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (documents(provisioner="native", platform=KARPENTER), "no longer uses Karpenter"),
        (replace(pool()[0], pools={}), "no document defines its pool 'train'"),
        (
            pool(requirements={"instanceTypes": ["p4d.24xlarge"]})[0],
            "documents of pool train do not ask for it",
        ),
    ],
)
def test_a_running_block_that_the_documents_drop_has_its_node_pool_closed(spec, told):
    cluster = kept()
    template = cluster.node_pool()["template"]
    running = [world(block("cr-a"), nodes=(node(),), now=NOW + LATER * n) for n in range(4)]
    assert told in looked(cluster, spec, *running)
    assert cluster.removed == []
    assert cluster.node_pool()["limits"] == {"cpu": "0"}
    assert cluster.node_pool()["template"] == template
    assert cluster.calls == [("apply", "NodePool", "train-cr-a")]  # once
    looked(cluster, spec, world(block("cr-a"), now=NOW + LATER * 4))
    assert cluster.removed == [("NodePool", "train-cr-a")]


# --- what AWS and the ledger say --------------------------------------------------------------------


@pytest.mark.requirement("KP-4")
@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ([block("cr-a", state=ReservationState.PAYMENT_PENDING)], "cr-a is payment-pending"),
        ([block("cr-a", state=ReservationState.UNAVAILABLE)], "cr-a is unavailable"),
        ([block("cr-a", owner="")], "not known as ours"),
        ([], "not among the reservations that AWS lists"),
    ],
)
def test_a_running_block_that_is_listed_differently_keeps_its_nodes(shown, told):
    cluster = kept()
    before = dict(cluster.objects)
    strange = [world(*shown, nodes=(node(),), now=NOW + LATER * n) for n in range(13)]
    assert told in looked(cluster, None, *strange)
    assert cluster.removed == []
    assert cluster.node_pool()["limits"] == {"cpu": "0"}
    assert looked(cluster, None, world(block("cr-a"), nodes=(node(),), now=NOW + 2 * LATER)) == ""
    assert cluster.objects == before  # and launches again


@pytest.mark.parametrize("trouble", [{"ledger_ok": False}, {"cloud_ok": False}])
def test_without_ledger_or_cloud_nothing_is_changed(trouble):
    cluster = kept()
    looked(cluster, None, world(block("cr-a", owner=""), **trouble))
    assert cluster.calls == []
    assert KarpenterReconciler(pool()[0], cluster).planned(world(**trouble)) == ()


@pytest.mark.requirement("KP-6")
@pytest.mark.parametrize(
    "shown",
    [
        block("cr-a", ends_in=OVER),
        block("cr-a", state=ReservationState.EXPIRED),
        block("cr-a", state=ReservationState.CANCELLED),
    ],
)
def test_the_node_pool_of_a_block_that_is_over_is_removed(shown):
    cluster = kept()
    looked(cluster, None, world(shown, nodes=(node(),)), world(shown, now=NOW + LATER))
    assert cluster.removed == [("NodePool", "train-cr-a"), ("EC2NodeClass", "train")]


def test_just_before_the_deadline_the_node_pool_still_exists():
    cluster = kept()
    looked(cluster, None, world(block("cr-a", ends_in=OVER + NOT_WORTH_LAUNCHING), nodes=(node(),)))
    assert cluster.calls == []
    looked(cluster, None, world(block("cr-a", ends_in=OVER + timedelta(seconds=1)), nodes=(node(),)))
    assert cluster.removed == []


def test_the_node_pool_of_a_block_that_is_nearly_over_launches_nothing_more():
    """A node would boot only to be drained, and replicas that leave another block at that time would land on it."""
    cluster = kept()
    nearly = OVER + NOT_WORTH_LAUNCHING - timedelta(seconds=1)
    looked(cluster, None, world(block("cr-a", ends_in=nearly), nodes=(node(),)))
    assert cluster.objects["NodePool", "train-cr-a"]["spec"]["limits"]["cpu"] == "0"


def test_a_node_pool_without_nodes_is_closed_first_because_a_launch_may_be_under_way():
    cluster = kept()
    none = replace(pool()[0], pools={})
    looked(cluster, none, world(block("cr-a")))
    assert cluster.calls == [("apply", "NodePool", "train-cr-a")]
    looked(cluster, none, world(block("cr-a"), nodes=(node(),)))
    assert cluster.removed == []
    looked(cluster, none, world(block("cr-a")))
    assert cluster.removed == [("NodePool", "train-cr-a")]


@pytest.mark.requirement("PE-23")
@pytest.mark.parametrize(
    "shown",
    [
        [],
        [block("cr-a", owner="")],
        [block("cr-a", state=ReservationState.PAYMENT_PENDING)],
        [block("cr-a", state=ReservationState.UNAVAILABLE)],
    ],
)
def test_a_node_pool_is_not_removed_because_its_block_cannot_be_seen(shown):
    """Also without a node on it: it launches nothing more, and launches again once the block is seen."""
    cluster = kept()
    before = dict(cluster.objects)
    looked(cluster, None, *(world(*shown, now=NOW + LATER * n) for n in range(4)))
    assert cluster.removed == []
    looked(cluster, None, world(block("cr-a"), now=NOW + 4 * LATER))
    assert cluster.objects == before


def test_a_node_pool_goes_when_the_ledger_says_that_its_block_ended_and_aws_lists_it_no_more():
    cluster = kept()
    ends = {"cr-a": NOW}
    reconciler = KarpenterReconciler(pool()[0], cluster, lambda: ends)
    for n in range(3):
        reconciler.reconcile(world(now=NOW + LATER * n))
    assert cluster.removed == [("NodePool", "train-cr-a"), ("EC2NodeClass", "train")]


@pytest.mark.parametrize(
    "other",
    [
        node(Source(SourceKind.BLOCK, "cr-b")),
        node(provisioner="native"),
        node(state=InstanceState.SHUTTING_DOWN),
        Node(
            None,
            KubeNode("n", "", NOW, True, (), labels=(("karpenter.sh/nodepool", "another"),)),
        ),
    ],
)
def test_nodes_of_other_pools_keep_no_node_pool(other):
    cluster = kept()
    none, shown = replace(pool()[0], pools={}), block("cr-a")
    looked(cluster, none, world(shown, nodes=(other,)), world(shown, nodes=(other,), now=NOW + LATER))
    assert ("NodePool", "train-cr-a") in cluster.removed


@pytest.mark.parametrize(
    "labels",
    [
        {"karpenter.sh/nodepool": "train-cr-a"},
        {"tidemill.dev/pool": "train", "tidemill.dev/source": "cr-a"},
    ],
)
def test_a_node_whose_instance_is_not_known_counts_too(labels):
    cluster = kept()
    there = Node(None, KubeNode("n", "i-9", NOW, True, (), labels=tuple(labels.items())))
    looked(cluster, None, *(world(nodes=(there,), now=NOW + LATER * n) for n in range(3)))
    assert cluster.removed == []


def test_warm_node_pools_keep_their_replicas_when_they_are_closed():
    spec = pool("1.8.0", static=True, warm=True)[0]
    cluster = kept(spec)
    looked(cluster, spec, world(nodes=(node(),)))
    own = cluster.node_pool("train-cr-a-warm")
    assert (own["replicas"], own["limits"]) == (4, {"nodes": "0"})


def test_a_reservation_is_selected_by_its_id_while_its_nodes_run():
    """A node class that selects it no more would make them drift."""
    spec = pool(**PINNED)[0]
    a, b = block("cr-a", tags=()), block("cr-b", tags=())
    cluster = kept(spec, a, b)

    def selected():
        return cluster.objects["EC2NodeClass", "train"]["spec"]["capacityReservationSelectorTerms"]

    looked(cluster, spec, *(world(b, nodes=(node(),), now=NOW + LATER * n) for n in range(2)))
    assert selected() == [{"id": "cr-b"}, {"id": "cr-a"}]
    looked(cluster, spec, world(b, now=NOW + 2 * LATER))
    assert selected() == [{"id": "cr-b"}, {"id": "cr-a"}]  # not listed is not over
    over = replace(a, state=ReservationState.EXPIRED)
    looked(cluster, spec, world(over, b, now=NOW + 3 * LATER))
    assert selected() == [{"id": "cr-b"}]


# --- whose they are ---------------------------------------------------------------------------------


@pytest.mark.requirement("PE-23")
def test_a_node_pool_with_only_the_deployment_label_is_not_ours():
    cluster = kept()
    theirs = {"kind": "NodePool", "metadata": {"name": "web", "labels": {"deployment": "tides"}}, "spec": {}}
    cluster.objects["NodePool", "web"] = theirs
    looked(cluster, None, *(world(now=NOW + LATER * n) for n in range(3)))
    assert cluster.objects["NodePool", "web"] == theirs


@pytest.mark.requirement("PE-23")
@pytest.mark.parametrize("key", [("EC2NodeClass", "train"), ("NodePool", "train-cr-a")])
def test_an_object_of_somebody_else_with_our_name_is_not_overwritten(key):
    cluster = Cluster()
    theirs = {"kind": key[0], "metadata": {"name": key[1]}, "spec": {}}
    cluster.objects[key] = theirs
    told = looked(cluster, None, world(block("cr-a")))
    assert cluster.objects == {key: theirs}
    assert "somebody else's" in told


# --- what changed -----------------------------------------------------------------------------------

TAINTED = {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        (TAINTED, {}, lambda found: "taints" not in found["template"]["spec"]),
        ({"labels": {"team": "a"}}, {}, lambda found: "team" not in found["template"]["metadata"]["labels"]),
        (
            {"sources": [{"type": "on-demand"}], "limits": {"cpu": "400", "memory": "1Ti"}},
            {"sources": [{"type": "on-demand"}], "limits": {"cpu": "400"}},
            lambda found: found["limits"] == {"cpu": "400"},
        ),
    ],
)
def test_a_field_removed_from_the_documents_is_removed_from_the_objects(before, after, gone):
    cluster = kept(pool(**before)[0])
    spec, shown = pool(**after)[0], world(block("cr-a"))
    name = "train-cr-a" if "sources" not in after else "train-on-demand"
    assert not gone(cluster.node_pool(name))
    looked(cluster, spec, shown)
    assert gone(cluster.node_pool(name))
    assert cluster.calls == [("apply", "NodePool", name)]
    assert KarpenterReconciler(spec, cluster).planned(shown) == ()


def test_fields_that_others_add_stay_and_are_no_change():
    cluster = kept()
    cluster.node_pool()["template"]["metadata"]["annotations"] = {"team": "a"}
    looked(cluster, None, world(block("cr-a")))
    assert cluster.calls == []


def test_a_removal_that_fails_leaves_the_node_class():
    class Stubborn(Cluster):
        def remove(self, kind, name):
            raise PortError("the API server is away")

    cluster = Stubborn()
    KarpenterReconciler(pool()[0], cluster).reconcile(world(block("cr-a")))
    looked(cluster, None, *(world(block("cr-a", ends_in=OVER), now=NOW + LATER * n) for n in range(3)))
    assert len(cluster.objects) == 2


# --- what is wanted is worked out again when what it follows from changes ------------------------------


@pytest.mark.parametrize("kind", [SourceKind.BLOCK, SourceKind.ODCR])
def test_a_reservation_that_ends_while_nothing_else_changes_loses_its_node_pool(kind):
    spec, _ = pool(sources=[{"type": kind.value}], limits={"nodes": 8})
    cluster, reserved = Cluster(), block("cr-a", ends_in=timedelta(hours=3), kind=kind)
    reconciler, looks = KarpenterReconciler(spec, cluster), range(4 * 12)
    there = []
    for look in looks:  # every five minutes, with the same reservation
        reconciler.reconcile(world(reserved, now=NOW + look * LATER))
        there.append(("NodePool", "train-cr-a") in cluster.objects)
    over = timedelta(hours=3) - (OVER if kind is SourceKind.BLOCK else timedelta(0))
    assert there == [look * LATER < over for look in looks]


def test_what_somebody_changed_is_put_back_by_a_look_that_wants_the_same_as_the_last():
    cluster, spec = Cluster(), pool()[0]
    reconciler = KarpenterReconciler(spec, cluster)
    reconciler.reconcile(world(block("cr-a")))
    meant = cluster.node_pool()
    changed = cluster.objects["NodePool", "train-cr-a"]
    cluster.objects["NodePool", "train-cr-a"] = {**changed, "spec": {**meant, "weight": 1}}
    reconciler.reconcile(world(block("cr-a"), now=NOW + LATER))
    assert cluster.node_pool() == meant
