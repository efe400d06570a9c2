"""Every kind of every reason has exactly one sentence, made from facts its reason really has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from tests.decide.builders import ahead
from tidemill.model import planner_reasons, reasons, warning_reasons
from tidemill.model.planner_reasons import MitigationNote, MitigationNoteKind, OfferRefusal, OfferRefusalKind
from tidemill.model.reasons import (
    AdmitKind,
    AdmitReason,
    DrainKind,
    DrainReason,
    EvictReason,
    HoldKind,
    HoldReason,
    LaunchKind,
    LaunchReason,
    TerminateKind,
    TerminateReason,
)
from tidemill.model.warning_reasons import (
    MissingRequirement,
    RequirementKind,
    ShortKind,
    WarningKind,
    WarningReason,
)
from tidemill.wording import Reason, actions, handover, holds, planning, sentence, warnings

TABLES: dict[type, tuple[type[StrEnum], Mapping[Any, Any]]] = {
    reasons.InstanceEnd: (reasons.InstanceEndKind, actions.INSTANCE_ENDS),
    OfferRefusal: (OfferRefusalKind, planning.OFFER_REFUSALS),
    MitigationNote: (MitigationNoteKind, planning.MITIGATION_NOTES),
    DrainReason: (DrainKind, actions.DRAINS),
    LaunchReason: (LaunchKind, actions.LAUNCHES),
    reasons.SettleReason: (reasons.SettleKind, actions.SETTLEMENTS),
    AdmitReason: (AdmitKind, actions.ADMISSIONS),
    reasons.EndReason: (reasons.EndKind, actions.ENDS),
    reasons.RecreateReason: (reasons.RecreateKind, actions.RECREATIONS),
    reasons.HandoverReason: (reasons.HandoverKind, actions.HANDOVERS),
    TerminateReason: (TerminateKind, actions.TERMINATIONS),
    reasons.StepReason: (reasons.StepKind, actions.STEPS),
    HoldReason: (HoldKind, holds.HOLDS),
    WarningReason: (WarningKind, warnings.WARNINGS),
    MissingRequirement: (RequirementKind, handover.REQUIREMENTS),
}
RETIRED = reasons.InstanceEnd(reasons.InstanceEndKind.RETIREMENT)
ENDS = DrainReason(DrainKind.SOURCE_ENDS, at=ahead("1h"), name="cr-1")
# A fact of every type, so that each sentence can be made.
FACTS: dict[str, Any] = {
    "at": ahead("1h"), "name": "n", "pool": "p5", "detail": "Xid 79", "idle": timedelta(minutes=15),
    "saves_usd_h": 4.6, "count": 2, "of": 3, "nodes": ("n-1", "n-2"), "sources": ("cr-1", "cr-2"), "gang": "g",
    "length": timedelta(hours=1), "fee_usd": 900, "limit_usd": 800, "offer": "cb-1", "days": 2, "usd_h": 98.3,
    "workload": "Deployment/chat",
    "group": "asg-1", "action": "down", "instance_end": RETIRED,
    "expected": None, "capped_to": None, "limit": timedelta(minutes=5), "drain": ENDS, "need": timedelta(hours=2),
    "recreate": reasons.RecreateReason(reasons.RecreateKind.NO_ROOM_LEFT, "cr-1"),
    "requests": (("nvidia.com/gpu", 8),), "daemons": (("cpu", 100),), "pairs": (("nodes", "4"),),
    "next_block": "", "source": "cr-1", "next_start": None, "since": None,
}  # fmt: skip


def filled(family: type, kind: StrEnum) -> Any:
    return family(kind, **{one.name: FACTS[one.name] for one in fields(family) if one.name != "kind"})


def said(reason: Any) -> str:
    if isinstance(reason, MissingRequirement):
        return handover.requirement_sentence(reason)
    if isinstance(reason, OfferRefusal):
        return planning.offer_refusal_sentence(reason)
    if isinstance(reason, MitigationNote):
        return planning.mitigation_sentence(reason)
    if isinstance(reason, reasons.InstanceEnd):
        return actions.instance_end_sentence(reason)
    return sentence(reason)


@pytest.mark.parametrize("family", TABLES, ids=lambda family: family.__name__)
def test_every_kind_has_one_sentence_of_its_own(family: type):
    kinds, table = TABLES[family]
    assert set(table) == set(kinds)
    sentences = [said(filled(family, kind)) for kind in kinds]
    assert len(set(sentences)) == len(sentences)
    for text in sentences:
        assert text
        assert not re.search(r"None|\{|\}|Kind\.|datetime", text), text


def test_every_family_of_reasons_is_checked_here():
    """Families without a kind, or with their own sentences for each, are tested where they are made."""
    known = [*vars(reasons).values(), *vars(warning_reasons).values(), *vars(planner_reasons).values()]
    kinds = {one for one in known if isinstance(one, type) and issubclass(one, StrEnum)}
    assert kinds - {kind for kind, _ in TABLES.values()} == {StrEnum, ShortKind}


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (LaunchReason(LaunchKind.PODS_WAIT, "ml/a"), "ml/a waits"),
        (LaunchReason(LaunchKind.PODS_WAIT, "ml/a", 1), "ml/a and 1 other pod wait"),
        (LaunchReason(LaunchKind.PODS_WAIT, "ml/a", 4), "ml/a and 4 other pods wait"),
        (LaunchReason(LaunchKind.BLOCK_ACTIVE, "cr-1", 1), "block cr-1 is active: 1 node warms up"),
        (LaunchReason(LaunchKind.BLOCK_ACTIVE, "cr-1", 2), "block cr-1 is active: 2 nodes warm up"),
        (EvictReason(None), "the node is drained"),
        (DrainReason(DrainKind.EMPTY), "empty for (unknown)"),
        (
            EvictReason(ENDS, checkpoint_unanswered=True),
            "cr-1 must be empty by 2026-11-16T13:00:00Z; its checkpoint was not acknowledged in time",
        ),
        (TerminateReason(TerminateKind.DRAINED, drain=DrainReason(DrainKind.EMPTY, idle=timedelta(minutes=15))),
         "drained (empty for 15m)"),
        (AdmitReason(AdmitKind.NODE_FREE, "n-1", 0, "p5", timedelta(hours=16), timedelta(hours=8)),
         "there is room and time on n-1; it expects to run 16h, but pool p5 plans for at most 8h"),
        (HoldReason(HoldKind.TOO_LARGE, "p5", requests=(("cpu", 1500), ("memory", 2**31), ("nvidia.com/gpu", 8))),
         "it asks for 1500m cpu, 2Gi memory, 8 nvidia.com/gpu, more than any node of pool p5 has"),
        (HoldReason(HoldKind.NO_ACTIVE_CAPACITY, "p5", next_block="cr-2", next_start=ahead("2h")),
         "pool p5 has no active capacity; block cr-2 starts 2026-11-16T14:00:00Z"),
    ],
)  # fmt: skip
def test_given_a_reason_when_it_is_worded_then_people_read_this(reason: Reason, text: str):
    assert sentence(reason) == text
