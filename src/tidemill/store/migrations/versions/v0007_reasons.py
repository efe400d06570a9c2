"""Why a purchase is in its state becomes data: a kind and its facts. Until now it was a sentence in `note`.

This is the last program that reads those sentences. What it does not know stays a note, as it was written.
"""

import re
from typing import Any

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Document

revision = "0007"
down_revision = "0006"

_OPEN = ("proposed", "approved")
# Sentence -> kind. The groups of a match are facts of the reason; `note` is what a person wrote.
_SENTENCES = [
    (r"rebuilt from its tags(?P<fee_estimated>; its fee is the list price)?", "rebuilt-from-tags"),
    (r"rebuilt from the history of extensions", "rebuilt-from-history"),
    (r"rebuilt: an attempt of which nothing is known", "rebuilt-lost-attempt"),
    (r"rebuilt: (?P<name>.+?) says that this was spent besides", "rebuilt-spending"),
    (r"found by its tag: (?P<reservation_ids>cr-.*)", "found-by-tag"),
    (r"found in the history of (?P<reservation_ids>cr-.*)", "found-in-history"),
    (r"it was (?P<name>\w+), and AWS shows (?P<reservation_ids>cr-.*) with its tag", "found-after-all"),
    (r"its block (?P<reservation_ids>cr-.*) shows by now", "more-blocks-listed"),
    (r"(?P<name>.+?) made sure that nothing was bought: (?P<note>.*)", "not-bought-says-person"),
    (r"(?P<name>.+?) found it(: (?P<note>.*))?", "found-by-person"),
    (r"found by its tag, and its payment failed: .*", "payment-failed"),
    (r"its payment failed: .*", "payment-failed"),
    (r"AWS says that its payment failed or that it never came: .*", "payment-failed"),
    (r"its demand is covered by now", "covered"),
    (r"most of its demand is covered by now: .*", "mostly-covered"),
    (r"it expired before it was approved and bought", "expired"),
    (r"expired; it is asked for anew", "replaced"),
    (r"its demand window is no longer in the plan", "window-removed"),
    (r"the block it would extend is no longer there", "block-gone"),
    (r"the end of the block it would extend has moved", "block-end-moved"),
    (r"the call's outcome is unknown", "answer-unknown"),
    (r"the call's answer was lost; it is not repeated", "answer-lost"),
]
# Of purchases that are not submitted: a submit wrote it, and the next one waits a while.
_TRIED = [
    (r"(not bought: )?no offer inside its envelope", "no-offer"),
    (r"only sold from \$(?P<fee_usd>[\d,]+) by now, .*", "dearer-than-approved"),
    (r"inside what the policy buys by itself", "approved-by-policy"),
    (r"(not bought: )?(?P<detail>.*)", "refused-by-aws"),
]


def upgrade() -> None:
    op.add_column("purchases", sa.Column("reason", sa.String))
    op.add_column("purchases", sa.Column("reason_data", Document))
    table = sa.table(
        "purchases",
        *(sa.column(name) for name in ("seq", "state", "note", "reason")),
        sa.column("reason_data", Document),
    )
    connection = op.get_bind()
    rows = connection.execute(sa.select(table.c.seq, table.c.state, table.c.note).where(table.c.note != ""))
    for seq, state, note in rows.all():
        values = _read(state, note)
        if values is not None:
            connection.execute(sa.update(table).where(table.c.seq == seq).values(**values))


def _read(state: str, note: str) -> dict[str, Any] | None:
    """The new columns; None: it stays a note. A refusal's note is what the person said who refused."""
    if state == "refused":
        return None
    if state == "submitted":  # its offer and fee have columns of their own
        return {"reason": None, "reason_data": None, "note": ""}
    for sentence, kind in _TRIED if state in _OPEN and not note.startswith("rebuilt") else _SENTENCES:
        found = re.fullmatch(sentence, note, re.DOTALL)
        if found is not None:
            facts = {name: said for name, said in found.groupdict().items() if said is not None}
            kept = facts.pop("note", "")
            return {"reason": kind, "reason_data": _typed(facts), "note": kept}
    return None


def _typed(facts: dict[str, str]) -> dict[str, Any]:
    typed: dict[str, Any] = dict(facts)
    if "reservation_ids" in facts:
        typed["reservation_ids"] = facts["reservation_ids"].split(", ")
    if "fee_usd" in facts:
        typed["fee_usd"] = int(facts["fee_usd"].replace(",", ""))
    if "fee_estimated" in facts:
        typed["fee_estimated"] = True
    return typed
