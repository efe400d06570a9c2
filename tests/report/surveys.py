"""Builders of account surveys with keyword overrides. The default is one block of two p5, on a Monday at 11:30."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.nodes import Instance, InstanceState
from tidemill.ports.compute import Hook, Schedule
from tidemill.report.survey import GroupTarget, ScalingGroup, Survey, SurveyedInstance
from tidemill.spec.units import parse_duration

NOW = datetime(2026, 11, 16, 11, 30, tzinfo=UTC)
P5 = "p5.48xlarge"


def at(written: str) -> datetime:
    """`5h`: in five hours; `-5h`: five hours ago."""
    length = parse_duration(written.removeprefix("-"))
    return NOW - length if written.startswith("-") else NOW + length


def block(id_: str = "cr-1", *, ends_in: str = "2d", **given: Any) -> Reservation:
    settings: dict[str, Any] = {
        "id": id_, "kind": SourceKind.BLOCK, "instance_type": P5, "zone": "us-east-1a", "count": 2, "available": 0,
        "state": ReservationState.ACTIVE, "start": at("-1d"), "end": at(ends_in),
    }  # fmt: skip
    return Reservation(**settings | given)


def machine(
    id_: str = "i-1", on: str = "cr-1", *, kind: SourceKind = SourceKind.BLOCK, **tags: str
) -> SurveyedInstance:
    one = Instance(id_, P5, "us-east-1a", Source(kind, on), InstanceState.RUNNING, at("-1h"))
    return SurveyedInstance(one, tuple(tags.items()))


def tagged(id_: str, tags: dict[str, str], on: str = "cr-1") -> SurveyedInstance:
    return SurveyedInstance(machine(id_, on).instance, tuple(tags.items()))


def action(when: str, desired: int | None = 0, name: str = "down", **given: Any) -> Schedule:
    return Schedule(name, at(when), desired, **given)


def group(name: str = "g", on: str = "cr-1", **given: Any) -> ScalingGroup:
    """Of size 1 on a block, with a hook of ten minutes and nothing scheduled."""
    settings: dict[str, Any] = {
        "minimum": 0, "maximum": 2, "desired": 1,
        "target": GroupTarget((on,) if on else (), ("capacity-block",), (P5,)),
        "hooks": (Hook("drain", 600),), "subnets": ("subnet-a",),
    }  # fmt: skip
    return ScalingGroup(name, **settings | given)


def node_group(name: str = "train", **given: Any) -> ScalingGroup:
    tags = (("eks:cluster-name", "ml"), ("eks:nodegroup-name", name))
    return group(f"eks-{name}", tags=tags, hooks=(), **given)


def survey(*reservations: Reservation, **given: Any) -> Survey:
    settings: dict[str, Any] = {"zones": {"subnet-a": "us-east-1a", "subnet-b": "us-east-1b"}}
    who = "arn:aws:sts::123456789012:assumed-role/observer/me"
    return Survey(NOW, "us-east-1", who, reservations, **settings | given)


MINUTE = timedelta(minutes=1)
