"""Ids as AWS writes them (`cr-` and 17 hex digits), derived from the seed and what the thing is.

Never counted across kinds: a purchase more or less must not rename the instances that come after it.
"""

from __future__ import annotations

from tidemill.sim.timeline import stream

_ID_BITS = 17 * 4


def seeded_id(prefix: str, seed: int, *names: str) -> str:
    return f"{prefix}-{stream(seed, 'id', prefix, *names).getrandbits(_ID_BITS):017x}"
