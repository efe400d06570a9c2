"""`tidemill sim`: a simulated AWS account in a file. Create it, advance its time, inject faults."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import get_args

import click

from tidemill.cli.session import FILES, JSON, open_account
from tidemill.cli.sim_aws import aws
from tidemill.model.errors import SpecError
from tidemill.spec.faults import ACCOUNT_FAULTS, Call, FaultKind

_FILE = click.argument(
    "file", envvar="TIDEMILL_SIM", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE"
)
_FILE_OPTION = click.option(
    "--sim", "file", envvar="TIDEMILL_SIM", required=True, type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE", help="The file of the account.",
)  # fmt: skip


@click.group()
def sim() -> None:
    """A simulated AWS account in a file, so that commands can follow each other.

    Name the file with --sim FILE or TIDEMILL_SIM. TIDEMILL_SIM_AS is the caller: a user name or a whole ARN.
    """


sim.add_command(aws)


@sim.command()
@_FILE
@FILES
@click.option(
    "--at",
    metavar="INSTANT",
    help="Start at this time and stand still. Default: now, and run.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of the offers that EC2 sells.",
)
@click.option(
    "--market", type=click.Choice(("plenty", "scarce", "none")), default="plenty", show_default=True,
    help="How much capacity EC2 sells.",
)  # fmt: skip
def new(file: Path, files: tuple[str, ...], at: str | None, seed: int, market: str) -> None:
    """Create an account in FILE, with the region, zones and account id of the Platform.

    With --at its clock stands still until `tidemill sim advance` moves it; else it follows this machine's clock.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.cli.session import new_account_story
    from tidemill.engine.clock import WallClock
    from tidemill.sim.cloud.account_file import AccountFile
    from tidemill.spec.scenario import Market
    from tidemill.spec.units import parse_instant

    spec, _ = load_spec(files)
    try:
        begins = None if at is None else parse_instant(at).replace(microsecond=0)
    except ValueError as error:
        raise SpecError(f"--at: {error}") from None
    story = new_account_story(
        spec, begins or WallClock().now(), seed=seed, market=Market.model_validate({"offers": market}),
        stands_at=begins,
    )  # fmt: skip
    if not AccountFile(file).make(story):
        raise SpecError(f"{file} exists already and is not changed; name a file that does not exist")
    click.echo(f"created account {story.account} in {story.region} ({', '.join(story.zones)}) in {file}")


@sim.command()
@click.argument("by", metavar="TIME")
@_FILE_OPTION
def advance(by: str, file: Path) -> None:
    """Advance the clock of the account by TIME, such as 10m or 3d."""
    now = open_account(file).advance(_length(by))
    click.echo(f"it is {now:%Y-%m-%d %H:%M:%S} UTC")


@sim.command()
@_FILE_OPTION
@JSON
def show(file: Path, as_json: bool) -> None:
    """Print the time of the account and the calls made so far."""
    from tidemill.spec.units import format_instant

    account = open_account(file)
    story, now = account.history(), account.now()
    calls = [{"at": format_instant(call.at), "call": call.name, "given": call.given} for call in story.calls]
    if as_json:
        head = {
            "account": story.account,
            "region": story.region,
            "seed": story.seed,
            "now": format_instant(now),
        }
        click.echo(json.dumps({**head, "market": story.market.offers, "calls": calls}, indent=2))
        return
    runs = (
        "follows this machine's clock" if story.stands_at is None else "stands until `tidemill sim advance`"
    )
    click.echo(f"account {story.account} in {story.region}, seed {story.seed}, market {story.market.offers}")
    click.echo(f"it is {now:%Y-%m-%d %H:%M:%S} UTC; the clock {runs}")
    for call in story.calls:
        click.echo(f"{call.at:%Y-%m-%d %H:%M:%S}  {call.name}")


@sim.command("buy-elsewhere")
@click.argument("instance_type", metavar="TYPE")
@click.option("--count", type=click.IntRange(1, 64), default=1, show_default=True, help="How many instances.")
@click.option("--zone", required=True, help="The zone of the block.")
@click.option("--duration", default="7d", show_default=True, metavar="TIME", help="How long the block lasts.")
@click.option("--in", "starts_in", default="0s", metavar="TIME", help="Time until it starts. Default: now.")
@click.option("--name", default="elsewhere", show_default=True, help="Its name, to tell several apart.")
@click.option("--owner", default="", metavar="DEPLOYMENT", help="Give it the owner tag of this deployment.")
@click.option("--shared", is_flag=True, help="It belongs to another account, which shares it.")
@_FILE_OPTION
def buy_elsewhere(
    instance_type: str, count: int, zone: str, duration: str, starts_in: str, name: str, owner: str, shared: bool,
    file: Path,
) -> None:  # fmt: skip
    """Add a block that somebody bought in the console, without Tidemill."""
    from pydantic import ValidationError

    from tidemill.spec.scenario import OwnedReservation

    written = {
        "name": name, "instanceType": instance_type, "count": count, "zone": zone, "duration": duration,
        "from": starts_in, "owned": bool(owner),
    }  # fmt: skip
    try:
        owned = OwnedReservation.model_validate(written)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        option = "--in" if wrong["loc"][0] == "from" else f"--{wrong['loc'][0]}"
        raise SpecError(f"{option}: {wrong['msg'].removeprefix('Value error, ')}") from None
    account = open_account(file)
    if zone not in account.history().zones:
        raise SpecError(f"the account has no zone '{zone}'; it has {', '.join(account.history().zones)}")
    click.echo(account.buy_elsewhere(owned, owner=owner, shared=shared))


@sim.command(
    help="Inject a fault: once, --count times, or for a while.\n\n"
    + " ".join(f"{kind}: {kind.meaning.replace('`', '')}." for kind in ACCOUNT_FAULTS)
)
@click.argument("kind", metavar="FAULT", type=click.Choice([str(kind) for kind in ACCOUNT_FAULTS]))
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How many times.")
@click.option(
    "--duration", "--up-to", default="10m", show_default=True, metavar="TIME", help="How long it lasts."
)
@click.option(
    "--target", default="", help="A block, an instance type or a zone. Default: the first one it can affect."
)
@click.option(
    "--call", "--of", type=click.Choice(get_args(Call)), default="purchase", show_default=True,
    help="The call whose answer or request is lost.",
)  # fmt: skip
@_FILE_OPTION
def fault(kind: str, count: int, duration: str, target: str, call: Call, file: Path) -> None:
    account = open_account(file)
    hit = account.strike(FaultKind(kind), count=count, duration=_length(duration), target=target, call=call)
    click.echo(f"affected: {', '.join(hit)}" if hit else f"fault set: {kind}")


def _length(written: str) -> timedelta:
    from tidemill.spec.units import parse_length

    try:
        return parse_length(written)
    except ValueError as error:
        raise SpecError(str(error)) from None
