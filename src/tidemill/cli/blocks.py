"""`tidemill blocks` and `adopt`: every block the account can see, and taking in one that was bought elsewhere."""

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


@click.command(short_help="List every block and what is to be done.")
@JSON
@with_session
def blocks(session: Session, as_json: bool) -> None:
    """List every Capacity Block of the account: state, times, whose it is, and what is to be done next.

    Blocks bought elsewhere are listed as untracked; no tag makes one ours, only `tidemill adopt`. The deadline is when
    its nodes must be drained: EC2's own time, or earlier where the pool's provisioner acts earlier.
    """
    found = _holdings(session)
    if as_json:
        head = {
            "at": plain(session.now()),
            "deployment": session.deployment,
            "region": session.spec.platform.spec.region,
        }
        doubt = [one.id for one in _in_doubt(session)]
        click.echo(json.dumps({**head, "blocks": [plain(one) for one in found], "in_doubt": doubt}, indent=2))
        return
    _print(found)
    for line in _missing_at_aws(session, found):
        click.echo(line)
    for one in _in_doubt(session):
        click.echo(f"{one.id} may have bought a block, and nobody knows yet: tidemill settle {one.id}")


def _missing_at_aws(session: Session, found: tuple[Holding, ...]) -> list[str]:
    """Bought, and not in EC2's lists, which can be late. One that ended is in none any more."""
    shown = {one.id for one in found}
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
    return f"AWS has not listed it since {since:%Y-%m-%d %H:%M} UTC: tidemill settle {intent.id}"


def _in_doubt(session: Session) -> list[PurchaseIntent]:
    return [one for one in session.ledger.purchases() if one.state in IN_DOUBT]


def _holdings(session: Session) -> tuple[Holding, ...]:
    books = HoldingRecords(session.ledger.purchases(), session.ledger.adoptions())
    return holdings(
        session.spec, session.cloud.reservations(), session.cloud.instances(), books, session.now()
    )


def _print(found: tuple[Holding, ...]) -> None:
    if not found:
        click.echo("AWS shows no block.")
        return
    made = table(
        "id", "type", "count", "zone", "state", "start (UTC)", "end", "drained by", "extend until", "whose",
        "used", "next", right=("count",),
    )  # fmt: skip
    for one in found:
        whose = f"{one.held}{f', {one.pool}' if one.pool else ''}"
        strangers = f", {one.strangers} strangers'" if one.strangers else ""
        made.add_row(
            one.id, one.type, str(one.count), one.zone, one.state, _at(one.start), _at(one.end),
            _at(one.deadline), _at(one.extendable_until), whose, f"{one.used}, {one.free} free{strangers}", one.next,
        )  # fmt: skip
    console().print(made)


def _at(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%m-%d %H:%M}"


# --- adopting -----------------------------------------------------------------------------------------


@click.command(short_help="Take in a block that was bought elsewhere.")
@click.argument("block", metavar="BLOCK")
@click.option("--pool", default="", metavar="NAME", help="The pool that uses it. Default: whichever may.")
@click.option("--undo", is_flag=True, help="Take back that it was adopted: it is no longer counted or used.")
@YES
@JSON
@with_session
def adopt(session: Session, block: str, pool: str, undo: bool, yes: bool, as_json: bool) -> None:
    """Take in BLOCK (cr-…), bought elsewhere or shared by another account: from then on the engine uses it.

    It is written into the ledger with your identity, and tagged with the platform's owner tag where that is allowed;
    EC2 lets nobody tag a block that another account shares. --undo takes it back, while none of our nodes is on it.
    """
    if undo:
        _undo_adoption(session, block, yes=yes, as_json=as_json)
        return
    found = next((one for one in _holdings(session) if one.id == block), None)
    if found is None:
        raise SpecError(f"AWS shows no block '{block}'; list them: tidemill blocks")
    _check_adoptable(session, found, pool)
    click.echo(
        f"{found.count} x {found.type} in {found.zone}, {found.state}, {_at(found.start)} to {_at(found.end)} UTC"
        f"{f', for pool {pool}' if pool else ''}; {found.used} of its instances are used, {found.free} free",
        err=True,
    )
    if not confirmed(f"Take {block} in as {session.deployment}'s?", yes=yes):
        raise Refused("not adopted: you said no")
    (shown,) = (one for one in session.cloud.reservations() if one.id == block)
    session.ledger.adopt(Adoption(block, pool, session.who, session.now(), snapshot_of(shown, None)))
    tagged = _tag_block(session, block, pool)
    said = f"{block} is {session.deployment}'s from now on{'' if tagged else '; it carries no tag of ours'}"
    if as_json:
        click.echo(
            json.dumps(
                {"id": block, "pool": pool, "who": session.who, "tagged": tagged, "said": said}, indent=2
            )
        )
    else:
        click.echo(said)


def _undo_adoption(session: Session, block: str, *, yes: bool, as_json: bool) -> None:
    """Its nodes, if any, become strangers': nobody drains or ends them."""
    held = next((one for one in session.ledger.adoptions() if one.reservation_id == block), None)
    if held is None or held.given_up:
        raise SpecError(f"{block} was not adopted here; list blocks: tidemill blocks")
    on = sum(one.source.id == block and one.owner == session.deployment for one in session.cloud.instances())
    if on:
        raise Refused(f"{on} of our instances are on {block}: let them end first, nobody would drain them")
    if not confirmed(f"Give {block} up? Its demand is then open again, and may be bought anew.", yes=yes):
        raise Refused("still adopted: you said no")
    session.ledger.adopt(replace(held, who=session.who, at=session.now(), given_up=True))
    said = f"{block} is no longer {session.deployment}'s; its tags are as they were"
    click.echo(json.dumps({"id": block, "who": session.who, "said": said}, indent=2) if as_json else said)


def _check_adoptable(session: Session, found: Holding, pool: str) -> None:
    if found.held in ("bought", "adopted"):
        raise Refused(f"{found.id} is ours already ({found.held})")
    if found.held == "another's":
        raise Refused(f"{found.id} carries the owner tag of deployment {found.owner}: it is not touched")
    if found.state not in LIVE_STATES:
        raise Refused(f"{found.id} is {found.state}: there is nothing to take in")
    if pool:
        kind = session.spec.catalog.types.get(found.type)
        if kind is None or not matches(kind, session.pool(pool).spec.requirements):
            raise SpecError(f"pool {pool} does not allow {found.type}")


def _tag_block(session: Session, block: str, pool: str) -> bool:
    tags = ((names.TAG_OWNER, session.deployment), *(((names.TAG_POOL, pool),) if pool else ()))
    try:
        session.cloud.tag_reservation(block, tags)
    except (Refused, PortError) as error:
        click.echo(f"not tagged: {error}", err=True)
        return False
    return True
