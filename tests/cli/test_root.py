"""The command line: fast help, one form of failure, no traceback except for bugs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import click
import pytest

from tidemill import __version__, cli
from tidemill.cli import VERBS, Verb, main
from tidemill.model.errors import NoCapacity, NotAllowed, OutcomeUnknown, Refused, SpecError


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.fixture
def verb_that(monkeypatch):
    """Adds a verb `probe` that does what the test says."""

    def add(act, *options):
        probe = click.Command("probe", callback=act, params=list(options))
        monkeypatch.setitem(VERBS, "probe", Verb("", "", "does what a test says"))
        monkeypatch.setattr(
            cli.LazyGroup, "get_command", lambda self, ctx, name: probe if name == "probe" else None
        )

    return add


def raising(error):
    def act():
        raise error

    return act


def test_help_names_every_verb_with_a_sentence(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, verb in VERBS.items():
        assert f"  {name} " in shown
        assert verb.help in shown


def test_every_verb_of_the_table_exists():
    for name, verb in VERBS.items():
        command = getattr(importlib.import_module(f"tidemill.cli.{verb.module}"), verb.attribute)
        assert isinstance(command, click.Command), name


def test_help_imports_no_verb_and_nothing_heavy():
    done = run_python(
        "import sys; from tidemill.cli import main; main(['--help'])\n"
        "heavy = {'pydantic', 'yaml', 'rich', 'jinja2', 'difflib', 'asyncio',"
        " 'tidemill.spec', 'tidemill.sim', 'tidemill.catalog', 'tidemill.engine.loop'}\n"
        "heavy |= {m for m in sys.modules if m.startswith('tidemill.cli.')}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_version_is_the_package_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tidemill {__version__}\n"


@pytest.mark.parametrize(("typed", "meant"), [("statsu", "status"), ("rehearsal", "rehearse"), ("wy", "why")])
def test_a_mistyped_verb_gives_the_nearest_name(capsys, typed, meant):
    assert main([typed]) == 2
    assert f"unknown command '{typed}'; did you mean '{meant}'?" in capsys.readouterr().err


def test_an_unknown_verb_gives_the_list(capsys):
    assert main(["xyzzy"]) == 2
    assert f"the commands are: {', '.join(VERBS)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError("bad words"), 2),
        (Refused("bad words"), 1),
        (NoCapacity("bad words"), 1),
        (OutcomeUnknown("bad words"), 4),
        (NotAllowed("bad words"), 3),
    ],
)
def test_our_errors_give_a_message_and_an_exit_code(capsys, verb_that, error, code):
    verb_that(raising(error))
    assert main(["probe"]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: bad words\n")


def test_a_bug_keeps_its_traceback(verb_that):
    verb_that(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["probe"])


def test_ctrl_c_exits_130_without_output(capsys, verb_that):
    verb_that(raising(KeyboardInterrupt()))
    assert main(["probe"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_verb_can_choose_its_exit_code(verb_that):
    verb_that(lambda: click.get_current_context().exit(3))
    assert main(["probe"]) == 3


def run_without_a_reader(*arguments: str) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-m", "tidemill", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize("arguments", [["--help"], ["catalog"], ["catalog", "--json"]])
def test_a_closed_pipe_gives_no_traceback(arguments):
    done = run_without_a_reader(*arguments)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["catalog"], ["catalog", "--json"]])
def test_a_full_disk_gives_one_line_and_no_traceback(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tidemill", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "error: cannot write the output: No space left on device\n",
    )


def test_an_unhandled_file_error_keeps_its_traceback(verb_that):
    verb_that(lambda: open("/no/such/file"))  # noqa: SIM115
    with pytest.raises(FileNotFoundError):
        main(["probe"])


@pytest.mark.parametrize(
    ("arguments", "closed"),
    [
        ("schema", ">&-"),
        ("up --for 1s --speed 3600", ">&-"),
        ("rehearse demo", "2>&-"),
        ("catalog", ">&- 2>&-"),
    ],
)
def test_closed_stdout_or_stderr_gives_no_traceback(arguments, closed):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m tidemill {arguments} {closed}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", ["rehearse demo", "status demo --at 3h", "up --for 1s --plain"])
def test_unencodable_characters_do_not_fail(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", *arguments.split()],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


def test_with_json_a_failure_is_an_object_on_stdout(capsys, verb_that):
    verb_that(
        raising(OutcomeUnknown("bad words")), click.Option(["--json"], is_flag=True, expose_value=False)
    )
    assert main(["probe", "--json"]) == 4
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"error": "bad words", "exit_code": 4}
    assert shown.err == "error: bad words\n"


def test_with_json_wrong_usage_is_an_object_on_stdout(capsys):
    assert main(["status", "--json", "--seed", "many"]) == 2
    assert "'many' is not a valid integer" in json.loads(capsys.readouterr().out)["error"]


def test_a_closed_pipe_does_not_change_the_exit_code_of_a_failure():
    done = run_without_a_reader("sim", "show", "--sim", "/no/such/file", "--json")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no simulated account in /no/such/file")
