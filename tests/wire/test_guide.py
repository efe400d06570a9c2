"""The stock AWS CLI on the simulated account: the guide's commands print what the guide says.

`UPDATE_GUIDES=1 pytest tests/wire/test_guide.py` writes it anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "aws-by-hand.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
WRITTEN = "http://127.0.0.1:4566"
NEXT = "@@ next"
BIN = Path(sys.executable).parent


def commands(block: str) -> list[str]:
    """Each with its continuation lines."""
    found: list[str] = []
    goes_on = False
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(line)
        elif goes_on:
            found[-1] += f"\n{line}"
        else:
            continue
        goes_on = line.endswith("\\")
    return found


@contextmanager
def served(command: str) -> Iterator[tuple[str, str]]:
    """What `tidemill sim aws` says, and where it really is."""
    words = [str(BIN / "tidemill"), *shlex.split(command)[1:], "--port", "0"]
    # Kept from the environment of whoever runs the tests.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TIDEMILL_"))}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean
    ) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("Ctrl-C"):
                    break
            whole = "".join(said)
            endpoint = whole.split(" at ", 1)[1].split(": ", 1)[0]
            yield whole.replace(endpoint, WRITTEN), endpoint
        finally:
            process.terminate()
            _, ended = process.communicate(timeout=30)
    assert (process.returncode, "ended at" in ended) == (0, True)


def run_commands(lines: list[str], endpoint: str, home: Path) -> list[str]:
    """All commands in one shell, as somebody would type them; what each printed."""
    script = [f'curl() {{ "{sys.executable}" "{Path(__file__).with_name("curl.py")}" "$@"; }}']
    for line in lines:
        script += [line.removeprefix("$ ").replace(WRITTEN, endpoint), f'echo "{NEXT}"']
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        "AWS_PAGER": "",
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash"], input="\n".join(script), env=environment, cwd=home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.stdout.replace(endpoint, WRITTEN).split(f"{NEXT}\n")[: len(lines)]


def tidy(printed: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in printed.expandtabs(8).splitlines() if line.strip())


@pytest.mark.slow
@pytest.mark.requirement("CB-1")
@pytest.mark.requirement("CB-3")
@pytest.mark.requirement("CB-4")
@pytest.mark.requirement("GB-5")
def test_the_stock_aws_cli_prints_what_the_guide_says(tmp_path: Path):
    written = GUIDE.read_text()
    lines = [line for block in BLOCK.finditer(written) for line in commands(block[1])]
    with served(lines[0].removeprefix("$ ")) as (said, endpoint):
        printed = iter([said, *run_commands(lines[1:], endpoint, tmp_path)])

    def again(block: re.Match[str]) -> str:
        return (
            "```console\n"
            + "".join(f"{command}\n{tidy(next(printed))}" for command in commands(block[1]))
            + "```"
        )

    found = BLOCK.sub(again, written)
    if os.environ.get("UPDATE_GUIDES"):
        GUIDE.write_text(found)
    assert found == written
