"""`tidemill up`: what it prints, how it ends, and the file it writes and removes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from rich.console import Console

from tidemill.cli import main
from tidemill.cli.loading import load_scenario
from tidemill.cli.playback import SLOW_FOR, Pace, Playback
from tidemill.render.live_view import screen
from tidemill.sim.scenario.rehearsal import Rehearsal

FAST = ("--speed", "200000")  # 25 hours in less than a second, if the machine can
UP = [sys.executable, "-m", "tidemill", "up"]


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield tmp_path
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def played(capsys):
    """Plays to the end without a terminal and gives what was printed."""

    def play(*arguments):
        code = main(["up", *arguments])
        return code, capsys.readouterr().out

    return play


def playback(*, at, seed=1):
    spec, scenario = load_scenario(["demo"])
    rehearsal = Rehearsal(spec, scenario, seed)
    watched = Playback(rehearsal, "demo", Pace(rehearsal.end, wall_s=10, speed=1))
    while rehearsal.timeline.now() < rehearsal.start + at:
        watched.pace = Pace(rehearsal.start + at, wall_s=10, speed=3600)
        watched.advance(passed_s=0.25, elapsed_s=0, within_s=10)
    return watched


# --- the story ----------------------------------------------------------------------------------------

STORY = (
    r"aws .*block tide-a is delivered: 2 x p5",
    r"engine proposes a purchase for tuesday: .* about \$[\d,]+; a person decides",
    r"people finance refused the purchase: not before the budget is reviewed",
    r"engine holds pretrain-1: ",
    r"engine proposes again a purchase for tuesday",
    r"people finance approved the purchase",
    r"aws .*sells 4 x p5.48xlarge, .* USD up front",
    r"fault .*the engine crashes right after its purchase call",
    r"engine the purchase for tuesday is confirmed: found by its tag: .*; 1 purchase in all, none twice",
    r"engine drains i-\w+, i-\w+: .*block tide-a must be empty by 17 Nov 11:00 UTC \(12:00 CET\)",
    r"engine asks finetune-1-0-0 for a checkpoint",
    r"work .*finetune-1-0-0 has written its checkpoint",
    r"engine block tide-a is empty, \d+m \d+s before its deadline",
    r"aws .*block tuesday is delivered: 4 x p5",
    r"engine launches 4 x p5.48xlarge: block tuesday is active: 4 nodes warm up",
    r"engine starts gang pretrain-1: all 4 pods at once",
    r"fault .*i-\w+ dies: its host failed",
    r"engine deletes pretrain-1-.*: gang pretrain-1 lost 1 of its 4 pods",
    r"engine starts gang pretrain-1 again: all 4 pods at once",
    r"work .*pretrain-1: done after",
)


@pytest.mark.parametrize("seed", ["1", "2", "7"])
def test_the_demo_prints_its_events_in_order(played, seed):
    code, out = played("--seed", seed, *FAST)
    assert code == 0
    found = [re.search(line, out) for line in STORY]
    missing = [line for line, hit in zip(STORY, found, strict=True) if hit is None]
    assert not missing
    assert all(one.start() < other.start() for one, other in pairwise(found))


def test_up_starts_with_simulated_and_ends_with_money_and_three_commands(played):
    _, out = played(*FAST)
    assert out.splitlines()[0] == "SIMULATED: no AWS account, no credentials are read, no money is spent"
    assert re.search(r"idle \$\d+", out)
    assert len(re.findall(r"^  tidemill ", out.split("\nNext\n")[1], re.MULTILINE)) == 3


def test_speed_does_not_change_the_outcome(played):
    def lines(speed):
        return [line for line in played("--speed", speed)[1].splitlines() if re.match(r"\d+ Nov ", line)]

    assert lines("100000") == lines("900000")


# --- how it ends --------------------------------------------------------------------------------------


def test_for_fits_the_whole_day_into_the_time(played):
    began = time.monotonic()
    code, out = played("--for", "6s")  # a loaded machine needs some seconds of processor time
    assert (code, time.monotonic() - began < 30) == (0, True)
    assert "to 17 Nov 23:30 UTC" in out


def test_for_with_a_speed_stops_where_the_time_is_up(played):
    code, out = played("--for", "1s", "--speed", "3600")
    assert code == 0
    assert re.search(r"16 Nov 22:30 to (16 Nov 23|17 Nov 00):\d\d UTC", out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_with_the_summary_and_code_0_and_removes_the_state_file(state_home, number):
    file = state_home / "tidemill" / "up.json"
    with subprocess.Popen([*UP, "--speed", "60"], stdout=subprocess.PIPE, text=True) as process:
        _wait_for(file.exists)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "no invariant was violated" in out
    assert not list(file.parent.iterdir())


def test_ctrl_c_restores_the_terminal(state_home):
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen([*UP], stdout=slave, stdin=slave, stderr=slave, env=environment)
    os.close(slave)
    seen = b""
    try:
        while b"tide-a" not in seen:
            seen += _read(master)
        process.send_signal(signal.SIGINT)
        while b"Next" not in seen:
            seen += _read(master)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        os.close(master)
    assert seen.index(b"\x1b[?1049h") < seen.index(b"SIMULATED") < seen.rindex(b"\x1b[?1049l")
    assert seen.rindex(b"\x1b[?25l") < seen.rindex(b"\x1b[?25h")  # the cursor is visible again


def test_other_commands_read_the_instant_of_a_running_up(state_home):
    with subprocess.Popen([*UP, "--speed", "60"], stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for((state_home / "tidemill" / "up.json").exists)
            asked = [sys.executable, "-m", "tidemill", "status", "--json"]
            answer = subprocess.run(asked, capture_output=True, text=True, check=True)
        finally:
            process.terminate()
    seen = json.loads(answer.stdout)
    assert (seen["simulated"], seen["scenario"]) == (True, "demo")
    assert [block["name"] for block in seen["blocks"]] == ["tide-a"]


def _wait_for(condition):
    for _ in range(1200):  # a minute: the machine may be busy
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


def _read(terminal):
    ready, _, _ = select.select([terminal], [], [], 60)
    assert ready, "the terminal stayed silent"
    return os.read(terminal, 65536)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no-such-file.yaml"], "the file does not exist"),
        (["--for", "soon"], "'soon' is not a duration"),
        (["--for", "0s"], "not longer than zero"),
    ],
)
def test_wrong_input_exits_2_with_a_message(capsys, arguments, says):
    assert main(["up", *arguments]) == 2
    assert says in capsys.readouterr().err


# --- the screen ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("at", ["0h", "6h55m", "12h24m", "16h35m"])
def test_the_screen_fits_any_terminal(width, height, at):
    hours, _, minutes = at.partition("h")
    watched = playback(at=timedelta(hours=int(hours), minutes=int(minutes.strip("m") or 0)))
    console = Console(width=width, height=height, file=None, record=True, force_terminal=True, quiet=False)
    with console.capture() as captured:
        console.print(screen(watched.frame(), width, height))
    lines = re.sub(r"\x1b\[[\d;]*m", "", captured.get()).rstrip("\n").split("\n")
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert "SIMULATED" in lines[0]


def test_a_drain_counts_down_in_utc_and_local_time():
    watched = playback(at=timedelta(hours=12, minutes=24))
    console = Console(width=120, height=40)
    with console.capture() as captured:
        console.print(screen(watched.frame(), 120, 40))
    assert re.search(r"tide-a .*DRAINING 1 pod, \dm( \d+s)? +11:00 UTC 12:00 CET", captured.get())


# --- the pace -----------------------------------------------------------------------------------------

START = datetime(2026, 11, 17, tzinfo=UTC)


def test_without_speed_quiet_hours_make_up_for_slow_events():
    end = START + timedelta(hours=24)
    pace, now, elapsed_s = Pace(end, wall_s=60), START, 0.0
    turns = [START + timedelta(hours=hour) for hour in (1, 9, 20)]
    while now < end and elapsed_s < 100:
        elapsed_s += 0.1
        goal = pace.goal(now, passed_s=0.1, elapsed_s=elapsed_s)
        for turn in [turn for turn in turns if turn <= goal]:
            turns.remove(turn)
            pace.slow_down(turn)
        now = goal
    assert 55 < elapsed_s < 62


def test_the_clock_slows_down_after_an_event_and_recovers():
    pace = Pace(START + timedelta(hours=24), wall_s=60)

    def rate(now):
        pace.goal(now, passed_s=0.1, elapsed_s=1)
        return pace.rate

    even = rate(START)
    pace.slow_down(START)
    assert rate(START) == pytest.approx(even / 8)
    assert rate(START + SLOW_FOR) > even / 2


def test_speed_is_constant():
    pace = Pace(START + timedelta(hours=24), wall_s=60, speed=100)
    pace.slow_down(START)
    assert pace.goal(START, passed_s=2, elapsed_s=50) == START + timedelta(seconds=200)
