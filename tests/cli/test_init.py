"""`tidemill init`: what it writes validates and is served in a rehearsal, whatever is answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidemill.cli import root
from tidemill.render.starter import FILES

FLAGS = ("--account", "123456789012", "--hostname", "ml.example.com", "--yes")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments))


def files(folder: Path) -> list[str]:
    return [str(folder / name) for name in FILES]


@pytest.mark.requirement("AE-17")
@pytest.mark.parametrize(
    ("kind", "provisioner"),
    [("p5.48xlarge", "native"), ("p5en.48xlarge", "managed"), ("trn1.32xlarge", "asg")],
)
def test_what_is_written_validates_and_is_served_in_a_rehearsal(tmp_path: Path, kind: str, provisioner: str):
    told = run("init", str(tmp_path), *FLAGS, "--type", kind, "--provisioner", provisioner)
    assert told.exit_code == 0, told.output
    checked = run("validate", *files(tmp_path))
    assert checked.exit_code == 0, checked.output
    rehearsed = run("rehearse", *files(tmp_path), "--seed", "1")
    assert rehearsed.exit_code == 0, rehearsed.output


@pytest.mark.requirement("AE-17")
def test_the_eight_answers_are_in_the_documents(tmp_path: Path):
    certificate = "arn:aws:acm:eu-west-1:123456789012:certificate/0a1b"
    given = {
        "region": "eu-west-1", "account": "123456789012", "deployment": "tide", "cluster": "one",
        "hostname": "gpu.example.org", "node-role": "workers", "bucket": "tide-models", "certificate-arn": certificate,
    }  # fmt: skip
    told = run("init", str(tmp_path), *(part for key, value in given.items() for part in (f"--{key}", value)))
    assert told.exit_code == 0, told.output
    platform = (tmp_path / "platform.yaml").read_text()
    assert all(value in platform for value in given.values())
    assert run("render", "engine", *files(tmp_path)[:2]).exit_code == 0
    assert (
        run("render", "infra", "all", *files(tmp_path)[:2], "--out", str(tmp_path / "stacks")).exit_code == 0
    )


def test_nothing_is_overwritten_and_nothing_is_guessed(tmp_path: Path):
    assert run("init", str(tmp_path), *FLAGS).exit_code == 0
    (tmp_path / "pools.yaml").write_text("mine")
    told = run("init", str(tmp_path), *FLAGS)
    assert told.exit_code == 2
    assert "is there already" in told.output
    assert (tmp_path / "pools.yaml").read_text() == "mine"
    told = run("init", str(tmp_path / "other"), "--yes")
    assert told.exit_code == 2
    assert "--account, --hostname" in told.output
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ("--account", "12"),
        ("--region", "useast1"),
        ("--bucket", "Upper_Case"),
        ("--type", "g6.xlarge"),
        ("--type", "p9"),
    ],
)
def test_a_wrong_answer_is_named_and_nothing_is_written(tmp_path: Path, wrong: tuple[str, str]):
    told = run("init", str(tmp_path), *FLAGS, *wrong)
    assert told.exit_code == 2
    assert wrong[1] in told.output
    assert not list(tmp_path.iterdir())
