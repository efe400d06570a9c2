"""What is there, what should be, and the difference, with reasons. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.provision.documents import documents
from tests.provision.test_wanted_groups import CR, END, NOW, block, one, version_of
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.ports.compute import Group, HealthIssue, Member, NodeGroup, Schedule, TemplateVersion
from tidemill.provision import asg, managed
from tidemill.provision import group_changes as changes
from tidemill.provision.group_changes import group_changes
from tidemill.provision.group_sizes import maximum_size
from tidemill.provision.group_spec import GroupKey, GroupSpec, template_inputs_of
from tidemill.provision.images import PretendImages
from tidemill.provision.removal_reasons import Evidence, RemovalKind, RemovalReason
from tidemill.provision.wanted_groups import hourly_group
from tidemill.spec import Spec

ASG = one(documents(provisioner="asg"))
MANAGED = one(documents(provisioner="managed"))
THEIRS = Schedule("Amazon EKS Node Group Capacity Scaledown Before Reservation End", END, 0, 0, by_eks=True)


def group(own: GroupSpec = ASG, **given: Any) -> Group:
    made = Group(asg.shape(own, version_of(own)), 0, 0, own.schedules)
    return replace(made, **given)


def node_group(own: GroupSpec = MANAGED, **given: Any) -> NodeGroup:
    return replace(NodeGroup(managed.shape(own, version_of(own)), "ACTIVE", 0, "eks-g"), **given)


def behind(**given: Any) -> Group:
    shape = replace(asg.shape(MANAGED, version_of(MANAGED)), name="eks-g", tags=())
    return replace(Group(shape, 0, 0, (THEIRS,), node_group=MANAGED.name), **given)


def found(
    *own: GroupSpec,
    there: changes.ExistingGroups | None = None,
    now: datetime = NOW,
    evidence: Evidence | None = None,
) -> changes.GroupChanges:
    return group_changes(own, there or changes.ExistingGroups(), now, evidence)


def knowing(*reservations: Reservation, spec: Spec | None = None) -> Evidence:
    return Evidence.of(spec or documents(provisioner="asg"), NOW, reservations)


OVER = knowing(block(state=ReservationState.EXPIRED))


def templates(*own: GroupSpec) -> list[TemplateVersion]:
    return [version_of(each) for each in own]


# --- Auto Scaling groups ------------------------------------------------------------------------------


@pytest.mark.requirement("SM-6")
def test_what_is_not_there_is_made_with_its_schedules_and_its_nodes_may_join():
    made = found(ASG).now
    assert [type(each) for each in made] == [
        changes.LetNodesJoin,
        changes.PutGroup,
        changes.PutSchedule,
        changes.PutSchedule,
    ]
    assert all(each.verb == "create" and each.reason for each in made)
    assert "access entry of arn:aws:iam::123456789012:role/ml-node" in made[0].about


@pytest.mark.requirement("SM-6")
def test_a_role_is_let_in_until_it_is_known_to_be_also_where_its_group_is_there():
    there = changes.ExistingGroups.of([group()], [], templates(ASG))
    (join,) = group_changes([ASG], there, NOW, joined_roles=set()).now
    assert isinstance(join, changes.LetNodesJoin)
    assert not group_changes([ASG], there, NOW, joined_roles={ASG.role}).now


def test_what_is_as_it_should_be_is_left_alone():
    there = changes.ExistingGroups.of([group()], [], templates(ASG))
    assert found(ASG, there=there) == changes.GroupChanges()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"subnets": ("subnet-x",)}, "its subnets"),
        ({"maximum": 5}, "its maximum size"),
        ({"hook": None}, "its hook"),
        ({"policies": ("Default",)}, "its termination policy"),
        ({"suspended": ("AZRebalance",)}, "its suspended processes"),
        ({"tags": ASG.tags[1:]}, "its tags"),
    ],
)
def test_a_group_that_differs_is_changed_and_the_reason_says_in_what(change: dict[str, Any], says: str):
    there = changes.ExistingGroups.of([group(shape=replace(group().shape, **change))], [])
    (put,) = found(ASG, there=there).now
    assert isinstance(put, changes.PutGroup)
    assert (put.verb, put.reason) == ("change", f"{says} changed")


@pytest.mark.requirement("SM-5")
@pytest.mark.parametrize("provisioner", ["asg", "managed"])
def test_a_reservation_that_shrinks_lets_no_group_choose_whom_to_end(provisioner: str):
    """Auto Scaling lowers the size of a group to its maximum size, and ends members that nobody drained."""
    spec = documents(provisioner=provisioner, sources=[{"type": "odcr"}], limits={"nodes": 8})

    def of(count: int) -> GroupSpec:
        kept = {"kind": SourceKind.ODCR, "state": ReservationState.ACTIVE, "start": NOW, "end": None}
        return one(spec, block(count=count, **kept))

    members = tuple(Member(f"i-{n}", "InService") for n in range(6))
    full = replace(behind() if of(8).managed else group(of(8)), desired=6, members=members)
    there = changes.ExistingGroups.of([full], [node_group(of(8))] if of(8).managed else [])
    assert maximum_size(of(4), full) == 6
    (put,) = found(of(4), there=there).now
    assert put.reason == "its maximum size changed"
    lower = changes.ExistingGroups.of(
        [replace(full, shape=replace(full.shape, maximum=6))],
        [node_group(replace(of(8), maximum=6))] if of(8).managed else [],
    )
    assert not found(of(4), there=lower).now  # and no lower before somebody leaves


def test_tags_that_people_add_and_schedules_they_make_are_theirs():
    own = Schedule("night", NOW + timedelta(hours=9), 1)
    shape = replace(group().shape, tags=(*ASG.tags, ("cost-centre", "7")))
    there = changes.ExistingGroups.of([group(shape=shape, schedules=(*ASG.schedules, own))], [])
    assert not found(ASG, there=there).now


@pytest.mark.requirement("SM-4")
def test_an_extension_moves_the_schedule_and_tells_from_when_to_when():
    later = one(documents(provisioner="asg"), block(end=END + timedelta(days=1)))
    moved = [
        each
        for each in found(later, there=changes.ExistingGroups.of([group()], [])).now
        if isinstance(each, changes.PutSchedule)
    ]
    (down,) = moved
    assert (down.verb, down.schedule.name) == ("change", asg.DOWN)
    assert "moved from 2026-11-19T10:49:00Z to 2026-11-20T10:49:00Z" in down.reason


def test_a_schedule_of_ours_that_is_no_longer_wanted_is_dropped():
    cold = one(documents(provisioner="asg", warm=False))
    there = changes.ExistingGroups.of([group()], [])
    dropped = [each for each in found(cold, there=there).now if isinstance(each, changes.DropSchedule)]
    assert [each.name for each in dropped] == [asg.UP]


# --- node groups --------------------------------------------------------------------------------------


def test_a_node_group_is_created_and_its_eks_action_is_left_alone():
    (put,) = found(MANAGED).now
    assert isinstance(put, changes.PutGroup)
    assert put.about == f"node group {MANAGED.name}"
    assert (
        found(MANAGED, there=changes.ExistingGroups.of([behind()], [node_group()], templates(MANAGED)))
        == changes.GroupChanges()
    )


@pytest.mark.requirement("MG-7")
def test_eks_s_node_repair_is_turned_off():
    on = node_group(shape=replace(node_group().shape, repair=True))
    (put,) = found(MANAGED, there=changes.ExistingGroups.of([behind()], [on])).now
    assert "node repair" in put.reason


@pytest.mark.requirement("MG-4")
def test_a_new_template_waits_until_the_node_group_is_empty():
    newer = one(documents(provisioner="managed", node_class={"userData": "#!/bin/sh\ntrue"}))
    full = changes.ExistingGroups.of([behind(desired=2)], [node_group(desired=2)])
    waits = found(newer, there=full)
    assert not waits.now
    ((about, sentence),) = waits.waiting
    assert about == f"node group {MANAGED.name}"
    assert "waits until it is empty" in sentence
    (put,) = found(newer, there=changes.ExistingGroups.of([behind()], [node_group()])).now
    assert put.reason == "its template changed"


def test_a_node_group_that_eks_is_changing_is_not_changed():
    on = node_group(shape=replace(node_group().shape, repair=True), status="UPDATING")
    waits = found(MANAGED, there=changes.ExistingGroups.of([behind()], [on]))
    assert not waits.now
    assert "until EKS is done: UPDATING" in waits.waiting[0][1]


@pytest.mark.requirement("SM-8")
def test_a_node_group_with_another_template_is_used_as_it_is_with_a_warning():
    """A stack made it. EKS cannot change which template it has: each try would be refused."""
    theirs = TemplateVersion("lt-stack", "stack-LaunchTemplate-1", 1)
    old = node_group(shape=replace(node_group().shape, template=theirs, tags=()))
    there = changes.ExistingGroups.of([behind()], [old], templates(MANAGED))
    plan = found(MANAGED, there=there)
    assert not plan.now
    ((about, why),) = plan.waiting
    assert MANAGED.name in about
    assert "launch template that is not the engine's" in why
    assert changes.change_before_launch(MANAGED, there) is None


def test_an_empty_node_group_that_eks_could_not_create_is_deleted():
    failed = node_group(status="CREATE_FAILED", issues=(HealthIssue("AccessDenied", "no role"),), group="")
    for own in ((MANAGED,), ()):
        (gone,) = found(*own, there=changes.ExistingGroups.of([], [failed]), evidence=OVER).now
        assert isinstance(gone, changes.RemoveGroup)
    assert (
        "AccessDenied: no role" in found(MANAGED, there=changes.ExistingGroups.of([], [failed])).now[0].reason
    )
    unseen = changes.ExistingGroups.of([], [replace(failed, group="eks-g")])
    assert not found(MANAGED, there=unseen, evidence=OVER).now  # the group behind it could not be read
    full = behind(members=(Member("i-1", "InService"),))
    assert not found(MANAGED, there=changes.ExistingGroups.of([full], [replace(failed, group="eks-g")])).now


# --- what is over -------------------------------------------------------------------------------------


def test_an_empty_unused_group_is_removed_with_its_template():
    gone = found(there=changes.ExistingGroups.of([group()], [], templates(ASG)), evidence=OVER).now
    why = RemovalReason(RemovalKind.SOURCE_OVER, CR)
    assert gone == (
        changes.RemoveGroup(ASG.name, False, why),
        changes.RemoveTemplate(ASG.template.name, why),
    )
    assert gone[0].reason == f"it is empty, and {CR} is over"


def test_templates_stay_until_their_block_is_over():
    there = changes.ExistingGroups.of([], [], templates(ASG))
    gone = Evidence.of(replace(documents(), pools={}), NOW, [block()])
    assert not found(there=there, evidence=gone).now
    assert not found(there=there, evidence=knowing()).now
    assert found(there=there, evidence=OVER).now


@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        (knowing(block(state=ReservationState.EXPIRED)), RemovalKind.SOURCE_OVER),
        (knowing(block(state=ReservationState.CANCELLED)), RemovalKind.SOURCE_OVER),
        (Evidence.of(documents(provisioner="asg"), END, [], lambda: {CR: END}), RemovalKind.SOURCE_ENDED),
        (knowing(block(), spec=replace(documents(), pools={})), RemovalKind.POOL_GONE),
        (knowing(block(), spec=documents(provisioner="managed")), RemovalKind.OTHER_PROVISIONER),
        (
            knowing(
                block(),
                spec=documents(provisioner="asg", requirements={"instanceTypes": ["p4d.24xlarge"]}),
            ),
            RemovalKind.NOT_SELECTED,
        ),
    ],
)
def test_an_empty_group_goes_for_a_reason_only(evidence: Evidence, kind: RemovalKind):
    there = changes.ExistingGroups.of([group()], [])
    (gone,) = found(there=there, evidence=evidence).now
    assert isinstance(gone, changes.RemoveGroup)
    assert (gone.why.kind, gone.verb) == (kind, "remove")
    assert gone.reason


@pytest.mark.requirement("PE-23")
@pytest.mark.parametrize(
    "evidence",
    [
        None,
        knowing(),  # AWS does not list it, and the ledger says nothing of it
        Evidence.of(documents(provisioner="asg"), NOW, [], lambda: {CR: END}),
        knowing(block()),  # wanted, and not made
        knowing(block(owner="")),  # another ledger
        knowing(block(listed=False, instance_type="p4d.24xlarge")),
        knowing(block(state=ReservationState.UNAVAILABLE)),
        knowing(block(state=ReservationState.PAYMENT_PENDING)),
    ],
)
def test_what_is_not_known_removes_no_group(evidence: Evidence | None):
    there = changes.ExistingGroups.of([group()], [], templates(ASG))
    assert not found(there=there, evidence=evidence).now


def test_a_group_that_cannot_be_made_now_stays_whatever_else_is_known():
    there = changes.ExistingGroups.of([group()], [], templates(ASG))
    assert not group_changes([], there, NOW, knowing(), unmade={(False, ASG.name)}).now


@pytest.mark.parametrize("still", [{"members": (Member("i-1", "Terminating"),)}, {"desired": 1}])
def test_a_group_with_members_or_a_desired_size_stays_with_its_template(still: dict[str, Any]):
    there = changes.ExistingGroups.of([group(**still)], [], templates(ASG))
    assert not found(there=there, evidence=OVER).now


def test_a_node_group_is_removed_before_its_template():
    there = changes.ExistingGroups.of([behind()], [node_group()], templates(MANAGED))
    why = RemovalReason(RemovalKind.SOURCE_OVER, CR)
    assert found(there=there, evidence=OVER).now == (changes.RemoveGroup(MANAGED.name, True, why),)
    deleting = changes.ExistingGroups.of([behind()], [node_group(status="DELETING")], templates(MANAGED))
    assert not found(there=deleting, evidence=OVER).now
    (last,) = found(there=changes.ExistingGroups.of([], [], templates(MANAGED)), evidence=OVER).now
    assert isinstance(last, changes.RemoveTemplate)


@pytest.mark.parametrize("provisioner", ["asg", "managed"])
def test_empty_hourly_groups_stay(provisioner: str):
    """Empty, unwanted, and with a template that nothing launches from: on a block all of it would go."""
    spec = documents(provisioner=provisioner, sources=[{"type": "spot"}])
    place = GroupKey("train", Source(SourceKind.SPOT), "p5.48xlarge", "us-east-1a")
    spot = hourly_group(spec, spec.pools["train"], place, template_inputs_of(spec, PretendImages()))
    existing = (
        changes.ExistingGroups.of([behind()], [node_group(spot)], templates(spot))
        if spot.managed
        else changes.ExistingGroups.of([group(spot)], [], templates(spot))
    )
    assert not found(there=existing, evidence=OVER).now
    assert not found(there=changes.ExistingGroups.of([], [], templates(spot)), evidence=OVER).now


def test_a_pool_that_changes_its_provisioner_gets_a_new_group_and_loses_the_old_one():
    """One line of the document: what is empty goes, what is new comes."""
    there = changes.ExistingGroups.of([group()], [], templates(ASG))
    plan = found(MANAGED, there=there, evidence=knowing(block(), spec=documents(provisioner="managed"))).now
    assert [(each.verb, type(each)) for each in plan] == [
        ("create", changes.PutGroup),
        ("remove", changes.RemoveGroup),
    ]
