"""Documents that once failed, each shrunk to what it shows. A new one is a file in tests/corpus, nothing else.

The second line of its comment is the command that replays it; the first says what went wrong.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.vopr.judge import judge

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.yaml"))
COMMAND = re.compile(r"^# +tidemill rehearse tests/corpus/(\S+)(?: --seed (\d+))?$", re.MULTILINE)


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_a_case_that_failed_once_does_not_fail_again(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    command = COMMAND.search(text)
    assert command is not None, "its comment has the command that replays it"
    assert command[1] == file.name
    verdict = judge(text, int(command[2] or 1))
    assert not verdict.signature, f"{verdict.signature}\n{verdict.story}"
