"""Groups that launch into a block and will not end well with it. One function a trap; what is unknown is not judged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tidemill.model.capacity import LIVE_STATES, SourceKind
from tidemill.model.ec2_facts import EKS_SCALES_DOWN_BEFORE_END
from tidemill.report.instance_endings import killed_at, size_at
from tidemill.report.survey import ScalingGroup
from tidemill.report.trap import Scene, Trap
from tidemill.report.trap import written as _at
from tidemill.spec.units import format_duration

# EKS's action is made some seconds beside the whole minute.
_ABOUT = timedelta(minutes=5)


def groups_outlive_their_block(scene: Scene) -> Iterator[Trap]:
    for group, block in scene.aimed():
        killed = killed_at(block)
        if killed is None or scene.now >= killed or group.schedules is None:
            continue
        stays = size_at(group, killed, scene.now)
        if not stays.size:
            continue
        theirs = next((one for one in group.schedules if one.theirs), None)
        if theirs is not None and theirs.at >= killed:
            yield Trap(
                "TR-14",
                group.name,
                f"EKS scales {group.called} to 0 at {_at(theirs.at)}, and EC2 starts ending UltraServer {block.id} at "
                f"{_at(killed)}, before that",
                f"drain it yourself before {_at(killed)}: aws eks update-nodegroup-config … desiredSize=0",
            )
            continue
        yield Trap(
            "outlives-block",
            group.name,
            f"{group.called} still wants {stays.size} when EC2 takes {block.id} back at {_at(killed)}: they die "
            "without a drain, and after the end it tries to launch for ever",
            _schedule_fix(group, killed),
        )


def hooks_are_cut_short(scene: Scene) -> Iterator[Trap]:
    for group, block in scene.aimed():
        killed = killed_at(block)
        if killed is None or group.node_group or group.hooks is None or not group.maximum:
            continue
        if not group.hooks:
            yield Trap(
                "no-terminate-hook",
                group.name,
                f"{group.called} on {block.id} has no terminate hook: when it scales in, nodes end under their pods",
                "aws autoscaling put-lifecycle-hook with EC2_INSTANCE_TERMINATING, and something that drains and "
                "completes it (the Node Termination Handler, or a Tidemill pool)",
            )
            continue
        shrinking, longest_s = size_at(group, killed, scene.now), max(one.heartbeat_s for one in group.hooks)
        starts = shrinking.zero_since
        if starts is not None and shrinking.by and starts + timedelta(seconds=longest_s) > killed:
            left = format_duration(killed - starts)
            yield Trap(
                "hook-too-long",
                group.name,
                f"{group.called} goes to 0 at {_at(starts)} and its hook waits up to "
                f"{format_duration(timedelta(seconds=longest_s))}; EC2 ends the instances {left} later, hook or not",
                f"scale in earlier, or let the hook wait at most {left}",
            )


def eks_action_is_behind(scene: Scene) -> Iterator[Trap]:
    for group, block in scene.aimed():
        for action in group.schedules or ():
            if (
                action.theirs
                and block.end is not None
                and block.end - action.at > EKS_SCALES_DOWN_BEFORE_END + _ABOUT
            ):
                yield Trap(
                    "eks-action-behind",
                    group.name,
                    f"EKS scales {group.called} to 0 at {_at(action.at)}, and {block.id} lasts until {_at(block.end)}: "
                    "the action did not follow the extension",
                    "EKS alone moves it: raise the size again afterwards, or make another node group on the block",
                )


def subnets_are_outside_the_zone(scene: Scene) -> Iterator[Trap]:
    for group, block in scene.aimed():
        zones = {id_: scene.survey.zones[id_] for id_ in group.subnets if id_ in scene.survey.zones}
        outside = sorted(f"{id_} ({zone})" for id_, zone in zones.items() if zone != block.zone)
        if outside:
            only = (
                "none of its subnets is there"
                if len(outside) == len(group.subnets)
                else "launches there fail"
            )
            yield Trap(
                "TR-10",
                group.name,
                f"{group.called} has subnets outside {block.zone}, the zone of {block.id}: "
                f"{', '.join(outside)}; {only}",
                "a node group keeps its subnets: make another with those of the zone alone"
                if group.node_group
                else f"set its VPCZoneIdentifier to subnets in {block.zone} alone",
            )


def groups_launch_beside_the_block(scene: Scene) -> Iterator[Trap]:
    for group, block in scene.aimed():
        beside = group.aim.beside
        if not beside and block.kind is SourceKind.BLOCK and "capacity-block" not in group.aim.markets:
            beside = (
                "its launch template names the block without InstanceMarketOptions.MarketType capacity-block"
            )
        if beside:
            yield Trap(
                "launches-beside",
                group.name,
                f"{group.called} may launch outside {block.id}, by the hour or not at all: {beside}",
                "one launch template with MarketType capacity-block and the reservation's id, and no mixed instances",
            )


def groups_have_lost_their_block(scene: Scene) -> Iterator[Trap]:
    if scene.survey.reservations is None:
        return
    usable = {one.id for one in scene.reservations if one.state in LIVE_STATES}
    for group in scene.survey.groups:
        lost = [id_ for id_ in group.aim.reservations if id_.startswith("cr-") and id_ not in usable]
        if lost and len(lost) == len(group.aim.reservations) and group.desired:
            yield Trap(
                "block-is-gone",
                group.name,
                f"{group.called} wants {group.desired} on {', '.join(lost)}, which is over or not there: "
                "every launch fails",
                f"set its size to 0, or point its launch template at a block that lasts; then delete {group.name}",
            )


def _schedule_fix(group: ScalingGroup, killed: datetime) -> str:
    if group.node_group:
        return f"set its desired size to 0 before {_at(killed)}: EKS's own scheduled action is not there"
    wait_s = max((one.heartbeat_s for one in group.hooks or ()), default=600)
    at = killed - timedelta(seconds=wait_s) - timedelta(minutes=5)
    return (
        f"aws autoscaling put-scheduled-update-group-action --auto-scaling-group-name {group.name} "
        f"--scheduled-action-name before-the-end --start-time {at:%Y-%m-%dT%H:%M:%SZ} --min-size 0 --desired-capacity 0"
    )
