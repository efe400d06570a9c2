"""What a process costs, as the kernel counts it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of the process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(pid: int, which: str = "VmRSS") -> float:
    """VmRSS: now; VmHWM: the most it ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no {which} of {pid}")


@dataclass(slots=True)
class CpuShare:
    """The share of one core that a process takes from now on."""

    pid: int
    _cpu_s: float = 0.0
    _wall_s: float = 0.0

    def __post_init__(self) -> None:
        self._cpu_s, self._wall_s = cpu_s(self.pid), time.monotonic()

    def percent(self) -> float:
        return 100 * (cpu_s(self.pid) - self._cpu_s) / (time.monotonic() - self._wall_s)
