"""Signals to a process: the action under way is finished; a second signal, or the end of the grace, ends it at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidemill.model.errors import Refused
from tidemill.store.sole_use import SoleUse

PROGRAM = """
import sys, time
from tidemill.controller.stopping import StopSignal
from tidemill.controller.wakes import Wakes

wakes = Wakes()
stop = StopSignal(wakes, grace_s={grace_s})
stop.install()
print("ready", flush=True)
while not stop():
    wakes.wait(30)
print("stopping", flush=True)
time.sleep({action_s})
print("action done", flush=True)
sys.exit(0)
"""


def started(*, grace_s: float, action_s: float) -> subprocess.Popen[str]:
    code = PROGRAM.format(grace_s=grace_s, action_s=action_s)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_and_lets_the_action_finish(number: signal.Signals):
    process = started(grace_s=20, action_s=0.3)
    began_s = time.monotonic()
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "stopping\naction done\n")
    assert time.monotonic() - began_s < 5


def test_a_second_signal_ends_it_at_once():
    process = started(grace_s=20, action_s=15)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=5)
    assert process.returncode == 130


def test_the_grace_is_kept_even_by_an_action_that_hangs():
    process = started(grace_s=0.5, action_s=15)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=5)
    assert process.returncode == 1
    assert "not stopped within 0.5 s" in err


# --- one engine on a ledger in a file -----------------------------------------------------------------


def test_a_ledger_in_a_file_has_one_engine_at_a_time(tmp_path: Path):
    held = SoleUse(tmp_path / "ledger.db")
    with pytest.raises(Refused, match=r"process \d+ runs an engine on the ledger .*PostgreSQL"):
        SoleUse(tmp_path / "ledger.db")
    held.release()
    SoleUse(tmp_path / "ledger.db").release()


def test_the_lock_ends_with_the_process_however_it_ends(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path; from tidemill.store.sole_use import SoleUse; "
        "SoleUse(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "ledger.db")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(Refused, match=f"process {process.pid} runs"):
        SoleUse(tmp_path / "ledger.db")
    process.kill()
    process.communicate()
    SoleUse(tmp_path / "ledger.db").release()
