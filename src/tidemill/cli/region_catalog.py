"""The catalog of a region: what was refreshed from AWS on this machine where it is newer, else what ships.

A file under $XDG_CACHE_HOME/tidemill for each region, replaced whole. One that cannot be used is named once on stderr
and otherwise as good as none. TIDEMILL_CATALOG=shipped leaves it aside, for results that are the same on every machine.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.catalog import Catalog, load
from tidemill.model.errors import PortError, SpecError

if TYPE_CHECKING:
    from tidemill.aws.session import Aws
    from tidemill.catalog import Catalog
    from tidemill.catalog.refreshed import Prices, Refreshed, TypeFacts

CHOICE = "TIDEMILL_CATALOG"
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_NAME = re.compile(r"catalog-([a-z0-9-]{1,40})\.json")
# Some hundred types are 100 kB: whatever is far larger is no catalog.
_LARGEST_BYTES = 8 * 2**20


def catalog_of(region: str) -> Catalog:
    """The same object each time, as long as nobody refreshes it: what follows from a catalog is remembered with it."""
    file = file_of(region)
    if file is None or os.environ.get(CHOICE) == "shipped":
        return load()
    try:
        found = file.stat()
    except OSError:
        return load()
    return _read_cached(file, region, found.st_ino, found.st_mtime_ns, found.st_size)


def file_of(region: str) -> Path | None:
    """None: it is no name of a region, or there is no home to keep it in."""
    folder = _cache_folder()
    return folder / f"catalog-{region}.json" if folder and _REGION.fullmatch(region) else None


def regions() -> tuple[str, ...]:
    """For which there is a file."""
    folder = _cache_folder()
    try:
        names = sorted(one.name for one in folder.iterdir()) if folder else []
    except OSError:
        return ()
    return tuple(found.group(1) for name in names if (found := _NAME.fullmatch(name)))


def save(refreshed: Refreshed) -> Path:
    """Written whole or not at all."""
    from tidemill.catalog.refreshed import written

    file = file_of(refreshed.region)
    if file is None:
        raise SpecError(f"'{refreshed.region}' is no region, or there is no home: set XDG_CACHE_HOME")
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("w", encoding="utf-8") as out:
            out.write(written(refreshed))
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise SpecError(f"cannot write {file}: {error.strerror or error}; set XDG_CACHE_HOME") from error
    return file


def _cache_folder() -> Path | None:
    written = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(written):  # the rule of XDG: a relative one is as good as none
        return Path(written) / "tidemill"
    try:
        return Path.home() / ".cache" / "tidemill"
    except RuntimeError:
        return None


@cache
def _read_cached(file: Path, region: str, *stamp: int) -> Catalog:
    from tidemill.catalog.refreshed import applied, read

    try:
        if stamp[-1] > _LARGEST_BYTES:
            raise ValueError("it is far too large")
        found = read(file.read_bytes(), region)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        cure = f"`tidemill catalog refresh --region {region}` writes it anew"
        click.echo(f"note: {file} is not used, the shipped catalog is: {why}; {cure}", err=True)
        return load()
    return applied(found) if found.newer else load()


# --- catalog_refresh ---


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

    region = resolve_region(
        named_before or region, profile
    )  # before: `tidemill catalog --region NAME refresh`
    told, why_not = _ask_aws(
        Aws(region, profile=profile, role_arn=os.environ.get("TIDEMILL_AWS_ROLE", "")), profile
    )
    file = save(told)
    made = applied(told)
    if as_json:
        click.echo(json.dumps(_refresh_document(told, made, str(file), why_not), indent=2))
        return
    click.echo(f"{len(told.types)} accelerated types of {region}, {_prices_text(told)}: kept in {file}")
    for line in _remarks(told, why_not):
        click.echo(line)


def resolve_region(region: str | None, profile: str) -> str:
    """The region that was named, or the usual one."""
    from tidemill.aws.session import default_region

    # boto3 itself looks at AWS_DEFAULT_REGION alone. A profile that is named says its own.
    found = region or ("" if profile else os.environ.get("AWS_REGION", "")) or default_region(profile)
    if not found:
        raise SpecError("say which region: --region NAME, AWS_REGION, or `region` in the profile")
    return found


def _ask_aws(aws: Aws, profile: str) -> tuple[Refreshed, str]:
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
    from tidemill.aws.iam import PRICE_LIST_REGION
    from tidemill.aws.prices import on_demand_prices
    from tidemill.aws.session import Aws

    aws = Aws(PRICE_LIST_REGION, profile=profile, role_arn=os.environ.get("TIDEMILL_AWS_ROLE", ""))
    try:
        return on_demand_prices(aws, region, [one.name for one in types]), ""
    except PortError as error:
        return None, str(error)


def _prices_text(told: Refreshed) -> str:
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


def _refresh_document(told: Refreshed, made: Catalog, file: str, why_not: str) -> dict[str, object]:
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
