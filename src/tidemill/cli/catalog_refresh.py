"""`tidemill catalog refresh`: instance types and prices of a region, asked of AWS and kept on this machine."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from tidemill.model.errors import PortError, SpecError

if TYPE_CHECKING:
    from tidemill.aws.session import Aws
    from tidemill.catalog import Catalog
    from tidemill.catalog.refreshed import Prices, Refreshed, TypeFacts

_SOURCE = "EC2 DescribeInstanceTypes"

REGION = click.option("--region", metavar="NAME", help="Default: the usual one (AWS_REGION, the profile's).")
PROFILE = click.option(
    "--profile", default="", metavar="NAME", help="Of ~/.aws/config. Default: the usual one."
)


@click.command(short_help="Ask AWS for a region's types and prices, and keep them here.")
@REGION
@PROFILE
@click.option("--aws", is_flag=True, hidden=True)  # whoever writes it, as for other verbs, is not wrong
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def refresh(named_before: str | None, region: str | None, profile: str, aws: bool, as_json: bool) -> None:
    """Ask AWS for the accelerated instance types of a region and what they cost on demand, and keep the answer here.

    From then on every command whose Platform is in that region uses it, until Tidemill ships newer data. Prices of
    Capacity Blocks are in no list of AWS: they stay as they ship, and an offer says its own. Where the price list may
    not be read, prices on demand stay too. TIDEMILL_CATALOG=shipped leaves all of it aside. Nothing is changed in AWS.
    """
    from tidemill.aws.session import Aws
    from tidemill.catalog.refreshed import applied
    from tidemill.cli.catalog_cache import keep

    region = where(named_before or region, profile)  # before: `tidemill catalog --region NAME refresh`
    told, why_not = _asked(
        Aws(region, profile=profile, role_arn=os.environ.get("TIDEMILL_AWS_ROLE", "")), profile
    )
    file = keep(told)
    made = applied(told)
    if as_json:
        click.echo(json.dumps(_document(told, made, str(file), why_not), indent=2))
        return
    click.echo(f"{len(told.types)} accelerated types of {region}, {_counted(told)}: kept in {file}")
    for line in _remarks(told, why_not):
        click.echo(line)


def where(region: str | None, profile: str) -> str:
    """The region that was named, or the usual one."""
    from tidemill.aws.session import usual_region

    # boto3 itself looks at AWS_DEFAULT_REGION alone. A profile that is named says its own.
    found = region or ("" if profile else os.environ.get("AWS_REGION", "")) or usual_region(profile)
    if not found:
        raise SpecError("say which region: --region NAME, AWS_REGION, or `region` in the profile")
    return found


def _asked(aws: Aws, profile: str) -> tuple[Refreshed, str]:
    """What AWS told, and why it told no prices."""
    from tidemill.aws.types import accelerated_types
    from tidemill.catalog.refreshed import Refreshed
    from tidemill.model.errors import Retryable
    from tidemill.store.open_ledger import WallClock

    types = accelerated_types(aws)
    if not types:
        raise Retryable(f"DescribeInstanceTypes: EC2 shows no accelerated instance type in {aws.region}")
    prices, why_not = _prices(aws.region, profile, types)
    told = Refreshed(
        region=aws.region, as_of=WallClock().now().date(), source=_SOURCE, types=types, on_demand=prices
    )
    return told, why_not


def _prices(region: str, profile: str, types: list[TypeFacts]) -> tuple[Prices | None, str]:
    from tidemill.aws.prices import SERVED_FROM, on_demand_prices
    from tidemill.aws.session import Aws

    aws = Aws(SERVED_FROM, profile=profile, role_arn=os.environ.get("TIDEMILL_AWS_ROLE", ""))
    try:
        return on_demand_prices(aws, region, [one.name for one in types]), ""
    except PortError as error:
        return None, str(error)


def _counted(told: Refreshed) -> str:
    if told.on_demand is None:
        return "prices as shipped"
    return f"{len(told.on_demand.usd_h)} prices of {told.on_demand.as_of}"


def _remarks(told: Refreshed, why_not: str) -> list[str]:
    from tidemill.catalog import load
    from tidemill.catalog.refreshed import not_told

    said = [f"prices on demand stay as shipped: {why_not}"] if why_not else []
    said.append("prices of Capacity Blocks stay as shipped: AWS lists none; an offer says its own")
    if left := not_told(told):
        said.append(f"not in this region, and kept as shipped: {', '.join(left)}")
    if not told.newer:
        said.append(f"it is not used: what ships is as new ({load().types_as_of})")
    return said


def _document(told: Refreshed, made: Catalog, file: str, why_not: str) -> dict[str, object]:
    from tidemill.catalog.refreshed import not_told

    return {
        "region": told.region,
        "as_of": told.as_of.isoformat(),
        "source": told.source,
        "file": file,
        "used": told.newer,
        "types": [one.name for one in told.types],
        "kept_as_shipped": list(not_told(told)),
        "prices_on_demand": len(told.on_demand.usd_h) if told.on_demand else 0,
        "prices_not_read": why_not,
        "prices_as_of": made.prices_as_of,
    }
