"""End times, stated the way the engine states them: as the groups of nodes that a pod may not use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

BOOT = timedelta(minutes=7)  # from the launch of a node until pods can start on it


def refused(need: timedelta, lead: timedelta, lasts: Mapping[str, timedelta]) -> frozenset[str]:
    """The groups that end too soon for a pod that runs for `need` and takes `lead` to leave.

    `lasts` says how long from now the nodes of each group can be used.
    """
    return frozenset(group for group, usable in lasts.items() if BOOT + need + lead > usable)
