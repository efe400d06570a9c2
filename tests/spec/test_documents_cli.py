"""`tidemill validate`, `schema` and `import`, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.spec.documents import NODE_CLASS, PLATFORM, joined, pool
from tests.spec.test_import_ryvn import EBS_CLASS, ONE_NODE_POOL
from tidemill.cli.documents import import_, schema, validate


def run(command: object, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments])  # type: ignore[arg-type]


def write(folder: Path, text: str, name: str = "a.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_valid_documents_exit_0(tmp_path: Path) -> None:
    result = run(validate, write(tmp_path, joined(NODE_CLASS, pool())))
    assert result.exit_code == 0
    assert result.stdout == "2 documents in 1 file: no problems\n"


def test_problems_go_to_stdout_with_a_count_and_exit_2(tmp_path: Path) -> None:
    path = write(tmp_path, joined(NODE_CLASS, pool("wram: 1", limits="{cpu: -1}")))
    result = run(validate, path, tmp_path / "absent.yaml")
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        f"{path}:11:17: limits.cpu must not be negative",
        f"{path}:12:3: unknown key 'wram' in ComputePool.spec; did you mean 'warm'?",
        f"{tmp_path}/absent.yaml:1:1: the file does not exist",
        "3 errors in 2 files",
    ]


@pytest.mark.requirement("TR-9")
def test_warnings_fail_only_when_strict(tmp_path: Path) -> None:
    path = write(tmp_path, joined(NODE_CLASS, pool(limits="{}")))
    relaxed = run(validate, path)
    assert relaxed.exit_code == 0
    assert relaxed.stdout.splitlines()[-1] == "1 warning in 1 file"
    assert run(validate, "--strict", path).exit_code == 2


def test_json_has_every_problem_with_its_position(tmp_path: Path) -> None:
    path = write(tmp_path, joined(NODE_CLASS, pool("wram: 1")))
    result = run(validate, "--json", path)
    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "ok": False,
        "problems": [
            {
                "file": str(path),
                "line": 12,
                "column": 3,
                "severity": "error",
                "code": "unknown-key",
                "message": "unknown key 'wram' in ComputePool.spec; did you mean 'warm'?",
            }
        ],
        "platform_files": [],
        "note": "",
    }


def test_nothing_in_a_file_or_its_name_gives_a_traceback(tmp_path: Path) -> None:
    """In a real process whose terminal knows only ASCII."""
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.yaml"
    Path(os.fsdecode(odd)).write_text("kind: Plätform\n'a\\u2028\\x07b': 1\n", encoding="utf-8")
    files = [odd, os.fsencode(tmp_path), sys.executable.encode(), b"/dev/null"]
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", "validate", *files],
        capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"unknown kind 'Pl\\xe4tform'; did you mean 'Platform'?" in done.stdout


def test_schema_prints_json_of_all_kinds_or_one() -> None:
    assert len(json.loads(run(schema).stdout)["oneOf"]) == 5
    assert json.loads(run(schema, "NodeClass").stdout)["title"] == "NodeClass"


def test_schema_of_an_unknown_kind_names_the_nearest() -> None:
    assert "did you mean 'NodeClass'?" in str(run(schema, "Nodeclas").exception)


def test_import_prints_documents_or_writes_them(tmp_path: Path) -> None:
    blueprints = [write(tmp_path, EBS_CLASS), write(tmp_path, ONE_NODE_POOL, "b.yaml")]
    printed = run(import_, "ryvn", *blueprints)
    assert printed.exit_code == 0
    out = tmp_path / "out.yaml"
    assert run(import_, "ryvn", *blueprints, "-o", out).exit_code == 0
    assert out.read_text() == printed.stdout
    assert run(validate, out).exit_code == 0


def test_import_prints_errors_to_stderr_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    result = run(import_, "ryvn", write(tmp_path, EBS_CLASS.replace("ebs:", "esb:")), "-o", out)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "did you mean 'ebs'?" in result.stderr
    assert not out.exists()


def test_files_of_two_platforms_are_said_to_be_read_as_one(tmp_path: Path) -> None:
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    for path in (a, b):
        path.write_text(joined(PLATFORM, NODE_CLASS, pool()))
    result = run(validate, str(a), str(b))
    assert result.exit_code == 2
    first = result.output.splitlines()[0]
    assert first.startswith("2 of the files have a Platform, and all files are read as one set")
    assert "read as one set" not in run(validate, str(a)).output
    told = json.loads(run(validate, str(a), str(b), "--json").output)
    assert told["platform_files"] == sorted([str(a), str(b)])
    assert told["note"] == first
    assert json.loads(run(validate, str(a), "--json").output)["note"] == ""
