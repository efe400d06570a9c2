"""`tidemill render`: what the documents say, in the words of other tools. Nothing is asked of AWS or of a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.spec import Spec
    from tidemill.spec.compute_pool import ComputePool

_FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True)
_POOL = click.option("--pool", metavar="NAME", help="Which pool. Default: the only one that it can be.")
_TYPE = click.option(
    "--type", "instance_type", metavar="TYPE", default="", help="Where the pool allows several."
)
_ZONE = click.option("--zone", metavar="ZONE", default="", help="Where the platform has subnets in several.")
_ID = re.compile("cr-[0-9a-f]+")
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of YAML.")


def _instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    from tidemill.spec.units import parse_instant

    if value is None:
        return None
    try:
        return parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _reservation(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    for one in value if isinstance(value, tuple) else (value,):
        if one and not _ID.fullmatch(one):
            raise click.BadParameter(f"'{one}' is no reservation; write its id, cr-…", ctx, param)
    return value


@click.group()
def render() -> None:
    """Write documents as what other tools read: CloudFormation, Karpenter, user data."""


@render.command("aws-auth")
@_FILES
@_JSON
def aws_auth(files: tuple[str, ...], as_json: bool) -> None:
    """The entry that lets nodes join a cluster without access entries, to be merged into its aws-auth ConfigMap.

    Only for clusters whose authenticationMode is CONFIG_MAP: everywhere else the engine makes an access entry itself.
    Do not apply it as it is over one that has other entries.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.render.aws_auth import config_map

    spec, _ = load_spec(files)
    _show([config_map(spec)], as_json)


@render.command()
@_FILES
@_POOL
@_TYPE
@_ZONE
@click.option(
    "--reservation", callback=_reservation, metavar="ID", default="", help="The block or reservation, cr-…."
)
@click.option("--start", callback=_instant, metavar="TIME", help="When the block starts.")
@click.option("--end", callback=_instant, metavar="TIME", help="When it ends.")
@click.option("--count", type=click.IntRange(min=1), help="How many instances it holds.")
@_JSON
def cloudformation(
    files: tuple[str, ...], pool: str | None, instance_type: str, zone: str, reservation: str,
    start: datetime | None, end: datetime | None, count: int | None, as_json: bool,
) -> None:  # fmt: skip
    """A stack for a pool of provisioner asg or managed: launch template, group, schedules, hook, queue, rule.

    One stack for one block or other source. What is not given here or in the documents is a parameter of the stack.
    """
    from tidemill.render.cloudformation import asked_of, stack

    spec, own = _pool_of(files, pool, ("asg", "managed"))
    asked = asked_of(
        spec,
        own,
        instance_type=instance_type,
        zone=zone,
        reservation=reservation,
        start=start,
        end=end,
        count=count,
    )
    _show([stack(spec, own, asked)], as_json)


@render.command()
@_FILES
@_POOL
@click.option(
    "--reservation", "ids", callback=_reservation, metavar="ID", multiple=True,
    help="Select this reservation by its id instead of by tag. May be given several times.",
)  # fmt: skip
@_JSON
def karpenter(files: tuple[str, ...], pool: str | None, ids: tuple[str, ...], as_json: bool) -> None:
    """NodePools and node classes for a pool of provisioner karpenter, safe for prepaid capacity.

    The engine keeps such objects in step with the blocks by itself; this is how they look.
    """
    from tidemill.provision.karpenter.objects import karpenter_objects

    spec, own = _pool_of(files, pool, ("karpenter",))
    made = karpenter_objects(spec, _pinned(own, ids), None)
    for sentence in made.warnings:
        click.echo(f"warning: {sentence}", err=True)
    _show(made.objects, as_json)


@render.command("user-data")
@_FILES
@_POOL
@_TYPE
@_ZONE
@click.option(
    "--reservation", callback=_reservation, metavar="ID", default="",
    help="The block or reservation the node runs on, cr-….",
)  # fmt: skip
@click.option("--end", callback=_instant, metavar="TIME", help="When it ends: installs the deadline agent.")
def user_data(
    files: tuple[str, ...],
    pool: str | None,
    instance_type: str,
    zone: str,
    reservation: str,
    end: datetime | None,
) -> None:
    """What a node of a pool is told at its first boot, as it reads it."""
    from base64 import b64decode

    from tidemill.model.capacity import Source
    from tidemill.provision.launch_template import launch_template, missing_fields
    from tidemill.render.cloudformation import asked_of
    from tidemill.render.cloudformation.parameters import moments

    spec, own = _pool_of(files, pool, ("native", "asg", "managed"))
    asked = asked_of(spec, own, instance_type=instance_type, zone=zone, reservation=reservation, end=end)
    for sentence in missing_fields(spec, own):
        click.echo(f"warning: {sentence}: a node would not join", err=True)
    made = launch_template(
        spec, own, asked.instance_type, Source(asked.kind, reservation), asked.zone, "",
        ends_at=moments(spec, own, asked).get("EndsAt"),
    )  # fmt: skip
    click.echo(b64decode(made.data["UserData"]).decode().rstrip("\n"))


def _pool_of(
    files: tuple[str, ...], name: str | None, provisioners: tuple[str, ...]
) -> tuple[Spec, ComputePool]:
    from tidemill.cli.loading import load_spec
    from tidemill.spec.problem import suggestion

    spec, _ = load_spec(files)
    if name is not None:
        if name not in spec.pools:
            raise SpecError(f"there is no pool '{name}'; {suggestion(name, spec.pools)}")
        return spec, spec.pools[name]
    fitting = [each for each in spec.pools.values() if each.spec.provisioner.value in provisioners]
    if len(fitting) == 1:
        return spec, fitting[0]
    words = " or ".join(provisioners)
    if not fitting:
        raise SpecError(f"no pool in the documents has provisioner {words}")
    raise SpecError(f"say which with --pool: {', '.join(each.name for each in fitting)}")


def _pinned(pool: ComputePool, ids: tuple[str, ...]) -> ComputePool:
    if not ids:
        return pool
    sources = tuple(
        one.model_copy(update={"ids": ids}) if one.type in ("block", "odcr") else one
        for one in pool.spec.sources
    )
    return pool.model_copy(update={"spec": pool.spec.model_copy(update={"sources": sources})})


def _show(karpenter_objects: Iterable[Mapping[str, Any]], as_json: bool) -> None:
    listed = list(karpenter_objects)
    if as_json:
        click.echo(json.dumps(listed[0] if len(listed) == 1 else listed, indent=2))
        return
    from tidemill.render.yaml_text import yaml_text

    click.echo(yaml_text(listed))
