"""An account in rows: who owns a reservation, what Tidemill would do with it, and what could not be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.report.surveys import action, at, block, group, machine, survey
from tidemill.catalog import load
from tidemill.model.capacity import ReservationState, SourceKind
from tidemill.report.inspection import Inspection, inspection
from tidemill.report.survey import Survey
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform


def documents(**platform: object) -> Spec:
    given = {
        "region": "us-east-1", "deployment": "mill", "cluster": {"name": "ml"}, "subnets": {"us-east-1a": ["subnet-a"]},
        **platform,
    }  # fmt: skip
    pool = {"nodeClassName": "gpu", "requirements": {"instanceFamilies": ["p5"]}, "limits": {"nodes": 4}}
    return Spec(
        Platform(metadata={"name": "mill"}, spec=given),
        load(),
        pools={"train": ComputePool(metadata={"name": "train"}, spec=pool)},
    )


def looked(told: Survey, spec: Spec | None = None) -> Inspection:
    return inspection(told, load(), spec)


def test_reservations_that_are_over_are_not_untracked():
    found = looked(
        survey(block(), block("cr-2", state=ReservationState.EXPIRED), block("cr-3", owner="mill"))
    )
    assert found.untracked == ("cr-1",)


def test_reservations_without_an_end_come_last():
    endless = block("cr-0", kind=SourceKind.ODCR, end=None)
    found = looked(survey(endless, block(ends_in="3d"), block("cr-2", ends_in="2d")))
    assert found.blocks is not None
    assert [one.id for one in found.blocks] == ["cr-2", "cr-1", "cr-0"]
    assert (found.blocks[2].kill_at, found.blocks[2].extend_until) == (None, None)


@pytest.mark.requirement("CB-17")
@pytest.mark.parametrize(
    ("changes", "would", "why"),
    [
        ({"owner": "mill"}, "own", "if the ledger knows it too"),
        ({}, "adopt", "tidemill adopt cr-1 --pool train"),
        ({"owner": "quarry"}, "leave", "belongs to deployment quarry"),
        ({"zone": "us-east-1b"}, "leave", "no subnets in us-east-1b (TR-10)"),
        ({"instance_type": "g6.xlarge"}, "leave", "no pool allows g6.xlarge"),
        ({"state": ReservationState.EXPIRED}, "leave", "it is over"),
        ({"kind": SourceKind.ODCR}, "leave", "without our owner tag"),
    ],
)
def test_what_the_documents_would_do_with_a_reservation(changes: dict[str, Any], would: str, why: str):
    (claim,) = looked(survey(block(**changes)), documents()).claims
    assert claim.would == would
    assert why in claim.why


def test_without_documents_nothing_is_ours_and_nothing_is_claimed():
    found = looked(survey(block(owner="mill"), machines=(machine(deployment="mill"),)))
    assert found.blocks is not None
    assert (found.deployment, found.claims, found.blocks[0].held) == ("", (), "another's")
    assert found.endings[0].whose == "deployment mill"


@pytest.mark.parametrize(
    ("changes", "zero", "in_time"),
    [
        ({"schedules": (action("40h"),)}, "40h", True),
        ({"schedules": ()}, None, False),
        ({"schedules": None}, None, None),
    ],
)
def test_a_group_is_in_time_late_or_unknown(changes: dict[str, Any], zero, in_time):
    (found,) = looked(survey(block(), groups=(group(**changes),))).groups
    assert (found.zero_at, found.in_time) == (zero and at(zero), in_time)


def test_a_group_on_a_reservation_without_an_end_has_nothing_to_be_in_time_for():
    odcr = block(kind=SourceKind.ODCR, end=None)
    (found,) = looked(survey(odcr, groups=(group(),))).groups
    assert found.in_time is None


def test_unreadable_blocks_are_none_and_not_an_empty_list():
    assert looked(replace(survey(), reservations=None)).blocks is None
    assert looked(survey()).blocks == ()


@pytest.mark.parametrize(
    ("changes", "unseen"),
    [({}, 1), ({"available": 1}, 0), ({"state": ReservationState.SCHEDULED, "available": 0}, 0)],
)
def test_used_slots_without_a_visible_instance_are_counted(changes: dict[str, Any], unseen: int):
    found = looked(survey(block(count=2, **changes), machines=(machine(),)))
    assert found.blocks is not None
    assert (found.blocks[0].used, found.blocks[0].unseen) == (1, unseen)
