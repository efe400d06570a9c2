"""`tidemill pause` and `tidemill resume`: a person stops the engine's own choices, and lets it go on.

The ledger keeps it, so that it holds for every replica and after a restart, and so that AWS says who did it.
"""

from __future__ import annotations

import json

import click

from tidemill.cli.session import JSON, Session, with_session
from tidemill.model.errors import Refused
from tidemill.model.purchases import Pause
from tidemill.spec.units import format_instant


@click.command(short_help="Stop purchases, launches and admissions for a while.")
@click.option(
    "--reason", default="", help="The reason; shown to everybody who waits, and kept in the ledger."
)
@JSON
@with_session
def pause(session: Session, reason: str, as_json: bool) -> None:
    """Pause the engine of a deployment, from its next tick on.

    While it is paused nothing is bought, launched or admitted, no node is removed to save money and no hand-over
    begins. What a deadline forces goes on: nodes whose source ends are emptied in time. `tidemill resume` ends it.
    """
    held = session.books.pause()
    if held is not None:
        since = f"since {format_instant(held.at)} by {held.who}"
        raise Refused(f"it is paused already, {since}; end it with: tidemill resume")
    written = Pause(True, session.who, session.now(), reason)
    session.ledger.write_pause(written)
    _print(written, as_json, "Paused. What a deadline forces goes on; end it with: tidemill resume")


@click.command(short_help="Let a paused engine go on.")
@click.option("--reason", default="", help="The reason; kept in the ledger.")
@JSON
@with_session
def resume(session: Session, reason: str, as_json: bool) -> None:
    """Let a paused engine go on. It looks every 30 seconds."""
    if session.books.pause() is None:
        raise Refused("it is not paused")
    written = Pause(False, session.who, session.now(), reason)
    session.ledger.write_pause(written)
    _print(written, as_json, "It goes on within 30 seconds.")


def _print(written: Pause, as_json: bool, text: str) -> None:
    if as_json:
        said = {"who": written.who, "at": format_instant(written.at), "reason": written.reason}
        click.echo(json.dumps({"paused": written.paused, **said}, indent=2))
    else:
        click.echo(text)
