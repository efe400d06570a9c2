"""`python -m benchmarks`: the time of a whole decision, for people and for programs."""

from __future__ import annotations

import json

import pytest

from benchmarks.__main__ import main


@pytest.mark.parametrize("arguments", [["nonsense"], ["decide", "--nodes", "0"], ["decide", "--nonsense"]])
def test_a_wrong_argument_is_a_one_line_error_with_exit_code_2(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_help_succeeds(capsys):
    assert main(["decide", "--help"]) == 0
    assert "--pending" in capsys.readouterr().out


def test_times_a_decision(capsys):
    assert main(["decide", "--nodes", "20", "--running", "40", "--pending", "5", "--json"]) == 0
    timing = json.loads(capsys.readouterr().out)
    assert (timing["nodes"], timing["running"], timing["pending"]) == (20, 40, 5)
    assert timing["warm_s"] >= 0
