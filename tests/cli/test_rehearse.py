"""`tidemill rehearse`: a report file that cannot be written."""

from __future__ import annotations

import pytest

from tidemill.cli import main


@pytest.mark.parametrize(
    ("target", "says"),
    [("missing/x.html", "there is no folder "), ("x" * 300, "File name too long")],
)
def test_a_report_that_cannot_be_written_exits_2(capsys, tmp_path, target, says):
    assert main(["rehearse", "demo", "--html", str(tmp_path / target)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: cannot write {tmp_path / target}: ")
    assert says in shown.err
    assert shown.out == ""
