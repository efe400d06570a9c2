"""The last step of buying from the command line: submit through the one place that spends, and say what came of it.

Whatever goes wrong after the call may have been made is told as doubt, with what to do about it.
"""

from __future__ import annotations

import json

import click

from tidemill.cli.purchase_summary import document, lines
from tidemill.cli.session import Desk
from tidemill.model.errors import NoCapacity, OutcomeUnknown, PortError
from tidemill.model.purchases import PurchaseIntent, PurchaseState


def show(desk: Desk, intent: PurchaseIntent, fee_usd: int | None) -> None:
    for line in lines(desk.spec, intent, fee_usd, desk.ledger.spending(desk.now())):
        click.echo(line, err=True)


def tell(desk: Desk, intent: PurchaseIntent, fee_usd: int | None, sentence: str, as_json: bool) -> None:
    if as_json:
        told = {**document(desk.spec, intent, fee_usd), "said": sentence}
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(sentence)


def submit(desk: Desk, intent: PurchaseIntent, *, as_json: bool) -> None:
    try:
        said = desk.buyer().submit(intent)
    except NoCapacity as error:
        after = desk.purchase(intent.id)
        again = "approve" if after.state.value == "proposed" and intent.state.value == "approved" else "buy"
        raise NoCapacity(
            f"nothing was bought: {error}. {intent.id} stays: tidemill {again} {intent.id}"
        ) from error
    except (PortError, KeyboardInterrupt) as error:
        if not _in_doubt(desk, intent.id):
            raise
        raise OutcomeUnknown(unknown_words(intent.id)) from error
    after = desk.purchase(intent.id)
    tell(desk, after, after.fee_usd, f"{intent.id}: {said}. Follow it with: tidemill blocks", as_json)


def _in_doubt(desk: Desk, intent_id: str) -> bool:
    """Whether the call may have been made. A ledger that does not answer cannot say no."""
    try:
        return desk.purchase(intent_id).state in (PurchaseState.SUBMITTED, PurchaseState.UNKNOWN)
    except PortError:
        return True


def unknown_words(intent_id: str) -> str:
    return (
        f"nobody knows whether {intent_id} was bought: AWS did not answer. It is not submitted again, and its fee "
        f"counts as spent. AWS shows a purchase within minutes: `tidemill settle {intent_id}` looks for it. Do not buy "
        "the same again before that"
    )
