"""`tidemill blocks` and `adopt`: list every block of the account, and adopt one that was bought elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from tidemill.cli.kube_session import with_session_or_cluster
from tidemill.cli.session import JSON, YES, Session, with_session
from tidemill.cli.settle import NOT_BOUGHT_AFTER
from tidemill.cli.terminal import confirmed, console, table
from tidemill.engine.ownership import snapshot_of
from tidemill.model.capacity import LIVE_STATES, NEVER_CAME_STATES
from tidemill.model.errors import PortError, Refused, SpecError
from tidemill.model.purchases import IN_DOUBT, Adoption, PurchaseIntent, PurchaseState
from tidemill.report.holdings import Holding, HoldingRecords, holdings
from tidemill.report.rows import plain
from tidemill.spec import names
from tidemill.spec.compute_pool import matches

if TYPE_CHECKING:
    from tidemill.cli.live import LiveSession
    from tidemill.report import BlockRow


@click.command(short_help="List every block and what to do next.")
@JSON
@with_session_or_cluster
def blocks(session: Session | LiveSession, as_json: bool) -> None:
    """List every Capacity Block of the account: state, times, owner, and what to do next.

    Blocks that were bought elsewhere are listed as untracked. A tag does not make a block ours; only `tidemill adopt`
    does. "drained by" is when its nodes must be drained: when EC2 ends them, or earlier if the pool's provisioner
    ends them earlier. With --kube: also what runs on them, as the cluster shows it; then nothing is written, not even
    a new ledger.
    """
    found = _holdings(session)
    running = _running(session)
    if as_json:
        head = {
            "at": plain(session.now()),
            "deployment": session.deployment,
            "region": session.spec.platform.spec.region,
        }
        doubt = [intent.id for intent in _outcome_unknown(session)]
        rows = [{**plain(holding), **_plain_running(running.get(holding.id))} for holding in found]
        click.echo(json.dumps({**head, "blocks": rows, "in_doubt": doubt}, indent=2))
        return
    _print(found)
    for row in running.values():
        click.echo(f"{row.id}: {row.nodes_up} nodes up with {row.pods} pods")
    for line in _missing_at_aws(session, found):
        click.echo(line)
    for intent in _outcome_unknown(session):
        click.echo(_doubt(intent, found))


def _doubt(intent: PurchaseIntent, found: tuple[Holding, ...]) -> str:
    """What AWS shows of a purchase whose answer was lost: the same that `tidemill settle` would record."""
    made = [holding for holding in found if holding.intent == intent.id]
    look = f"tidemill settle {intent.id}"
    if not made or intent.extends:
        return f"{intent.id} may have bought a block; its outcome is unknown: {look}"
    ids = ", ".join(holding.id for holding in made)
    if all(holding.state in NEVER_CAME_STATES for holding in made):
        return f"{intent.id} made {ids}, whose payment failed; record that nothing was bought: {look}"
    return f"{intent.id} bought {ids}, as AWS shows, and the answer was lost; record it: {look}"


def _running(session: Session | LiveSession) -> dict[str, BlockRow]:
    """What runs on our blocks, by id; of a session without a cluster nothing is known."""
    if isinstance(session, Session):
        return {}
    from tidemill.cli.live import look

    return {row.id: row for row in look(session).status.blocks}


def _plain_running(row: BlockRow | None) -> dict[str, int]:
    return {} if row is None else {"nodes_up": row.nodes_up, "pods": row.pods}


def _missing_at_aws(session: Session | LiveSession, found: tuple[Holding, ...]) -> list[str]:
    """Blocks that we bought and EC2 does not list: its lists can be late, and leave out what ended."""
    shown = {holding.id for holding in found}
    return [
        f"{intent.id} bought {id_}; {_since_when(session, intent)}"
        for intent in session.books.purchases()
        if intent.state is PurchaseState.CONFIRMED and intent.envelope.earliest_end > session.now()
        for id_ in intent.reservation_ids
        if id_ not in shown
    ]


def _since_when(session: Session | LiveSession, intent: PurchaseIntent) -> str:
    since = intent.state_at or intent.proposed_at
    if session.now() < since + NOT_BOUGHT_AFTER:
        return "AWS does not list it yet"
    return (
        f"AWS has not listed it since {since:%Y-%m-%d %H:%M} UTC; look into it: tidemill settle {intent.id}"
    )


def _outcome_unknown(session: Session | LiveSession) -> list[PurchaseIntent]:
    return [intent for intent in session.books.purchases() if intent.state in IN_DOUBT]


def _holdings(session: Session | LiveSession) -> tuple[Holding, ...]:
    books = HoldingRecords(session.books.purchases(), session.books.adoptions())
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
    that another account shares cannot be tagged. --undo reverses it, while none of our nodes runs on the block, and
    removes the owner tag.
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
    adoption = next((known for known in session.books.adoptions() if known.reservation_id == block), None)
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
    owner_tag = _remove_owner_tag(session, adoption)
    sentence = f"{block} no longer belongs to {session.deployment}; {owner_tag}"
    click.echo(
        json.dumps({"id": block, "who": session.who, "said": sentence}, indent=2) if as_json else sentence
    )


def _remove_owner_tag(session: Session, adoption: Adoption) -> str:
    """What became of the tags that the adoption wrote."""
    block = adoption.reservation_id
    shown = next((one for one in session.cloud.reservations() if one.id == block), None)
    written = dict(shown.tags) if shown is not None else {}
    if written.get(names.TAG_OWNER) != session.deployment:
        return "it has no owner tag of ours"
    going = (
        (names.TAG_OWNER, session.deployment),
        *(((names.TAG_POOL, adoption.pool),) if adoption.pool else ()),
    )
    try:
        session.cloud.untag_reservation(block, going)
    except (Refused, PortError) as error:
        return (
            f"its tag {names.TAG_OWNER}={session.deployment} could not be removed ({error}): remove it, or other tools"
            " still take it for ours"
        )
    return f"its tag {names.TAG_OWNER} is removed"


def _check_adoptable(session: Session, found: Holding, pool: str) -> None:
    if found.held in ("bought", "adopted"):
        raise Refused(f"{found.id} belongs to this deployment already ({found.held})")
    if found.held == "another's":
        raise Refused(
            f"{found.id} belongs to deployment {found.owner} by its tag; remove {names.TAG_OWNER} if that is wrong"
        )
    if found.unread:
        raise Refused(
            f"the record of {found.id} cannot be read: {found.unread}; it cannot be adopted before it can"
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
