"""Processes by name: paused, killed, started again, and never left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.api import eventually
from controlplane.processes import Processes, end_by_pid, started_at

ROOT = Path(__file__).parents[2]
SLEEP = (sys.executable, "-S", "-c", "import time; print('here', flush=True); time.sleep(600)")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with closing(Processes(tmp_path)) as started:
        yield started


def test_a_process_is_stopped_killed_and_started_again_with_one_log(processes: Processes):
    first = processes.start("one", SLEEP)
    eventually(lambda: processes.tail("one") == "here")
    assert processes.stop("one") == -signal.SIGTERM
    assert processes.ended() == ["one"]
    second = processes.start_again("one")
    assert second != first
    eventually(lambda: processes.tail("one") == "here\nhere")
    processes.kill("one")
    assert processes.exit_code("one") == -signal.SIGKILL


def test_a_paused_process_can_be_stopped(processes: Processes):
    processes.start("one", SLEEP)
    processes.pause("one")
    began = time.monotonic()
    assert processes.stop("one") == -signal.SIGTERM
    assert time.monotonic() - began < 5


def test_one_that_will_not_end_is_killed(processes: Processes):
    deaf = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('here', flush=True); time.sleep(600)"
    )
    processes.start("one", (sys.executable, "-S", "-c", deaf))
    eventually(lambda: processes.tail("one") == "here")
    assert processes.stop("one", ending_s=0.2) == -signal.SIGKILL


def test_what_a_killed_process_had_started_ends_too(tmp_path: Path):
    program = (
        "import sys, threading, time\n"
        "from pathlib import Path\n"
        "from controlplane.processes import Processes\n"
        "started = Processes(Path(sys.argv[1]))\n"
        "go = lambda: print(started.start('one', [sys.executable, '-c', 'import time; time.sleep(600)']), flush=True)\n"
        "thread = threading.Thread(target=go)\n"  # the kernel's own death signal would come when this thread ends
        "thread.start(); thread.join(); time.sleep(600)\n"
    )
    starter = subprocess.Popen(
        (sys.executable, "-c", program, str(tmp_path)), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    since = started_at(pid)
    assert since
    time.sleep(0.3)
    assert started_at(pid) == since  # the thread that started it has ended
    os.kill(starter.pid, signal.SIGKILL)
    starter.communicate()
    eventually(lambda: started_at(pid) != since, timeout_s=10, what="the process ends")


def test_a_number_that_belongs_to_another_process_now_is_left_alone(processes: Processes):
    pid = processes.start("one", SLEEP)
    assert not end_by_pid(pid, "1")
    assert processes.alive("one")
