"""The narrative of a rehearsal: each event once, in plain words."""

from __future__ import annotations

import re
from datetime import timedelta, timezone

import pytest

from tidemill.cli.loading import demo_path
from tidemill.render.display_names import DisplayNames
from tidemill.render.narrative import Narrator
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.read import load

# Asked for in time, paid two minutes into the drain.
EXTENDED = "  extensions:\n    - {at: 11h50m, block: tide-a, by: 1d, settlesAfter: 32m}\n"


@pytest.fixture
def tell(tmp_path):
    """Everything told of the demo up to an instant; `more` is added to its scenario."""

    def told(*, until, more=""):
        text = demo_path().read_text(encoding="utf-8").replace("  services:\n", f"{more}  services:\n")
        (tmp_path / "day.yaml").write_text(text, encoding="utf-8")
        loaded = load([tmp_path / "day.yaml"])
        rehearsal = Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), 1)
        narrator, lines = Narrator(rehearsal), []
        while rehearsal.next_at() < rehearsal.start + until and rehearsal.step():
            lines += narrator.news(DisplayNames({id_: name for name, id_ in rehearsal.cloud.names.items()}))
        return [f"{line.who} {line.text}" for line in lines]

    return told


def test_the_end_of_a_drain_is_shown_once_with_the_time_to_spare(tell):
    lines = tell(until=timedelta(hours=14))
    assert (
        len([line for line in lines if re.search(r"tide-a is empty, \dm \d+s before its deadline", line)])
        == 1
    )


def test_a_drain_that_an_extension_cancels_is_not_shown_as_finished(tell):
    lines = tell(until=timedelta(hours=14), more=EXTENDED)
    assert any(
        re.search(r"cancels the drain of .*: block tide-a was extended and paid for", line) for line in lines
    )
    assert not any("tide-a is empty" in line for line in lines)


def test_a_fault_is_shown_before_its_effects(tell):
    lines = tell(until=timedelta(hours=17))
    died = next(number for number, line in enumerate(lines) if "dies: its host failed" in line)
    killed = next(number for number, line in enumerate(lines) if "was killed" in line)
    assert died < killed


def test_people_read_names_and_two_time_zones_instead_of_ids_and_rfc_3339():
    names = DisplayNames({"cr-0123456789abcdef0": "tide-a"}, timezone(timedelta(hours=9), "JST"))
    said = names.readable(
        "cr-0123456789abcdef0 must be empty by 2026-11-17T11:00:00Z (i-0123456789abcdef0.ec2.internal)"
    )
    assert said == "block tide-a must be empty by 17 Nov 11:00 UTC (20:00 JST) (i-01234567)"
