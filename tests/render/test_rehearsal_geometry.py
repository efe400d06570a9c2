"""Lanes, ticks, step paths and the shortened journal: exact to the second, and everything is counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.render import sample
from tidemill.render.figures import percent, span, usd
from tidemill.render.rehearsal_facts import ending, facts, job_problems
from tidemill.render.rehearsal_page import script_json, shorten_journal
from tidemill.render.rehearsal_text import block_strip, gpu_strip
from tidemill.render.rehearsal_timeline import (
    Axis,
    close_ups,
    gpu_curves,
    short_spans,
    source_groups,
    step_area,
    step_line,
    ticks,
)
from tidemill.sim.scenario.outcome import Outcome, Series

AXIS = Axis(sample.START, sample.END)


def test_nodes_that_follow_each_other_share_a_lane_and_nodes_at_once_do_not(outcome: Outcome) -> None:
    alpha, bravo, on_demand = source_groups(outcome, AXIS)
    assert [len(lane) for lane in alpha.lanes] == [1, 1, 1, 1]
    assert sorted(len(lane) for lane in bravo.lanes) == [1, 1, 1, 2]
    assert [life.id for life in on_demand.lanes[0]] == ["i-0ondem0", "i-0ondem1", "i-0ondem2"]


def test_a_block_that_never_had_a_node_keeps_its_lane(outcome: Outcome) -> None:
    found = source_groups(replace(outcome, nodes=()), AXIS)
    assert [group.block and group.block.name for group in found] == ["alpha", "bravo"]


def test_the_nodes_of_a_source_are_counted_at_every_change(outcome: Outcome) -> None:
    alpha = source_groups(outcome, AXIS)[0]
    assert [count for _, count in alpha.alive] == [1, 2, 3, 4, 0]
    assert alpha.alive[0][0] == AXIS.x(outcome.nodes[0].phases[0][1])


def test_the_axis_marks_days_and_the_1130_grid_within_the_run() -> None:
    words = [tick.label for tick in ticks(AXIS)]
    assert words[:4] == ["11:30", "17 Nov", "11:30", "18 Nov"]
    month = Axis(sample.START, sample.START + timedelta(days=30))
    assert 5 <= sum(bool(tick.label) for tick in ticks(month)) <= 12


def test_a_step_path_holds_each_value_until_the_next_instant() -> None:
    assert step_line([(0, 1), (10, 3), (20, 3), (30, 0)], 4, 50) == "M0 3H10V1H30V4H50"
    assert step_area([(5, 2)], 4, 50) == "M5 2H50V4H5Z"


def test_averaging_a_dense_curve_keeps_its_gpu_hours() -> None:
    at = tuple(sample.START + timedelta(seconds=17 * n) for n in range(25_000))
    used = tuple(n * 7 % 33 for n in range(25_000))
    drawn = gpu_curves(Series(at, used, used, used), AXIS)
    assert drawn.slot_s > 0
    exact = sum(17 * value for value in used[:-1]) + used[-1] * (AXIS.length_s - 17 * 24_999)
    assert sum(value * drawn.slot_s for value in drawn.used) == pytest.approx(exact, rel=1e-3)


def test_a_service_is_drawn_as_down_exactly_during_its_downtime() -> None:
    """Not before it could be expected, nor after it was taken away: the series alone does not tell."""
    rows = ((sample.hour(0), 0), (sample.hour(1), 4), (sample.hour(2), 3), (sample.hour(3), 6))
    service = sample.service(
        min_available=4, series=rows, downtime_s=3600, down=((sample.hour(2), sample.hour(3)),)
    )
    assert short_spans(service, AXIS) == ((7200, 3600),)


def test_the_close_up_marks_a_deadline_apart_from_the_kill_time_only_where_they_differ(
    outcome: Outcome,
) -> None:
    managed = replace(sample.BLOCK_A, deadline=sample.BLOCK_A.end - timedelta(minutes=40))
    native, early = (
        close_ups(outcome, (ending(block, outcome.end),))[0].marks for block in (sample.BLOCK_A, managed)
    )
    assert [(mark.label, mark.before_end) for mark in native][-2:] == [
        ("deadline, kill", "T−30m"),
        ("end", "T"),
    ]
    assert [(mark.label, mark.before_end) for mark in early][-3:-1] == [
        ("deadline", "T−40m"),
        ("kill", "T−30m"),
    ]


def test_a_block_that_ends_after_the_rehearsal_has_not_ended(outcome: Outcome) -> None:
    open_block = sample.block(days=7, drain_from=None, drained_at=None, state="active")
    assert ending(open_block, outcome.end).drain == "not-yet"
    assert close_ups(outcome, (ending(open_block, outcome.end),)) == ()


def test_a_block_whose_last_pod_was_not_seen_to_end_is_not_drained(outcome: Outcome) -> None:
    assert ending(sample.block(drained_at=None), outcome.end).bad
    idle = sample.block(drained_at=None, gpu_hours_used=0.0)
    assert ending(idle, outcome.end).drain == "nothing-to-drain"


def test_jobs_with_the_same_reason_share_a_line(outcome: Outcome) -> None:
    found = job_problems(outcome)
    assert [(trouble.state, len(trouble.jobs)) for trouble in found] == [
        ("failed", 1),
        ("held", 3),
        ("late", 1),
    ]
    assert facts(outcome).late == 1


def test_the_shortened_journal_keeps_every_line_of_rare_kinds() -> None:
    chatty = [(sample.hour(n), "pod-started", "p", "s") for n in range(100)]
    rare = [(sample.hour(n), "fault", "f", "s") for n in range(3)]
    cut = shorten_journal((*chatty, *rare), limit=20)
    assert sum(line.kind == "fault" for line in cut.lines) == 3
    assert cut.left_out == (("pod-started", 83),)


@given(st.lists(st.sampled_from("abcdef"), max_size=300), st.integers(6, 100))
def test_the_shortened_journal_is_within_its_limit_and_counts_what_it_leaves_out(
    kinds: list[str], limit: int
) -> None:
    cut = shorten_journal(tuple((sample.START, kind, "", "") for kind in kinds), limit)
    assert len(cut.lines) <= limit
    assert len(cut.lines) + cut.left_out_count == len(kinds)


@given(st.text())
def test_json_in_a_script_has_no_character_that_could_end_it(text: str) -> None:
    assert not set(script_json([text])) & set("<>&")
    assert script_json([text]).isascii()


def test_timelines_have_the_requested_width_and_show_the_drain(outcome: Outcome) -> None:
    for columns in (20, 69, 107):
        pieces = block_strip(sample.BLOCK_A, outcome, columns)
        assert sum(len(piece) for piece, _ in pieces) == columns
        assert "drain" in [kind for _, kind in pieces]
        assert len(gpu_strip(outcome, columns)) == columns


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (59, "59s"),
        (3600, "1h"),
        (2292, "38m 12s"),
        (100_000, "1d 3h"),
        (86_460, "1d"),
        (-90, "-1m 30s"),
    ],
)
def test_a_duration_shows_its_two_largest_units(seconds: int, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words


def test_a_percentage_is_never_rounded_to_0_or_100() -> None:
    assert [percent(part, 1000) for part in (0, 3, 500, 998, 1000)] == [
        "0 %",
        "<1 %",
        "50 %",
        ">99 %",
        "100 %",
    ]
    assert percent(1, 0) == "–"
    assert [usd(amount) for amount in (0, 12.5, 9216.4, -3.0)] == ["$0", "$12.50", "$9,216", "-$3.00"]
