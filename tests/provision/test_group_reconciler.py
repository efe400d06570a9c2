"""Groups kept in the simulated account, one look after the other: what fails does not spread, what is others' stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.sim.account import OWNER, ZONES, Account
from tests.sim.scenario_builder import platform, pool, scenario_with
from tidemill.model.capacity import Reservation, Source, SourceKind
from tidemill.model.errors import Refused, Retryable, Throttled
from tidemill.model.nodes import InstanceState, Node
from tidemill.model.purchases import LaunchIntent, LaunchState
from tidemill.model.world import World
from tidemill.provision import ProvisionedCloud
from tidemill.provision.asg import DOWN, HOOK, SUSPENDED
from tidemill.provision.images import PretendImages
from tidemill.sim.cloud.compute import SimCompute
from tidemill.sim.cloud.scaling_group import LifecycleHook, ScheduledAction
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.store.memory import MemoryLedger
from tidemill.wording import sentence

ROLE = "arn:aws:iam::123456789012:role/node"
SUBNETS = {zone: [f"subnet-0{zone[-1]}1"] for zone in ZONES}


class Broken(MemoryLedger):
    """A ledger that can be unreachable."""

    down = False

    def launches(self) -> tuple[LaunchIntent, ...]:
        if self.down:
            raise Retryable("the database does not answer")
        return super().launches()


class Images(PretendImages):
    """Images of one node class cannot be found out about."""

    unknown = ""

    def image_id(self, node_class: NodeClass, instance_type: str) -> str:
        if node_class.name == self.unknown:
            raise Retryable("SSM does not answer")
        return super().image_id(node_class, instance_type)


class Stand:
    """One account, one engine's hands; `look` is what a tick does besides deciding."""

    def __init__(self, *pools: ComputePool, role: str = ROLE) -> None:
        self.account = Account()
        on = platform(nodeRole=role, subnets=SUBNETS)
        self.spec: Spec = scenario_with(*(pools or (pool(provisioner="asg"),)), on=on).spec
        self.ledger = Broken(self.account.timeline, OWNER)
        self.compute = SimCompute(self.account.cloud, self.account.timeline, OWNER, SUBNETS)
        self.images = Images()
        self.begin()

    def begin(self) -> None:
        """Another engine takes over, which remembers nothing."""
        self.cloud = ProvisionedCloud(
            self.account.cloud,
            self.compute,
            self.spec,
            self.ledger,
            self.account.timeline,
            images=self.images,
        )

    def look(self) -> tuple[str, ...]:
        """What is warned of."""
        world = World(
            now=self.account.now,
            reservations=tuple(self.cloud.reservations()),
            nodes=tuple(Node(instance, None) for instance in self.cloud.instances()),
        )
        return tuple(sentence(one.reason) for one in self.cloud.reconciler.reconcile(world))

    def ask(self, on: Reservation | Source, count: int = 1, **given: Any) -> LaunchIntent:
        source = on if isinstance(on, Source) else on.source
        intent = self.account.intent(source, count=count, provisioner="asg", **given)
        self.ledger.write_launch(intent)
        assert self.cloud.launch(intent, ()) == ()
        self.ledger.write_launch(replace(intent, state=LaunchState.ASKED))
        return intent

    def with_two(self, count: int = 2) -> Reservation:
        """A block of `count` on which two nodes were asked for, and have come."""
        block = self.account.block(count=count)
        self.look()
        self.ask(block, count=2)
        self.account.wait("3m")
        return block

    @property
    def group(self) -> Any:
        (one,) = self.account.cloud.groups.all()
        return one


def test_instances_of_a_launch_are_assigned_its_intent():
    aws = Stand()
    block = aws.account.block(count=4)
    aws.look()
    intent = aws.ask(block, count=2)
    aws.account.wait("2m")
    assert {instance.intent_id for instance in aws.cloud.instances()} == {intent.id}
    assert len(aws.group.members) == 2


def test_a_repeated_launch_changes_nothing_also_from_another_engine():
    aws = Stand()
    block = aws.account.block(count=4)
    aws.look()
    intent = aws.ask(block, count=2)
    aws.cloud.launch(intent, ())
    aws.account.wait("2m")
    aws.begin()
    aws.look()
    aws.cloud.launch(intent, ())
    aws.account.wait("2m")
    aws.look()
    assert aws.group.desired == len(aws.group.members) == 2


def test_an_intent_that_ends_lowers_the_size_by_what_it_missed():
    aws = Stand()
    block = aws.account.block(count=1)
    aws.look()
    intent = aws.ask(block, count=3)
    aws.account.cloud.groups.update(aws.group.name, maximum=3, desired=3)
    aws.account.wait("5m")
    aws.look()
    aws.ledger.write_launch(replace(intent, state=LaunchState.SETTLED))
    aws.begin()
    aws.look()
    assert aws.group.desired == len(aws.group.staying()) == 1


def test_a_lost_resize_is_made_at_the_next_reconciliation():
    """The ledger says that a group was asked, and nobody asked it."""
    aws = Stand()
    block = aws.account.block(count=2)
    aws.look()
    intent = aws.account.intent(block.source, count=2, provisioner="asg", state=LaunchState.ASKED)
    aws.ledger.write_launch(intent)
    aws.look()
    assert aws.group.desired == 2


def test_instances_are_listed_while_the_ledger_cannot_be_read():
    aws = Stand()
    block = aws.account.block(count=2)
    aws.look()
    intent = aws.ask(block)
    aws.account.wait("1m")
    aws.cloud.instances()
    aws.ledger.down = True
    aws.account.wait("1m")
    (one,) = aws.cloud.instances()
    assert one.intent_id == intent.id


def test_unchanged_instances_are_the_same_objects_in_the_same_tuple():
    aws = Stand()
    block = aws.account.block(count=2)
    aws.look()
    aws.ask(block, count=2)
    aws.account.wait("5m")
    first = aws.cloud.instances()
    aws.account.wait("5m")
    assert aws.cloud.instances() is first


def test_an_unknown_image_stops_one_pool_and_not_the_others():
    other = pool("serve", provisioner="asg", nodeClassName="other")
    aws = Stand(pool(provisioner="asg"), other)
    classes = dict(aws.spec.node_classes)
    classes["other"] = classes["gpu"].model_copy(
        update={"metadata": classes["gpu"].metadata.model_copy(update={"name": "other"})}
    )
    aws.spec = replace(aws.spec, node_classes=classes)
    aws.images.unknown = "other"
    aws.begin()
    aws.account.block(name="a", pool="train")
    aws.account.block(name="b", pool="serve")
    assert aws.look() == ("SSM does not answer",)
    assert aws.group.name.startswith("mill-train-")


def test_a_removed_pool_with_an_open_launch_stops_no_other_pool():
    aws = Stand()
    gone = aws.account.intent(
        replace(aws.account.block().source, kind="on-demand", id=""), pool="gone", provisioner="asg"
    )
    aws.ledger.write_launch(gone)
    aws.look()
    assert aws.group.name.startswith("mill-train-")


def test_a_retryable_change_is_tried_at_the_next_tick_and_a_refused_one_later(
    monkeypatch: pytest.MonkeyPatch,
):
    aws = Stand()
    aws.account.block()
    put, calls = aws.compute.put_group, []
    answers: list[Exception | None] = [Throttled("too many"), None]

    def throttled(shape: Any) -> None:
        calls.append(aws.account.now)
        answer = answers.pop(0) if answers else Refused("never")
        if answer is not None:
            raise answer
        put(shape)

    monkeypatch.setattr(aws.compute, "put_group", throttled)
    aws.look()
    assert not aws.account.cloud.groups.all()
    aws.look()
    assert len(calls) == 2
    aws.account.cloud.groups.update(aws.group.name, maximum=5)
    for _ in range(3):  # it may not be mended: asked once, and not at every look
        aws.account.wait("1m")
        aws.look()
    assert len(calls) == 3


def test_a_member_of_an_unreadable_group_is_still_ended_by_name(monkeypatch: pytest.MonkeyPatch):
    """EC2 told to end it, its group would replace it."""
    aws = Stand()
    block = aws.account.block(count=2)
    aws.look()
    aws.ask(block, count=2)
    aws.account.wait("2m")
    aws.look()
    monkeypatch.setattr(aws.compute, "groups", lambda: ())
    goes = aws.cloud.instances()[0].id
    aws.cloud.terminate(goes)
    assert aws.group.desired == 1
    assert aws.group.members[goes].state == "Terminating:Wait"


def test_an_instance_detached_from_its_group_is_terminated():
    aws = Stand()
    block = aws.account.block(count=2)
    aws.look()
    aws.ask(block)
    aws.account.wait("2m")
    (one,) = aws.cloud.instances()
    del aws.group.members[one.id]  # somebody detached it
    aws.cloud.instances()  # the next look
    aws.cloud.terminate(one.id)
    assert aws.account.cloud.instance_histories[one.id].shutting_down_at is not None


@pytest.mark.parametrize(("status", "asked"), [("ACTIVE", 0), ("DELETE_FAILED", 0), ("UPDATING", 3)])
def test_node_groups_are_read_again_soon_only_while_eks_changes_them(
    status: str, asked: int, monkeypatch: pytest.MonkeyPatch
):
    aws = Stand(pool(provisioner="managed"))
    aws.account.block()
    aws.look()
    aws.account.wait("5m")
    aws.look()
    (one,) = aws.account.cloud.node_groups.all()
    one.status = status
    aws.account.wait("11m")
    aws.look()
    read, calls = aws.compute.node_groups, []

    def counted() -> Any:
        calls.append(aws.account.now)
        return read()

    monkeypatch.setattr(aws.compute, "node_groups", counted)
    for _ in range(3):
        aws.account.wait("1m")
        aws.look()
    assert len(calls) == asked


@pytest.mark.requirement("SM-4")
@pytest.mark.parametrize(("size", "said"), [(0, True), (1, True), (2, False)])
def test_an_early_scale_down_of_others_is_drained_for_and_warned_about(size: int, said: bool):
    """Such as that of a stack, whose block was extended since."""
    aws = Stand()
    block = aws.with_two()
    assert block.end is not None
    at = block.end - timedelta(hours=3)
    aws.account.cloud.groups.put_schedule(aws.group.name, ScheduledAction("stack-Down-1ABC", at, size))
    aws.account.wait("6m")
    warned = aws.look()
    assert [f"stack-Down-1ABC takes it to {size}" in one for one in warned] == [True] * said
    ends = {
        instance.ends_at == at
        and instance.ends_why is not None
        and instance.ends_why.action == "stack-Down-1ABC"
        for instance in aws.cloud.instances()
    }
    assert ends == {size == 0}
    assert "stack-Down-1ABC" in aws.group.schedules  # it is theirs


@pytest.mark.requirement("SM-4")
def test_a_stacks_scale_down_just_before_the_deadline_is_no_warning():
    aws = Stand()
    block = aws.with_two()
    assert block.end is not None
    at = block.end - timedelta(minutes=50)
    aws.account.cloud.groups.put_schedule(aws.group.name, ScheduledAction("stack-Down-1ABC", at, 0))
    aws.account.wait("6m")
    assert aws.look() == ()
    assert {instance.ends_at for instance in aws.cloud.instances()} == {at}


def test_node_groups_are_read_once_for_all_that_was_changed(monkeypatch: pytest.MonkeyPatch):
    """Each is described by a call of its own."""
    aws = Stand(pool(provisioner="managed"))
    for name in "abcdef":
        aws.account.block(name=name)
    read, calls = aws.compute.node_groups, []

    def counted() -> Any:
        calls.append(aws.account.now)
        return read()

    monkeypatch.setattr(aws.compute, "node_groups", counted)
    aws.look()
    assert len(aws.account.cloud.node_groups.all()) == 6
    assert len(calls) == 2  # before and after


@pytest.mark.requirement("MG-1")
def test_a_node_group_that_eks_could_not_create_is_warned_about_and_created_again():
    """It would hold up a block that is paid for, and nobody would hear of it."""
    aws = Stand(pool(provisioner="managed"))
    aws.account.block()
    aws.look()
    aws.account.wait("5m")
    (failed,) = aws.account.cloud.node_groups.all()
    failed.status, failed.issues = "CREATE_FAILED", [("AccessDenied", "no service-linked role")]
    aws.begin()
    assert aws.look() == ("EKS could not create it: AccessDenied: no service-linked role",)
    for _ in range(5):
        aws.account.wait("3m")
        warned = aws.look()
    (made,) = aws.account.cloud.node_groups.all()
    assert (made is failed, made.status, warned) == (False, "ACTIVE", ())


def test_hooks_schedules_and_tags_of_others_stay():
    aws = Stand()
    aws.account.block()
    aws.look()
    groups, name = aws.account.cloud.groups, aws.group.name
    groups.hooks.put(aws.group, LifecycleHook("theirs", 600))
    groups.update(name, maximum=5)  # somebody changed it
    aws.account.wait("6m")
    aws.look()
    assert aws.group.maximum == 2  # mended
    assert set(aws.group.hooks) == {"theirs", HOOK.name}
    assert set(aws.group.schedules) == {DOWN}


@pytest.mark.requirement("SM-6")
def test_the_access_entry_is_created_before_the_group_and_for_a_new_role():
    aws = Stand()
    aws.account.block()
    aws.look()
    assert aws.account.cloud.node_groups.access_entries == {ROLE: "EC2_LINUX"}
    other = ROLE.replace("node", "other-node")
    aws.spec = replace(aws.spec, platform=platform(nodeRole=other, subnets=SUBNETS))
    aws.begin()
    aws.look()
    assert set(aws.account.cloud.node_groups.access_entries) == {ROLE, other}


@pytest.mark.requirement("SM-6")
def test_a_failed_access_entry_is_created_at_the_next_tick(monkeypatch: pytest.MonkeyPatch):
    """Its group is there by then. Also for an engine that takes over before the next look."""
    aws = Stand()
    aws.account.block()
    entries = aws.account.cloud.node_groups.access_entries
    join, asked = aws.compute.let_nodes_join, []

    def throttled(role: str) -> None:
        asked.append(role)
        if len(asked) <= 2:
            raise Throttled("too many")
        join(role)

    monkeypatch.setattr(aws.compute, "let_nodes_join", throttled)
    aws.look()
    assert (aws.group.desired, entries) == (0, {})
    aws.begin()
    aws.look()
    aws.look()
    assert entries == {ROLE: "EC2_LINUX"}
    aws.account.wait("6m")
    aws.look()
    assert len(asked) == 3  # and then no more


def test_a_dead_member_is_replaced_by_an_intent_and_not_by_its_group():
    aws = Stand()
    block = aws.with_two(count=3)
    aws.look()
    died = aws.account.cloud.kill_instance()
    aws.account.wait("10m")
    assert died in aws.group.members  # it replaces nobody by itself
    aws.look()
    assert died not in aws.group.members
    aws.account.wait("10m")
    assert (aws.group.desired, len(aws.group.members)) == (1, 1)
    aws.ask(block, count=1)
    aws.account.wait("10m")
    assert len(aws.group.staying()) == 2


def test_a_dead_member_is_removed_before_the_health_check_notices(monkeypatch: pytest.MonkeyPatch):
    aws = Stand()
    aws.with_two()
    aws.look()
    died, seen = aws.account.cloud.kill_instance(), aws.compute.groups

    def unaware() -> Any:
        return tuple(
            replace(one, members=tuple(replace(m, healthy=True) for m in one.members)) for one in seen()
        )

    monkeypatch.setattr(aws.compute, "groups", unaware)
    aws.account.wait("6m")
    aws.look()
    assert died not in aws.group.members
    assert (aws.group.desired, len(aws.group.staying())) == (1, 1)


def test_dead_members_do_not_count_for_a_new_intent():
    """A group counts them as members: until they are off its list it would launch nobody."""
    aws = Stand()
    block = aws.with_two(count=3)
    aws.look()
    died = aws.account.cloud.kill_instance()
    aws.account.wait("2m")
    aws.cloud.instances()
    aws.ask(block, count=1)
    aws.account.wait("3m")
    assert died not in aws.group.members
    assert len(aws.group.staying()) == 2


def test_a_member_in_standby_does_not_count_for_an_intent(monkeypatch: pytest.MonkeyPatch):
    """It wants fewer than it has, and nobody scales it in."""
    aws = Stand()
    block = aws.with_two(count=3)
    aws.look()
    seen = aws.compute.groups
    aside = next(iter(aws.group.members))

    def with_one_aside() -> Any:
        (one,) = seen()
        members = tuple(replace(m, state="Standby") if m.instance_id == aside else m for m in one.members)
        return (replace(one, members=members, desired=one.desired - 1),)

    monkeypatch.setattr(aws.compute, "groups", with_one_aside)
    aws.cloud.instances()
    sizes: list[int] = []
    monkeypatch.setattr(aws.compute, "resize", lambda name, desired: sizes.append(desired))
    aws.ask(block, count=1)
    assert sizes == [2]


def test_an_unhealthy_running_member_is_left_to_the_engine():
    aws = Stand()
    aws.account.block(count=1)
    aws.look()
    aws.ask(aws.account.reservation("a"))
    aws.account.wait("3m")
    aws.look()
    (member,) = aws.group.members.values()
    member.healthy = False
    aws.account.wait("6m")
    aws.look()
    assert aws.group.members == {member.instance_id: member}


def test_a_suspended_group_is_warned_about():
    aws = Stand()
    aws.account.block()
    aws.look()
    aws.account.cloud.groups.suspend(aws.group.name, ["Launch"])
    aws.account.wait("6m")
    (sentence,) = aws.look()
    assert "somebody suspended Launch" in sentence
    assert set(aws.group.suspended) == {"Launch", *SUSPENDED}  # theirs stays


def by_the_hour(nodes: int, **given: Any) -> ComputePool:
    sources = [{"type": "on-demand", "maxHourlyUsd": 900, "maxMonthlyUsd": 90000}]
    return pool(provisioner="asg", sources=sources, limits={"nodes": nodes}, **given)


def test_an_hourly_group_is_updated_before_it_launches_again():
    """Else limits that were raised would do nothing, and nodes of an old template be replaced for ever."""
    aws = Stand(by_the_hour(2))
    aws.ask(Source(SourceKind.ON_DEMAND), count=2)
    aws.account.wait("3m")
    aws.look()
    assert aws.group.maximum == 2
    assert aws.account.cloud.node_groups.access_entries == {ROLE: "EC2_LINUX"}
    old = aws.group.template
    more = by_the_hour(6, labels={"tier": "new"})
    aws.spec = scenario_with(more, on=platform(nodeRole=ROLE, subnets=SUBNETS)).spec
    aws.begin()
    aws.look()
    aws.ask(Source(SourceKind.ON_DEMAND), count=3)
    aws.account.wait("3m")
    assert (aws.group.maximum, aws.group.desired) == (6, 5)
    assert {member.template for member in aws.group.members.values()} == {old, aws.group.template}
    assert aws.group.template != old


def test_lowered_limits_let_no_group_end_instances_of_its_choice():
    aws = Stand(by_the_hour(4))
    intent = aws.ask(Source(SourceKind.ON_DEMAND), count=3)
    aws.account.wait("3m")
    aws.look()
    aws.ledger.write_launch(replace(intent, state=LaunchState.ASKED, count=4))  # it still misses one
    aws.spec = scenario_with(by_the_hour(1), on=platform(nodeRole=ROLE, subnets=SUBNETS)).spec
    aws.begin()
    aws.look()
    assert (aws.group.maximum, aws.group.desired) == (3, 3)
    aws.account.wait("10m")
    assert len(aws.group.staying()) == 3


def test_a_foreign_group_with_our_name_is_refused_and_warned_about(caplog: pytest.LogCaptureFixture):
    aws = Stand()
    aws.account.block()
    aws.look()
    aws.account.cloud.groups.set_tags(aws.group.name, (("deployment", "others"),), ())
    aws.account.wait("6m")
    aws.look()
    aws.account.wait("6m")
    aws.look()
    told = [
        record.message for record in caplog.records if "has no tag that says it is mill's" in record.message
    ]
    assert len(told) == len(set(told)) == 2  # the group and its schedule, once each
    assert aws.group.desired == 0


@pytest.mark.requirement("MG-5", "MG-7")
def test_a_new_node_group_by_the_hour_is_waited_for_and_compared_while_it_has_nodes():
    """EKS sends no event when a node group is ready; and somebody may turn its node repair on."""
    aws = Stand(
        pool(
            provisioner="managed",
            sources=[{"type": "on-demand"}],
            requirements={"instanceTypes": ["g6.12xlarge"]},
        )
    )
    intent = aws.account.intent(
        Source(SourceKind.ON_DEMAND), instance_type="g6.12xlarge", provisioner="managed"
    )
    aws.look()
    assert not aws.cloud.reconciler.waits
    aws.ledger.write_launch(intent)
    assert aws.cloud.launch(intent, ()) == ()
    aws.ledger.write_launch(replace(intent, state=LaunchState.ASKED))
    aws.look()
    assert aws.cloud.reconciler.waits, "its size is set when EKS has created it"
    aws.account.wait("4m")
    aws.look()
    assert not aws.cloud.reconciler.waits
    aws.account.wait("2m")
    aws.look()
    assert len([one for one in aws.cloud.instances() if one.state is InstanceState.RUNNING]) == 1
    aws.ledger.write_launch(replace(intent, state=LaunchState.SETTLED))
    (node_group,) = aws.account.cloud.node_groups.all()
    aws.account.cloud.node_groups.configure(node_group.name, repair=True)
    aws.account.wait("15m")
    aws.look()
    assert not node_group.repair
