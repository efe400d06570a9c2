"""Run a command that is killed around its purchase call: `python -m tests.cli.killed_command before|after ARGUMENTS`.

`before`: the intent is recorded as submitted, and the call is not made. `after`: the call is made, and its outcome is
not recorded. The ledger looks the same in both cases.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tidemill.cli import main
from tidemill.sim.cloud.account import SimAccount


def kill_at(moment: str) -> None:
    for name in ("purchase", "purchase_extension"):
        call = getattr(SimAccount, name)

        def killed(*given: Any, call: Any = call) -> None:
            if moment == "after":
                call(*given)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(SimAccount, name, killed)


if __name__ == "__main__":
    kill_at(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
