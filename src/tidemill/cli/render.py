"""`tidemill render`: documents as CloudFormation, Karpenter objects, user data. AWS and clusters are not called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.spec import Spec
    from tidemill.spec.compute_pool import ComputePool

_FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True)
_POOL = click.option("--pool", metavar="NAME", help="The pool. Default: the only one that fits.")
_TYPE = click.option(
    "--type",
    "instance_type",
    metavar="TYPE",
    default="",
    help="The instance type. Needed if the pool allows several.",
)
_ZONE = click.option(
    "--zone", metavar="ZONE", default="", help="The zone. Needed if the Platform has several."
)
_ID = re.compile("cr-[0-9a-f]+")
_ENGINE = click.option(
    "--no-engine", "engine", is_flag=True, flag_value=False, default=True,
    help="For use without the engine: no taint that only an engine removes from a node.",
)  # fmt: skip
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML.")


def _instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    from tidemill.spec.units import parse_instant

    if value is None:
        return None
    try:
        return parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _reservation(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    for id_ in value if isinstance(value, tuple) else (value,):
        if id_ and not _ID.fullmatch(id_):
            raise click.BadParameter(f"'{id_}' is not a reservation id; write cr-…", ctx, param)
    return value


@click.group()
def render() -> None:
    """Print documents as CloudFormation, Karpenter objects, external secrets, aws-auth or user data; and their CRDs."""


@render.command("aws-auth")
@_FILES
@_JSON
def aws_auth(files: tuple[str, ...], as_json: bool) -> None:
    """Print the entry that lets nodes join a cluster without access entries; merge it into its aws-auth ConfigMap.

    Only for clusters whose authenticationMode is CONFIG_MAP; on others the engine creates an access entry itself. Do
    not apply it over a ConfigMap that has other entries: it would replace them.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.render.kubernetes_yaml import aws_auth_config_map

    spec, _ = load_spec(files)
    _show([aws_auth_config_map(spec)], as_json)


@render.command()
@_FILES
@click.option(
    "--control-plane-only", is_flag=True, help="Without workers: the first step, before any GPU is paid for."
)
@click.option(
    "--reservation", "pins", metavar="POOL=ID", multiple=True,
    help="Pin a pool of the engine to a block, cr-…. Twice for one pool: both blocks serve, as in a hand-over.",
)  # fmt: skip
@_JSON
def engine(files: tuple[str, ...], control_plane_only: bool, pins: tuple[str, ...], as_json: bool) -> None:
    """Print Helm values for the inference or training engine of the Platform: pools, secrets by name, ingress, logs.

    The shape is that of the Adaptive Engine chart. No secret is in them.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.render.engine_values import engine_values

    reservations: dict[str, list[str]] = {}
    for pin in pins:
        name, _, id_ = pin.partition("=")
        if not _ID.fullmatch(id_):
            raise SpecError(f"--reservation: '{pin}' is not POOL=cr-…")
        reservations.setdefault(name, []).append(id_)
    spec, _ = load_spec(files)
    _show([engine_values(spec, control_plane_only=control_plane_only, reservations=reservations)], as_json)


@render.command()
@click.argument(
    "part", type=click.Choice(("network", "cluster", "data", "access", "events", "replica", "all"))
)
@_FILES
@click.option(
    "--irsa", "issuer", metavar="ISSUER", default="",
    help="access: bind roles by the cluster's OIDC issuer, https://…, instead of EKS Pod Identity.",
)  # fmt: skip
@click.option(
    "--out", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Write PART.yaml and PART.parameters.json there. Needed for 'all'.",
)  # fmt: skip
def infra(part: str, files: tuple[str, ...], issuer: str, out: Path | None) -> None:
    """Print what is around the pools as CloudFormation: network, cluster, data, access, events; or a replica elsewhere.

    Deploy them in this order: each needs what the one before exports. The documents give the parameters; what they do
    not say is named on stderr.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.render.infrastructure import STACKS, stack_of

    spec, _ = load_spec(files)
    if part == "all" and out is None:
        raise SpecError("'all' is several files; add --out DIR")
    for each in STACKS if part == "all" else (part,):
        made = stack_of(spec, each, issuer=issuer if each == "access" else "")
        if out is None:
            click.echo(made.template.rstrip("\n"))
        else:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{each}.yaml").write_text(made.template, encoding="utf-8")
            given = [{"ParameterKey": key, "ParameterValue": value} for key, value in made.parameters.items()]
            (out / f"{each}.parameters.json").write_text(json.dumps(given, indent=2) + "\n", encoding="utf-8")
            click.echo(f"{out / each}.yaml")
        if made.missing:
            click.echo(
                f"note: the documents do not say {', '.join(made.missing)} of the stack {each}", err=True
            )


@render.command()
@_FILES
@click.option(
    "--irsa", is_flag=True,
    help="The operator's role is bound by an annotation of its service account, not by EKS Pod Identity.",
)  # fmt: skip
@_JSON
def secrets(files: tuple[str, ...], irsa: bool, as_json: bool) -> None:
    """Print the ClusterSecretStore and ExternalSecrets that bring the platform's secrets into the cluster.

    They name secrets of Secrets Manager and contain none. The operator must be installed, with the policy of
    `tidemill iam external-secrets`.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.render.external_secrets import external_secret_objects

    spec, _ = load_spec(files)
    _show(external_secret_objects(spec.platform.spec, irsa=irsa), as_json)


@render.command()
@_JSON
def crds(as_json: bool) -> None:
    """Print the CustomResourceDefinitions of the documents; apply them with `kubectl apply --server-side -f -`.

    With them a cluster holds the documents itself: `tidemill run --from-cluster` works by its Platform, NodeClass,
    ComputePool and CapacityPlan objects, and shows every block as a CapacityBlock.
    """
    from tidemill.spec.crds import definitions

    _show(list(definitions()), as_json)


@render.command()
@_FILES
@_POOL
@_TYPE
@_ZONE
@click.option(
    "--reservation", callback=_reservation, metavar="ID", default="", help="The block or reservation, cr-…."
)
@click.option("--start", callback=_instant, metavar="TIME", help="The start of the block.")
@click.option("--end", callback=_instant, metavar="TIME", help="The end of the block.")
@click.option("--count", type=click.IntRange(min=1), help="The number of instances in it.")
@_ENGINE
@_JSON
def cloudformation(
    files: tuple[str, ...], pool: str | None, instance_type: str, zone: str, reservation: str,
    start: datetime | None, end: datetime | None, count: int | None, engine: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print a stack for a pool with provisioner asg or managed: launch template, group, schedules, hook, queue, rule.

    One stack serves one block or other source. What neither the options nor the documents say is a stack parameter.
    Nodes take pods once an engine has checked them; without an engine, add --no-engine.
    """
    from tidemill.render.cloudformation import resolve_stack_input, stack

    spec, own = _pool_of(files, pool, ("asg", "managed"))
    asked = resolve_stack_input(
        spec,
        own,
        instance_type=instance_type,
        zone=zone,
        reservation=reservation,
        start=start,
        end=end,
        count=count,
        engine=engine,
    )
    _say_who_removes_the_taint(engine)
    _show([stack(spec, own, asked)], as_json)


@render.command()
@_FILES
@_POOL
@click.option(
    "--reservation", "ids", callback=_reservation, metavar="ID", multiple=True,
    help="Select this reservation by id instead of by tag. Repeatable.",
)  # fmt: skip
@_ENGINE
@_JSON
def karpenter(
    files: tuple[str, ...], pool: str | None, ids: tuple[str, ...], engine: bool, as_json: bool
) -> None:
    """Print NodePools and EC2NodeClasses for a pool with provisioner karpenter, safe for prepaid capacity.

    The engine applies and updates these objects itself; this only shows them. To apply them yourself where no engine
    runs, add --no-engine: nodes keep a startup taint until an engine removes it.
    """
    from tidemill.provision.karpenter.objects import karpenter_objects

    spec, own = _pool_of(files, pool, ("karpenter",))
    rendered = karpenter_objects(spec, own, None, engine=engine, only=ids)
    _say_who_removes_the_taint(engine)
    for sentence in rendered.warnings:
        click.echo(f"warning: {sentence}", err=True)
    _show(rendered.objects, as_json)


@render.command("device-plugins")
@_FILES
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object for each chart.")
def device_plugins(files: tuple[str, ...], as_json: bool) -> None:
    """Print Helm values for the device plugins that the pools need: NVIDIA, EFA, Neuron, in pinned versions.

    They run on nodes of the pools, from their first second to their last, and not where an image or EKS brings a plugin
    of its own. `tidemill lint` checks the values of plugins that are installed already.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.render.device_plugins import device_plugins, without_plugins

    spec, _ = load_spec(files)
    plugins = device_plugins(spec)
    for brought, pools in without_plugins(spec).items():
        if pools:
            click.echo(f"note: nodes of pool {', '.join(pools)} have {brought}", err=True)
    for each in plugins:
        if each.values.get("mofedEnabled") is False:
            click.echo(
                "note: MOFED is off in NVIDIA's plugin: it would take the EFA devices (TR-6)", err=True
            )
    if not plugins:
        raise SpecError("no pool in the documents needs a device plugin")
    if as_json:
        fields = ("name", "repository", "chart", "version", "namespace", "command", "pools", "values")
        click.echo(json.dumps([{name: getattr(each, name) for name in fields} for each in plugins], indent=2))
        return
    from tidemill.render.kubernetes_yaml import yaml_text

    for each in plugins:
        click.echo(f"---\n# {each.name}.yaml, for pool {', '.join(each.pools)}:\n#   {each.command}")
        click.echo(yaml_text([each.values]))


@render.command("node-agent")
@click.option("--image", required=True, metavar="IMAGE", help="The container image of Tidemill.")
@click.option(
    "--namespace", default="tidemill-system", show_default=True, metavar="NAME", help="Where it runs."
)
@click.option(
    "--no-boot-file", "boot_file", is_flag=True, flag_value=False, default=True,
    help="Mount nothing of the host: only the engine tells a node its end.",
)  # fmt: skip
@_JSON
def node_agent(image: str, namespace: str, boot_file: bool, as_json: bool) -> None:
    """Print the deadline agent: a DaemonSet, its service account, and a policy that keeps each agent to its own node.

    It runs on nodes with the label tidemill.dev/pool and empties a node before its end if the engine has not.
    """
    from tidemill.render.node_agent import node_agent_objects

    _show(node_agent_objects(image, namespace=namespace, boot_file=boot_file), as_json)


@render.command("user-data")
@_FILES
@_POOL
@_TYPE
@_ZONE
@click.option(
    "--reservation", callback=_reservation, metavar="ID", default="",
    help="The block or reservation of the node, cr-….",
)  # fmt: skip
@click.option(
    "--end", callback=_instant, metavar="TIME", help="The end of the block; installs the deadline agent."
)
@_ENGINE
def user_data(
    files: tuple[str, ...],
    pool: str | None,
    instance_type: str,
    zone: str,
    reservation: str,
    end: datetime | None,
    engine: bool,
) -> None:
    """Print the user data that a node of a pool gets at its first boot."""
    from base64 import b64decode

    from tidemill.model.capacity import Source
    from tidemill.provision.launch_template import launch_template, missing_fields
    from tidemill.render.cloudformation import resolve_stack_input
    from tidemill.render.cloudformation.parameters import block_times

    spec, own = _pool_of(files, pool, ("native", "asg", "managed"))
    asked = resolve_stack_input(
        spec, own, instance_type=instance_type, zone=zone, reservation=reservation, end=end
    )
    for sentence in missing_fields(spec, own):
        click.echo(f"warning: {sentence}; a node would not join the cluster", err=True)
    template = launch_template(
        spec, own, asked.instance_type, Source(asked.kind, reservation), asked.zone, "",
        ends_at=block_times(spec, own, asked).get("EndsAt"), engine=engine,
    )  # fmt: skip
    _say_who_removes_the_taint(engine)
    click.echo(b64decode(template.data["UserData"]).decode().rstrip("\n"))


def _say_who_removes_the_taint(engine: bool) -> None:
    from tidemill.spec import names

    if engine:
        click.echo(
            f"note: nodes have the taint {names.TAINT_STARTUP} and take no pods until an engine removes it; where none"
            " runs, add --no-engine",
            err=True,
        )


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
    fitting = [own for own in spec.pools.values() if own.spec.provisioner.value in provisioners]
    if len(fitting) == 1:
        return spec, fitting[0]
    words = " or ".join(provisioners)
    if not fitting:
        raise SpecError(f"no pool in the documents has provisioner {words}; set spec.provisioner of one")
    raise SpecError(f"several pools fit; name one with --pool: {', '.join(own.name for own in fitting)}")


def _show(objects: Iterable[Mapping[str, Any]], as_json: bool) -> None:
    listed = list(objects)
    if as_json:
        click.echo(json.dumps(listed[0] if len(listed) == 1 else listed, indent=2))
        return
    from tidemill.render.kubernetes_yaml import yaml_text

    click.echo(yaml_text(listed))
