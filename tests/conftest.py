"""Shared by every test: the requirement table, fresh ledgers, and Hypothesis without wall-clock deadlines."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["conformance.plugin", "tests.store.ledgers"]

# A slow machine must not fail a property; the seed is printed when one fails. In CI the examples are the same each
# time: chance looks for new faults on people's machines, where somebody can follow them up.
settings.register_profile("tidemill", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tidemill")

# A catalog that somebody refreshed on this machine must not change what is tested.
os.environ["TIDEMILL_CATALOG"] = "shipped"
