"""A drain's reason survives on a Kubernetes node: the kind as a taint's value, the rest as annotations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.reasons import DrainKind, DrainReason, InstanceEnd, InstanceEndKind

TEXTS = st.text(max_size=40)
REASONS = st.builds(
    DrainReason,
    kind=st.sampled_from(DrainKind),
    at=st.none()
    | st.integers(0, 4 * 10**15).map(
        lambda us: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    ),
    name=TEXTS,
    pool=TEXTS,
    detail=TEXTS,
    instance_end=st.none() | st.builds(InstanceEnd, st.sampled_from(InstanceEndKind), TEXTS, TEXTS),
    idle=st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400)),
    saves_usd_h=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@given(REASONS)
def test_given_a_drain_reason_when_it_is_written_and_read_back_then_it_is_the_same(reason: DrainReason):
    assert DrainReason.from_annotations(reason.kind.value, reason.to_annotations()) == reason


@pytest.mark.parametrize("kind", DrainKind)
def test_every_kind_is_a_valid_taint_value(kind: DrainKind):
    assert len(kind.value) <= 63
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", kind.value)


def test_an_unknown_taint_value_gives_no_reason():
    assert DrainReason.from_annotations("from-a-later-version", {}) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("at", "soon"),
        ("at", "2026-11-16T12:00:00"),
        ("at", "0001-01-01T00:00:00+14:00"),
        ("idle-s", "a while"),
        ("idle-s", "1e300"),
        ("idle-s", "-5"),
        ("saves-usd-h", "nan"),
        ("end", "whim"),
    ],
)
def test_given_an_annotation_that_somebody_spoiled_when_it_is_read_then_it_is_left_out(key: str, value: str):
    assert DrainReason.from_annotations("empty", {key: value}) == DrainReason(DrainKind.EMPTY)


def test_given_a_node_check_that_prints_a_book_when_it_is_written_then_the_annotations_stay_small():
    reason = DrainReason(DrainKind.NODE_CHECK_FAILED, detail="x" * 400_000)
    assert sum(map(len, reason.to_annotations().values())) < 2_000
