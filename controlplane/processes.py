"""Processes that end with us: started by name, paused, killed, started again, and ended when this process is gone.

The kernel's parent-death signal follows the thread that started a process, and tests start them from any thread. So
one small process of our own, the reaper, holds a pipe: when our end closes, however we ended, it ends what is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ENDING_S = 10.0  # what a process gets between SIGTERM and SIGKILL

# The reaper: lines "+pid" and "-pid"; at the end of input everything that is left gets SIGKILL. It holds a pidfd of
# each, so that a number which the kernel gave to somebody else meanwhile is never hit.
_REAPER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
held = {}
for line in sys.stdin:
    pid = int(line[1:])
    if line[0] == "+":
        try: held[pid] = os.pidfd_open(pid)
        except OSError: pass
    elif pid in held:
        os.close(held.pop(pid))
for pid, handle in reversed(held.items()):
    try: signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError: pass
"""


@dataclass(slots=True)
class _Running:
    command: tuple[str, ...]
    env: Mapping[str, str] | None
    cwd: Path | None
    process: subprocess.Popen[bytes]


class Processes:
    """Named processes whose output goes to `<logs>/<name>.log`. All end with `close()`, or with this process."""

    def __init__(self, logs: Path, *, outlive_us: bool = False) -> None:
        self.logs = logs
        self._running: dict[str, _Running] = {}
        self._reaper: subprocess.Popen[str] | None = None
        logs.mkdir(parents=True, exist_ok=True)
        if not outlive_us and hasattr(os, "pidfd_open"):
            self._reaper = subprocess.Popen(
                (sys.executable, "-I", "-S", "-c", _REAPER),
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> int:
        """Start it and return its process id. Its own session: a Ctrl-C in the terminal does not reach it."""
        assert name not in self._running or not self.alive(name), f"{name} is already running"
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._tell_reaper("+", process.pid)
        self._running[name] = _Running(tuple(command), env, cwd, process)
        return process.pid

    def start_again(self, name: str) -> int:
        """As it was started before; it must have ended."""
        before = self._running[name]
        return self.start(name, before.command, env=before.env, cwd=before.cwd)

    def pids(self) -> dict[str, int]:
        return {name: running.process.pid for name, running in self._running.items()}

    def pid(self, name: str) -> int:
        return self._running[name].process.pid

    def alive(self, name: str) -> bool:
        return self._running[name].process.poll() is None

    def exit_code(self, name: str) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._running[name].process.poll()

    def wait(self, name: str, timeout_s: float) -> int:
        """Its exit code, once it has ended by itself."""
        return self._running[name].process.wait(timeout_s)

    def ended(self) -> list[str]:
        """The names of those that are not running."""
        return [name for name in self._running if not self.alive(name)]

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].process.send_signal(number)

    def pause(self, name: str) -> None:
        self.signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.signal(name, signal.SIGCONT)

    def stop(self, name: str, *, ending_s: float = ENDING_S) -> int:
        """SIGTERM, then SIGKILL; returns the exit code. What is paused is resumed, so that it can end."""
        process = self._running[name].process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(ending_s)
            except subprocess.TimeoutExpired:
                process.kill()
        return self._reaped(process)

    def kill(self, name: str) -> None:
        """SIGKILL: as if the machine it ran on was gone."""
        process = self._running[name].process
        process.kill()
        self._reaped(process)

    def tail(self, name: str, lines: int = 15) -> str:
        text = (self.logs / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def close(self, *, kill: bool = False) -> None:
        """End all, the last started first. `kill`: at once, where nothing they would still write is wanted."""
        for name in reversed(self._running):
            if kill:
                self.kill(name)
            else:
                self.stop(name)
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.close()
            self._reaper.wait(ENDING_S)
            self._reaper = None

    def _reaped(self, process: subprocess.Popen[bytes]) -> int:
        code = process.wait(ENDING_S)
        self._tell_reaper("-", process.pid)
        return code

    def _tell_reaper(self, sign: str, pid: int) -> None:
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.write(f"{sign}{pid}\n")
            self._reaper.stdin.flush()


def started_at(pid: int) -> str:
    """When the kernel started the process, in its own unit; empty once it is gone. Tells a pid from its next owner."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def end_by_pid(pid: int, begun: str) -> bool:
    """Kill a process that another run of ours started; False where it is gone, or the number is somebody else's."""
    if not begun or started_at(pid) != begun:
        return False
    os.kill(pid, signal.SIGKILL)
    while started_at(pid) == begun:
        time.sleep(0.02)
    return True
