"""`tidemill lint` as a person, a pipeline and a pre-commit hook run it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tidemill.cli import root
from tidemill.render.lint_report import markdown
from tidemill.wording.traps import TRAPS

ROOT = Path(__file__).parents[2]
TRAPS_FOLDER = ROOT / "examples" / "traps"


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(root, ["lint", *map(str, arguments)], input=stdin)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file that can be fixed, one that cannot, and one of an unknown kind in a folder inside."""
    shutil.copy(TRAPS_FOLDER / "TR-18" / "bad.yaml", tmp_path / "pool.yaml")
    shutil.copy(TRAPS_FOLDER / "TR-8" / "bad.yaml", tmp_path / "class.yaml")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "compose.yml").write_text("services: {}\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config.yaml").write_text("[")
    return tmp_path


def test_text_says_what_where_why_with_the_source_and_how_to_mend_it(folder: Path) -> None:
    result = run(folder)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith(
        f"{folder}/class.yaml:9:14: warning TR-8: the AMI alias 'al2023@latest' changes"
    )
    assert lines[1] == f"  why: {TRAPS['TR-8'].why} [{TRAPS['TR-8'].source}; 2026-11]"
    assert lines[2].startswith("  fix: pin a version")
    assert f"{folder}/inside/compose.yml:1:1: skipped: neither a" in result.stdout
    assert lines[-1] == "2 warnings in 2 files; 1 can be fixed with --fix; 1 skipped"


def test_exit_codes_tell_clean_traps_and_what_could_not_be_read(folder: Path) -> None:
    good = TRAPS_FOLDER / "TR-9" / "good.yaml"
    assert run(good).exit_code == 0
    assert run(folder, "--fail-on", "error").exit_code == 0
    assert run(TRAPS_FOLDER / "TR-10" / "bad.json", "--fail-on", "error").exit_code == 1
    assert run(good, folder / "absent.yaml").exit_code == 2
    assert "1 file" in run(good, f"{good.parent}/./good.yaml").stdout  # a file named twice is read once
    assert run(good, folder / ".git" / "config.yaml").exit_code == 2
    assert run().exit_code == 2
    assert run(folder, "--fix", "--diff").exit_code == 2
    assert run(folder / "inside" / "compose.yml").exit_code == 0  # said, and not failed
    (folder / "empty").mkdir()
    assert run(folder / "empty").exit_code == 2


def test_rules_are_chosen_by_name_and_a_wrong_name_is_an_error(folder: Path) -> None:
    assert [each["rule"] for each in findings(run(folder, "--json", "--rule", "tr-8"))] == ["TR-8"]
    assert [each["rule"] for each in findings(run(folder, "--json", "--ignore", "TR-8"))] == ["TR-18"]
    wrong = run(folder, "--rule", "TR-99")
    assert wrong.exit_code == 2
    assert "no rule is named 'TR-99'" in wrong.output


def findings(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return found


def test_json_has_everything_a_program_needs(folder: Path) -> None:
    answer = json.loads(run(folder, "--format", "json").stdout)
    assert answer["ok"] is False
    assert answer["not_linted"][0]["reason"] == "skipped"
    (finding,) = [each for each in answer["findings"] if each["rule"] == "TR-18"]
    assert finding["file"] == str(folder / "pool.yaml")
    assert (finding["line"], finding["column"], finding["severity"]) == (41, 10, "warning")
    assert finding["fixable"] is True
    assert {"message", "why", "source", "source_date", "fix", "see"} <= finding.keys()


def test_diff_shows_the_fix_and_writes_nothing(folder: Path) -> None:
    before = (folder / "pool.yaml").read_text()
    result = run(folder, "--diff")
    assert result.exit_code == 1
    assert "-    cpu: 400 # two nodes" in result.stdout
    assert "+    cpu: 384 # two nodes" in result.stdout
    assert (folder / "pool.yaml").read_text() == before


def test_fix_writes_and_reports_what_is_left(folder: Path) -> None:
    result = run(folder, "--fix", "--json")
    assert (folder / "pool.yaml").read_text() == (TRAPS_FOLDER / "TR-18" / "good.yaml").read_text()
    assert [each["rule"] for each in findings(result)] == ["TR-8"]
    assert result.exit_code == 1
    again = run(folder / "pool.yaml", "--fix")
    assert (again.exit_code, "fixed 0 of 1 files" in again.stderr) == (0, True)


def test_stdin_is_read_and_its_fix_goes_to_stdout() -> None:
    bad, good = ((TRAPS_FOLDER / "TR-5" / f"{name}.yaml").read_text() for name in ("bad", "good"))
    told = run("-", stdin=bad)
    assert told.stdout.startswith("stdin:44:23: warning TR-5")
    fixed = run("-", "--fix", stdin=bad)
    assert (fixed.exit_code, fixed.stdout) == (0, good)


def test_a_token_in_a_url_is_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    text = (TRAPS_FOLDER / "TR-2" / "bad.yaml").read_text().replace("example-token-0000", "planted-secret")
    path.write_text(text)
    for options in ([], ["--json"], ["--format", "sarif"], ["--diff"], ["--fix"]):
        assert "planted-secret" not in run(path, *options).output
    assert "rediss://:planted-secret@" in path.read_text()


def test_every_rule_is_listed_and_explained() -> None:
    listed = run("--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(TRAPS)
    told = run("--explain", "TR-6").stdout
    assert TRAPS["TR-6"].why in told
    assert "issue 1692" in told


# --- SARIF ------------------------------------------------------------------------------------------

TEXT = {"text": str}


def shaped(value: Any, shape: Any, path: str = "$") -> None:
    """Checks what SARIF 2.1.0 requires: the properties that must be there, and their types."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), path
        for key, inner in shape.items():
            assert key in value, f"{path}.{key}"
            shaped(value[key], inner, f"{path}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), path
        for index, each in enumerate(value):
            shaped(each, shape[0], f"{path}[{index}]")
    else:
        assert isinstance(value, shape), path


LOCATION = {
    "physicalLocation": {"artifactLocation": {"uri": str}, "region": {"startLine": int, "startColumn": int}}
}
SARIF = {
    "$schema": str,
    "version": str,
    "runs": [
        {
            "tool": {
                "driver": {
                    "name": str,
                    "version": str,
                    "rules": [
                        {
                            "id": str,
                            "shortDescription": TEXT,
                            "fullDescription": TEXT,
                            "help": TEXT,
                            "defaultConfiguration": {"level": str},
                        }
                    ],
                }
            },
            "invocations": [
                {
                    "executionSuccessful": bool,
                    "toolExecutionNotifications": [{"level": str, "message": TEXT, "locations": [LOCATION]}],
                }
            ],
            "results": [
                {"ruleId": str, "ruleIndex": int, "level": str, "message": TEXT, "locations": [LOCATION]}
            ],
        }
    ],
}


def test_sarif_has_the_shape_that_2_1_0_requires(folder: Path) -> None:
    silenced = (
        (folder / "class.yaml").read_text().replace("@latest", "@latest # tidemill-lint: ignore TR-8 x")
    )
    (folder / "class.yaml").write_text(silenced)
    log = json.loads(run(folder, "--format", "sarif").stdout)
    shaped(log, SARIF)
    assert log["version"] == "2.1.0"
    (found,) = log["runs"]
    assert found["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    rules = found["tool"]["driver"]["rules"]
    assert len(rules) == 18
    for result in found["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert re.fullmatch(
            r"file:///\S+", result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        )
    by_rule = {result["ruleId"]: result for result in found["results"]}
    assert by_rule["TR-8"]["suppressions"] == [{"kind": "inSource"}]
    (change,) = by_rule["TR-18"]["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    start, length = replacement["deletedRegion"]["charOffset"], replacement["deletedRegion"]["charLength"]
    assert (folder / "pool.yaml").read_text()[start : start + length] == "400"
    assert replacement["insertedContent"] == {"text": "384"}


def test_the_uri_of_a_relative_path_is_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "a b.yaml").write_text((folder / "class.yaml").read_text())
    log = json.loads(run("a b.yaml", "--format", "sarif").stdout)
    location = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "a%20b.yaml"


# --- as a hook, and in the documentation ------------------------------------------------------------


def test_the_pre_commit_hook_calls_this_command() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "tidemill lint"
    assert hook["language"] == "python"
    assert hook["require_serial"] is True  # rules across files see all files of a commit
    assert hook["types_or"] == ["yaml", "json"]


def test_the_reference_is_what_the_rules_generate() -> None:
    committed = (ROOT / "docs" / "reference" / "lint.md").read_text(encoding="utf-8")
    assert committed == markdown(), "run: python -m tidemill.render.lint_report > docs/reference/lint.md"


def test_the_guide_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    guide = (ROOT / "docs" / "guides" / "lint.md").read_text(encoding="utf-8")
    shown = re.search(r"```\n\$ tidemill lint (\S+)\n(.*?)```", guide, re.DOTALL)
    assert shown is not None
    assert run(shown[1]).stdout == shown[2]
