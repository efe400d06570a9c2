"""The node's own deadline agent, installed at first boot: it empties the node in time if the engine is away (CB-16)."""

from __future__ import annotations

from tidemill.provision.user_data.bootstrap import Bootstrap


def install(boot: Bootstrap) -> list[str]:
    """Lines of a shell script; none where the node's end is not known."""
    return []
