"""`tidemill sim`: the simulated AWS account in a file: made, moved through time, and met by others and bad luck."""

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
    metavar="FILE", help="The account's file.",
)  # fmt: skip


@click.group()
def sim() -> None:
    """A simulated AWS account, kept in a file so that commands build on each other.

    Name the file with --sim FILE or in TIDEMILL_SIM. TIDEMILL_SIM_AS says who calls: a name, or a whole ARN.
    """


sim.add_command(aws)


@sim.command()
@_FILE
@FILES
@click.option("--at", metavar="INSTANT", help="Begin then, and let time move by command alone. Default: now.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Draws what EC2 sells."
)
@click.option(
    "--market", type=click.Choice(("plenty", "scarce", "none")), default="plenty", show_default=True,
    help="How much EC2 has to sell.",
)  # fmt: skip
def new(file: Path, files: tuple[str, ...], at: str | None, seed: int, market: str) -> None:
    """Make an account in FILE, in the region, zones and account of the Platform.

    With --at its time stands still until `tidemill sim advance` moves it; else it runs with this machine's.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.cli.session import new_account_story
    from tidemill.sim.cloud.account_file import AccountFile
    from tidemill.spec.scenario import Market
    from tidemill.spec.units import parse_instant
    from tidemill.store.open_ledger import WallClock

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
        raise SpecError(f"{file} is there already, and stays as it is; name a file that is not")
    click.echo(f"made account {story.account} in {story.region} ({', '.join(story.zones)}) in {file}")


@sim.command()
@click.argument("by", metavar="TIME")
@_FILE_OPTION
def advance(by: str, file: Path) -> None:
    """Let TIME pass in the account, such as 10m or 3d."""
    now = open_account(file).advance(_length(by))
    click.echo(f"it is {now:%Y-%m-%d %H:%M:%S} UTC")


@sim.command()
@_FILE_OPTION
@JSON
def show(file: Path, as_json: bool) -> None:
    """Say what time it is there and what happened so far."""
    from tidemill.spec.units import format_instant

    account = open_account(file)
    story, now = account.history(), account.now()
    calls = [{"at": format_instant(one.at), "call": one.name, "given": one.given} for one in story.calls]
    if as_json:
        head = {
            "account": story.account,
            "region": story.region,
            "seed": story.seed,
            "now": format_instant(now),
        }
        click.echo(json.dumps({**head, "market": story.market.offers, "calls": calls}, indent=2))
        return
    runs = "runs with this machine's" if story.stands_at is None else "moves by `tidemill sim advance` alone"
    click.echo(f"account {story.account} in {story.region}, seed {story.seed}, market {story.market.offers}")
    click.echo(f"it is {now:%Y-%m-%d %H:%M:%S} UTC; time {runs}")
    for one in story.calls:
        click.echo(f"{one.at:%Y-%m-%d %H:%M:%S}  {one.name}")


@sim.command("buy-elsewhere")
@click.argument("instance_type", metavar="TYPE")
@click.option("--count", type=click.IntRange(1, 64), default=1, show_default=True, help="Instances.")
@click.option("--zone", required=True, help="Where.")
@click.option("--duration", default="7d", show_default=True, metavar="TIME", help="How long.")
@click.option(
    "--in", "starts_in", default="0s", metavar="TIME", help="How long until it starts. Default: now."
)
@click.option("--name", default="elsewhere", show_default=True, help="To tell several apart.")
@click.option("--owner", default="", metavar="DEPLOYMENT", help="With this owner tag.")
@click.option("--shared", is_flag=True, help="In another account, which shares it with this one.")
@_FILE_OPTION
def buy_elsewhere(
    instance_type: str, count: int, zone: str, duration: str, starts_in: str, name: str, owner: str, shared: bool,
    file: Path,
) -> None:  # fmt: skip
    """Somebody buys a block in the console: Tidemill has no part in it."""
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
    help="Let something go wrong in the account: once, --count times, or for a while.\n\n"
    + " ".join(f"{kind}: {kind.meaning.replace('`', '')}." for kind in ACCOUNT_FAULTS)
)
@click.argument("kind", metavar="FAULT", type=click.Choice([str(kind) for kind in ACCOUNT_FAULTS]))
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How often it strikes.")
@click.option(
    "--duration", "--up-to", default="10m", show_default=True, metavar="TIME", help="How long it lasts."
)
@click.option(
    "--target", default="", help="A block, an instance type or a zone. Default: whatever comes first."
)
@click.option(
    "--call", "--of", type=click.Choice(get_args(Call)), default="purchase", show_default=True,
    help="Of which call the answer or the request is lost.",
)  # fmt: skip
@_FILE_OPTION
def fault(kind: str, count: int, duration: str, target: str, call: Call, file: Path) -> None:
    account = open_account(file)
    struck = account.strike(
        FaultKind(kind), count=count, duration=_length(duration), target=target, call=call
    )
    click.echo(f"struck: {', '.join(struck)}" if struck else f"armed: {kind}")


def _length(written: str) -> timedelta:
    from tidemill.spec.units import parse_length

    try:
        return parse_length(written)
    except ValueError as error:
        raise SpecError(str(error)) from None
