"""How long `tidemill --help` takes, as a multiple of a bare interpreter's start. The promise is under 6x.

The two are measured in turn, so that a busy machine slows both; the median of the ratios is what counts.
Run with the interpreter Tidemill is installed in: `python -m benchmarks.startup [ROUNDS]`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

PROMISED_RATIO = 6.0
BARE = (sys.executable, "-c", "pass")
HELP = (sys.executable, "-c", "import sys; from tidemill.cli import main; sys.exit(main(['--help']))")


def seconds(command: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main(rounds: int) -> None:
    for command in (BARE, HELP):  # once for the file cache and the bytecode
        seconds(command)
    pairs = [(seconds(BARE), seconds(HELP)) for _ in range(rounds)]
    bare_s, help_s = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(help_time / bare_time for bare_time, help_time in pairs)
    print(f"bare interpreter   {bare_s * 1000:6.1f} ms")
    print(f"tidemill --help    {help_s * 1000:6.1f} ms")
    print(f"ratio              {ratio:6.2f} x   (promised: under {PROMISED_RATIO:g} x, {rounds} rounds)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
