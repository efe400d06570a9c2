"""Groups kept in the simulated account, one look after the other: what fails does not spread, what is others' stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.sim.account import OWNER, ZONES, Account
from tests.sim.scenario_builder import platform, pool, scene
from tidemill.model.capacity import Reservation, Source, SourceKind
from tidemill.model.errors import Refused, Retryable, Throttled
from tidemill.model.nodes import Node
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
        self.spec: Spec = scene(*(pools or (pool(provisioner="asg"),)), on=on).spec
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
            nodes=tuple(Node(one, None) for one in self.cloud.instances()),
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


def test_a_launch_is_asked_for_and_what_comes_carries_its_intent():
    stand = Stand()
    block = stand.account.block(count=4)
    stand.look()
    intent = stand.ask(block, count=2)
    stand.account.wait("2m")
    assert {one.intent_id for one in stand.cloud.instances()} == {intent.id}
    assert len(stand.group.members) == 2


def test_asking_again_changes_nothing_and_neither_does_another_engine():
    stand = Stand()
    block = stand.account.block(count=4)
    stand.look()
    intent = stand.ask(block, count=2)
    stand.cloud.launch(intent, ())
    stand.account.wait("2m")
    stand.begin()
    stand.look()
    stand.cloud.launch(intent, ())
    stand.account.wait("2m")
    stand.look()
    assert stand.group.desired == len(stand.group.members) == 2


def test_what_an_intent_that_ended_did_not_get_is_taken_back():
    stand = Stand()
    block = stand.account.block(count=1)
    stand.look()
    intent = stand.ask(block, count=3)
    stand.account.cloud.groups.update(stand.group.name, maximum=3, desired=3)
    stand.account.wait("5m")
    stand.look()
    stand.ledger.write_launch(replace(intent, state=LaunchState.SETTLED))
    stand.begin()
    stand.look()
    assert stand.group.desired == len(stand.group.staying()) == 1


def test_a_call_that_was_lost_is_made_up_for():
    """The ledger says that a group was asked, and nobody asked it."""
    stand = Stand()
    block = stand.account.block(count=2)
    stand.look()
    intent = stand.account.intent(block.source, count=2, provisioner="asg", state=LaunchState.ASKED)
    stand.ledger.write_launch(intent)
    stand.look()
    assert stand.group.desired == 2


def test_a_ledger_that_cannot_be_read_does_not_hide_what_aws_shows():
    stand = Stand()
    block = stand.account.block(count=2)
    stand.look()
    intent = stand.ask(block)
    stand.account.wait("1m")
    stand.cloud.instances()
    stand.ledger.down = True
    stand.account.wait("1m")
    (one,) = stand.cloud.instances()
    assert one.intent_id == intent.id


def test_unchanged_instances_are_the_same_objects_in_the_same_tuple():
    stand = Stand()
    block = stand.account.block(count=2)
    stand.look()
    stand.ask(block, count=2)
    stand.account.wait("5m")
    first = stand.cloud.instances()
    stand.account.wait("5m")
    assert stand.cloud.instances() is first


def test_an_image_nobody_can_tell_stops_one_pool_and_not_the_others():
    other = pool("serve", provisioner="asg", nodeClassName="other")
    stand = Stand(pool(provisioner="asg"), other)
    classes = dict(stand.spec.node_classes)
    classes["other"] = classes["gpu"].model_copy(
        update={"metadata": classes["gpu"].metadata.model_copy(update={"name": "other"})}
    )
    stand.spec = replace(stand.spec, node_classes=classes)
    stand.images.unknown = "other"
    stand.begin()
    stand.account.block(name="a", pool="train")
    stand.account.block(name="b", pool="serve")
    assert stand.look() == ("SSM does not answer",)
    assert stand.group.name.startswith("mill-train-")


def test_a_pool_that_left_with_an_open_launch_stops_nobody():
    stand = Stand()
    gone = stand.account.intent(
        replace(stand.account.block().source, kind="on-demand", id=""), pool="gone", provisioner="asg"
    )
    stand.ledger.write_launch(gone)
    stand.look()
    assert stand.group.name.startswith("mill-train-")


def test_what_aws_had_no_time_for_is_done_at_the_next_look_and_what_it_refused_a_while_later(
    monkeypatch: pytest.MonkeyPatch,
):
    stand = Stand()
    stand.account.block()
    put, calls = stand.compute.put_group, []
    answers: list[Exception | None] = [Throttled("too many"), None]

    def throttled(shape: Any) -> None:
        calls.append(stand.account.now)
        answer = answers.pop(0) if answers else Refused("never")
        if answer is not None:
            raise answer
        put(shape)

    monkeypatch.setattr(stand.compute, "put_group", throttled)
    stand.look()
    assert not stand.account.cloud.groups.all()
    stand.look()
    assert len(calls) == 2
    stand.account.cloud.groups.update(stand.group.name, maximum=5)
    for _ in range(3):  # it may not be mended: asked once, and not at every look
        stand.account.wait("1m")
        stand.look()
    assert len(calls) == 3


def test_a_member_of_a_group_that_cannot_be_read_still_goes_by_its_name(monkeypatch: pytest.MonkeyPatch):
    """EC2 told to end it, its group would replace it."""
    stand = Stand()
    block = stand.account.block(count=2)
    stand.look()
    stand.ask(block, count=2)
    stand.account.wait("2m")
    stand.look()
    monkeypatch.setattr(stand.compute, "groups", lambda: ())
    goes = stand.cloud.instances()[0].id
    stand.cloud.terminate(goes)
    assert stand.group.desired == 1
    assert stand.group.members[goes].state == "Terminating:Wait"


def test_an_instance_that_left_its_group_is_ended_all_the_same():
    stand = Stand()
    block = stand.account.block(count=2)
    stand.look()
    stand.ask(block)
    stand.account.wait("2m")
    (one,) = stand.cloud.instances()
    del stand.group.members[one.id]  # somebody detached it
    stand.cloud.instances()  # the next look
    stand.cloud.terminate(one.id)
    assert stand.account.cloud.instance_histories[one.id].shutting_down_at is not None


@pytest.mark.parametrize(("status", "asked"), [("ACTIVE", 0), ("DELETE_FAILED", 0), ("UPDATING", 3)])
def test_eks_is_asked_again_soon_only_while_it_is_at_work(
    status: str, asked: int, monkeypatch: pytest.MonkeyPatch
):
    stand = Stand(pool(provisioner="managed"))
    stand.account.block()
    stand.look()
    stand.account.wait("5m")
    stand.look()
    (one,) = stand.account.cloud.node_groups.all()
    one.status = status
    stand.account.wait("11m")
    stand.look()
    read, calls = stand.compute.node_groups, []

    def counted() -> Any:
        calls.append(stand.account.now)
        return read()

    monkeypatch.setattr(stand.compute, "node_groups", counted)
    for _ in range(3):
        stand.account.wait("1m")
        stand.look()
    assert len(calls) == asked


@pytest.mark.requirement("SM-4")
@pytest.mark.parametrize(("size", "said"), [(0, True), (1, True), (2, False)])
def test_an_action_of_others_that_ends_nodes_early_is_drained_for_and_warned_of(size: int, said: bool):
    """Such as that of a stack, whose block was extended since."""
    stand = Stand()
    block = stand.with_two()
    assert block.end is not None
    at = block.end - timedelta(hours=3)
    stand.account.cloud.groups.put_schedule(stand.group.name, ScheduledAction("stack-Down-1ABC", at, size))
    stand.account.wait("6m")
    warned = stand.look()
    assert [f"stack-Down-1ABC takes it to {size}" in one for one in warned] == [True] * said
    ends = {
        one.ends_at == at and one.ends_why is not None and one.ends_why.action == "stack-Down-1ABC"
        for one in stand.cloud.instances()
    }
    assert ends == {size == 0}
    assert "stack-Down-1ABC" in stand.group.schedules  # it is theirs


@pytest.mark.requirement("SM-4")
def test_a_stack_s_action_just_before_the_deadline_is_as_it_should_be():
    stand = Stand()
    block = stand.with_two()
    assert block.end is not None
    at = block.end - timedelta(minutes=40)
    stand.account.cloud.groups.put_schedule(stand.group.name, ScheduledAction("stack-Down-1ABC", at, 0))
    stand.account.wait("6m")
    assert stand.look() == ()
    assert {one.ends_at for one in stand.cloud.instances()} == {at}


def test_node_groups_are_read_once_for_all_that_was_changed(monkeypatch: pytest.MonkeyPatch):
    """Each is described by a call of its own."""
    stand = Stand(pool(provisioner="managed"))
    for name in "abcdef":
        stand.account.block(name=name)
    read, calls = stand.compute.node_groups, []

    def counted() -> Any:
        calls.append(stand.account.now)
        return read()

    monkeypatch.setattr(stand.compute, "node_groups", counted)
    stand.look()
    assert len(stand.account.cloud.node_groups.all()) == 6
    assert len(calls) == 2  # before and after


@pytest.mark.requirement("MG-1")
def test_a_node_group_that_eks_could_not_make_is_told_of_and_made_again():
    """It would hold up a block that is paid for, and nobody would hear of it."""
    stand = Stand(pool(provisioner="managed"))
    stand.account.block()
    stand.look()
    stand.account.wait("5m")
    (failed,) = stand.account.cloud.node_groups.all()
    failed.status, failed.issues = "CREATE_FAILED", [("AccessDenied", "no service-linked role")]
    stand.begin()
    assert stand.look() == ("EKS could not make it: AccessDenied: no service-linked role",)
    for _ in range(5):
        stand.account.wait("3m")
        warned = stand.look()
    (made,) = stand.account.cloud.node_groups.all()
    assert (made is failed, made.status, warned) == (False, "ACTIVE", ())


def test_hooks_schedules_and_tags_of_others_stay():
    stand = Stand()
    stand.account.block()
    stand.look()
    groups, name = stand.account.cloud.groups, stand.group.name
    groups.hooks.put(stand.group, LifecycleHook("theirs", 600))
    groups.update(name, maximum=5)  # somebody changed it
    stand.account.wait("6m")
    stand.look()
    assert stand.group.maximum == 2  # mended
    assert set(stand.group.hooks) == {"theirs", HOOK.name}
    assert set(stand.group.schedules) == {DOWN}


@pytest.mark.requirement("SM-6")
def test_nodes_may_join_before_a_group_is_made_and_when_the_role_changes():
    stand = Stand()
    stand.account.block()
    stand.look()
    assert stand.account.cloud.node_groups.access_entries == {ROLE: "EC2_LINUX"}
    other = ROLE.replace("node", "other-node")
    stand.spec = replace(stand.spec, platform=platform(nodeRole=other, subnets=SUBNETS))
    stand.begin()
    stand.look()
    assert set(stand.account.cloud.node_groups.access_entries) == {ROLE, other}


@pytest.mark.requirement("SM-6")
def test_an_access_entry_that_could_not_be_made_is_made_at_the_next_look(monkeypatch: pytest.MonkeyPatch):
    """Its group is there by then. Also for an engine that takes over before the next look."""
    stand = Stand()
    stand.account.block()
    entries = stand.account.cloud.node_groups.access_entries
    join, asked = stand.compute.let_nodes_join, []

    def throttled(role: str) -> None:
        asked.append(role)
        if len(asked) <= 2:
            raise Throttled("too many")
        join(role)

    monkeypatch.setattr(stand.compute, "let_nodes_join", throttled)
    stand.look()
    assert (stand.group.desired, entries) == (0, {})
    stand.begin()
    stand.look()
    stand.look()
    assert entries == {ROLE: "EC2_LINUX"}
    stand.account.wait("6m")
    stand.look()
    assert len(asked) == 3  # and then no more


def test_a_member_that_died_is_replaced_by_whoever_asks_and_not_by_its_group():
    stand = Stand()
    block = stand.with_two(count=3)
    stand.look()
    died = stand.account.cloud.kill_instance()
    stand.account.wait("10m")
    assert died in stand.group.members  # it replaces nobody by itself
    stand.look()
    assert died not in stand.group.members
    stand.account.wait("10m")
    assert (stand.group.desired, len(stand.group.members)) == (1, 1)
    stand.ask(block, count=1)
    stand.account.wait("10m")
    assert len(stand.group.staying()) == 2


def test_who_died_is_taken_off_before_a_health_check_notices(monkeypatch: pytest.MonkeyPatch):
    stand = Stand()
    stand.with_two()
    stand.look()
    died, seen = stand.account.cloud.kill_instance(), stand.compute.groups

    def unaware() -> Any:
        return tuple(
            replace(one, members=tuple(replace(m, healthy=True) for m in one.members)) for one in seen()
        )

    monkeypatch.setattr(stand.compute, "groups", unaware)
    stand.account.wait("6m")
    stand.look()
    assert died not in stand.group.members
    assert (stand.group.desired, len(stand.group.staying())) == (1, 1)


def test_the_dead_do_not_stand_for_what_is_asked_for_again():
    """A group counts them as members: until they are off its list it would launch nobody."""
    stand = Stand()
    block = stand.with_two(count=3)
    stand.look()
    died = stand.account.cloud.kill_instance()
    stand.account.wait("2m")
    stand.cloud.instances()
    stand.ask(block, count=1)
    stand.account.wait("3m")
    assert died not in stand.group.members
    assert len(stand.group.staying()) == 2


def test_a_group_with_a_member_in_standby_still_gets_what_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    """It wants fewer than it has, and nobody scales it in."""
    stand = Stand()
    block = stand.with_two(count=3)
    stand.look()
    seen = stand.compute.groups
    aside = next(iter(stand.group.members))

    def with_one_aside() -> Any:
        (one,) = seen()
        members = tuple(replace(m, state="Standby") if m.instance_id == aside else m for m in one.members)
        return (replace(one, members=members, desired=one.desired - 1),)

    monkeypatch.setattr(stand.compute, "groups", with_one_aside)
    stand.cloud.instances()
    sizes: list[int] = []
    monkeypatch.setattr(stand.compute, "resize", lambda name, desired: sizes.append(desired))
    stand.ask(block, count=1)
    assert sizes == [2]


def test_a_member_that_is_ill_and_alive_is_left_to_the_engine():
    stand = Stand()
    stand.account.block(count=1)
    stand.look()
    stand.ask(stand.account.reservation("a"))
    stand.account.wait("3m")
    stand.look()
    (member,) = stand.group.members.values()
    member.healthy = False
    stand.account.wait("6m")
    stand.look()
    assert stand.group.members == {member.instance_id: member}


def test_a_group_that_somebody_suspended_is_warned_of():
    stand = Stand()
    stand.account.block()
    stand.look()
    stand.account.cloud.groups.suspend(stand.group.name, ["Launch"])
    stand.account.wait("6m")
    (sentence,) = stand.look()
    assert "somebody suspended Launch" in sentence
    assert set(stand.group.suspended) == {"Launch", *SUSPENDED}  # theirs stays


def by_the_hour(nodes: int, **given: Any) -> ComputePool:
    sources = [{"type": "on-demand", "maxHourlyUsd": 900, "maxMonthlyUsd": 90000}]
    return pool(provisioner="asg", sources=sources, limits={"nodes": nodes}, **given)


def test_a_group_by_the_hour_is_brought_up_to_date_before_it_launches_again():
    """Else limits that were raised would do nothing, and nodes of an old template be replaced for ever."""
    stand = Stand(by_the_hour(2))
    stand.ask(Source(SourceKind.ON_DEMAND), count=2)
    stand.account.wait("3m")
    stand.look()
    assert stand.group.maximum == 2
    assert stand.account.cloud.node_groups.access_entries == {ROLE: "EC2_LINUX"}
    old = stand.group.template
    more = by_the_hour(6, labels={"tier": "new"})
    stand.spec = scene(more, on=platform(nodeRole=ROLE, subnets=SUBNETS)).spec
    stand.begin()
    stand.look()
    stand.ask(Source(SourceKind.ON_DEMAND), count=3)
    stand.account.wait("3m")
    assert (stand.group.maximum, stand.group.desired) == (6, 5)
    assert {one.template for one in stand.group.members.values()} == {old, stand.group.template}
    assert stand.group.template != old


def test_limits_that_are_lowered_let_no_group_choose_whom_to_end():
    stand = Stand(by_the_hour(4))
    intent = stand.ask(Source(SourceKind.ON_DEMAND), count=3)
    stand.account.wait("3m")
    stand.look()
    stand.ledger.write_launch(replace(intent, state=LaunchState.ASKED, count=4))  # it still misses one
    stand.spec = scene(by_the_hour(1), on=platform(nodeRole=ROLE, subnets=SUBNETS)).spec
    stand.begin()
    stand.look()
    assert (stand.group.maximum, stand.group.desired) == (3, 3)
    stand.account.wait("10m")
    assert len(stand.group.staying()) == 3


def test_a_group_of_somebody_else_s_by_our_name_is_refused_and_told_of(caplog: pytest.LogCaptureFixture):
    stand = Stand()
    stand.account.block()
    stand.look()
    stand.account.cloud.groups.set_tags(stand.group.name, (("deployment", "others"),), ())
    stand.account.wait("6m")
    stand.look()
    stand.account.wait("6m")
    stand.look()
    told = [one.message for one in caplog.records if "has no tag that says it is mill's" in one.message]
    assert len(told) == len(set(told)) == 2  # the group and its schedule, once each
    assert stand.group.desired == 0
