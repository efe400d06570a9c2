"""`tidemill blocks` and `adopt`: list every block of the account, and adopt one that was bought elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import click

from tidemill.cli.session import JSON, YES, Session, with_session
from tidemill.cli.settle import NOT_BOUGHT_AFTER
from tidemill.cli.terminal import confirmed, console, table
from tidemill.engine.ownership import snapshot_of
from tidemill.model.capacity import LIVE_STATES
from tidemill.model.errors import PortError, Refused, SpecError
from tidemill.model.purchases import IN_DOUBT, Adoption, PurchaseIntent, PurchaseState
from tidemill.report.holdings import Holding, HoldingRecords, holdings
from tidemill.report.rows import plain
from tidemill.spec import names
from tidemill.spec.compute_pool import matches


@click.command(short_help="List every block and what to do next.")
@JSON
@with_session
def blocks(session: Session, as_json: bool) -> None:
    """List every Capacity Block of the account: state, times, owner, and what to do next.

    Blocks that were bought elsewhere are listed as untracked. A tag does not make a block ours; only `tidemill adopt`
    does. "drained by" is when its nodes must be drained: when EC2 ends them, or earlier if the pool's provisioner
    ends them earlier.
    """
    found = _holdings(session)
    if as_json:
        head = {
            "at": plain(session.now()),
            "deployment": session.deployment,
            "region": session.spec.platform.spec.region,
        }
        doubt = [intent.id for intent in _outcome_unknown(session)]
        click.echo(
            json.dumps({**head, "blocks": [plain(holding) for holding in found], "in_doubt": doubt}, indent=2)
        )
        return
    _print(found)
    for line in _missing_at_aws(session, found):
        click.echo(line)
    for intent in _outcome_unknown(session):
        click.echo(
            f"{intent.id} may have bought a block; its outcome is unknown: tidemill settle {intent.id}"
        )


def _missing_at_aws(session: Session, found: tuple[Holding, ...]) -> list[str]:
    """Blocks that we bought and EC2 does not list: its lists can be late, and leave out what ended."""
    shown = {holding.id for holding in found}
    return [
        f"{intent.id} bought {id_}; {_since_when(session, intent)}"
        for intent in session.ledger.purchases()
        if intent.state is PurchaseState.CONFIRMED and intent.envelope.earliest_end > session.now()
        for id_ in intent.reservation_ids
        if id_ not in shown
    ]


def _since_when(session: Session, intent: PurchaseIntent) -> str:
    since = intent.state_at or intent.proposed_at
    if session.now() < since + NOT_BOUGHT_AFTER:
        return "AWS does not list it yet"
    return (
        f"AWS has not listed it since {since:%Y-%m-%d %H:%M} UTC; look into it: tidemill settle {intent.id}"
    )


def _outcome_unknown(session: Session) -> list[PurchaseIntent]:
    return [intent for intent in session.ledger.purchases() if intent.state in IN_DOUBT]


def _holdings(session: Session) -> tuple[Holding, ...]:
    books = HoldingRecords(session.ledger.purchases(), session.ledger.adoptions())
    return holdings(
        session.spec, session.cloud.reservations(), session.cloud.instances(), books, session.now()
    )


def _print(found: tuple[Holding, ...]) -> None:
    if not found:
        click.echo("AWS shows no block.")
        return
    rows = table(
        "id", "type", "count", "zone", "state", "start (UTC)", "end", "drained by", "extend until", "whose",
        "used", "next", right=("count",),
    )  # fmt: skip
    for block in found:
        whose = f"{block.held}{f', {block.pool}' if block.pool else ''}"
        foreign = f", {block.strangers} not ours" if block.strangers else ""
        rows.add_row(
            block.id, block.type, str(block.count), block.zone, block.state, _at(block.start), _at(block.end),
            _at(block.deadline), _at(block.extendable_until), whose, f"{block.used}, {block.free} free{foreign}",
            block.next,
        )  # fmt: skip
    console().print(rows)


def _at(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%m-%d %H:%M}"


# --- adopting -----------------------------------------------------------------------------------------


@click.command(short_help="Adopt a block that was bought elsewhere.")
@click.argument("block", metavar="BLOCK")
@click.option("--pool", default="", metavar="NAME", help="The pool that uses it. Default: any pool that may.")
@click.option("--undo", is_flag=True, help="Undo the adoption: the block is no longer counted or used.")
@YES
@JSON
@with_session
def adopt(session: Session, block: str, pool: str, undo: bool, yes: bool, as_json: bool) -> None:
    """Adopt BLOCK (cr-…), bought elsewhere or shared by another account: from now on the engine uses it.

    The adoption is recorded in the ledger with your identity. The block gets our owner tag, if EC2 allows it; a block
    that another account shares cannot be tagged. --undo reverses it, while none of our nodes runs on the block.
    """
    if undo:
        _undo_adoption(session, block, yes=yes, as_json=as_json)
        return
    found = next((holding for holding in _holdings(session) if holding.id == block), None)
    if found is None:
        raise SpecError(f"AWS shows no block '{block}'; list them with: tidemill blocks")
    _check_adoptable(session, found, pool)
    click.echo(
        f"{found.count} x {found.type} in {found.zone}, {found.state}, {_at(found.start)} to {_at(found.end)} UTC"
        f"{f', for pool {pool}' if pool else ''}; {found.used} of its instances are used, {found.free} free",
        err=True,
    )
    if not confirmed(f"Adopt {block} for deployment {session.deployment}?", yes=yes):
        raise Refused("not adopted: you said no")
    (shown,) = (reservation for reservation in session.cloud.reservations() if reservation.id == block)
    session.ledger.adopt(Adoption(block, pool, session.who, session.now(), snapshot_of(shown, None)))
    tagged = _tag_block(session, block, pool)
    sentence = (
        f"{block} belongs to {session.deployment} from now on{'' if tagged else '; it has no owner tag'}"
    )
    if as_json:
        click.echo(
            json.dumps(
                {"id": block, "pool": pool, "who": session.who, "tagged": tagged, "said": sentence}, indent=2
            )
        )
    else:
        click.echo(sentence)


def _undo_adoption(session: Session, block: str, *, yes: bool, as_json: bool) -> None:
    """Refused while our nodes run on it: the engine would no longer drain or end them."""
    adoption = next((known for known in session.ledger.adoptions() if known.reservation_id == block), None)
    if adoption is None or adoption.given_up:
        raise SpecError(f"{block} is not adopted in this ledger; list blocks with: tidemill blocks")
    ours = sum(
        instance.source.id == block and instance.owner == session.deployment
        for instance in session.cloud.instances()
    )
    if ours:
        raise Refused(
            f"{ours} of our instances run on {block}, and the engine would no longer drain them; wait until they end"
        )
    if not confirmed(
        f"Undo the adoption of {block}? Its demand is then open again, and may be bought again.", yes=yes
    ):
        raise Refused("still adopted: you said no")
    session.ledger.adopt(replace(adoption, who=session.who, at=session.now(), given_up=True))
    sentence = f"{block} no longer belongs to {session.deployment}; its tags are unchanged"
    click.echo(
        json.dumps({"id": block, "who": session.who, "said": sentence}, indent=2) if as_json else sentence
    )


def _check_adoptable(session: Session, found: Holding, pool: str) -> None:
    if found.held in ("bought", "adopted"):
        raise Refused(f"{found.id} belongs to this deployment already ({found.held})")
    if found.held == "another's":
        raise Refused(
            f"{found.id} belongs to deployment {found.owner} by its tag; remove {names.TAG_OWNER} if that is wrong"
        )
    if found.state not in LIVE_STATES:
        raise Refused(
            f"{found.id} is {found.state}, so it cannot be used any more; adopt an active or scheduled block"
        )
    if pool:
        kind = session.spec.catalog.types.get(found.type)
        if kind is None or not matches(kind, session.pool(pool).spec.requirements):
            raise SpecError(
                f"pool {pool} does not allow {found.type}; name a pool that does, or leave --pool out"
            )


def _tag_block(session: Session, block: str, pool: str) -> bool:
    tags = ((names.TAG_OWNER, session.deployment), *(((names.TAG_POOL, pool),) if pool else ()))
    try:
        session.cloud.tag_reservation(block, tags)
    except (Refused, PortError) as error:
        click.echo(f"not tagged: {error}", err=True)
        return False
    return True
