"""Shared by every test: the requirement table, and Hypothesis without wall-clock deadlines."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["conformance.plugin"]

# A slow machine must not fail a property; the seed is printed when one fails.
settings.register_profile("tidemill", deadline=None, print_blob=True)
settings.load_profile("tidemill")
