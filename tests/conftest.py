"""Shared by every test: the requirement table, fresh ledgers, Hypothesis without wall-clock deadlines, and two things
that save a third of the time: AWS's service models are read once, and the garbage collector leaves the modules alone.
"""

from __future__ import annotations

import gc
import os
import signal
from functools import cache

import botocore.session
import pytest
from hypothesis import settings

pytest_plugins = ["conformance.plugin", "tests.store.ledgers"]

# A slow machine must not fail a property; the seed is printed when one fails. In CI the examples are the same each
# time: chance looks for new faults on people's machines, where somebody can follow them up.
settings.register_profile("tidemill", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tidemill")

# A catalog that somebody refreshed on this machine must not change what is tested.
os.environ["TIDEMILL_CATALOG"] = "shipped"

# A shell that starts the tests in the background makes them ignore Ctrl-C, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each session of boto3 would parse the service models anew, 0.3 s every time; a loader only reads, so one serves all.
botocore.session.create_loader = cache(botocore.session.create_loader)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """A million objects of modules and collected tests live to the end: no full collection need look at them again."""
    gc.collect()
    gc.freeze()
