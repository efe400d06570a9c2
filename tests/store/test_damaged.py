"""A ledger whose bytes are not what was written: a sentence that says what to do, never a new ledger."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.decide.builders import NOW, launch_intent
from tests.decide.purchases import intent
from tests.engine.ports import Hands
from tests.store.ledgers import OURS
from tidemill.model.errors import Refused, SpecError, TidemillError
from tidemill.store.open_ledger import open_durable
from tidemill.store.sql import SqlLedger

pytestmark = pytest.mark.requirement("CB-4")

FLIPS = 150


def opened(path: Path) -> SqlLedger:
    return open_durable(f"sqlite:///{path}", OURS, clock=Hands(), writer="test")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    ledger = opened(path)
    for number in range(20):
        ledger.propose(intent("approved", id=f"tp-{number}", approved_by=("ana",)))
        ledger.write_launch(launch_intent(f"ti-{number}"))
    ledger.close()
    return path


def test_an_empty_file_is_a_lost_ledger_and_not_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    with pytest.raises(SpecError, match="is empty: a ledger that was there is lost"):
        opened(path)
    assert not path.stat().st_size


def test_a_ledger_cut_in_half_says_what_to_do(written: Path) -> None:
    written.write_bytes(written.read_bytes()[: written.stat().st_size // 2])
    with pytest.raises(Refused, match=r"the ledger is damaged .*tidemill ledger rebuild"):
        _read_all(opened(written))


def test_flipped_bits_are_read_as_they_are_or_reported_and_never_raise_anything_else(
    written: Path, tmp_path: Path
) -> None:
    draw, reported = random.Random(7), 0
    whole = written.read_bytes()
    for number in range(FLIPS):
        bits = bytearray(whole)
        for _ in range(8):
            bits[draw.randrange(len(bits))] ^= 1 << draw.randrange(8)
        path = tmp_path / f"flipped-{number}.db"
        path.write_bytes(bits)
        try:
            ledger = opened(path)
            try:
                _read_all(ledger)
            finally:
                ledger.close()
        except TidemillError:
            reported += 1
        for file in tmp_path.glob(f"flipped-{number}.db*"):
            file.unlink()
    assert reported, "at least one of them hits something that can be seen"


def test_a_copy_that_is_restored_is_read_again(written: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(written, copy)
    written.write_bytes(b"")
    shutil.copy(copy, written)
    ledger = opened(written)
    assert len(ledger.purchases()) == 20
    ledger.close()


def _read_all(ledger: SqlLedger) -> None:
    ledger.purchases()
    ledger.launches()
    ledger.adoptions()
    ledger.metered()
    ledger.spending(NOW)
    ledger.audit()
    ledger.owner()
