"""Killed without warning, anywhere: what was answered is there, and nothing is there by half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.store.killed import Work
from tests.store.ledgers import Opener
from tidemill.store.rows import document
from tidemill.store.sql import SqlLedger

Document = dict[str, Any]
MOMENTS = 60  # more than there are, so that the last one ends by itself


@pytest.mark.requirement("CB-4")
def test_a_kill_between_any_two_statements_leaves_the_state_before_or_after(
    url: str, tmp_path: Path, opened: Opener
):
    ledger = opened(url)  # its tables are there: what is killed is the writing
    command = [sys.executable, "-m", "tests.store.killed", url, str(tmp_path), str(MOMENTS)]
    ends = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert ends.count("killed") > 40
    assert ends[-1] == "ended", "there are more moments than that"
    found, trails = held(ledger), ledger.audit()
    for moment in range(MOMENTS):
        work = Work(moment)
        answered = (tmp_path / str(moment)).read_text().splitlines()
        trail = [line.after for line in trails if line.subject in work.ids]
        is_whole(work, trail, found, len(answered))
        # And the rest of the work can be done from there.
        for step in work.steps[len(trail) :]:
            step(ledger)
    ended = [document(one) for moment in range(MOMENTS) for one in Work(moment).result]
    assert sorted(held(ledger), key=_id) == sorted(ended, key=_id)


def is_whole(work: Work, trail: list[Document], found: list[Document], answered: int) -> None:
    """Every answered step is there; the one after it may be, and then with all that belongs to it."""
    assert answered <= len(trail) <= min(answered + 1, len(work.steps))
    assert trail == [document(one) for one in work.records[: len(trail)]]
    latest = {_id(one): one for one in trail}
    assert {_id(one): one for one in found if _id(one) in work.ids} == latest


def held(ledger: SqlLedger) -> list[Document]:
    return [document(one) for one in (*ledger.purchases(), *ledger.launches(), *ledger.metered())]


def _id(record: Document) -> str:
    return str(record.get("id") or record["instance_id"])
