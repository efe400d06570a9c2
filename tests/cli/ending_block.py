"""A command killed without warning around its purchase: `python -m tests.cli.ending_block before|after ARGUMENTS`.

`before`: the intent is written down as submitted and the call was never made. `after`: the call was made, and nobody
wrote down what came of it. The ledger looks the same.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tidemill.cli import main
from tidemill.sim.cloud.account import SimAccount


def die(moment: str) -> None:
    for name in ("purchase", "purchase_extension"):
        call = getattr(SimAccount, name)

        def dying(*given: Any, call: Any = call) -> None:
            if moment == "after":
                call(*given)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(SimAccount, name, dying)


if __name__ == "__main__":
    die(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
