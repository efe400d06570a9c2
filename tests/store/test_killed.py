"""Killed without warning, anywhere: what was answered is there, and nothing is there by half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.killed import Work
from tests.store.ledgers import Opener
from tidemill.store.rows import document
from tidemill.store.sql import SqlLedger

MOMENTS = 60  # more than there are, so that the last one ends by itself


@pytest.mark.requirement("CB-4")
def test_killed_between_any_two_statements_it_is_as_before_or_as_after(
    url: str, tmp_path: Path, opened: Opener
):
    ledger = opened(url)  # its tables are there: what is killed is the writing
    command = [sys.executable, "-m", "tests.store.killed", url, str(tmp_path), str(MOMENTS)]
    ends = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert ends.count("killed") > 40
    assert ends[-1] == "ended", "there are more moments than that"
    for moment in range(MOMENTS):
        answered = (tmp_path / str(moment)).read_text().splitlines()
        is_whole(ledger, Work(moment), len(answered), ended=ends[moment] == "ended")


def is_whole(ledger: SqlLedger, work: Work, answered: int, *, ended: bool) -> None:
    """Every answered step is there; the one after it may be, and then with all that belongs to it."""
    ids = (work.bought.id, work.launched.id, work.line.instance_id)
    trail = [line.after for id in ids for line in ledger.audit(id)]
    assert trail == [document(one) for one in work.records[: len(trail)]]
    assert answered <= len(trail) <= answered + 1
    assert not ended or answered == len(work.steps)
    assert held(ledger, ids) == [after for id in ids for after in _last(trail, id)]
    # And the rest of the work can be done from there.
    for step in work.steps[len(trail) :]:
        step(ledger)
    assert held(ledger, ids) == [document(one) for one in (work.bought, work.launched, work.line)]


def held(ledger: SqlLedger, ids: tuple[str, ...]) -> list[dict[str, object]]:
    records = [document(one) for one in (*ledger.purchases(), *ledger.launches(), *ledger.metered())]
    return [one for one in records if _id(one) in ids]


def _last(trail: list[dict[str, object]], id: str) -> list[dict[str, object]]:
    return [one for one in trail if _id(one) == id][-1:]


def _id(record: dict[str, object]) -> object:
    return record.get("id") or record["instance_id"]
