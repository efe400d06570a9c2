"""The catalog of a region: refreshed from AWS on this machine if that is newer, else as shipped. `catalog refresh`.

There is one file per region under $XDG_CACHE_HOME/tidemill, replaced as a whole. A file that cannot be used is named
once on stderr and ignored. TIDEMILL_CATALOG=shipped ignores all of them, for the same results on every machine.
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
# A few hundred types are 100 kB; a far larger file is not a catalog.
_LARGEST_BYTES = 8 * 2**20


def catalog_of(region: str) -> Catalog:
    """The same object on every call until it is refreshed: others cache what they derive from it by identity."""
    file = file_of(region)
    if file is None or os.environ.get(CHOICE) == "shipped":
        return load()
    try:
        stat = file.stat()
    except OSError:
        return load()
    return _read_cached(file, region, stat.st_ino, stat.st_mtime_ns, stat.st_size)


def file_of(region: str) -> Path | None:
    """None: this is not a region name, or there is no home directory."""
    folder = _cache_folder()
    return folder / f"catalog-{region}.json" if folder and _REGION.fullmatch(region) else None


def regions() -> tuple[str, ...]:
    """The regions that have a file."""
    folder = _cache_folder()
    try:
        names = sorted(file.name for file in folder.iterdir()) if folder else []
    except OSError:
        return ()
    return tuple(match.group(1) for name in names if (match := _NAME.fullmatch(name)))


def save(refreshed: Refreshed) -> Path:
    """Replace the file of the region."""
    from tidemill.catalog.refreshed import written

    file = file_of(refreshed.region)
    if file is None:
        raise SpecError(
            f"'{refreshed.region}' is not a region name, or there is no home directory; set XDG_CACHE_HOME"
        )
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
    if os.path.isabs(written):  # the XDG rule: a relative path is ignored
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
            raise ValueError("the file is too large")
        refreshed = read(file.read_bytes(), region)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        remedy = f"write it again: tidemill catalog refresh --region {region}"
        click.echo(f"note: {file} cannot be used ({why}), so the shipped catalog is used; {remedy}", err=True)
        return load()
    return applied(refreshed) if refreshed.newer else load()


# --- `tidemill catalog refresh` -----------------------------------------------------------------------


_SOURCE = "EC2 DescribeInstanceTypes"

REGION = click.option("--region", metavar="NAME", help="Default: AWS_REGION, or the region of the profile.")
PROFILE = click.option(
    "--profile", default="", metavar="NAME", help="A profile of ~/.aws/config. Default: the default profile."
)


@click.command(short_help="Read a region's types and prices from AWS and store them.")
@REGION
@PROFILE
@click.option("--aws", is_flag=True, hidden=True)  # accepted because other verbs need it
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def refresh(named_before: str | None, region: str | None, profile: str, aws: bool, as_json: bool) -> None:
    """Read the instance types of a region and their on-demand prices from AWS, and store them here.

    From then on every command whose Platform is in that region uses them, until Tidemill ships newer data. AWS lists no
    prices of Capacity Blocks: they stay as shipped, and each offer has its own. If the price list cannot be read,
    on-demand prices stay as shipped too. TIDEMILL_CATALOG=shipped ignores the stored data. Nothing is changed in AWS.
    """
    from tidemill.aws.session import Aws
    from tidemill.catalog.refreshed import applied

    region = resolve_region(
        named_before or region, profile
    )  # before: `tidemill catalog --region NAME refresh`
    refreshed, why_not = _ask_aws(
        Aws(region, profile=profile, role_arn=os.environ.get("TIDEMILL_AWS_ROLE", "")), profile
    )
    file = save(refreshed)
    catalog = applied(refreshed)
    if as_json:
        click.echo(json.dumps(_refresh_document(refreshed, catalog, str(file), why_not), indent=2))
        return
    click.echo(f"{len(refreshed.types)} types of {region}, {_prices_text(refreshed)}: stored in {file}")
    for line in _remarks(refreshed, why_not):
        click.echo(line)


def resolve_region(region: str | None, profile: str) -> str:
    """The region that was named, or the default one."""
    from tidemill.aws.session import default_region

    # boto3 reads AWS_DEFAULT_REGION only. A named profile has its own region.
    resolved = region or ("" if profile else os.environ.get("AWS_REGION", "")) or default_region(profile)
    if not resolved:
        raise SpecError("no region; add --region NAME, or set AWS_REGION, or `region` in the profile")
    return resolved


def _ask_aws(aws: Aws, profile: str) -> tuple[Refreshed, str]:
    """What AWS answered, and why there are no prices (empty: there are)."""
    from tidemill.aws.types import usable_types
    from tidemill.catalog.refreshed import Refreshed
    from tidemill.engine.clock import WallClock
    from tidemill.model.errors import Retryable

    types = usable_types(aws)
    if not types:
        raise Retryable(f"DescribeInstanceTypes: EC2 shows no instance type in {aws.region}")
    prices, why_not = _prices(aws.region, profile, types)
    refreshed = Refreshed(
        region=aws.region, as_of=WallClock().now().date(), source=_SOURCE, types=types, on_demand=prices
    )
    return refreshed, why_not


def _prices(region: str, profile: str, types: list[TypeFacts]) -> tuple[Prices | None, str]:
    from tidemill.aws.iam import PRICE_LIST_REGION
    from tidemill.aws.prices import on_demand_prices
    from tidemill.aws.session import Aws

    aws = Aws(PRICE_LIST_REGION, profile=profile, role_arn=os.environ.get("TIDEMILL_AWS_ROLE", ""))
    try:
        return on_demand_prices(aws, region, [instance_type.name for instance_type in types]), ""
    except PortError as error:
        return None, str(error)


def _prices_text(refreshed: Refreshed) -> str:
    if refreshed.on_demand is None:
        return "prices as shipped"
    return f"{len(refreshed.on_demand.usd_h)} prices of {refreshed.on_demand.as_of}"


def _remarks(refreshed: Refreshed, why_not: str) -> list[str]:
    from tidemill.catalog import load
    from tidemill.catalog.refreshed import not_listed

    remarks = [f"on-demand prices stay as shipped: {why_not}"] if why_not else []
    remarks.append("prices of Capacity Blocks stay as shipped: AWS lists none; each offer has its own")
    if left := not_listed(refreshed):
        remarks.append(f"not in this region, so as shipped: {', '.join(left)}")
    if not refreshed.newer:
        remarks.append(f"it is not used: the shipped catalog is as new ({load().types_as_of})")
    return remarks


def _refresh_document(refreshed: Refreshed, catalog: Catalog, file: str, why_not: str) -> dict[str, object]:
    from tidemill.catalog.refreshed import not_listed

    return {
        "region": refreshed.region,
        "as_of": refreshed.as_of.isoformat(),
        "source": refreshed.source,
        "file": file,
        "used": refreshed.newer,
        "types": [instance_type.name for instance_type in refreshed.types],
        "kept_as_shipped": list(not_listed(refreshed)),
        "prices_on_demand": len(refreshed.on_demand.usd_h) if refreshed.on_demand else 0,
        "prices_not_read": why_not,
        "prices_as_of": catalog.prices_as_of,
    }
