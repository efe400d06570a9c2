"""Wrong input: one sentence that says what to do, exit code 2, and nothing is changed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.cli import main

ROOT = Path(__file__).parents[2]
GROUPS = str(ROOT / "examples" / "groups.yaml")
KARPENTER = str(ROOT / "examples" / "karpenter.yaml")
A_STACK = ["render", "cloudformation", GROUPS, "--pool", "train", "--zone", "us-east-1a"]
A_BLOCK_ENDS = ["--start", "2026-11-20T11:30:00Z", "--end", "2026-11-20T11:30:00Z"]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("AWS_", "TIDEMILL_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    (tmp_path / "text.db").write_text("these are words, and no database")
    (tmp_path / "folder").mkdir()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["up", "--speed", "nan"], "nan is not a number"),
        (["up", "--speed", "inf"], "is not in the range"),
        (["why", "other.json"], "other.json is a file; name the pod first: tidemill why POD other.json"),
        (["import", "karpenter", "kept.yaml", "-o", "kept.yaml"], "kept.yaml is an input file; name another"),
        (
            ["rehearse", "kept.yaml", "--html", "kept.yaml"],
            "kept.yaml is a scenario file; name another file",
        ),
        (["plan", "--aws"], "--aws needs documents to compare the account with"),
        (["sim", "aws", "--kube-token-file", "token"], "need --kube-api"),
        (
            ["sim", "aws", "--kube-api", "https://api", "--kube-token-file", "token"],
            "token does not hold a token",
        ),
        (["sim", "aws", "--host", "no.such.host.invalid", "--port", "0"], "name another --host"),
        (["sim", "new", "other.json", "-f", GROUPS], "other.json exists already and is not changed"),
        ([*A_STACK, "--reservation", "the-big-one"], "'the-big-one' is not a reservation id; write cr-…"),
        ([*A_STACK, *A_BLOCK_ENDS], "--end 2026-11-20T11:30:00Z is not after --start 2026-11-20T11:30:00Z"),
        (
            ["render", "karpenter", KARPENTER, "--pool", "train", "--reservation", "x"],
            "'x' is not a reservation id",
        ),
        (
            ["iam", "scp", "--purchaser-role", "buyer"],
            "'buyer' is not an ARN of a role; write arn:aws:iam::ACCOUNT:role/",
        ),
        (
            ["iam", "observer", "--purchaser-role", "arn:aws:iam::123456789012:role/buyer"],
            "--purchaser-role works with scp only",
        ),
        (
            ["inspect", "--sim", "other.json", "--region", "us-west-2"],
            "other.json and --region name two accounts",
        ),
        (["ledger", "sqlite:///folder"], "the ledger cannot be at folder: it is a folder"),
        (["ledger", "sqlite:///text.db"], "text.db is not a ledger: it is no SQLite file"),
        (["ledger", "text.db"], "'text.db' is not the address of a ledger; write sqlite:///text.db"),
        (["offers", "p5.48xlarge"], "Missing option '-f' / '--file'. Add it, or set TIDEMILL_FILES."),
        (["ledger"], "Missing argument 'ADDRESS'. Add it, or set TIDEMILL_LEDGER."),
        (["rehearse", "folder"], "folder: this folder has no .yaml file"),
        (["validate", "folder"], "folder: this folder has no .yaml file"),
    ],
    ids=lambda value: " ".join(value[:3]).replace(str(ROOT), "") if isinstance(value, list) else "",
)
def test_wrong_input_exits_2_with_one_sentence(words: list[str], says: str, capsys: Captured, tmp_path: Path):
    before = sorted(one.name for one in tmp_path.iterdir())
    assert main(words) == 2
    result = capsys.readouterr()
    assert says in result.err
    assert result.out == ""
    left = {one.name for one in tmp_path.iterdir() if not one.name.endswith(".lock")}
    assert left == set(before)


def test_a_folder_as_ledger_exits_2(capsys: Captured):
    sim = ["-f", GROUPS, "--sim", "account.json"]
    assert main(["blocks", *sim, "--ledger", "sqlite:///folder"]) == 2
    assert "the ledger cannot be at folder: it is a folder" in capsys.readouterr().err


def test_refuse_without_intent_exits_2(capsys: Captured):
    assert main(["approve", "-f", GROUPS, "--sim", "account.json", "--refuse"]) == 2
    assert "--refuse needs an INTENT" in capsys.readouterr().err


def test_import_without_pools_exits_2(tmp_path: Path, capsys: Captured):
    (tmp_path / "web.yaml").write_text("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n")
    assert main(["import", "karpenter", "web.yaml"]) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == "error: the files hold nothing to import; name files with pools or node classes"
    )


def test_handover_without_dry_run_prints_json_with_json(capsys: Captured):
    assert main(["handover", "block-a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dry_run"] is False


def test_a_region_without_refreshed_catalog_gives_a_note(capsys: Captured):
    assert main(["catalog", "--region", "nowhere-1", "--type", "p5.48xlarge"]) == 0
    assert "there is no newer refreshed catalog for 'nowhere-1'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["validate", "rehearse", "advise", "plan", "plan-blocks"])
def test_a_folder_stands_for_its_files(verb: str, tmp_path: Path, capsys: Captured):
    whole = (ROOT / "examples" / "first-block.yaml").read_text()
    first, rest = whole.split("\n---\n", 1)
    (tmp_path / "folder" / "a.yaml").write_text(first)
    (tmp_path / "folder" / "b.yml").write_text(rest)
    (tmp_path / "folder" / "notes.txt").write_text("not a document")
    assert main([verb, "folder"]) == 0, capsys.readouterr().err


def test_an_unreadable_folder_exits_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured):
    def forbidden(folder: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", forbidden)
    assert main(["advise", "folder"]) == 2
    assert "folder: the folder cannot be read: Permission denied" in capsys.readouterr().err
