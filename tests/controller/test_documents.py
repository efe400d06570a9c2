"""Documents that change under a running process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemill.cli.loading import documents_in, load_checked
from tidemill.controller.documents import Documents, FileDocuments
from tidemill.model.errors import SpecError

GOOD = """
apiVersion: tidemill.dev/v1alpha1
kind: Platform
metadata: {name: mill}
spec:
  region: us-east-1
  deployment: mill
  cluster: {name: mill}
  budget: {monthlyUsd: 1000}
"""


def files(names: list[str]) -> FileDocuments:
    return FileDocuments(lambda: load_checked(names)[0], lambda: documents_in(names))


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.woken: list[str] = []
        self.write(GOOD)

    def write(self, text: str) -> None:
        (self.path / "platform.yaml").write_text(text)

    def open(self) -> Documents:
        names = [str(self.path)]
        return Documents(files(names), self.woken.append)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_new_version_is_taken_and_wakes_the_loop(folder: Folder):
    documents = folder.open()
    assert not documents.look()
    folder.write(GOOD.replace("1000", "2000"))
    assert documents.look()
    assert documents.current.number == 2
    assert documents.current.spec.platform.spec.budget.monthly_usd == 2000
    assert folder.woken == ["documents"]


def test_a_bad_version_keeps_the_last_good_one_and_is_told_once(folder: Folder):
    documents = folder.open()
    folder.write(GOOD.replace("region", "regoin"))
    assert not documents.look()
    assert "regoin" in documents.problem
    assert documents.current.number == 1
    assert not documents.look()
    folder.write(GOOD)
    assert documents.look()
    assert documents.problem == ""


@pytest.mark.parametrize(
    ("name", "changed"), [("deployment: mill", "deployment: other"), ("us-east-1", "us-west-2")]
)
def test_a_running_engine_does_not_move_to_another_place(folder: Folder, name: str, changed: str):
    documents = folder.open()
    folder.write(GOOD.replace(name, changed))
    assert not documents.look()
    assert "restart" in documents.problem


def test_files_that_vanish_keep_the_last_good_version(folder: Folder):
    documents = folder.open()
    os.remove(folder.path / "platform.yaml")
    assert not documents.look()
    assert documents.current.number == 1
    assert documents.problem
    folder.write(GOOD)
    assert documents.look()


def test_a_mounted_config_map_changes_by_a_link(tmp_path: Path):
    """The kubelet writes a new folder and swaps the link `..data`; the time of the file need not grow."""
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        (tmp_path / f"v{number}" / "platform.yaml").write_text(GOOD.replace("1000", f"{number}000"))
        os.utime(tmp_path / f"v{number}" / "platform.yaml", (1, 1))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "platform.yaml").symlink_to("../..data/platform.yaml")
    names = [str(tmp_path / "docs")]
    documents = Documents(files(names), lambda reason: None)
    (tmp_path / "new").symlink_to("v2")
    os.replace(tmp_path / "new", tmp_path / "..data")
    assert documents.look()
    assert documents.current.spec.platform.spec.budget.monthly_usd == 2000


def test_a_process_does_not_start_with_bad_documents(folder: Folder):
    folder.write("kind: Nothing")
    with pytest.raises(SpecError):
        folder.open()
