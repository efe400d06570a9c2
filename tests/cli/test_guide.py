"""The commands of the guide print what the guide shows. `UPDATE_GUIDES=1 pytest tests/cli/test_guide.py` rewrites."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tidemill.cli import main

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "buying-blocks.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """One command line, its output and its errors together, as a terminal shows them."""
    words = shlex.split(line)
    if words[0] == "export":
        for word in words[1:]:
            monkeypatch.setenv(*word.split("=", 1))
        return ""
    out = io.StringIO()
    with monkeypatch.context() as only_here:
        while "=" in words[0]:
            only_here.setenv(*words.pop(0).split("=", 1))
        assert words.pop(0) == "tidemill"
        with redirect_stdout(out), redirect_stderr(out):
            main(words)
    return "".join(f"{one.rstrip()}\n" for one in out.getvalue().splitlines() if one.strip())


def played(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    def again(block: re.Match[str]) -> str:
        lines = [line for line in block[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"{one}\n{run(one[2:], monkeypatch)}" for one in lines) + "```"

    return BLOCK.sub(again, text)


@pytest.mark.requirement("CB-3")
def test_the_commands_of_the_guide_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "first-block.yaml", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    written = GUIDE.read_text()
    found = played(written, monkeypatch)
    if os.environ.get("UPDATE_GUIDES"):
        GUIDE.write_text(found)
    assert found == written


def test_the_verdict_in_the_guide_of_rehearsals_is_the_one_that_is_printed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    printed = run("tidemill rehearse examples/first-block.yaml", monkeypatch).splitlines()
    verdict = "\n".join(printed[: printed.index(next(one for one in printed if " UTC, " in one))])
    guide = (ROOT / "docs" / "guides" / "rehearse.md").read_text()
    assert f"```\n{verdict}\n```" in guide
