"""`tidemill sim aws`: serve a simulated account over the AWS protocol, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import json
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidemill.cli.session import JSON
from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.sim.cloud.cloud import SimCloud
    from tidemill.sim.timeline import Timeline
    from tidemill.sim.wire import WireServer
    from tidemill.sim.wire.data_plane.api_client import KubeApi
    from tidemill.spec.platform import ClusterRef

_ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


class _Served(NamedTuple):
    cloud: SimCloud
    timeline: Timeline
    region: str
    subnets: Mapping[str, Sequence[str]]
    cluster: ClusterRef | None = None
    startup_taints: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    security_groups: frozenset[str] = frozenset()


@click.command()
@click.option(
    "-f", "--file", "files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR", type=click.Path(),
    help="One simulated account (.json), or documents: the account, region, subnets and cluster of the Platform, and "
    "the start, market and reservations of a Scenario; a folder stands for its YAML files. Repeatable. Default: an "
    "empty account in us-east-1.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=4566,
    show_default=True,
    help="0: any free port.",
)
@click.option(
    "--speed", type=float, default=60.0, show_default=True,
    help="Virtual seconds per second; 0: only POST /tidemill/advance moves the clock.",
)  # fmt: skip
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of the offers that EC2 sells, and of all ids.",
)
@click.option(
    "--start", metavar="INSTANT", help="Start of virtual time. Default: the Scenario's start, or now."
)
@click.option(
    "--market",
    type=click.Choice(("plenty", "scarce", "none")),
    help="How much capacity EC2 sells. Default: plenty.",
)
@click.option(
    "--kubeconfig", metavar="FILE", type=click.Path(path_type=Path),
    help="A Kubernetes API server: booted instances register there as nodes, as their user data says, and run pods.",
)  # fmt: skip
@click.option("--kube-api", metavar="URL", help="The same without a kubeconfig: the URL of the API server.")
@click.option(
    "--kube-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Token for --kube-api.",
)
@click.option("--kube-ca", type=click.Path(exists=True, dir_okay=False), help="CA certificate of --kube-api.")
@click.option(
    "--boot", type=click.Choice(("usual", "fast")), default="usual", show_default=True,
    help="How long nodes and pods take to start: minutes, as on EC2, or seconds, for clients that live at --speed 1.",
)  # fmt: skip
@JSON
def aws(
    files: tuple[str, ...], host: str, port: int, speed: float, seed: int, start: str | None, market: str | None,
    kubeconfig: Path | None, kube_api: str | None, kube_token_file: Path | None, kube_ca: str | None, boot: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Serve a simulated AWS account on this machine, for boto3, the AWS CLI and Tidemill itself.

    No credentials are checked and no money is spent. Its state is lost when it ends. Its clock, faults and journal are
    at /tidemill; see docs/guides/aws-by-hand.md.
    """
    served = _account_to_serve(files, seed, start, market)
    served.cloud.leave_to_karpenter()  # whoever wants one runs the real one
    from tidemill.sim.wire import WireServer

    server = WireServer(
        served.cloud, served.timeline, speed=speed, region=served.region, host=host, port=port,
        subnets=served.subnets, cluster=served.cluster, startup_taints=served.startup_taints,
        images=sorted(served.images), roles=sorted(served.roles), profiles=sorted(served.profiles),
        security_groups=sorted(served.security_groups),
        kube=_kube(kubeconfig, kube_api, kube_token_file, kube_ca), boot_fast=boot == "fast",
    )  # fmt: skip
    with _stop_event() as stopped, server:
        _print_server(server, as_json)
        stopped.wait()
        click.echo(f"\nended at {server.clock.now():%Y-%m-%d %H:%M:%S} UTC of the simulated clock", err=True)


@contextmanager
def _stop_event() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets: both end the server normally."""
    stopped = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kube(
    kubeconfig: Path | None, url: str | None, token_file: Path | None, ca: str | None
) -> KubeApi | None:
    from tidemill.sim.wire.data_plane.api_client import KubeApi
    from tidemill.sim.wire.data_plane.kubeconfig import read_kubeconfig

    if kubeconfig is not None:
        if url or token_file or ca:
            raise SpecError(
                "--kubeconfig says everything; leave --kube-api, --kube-token-file and --kube-ca out"
            )
        return read_kubeconfig(kubeconfig)
    if url is None:
        if token_file or ca:
            raise SpecError("--kube-token-file and --kube-ca need --kube-api; add it, or leave them out")
        return None
    if not url.startswith(("http://", "https://")):
        raise SpecError(f"--kube-api: '{url}' is not a URL; write for example https://127.0.0.1:6443")
    return KubeApi(url, _token(token_file) if token_file else "", ca or "")


def _token(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        raise SpecError(
            f"--kube-token-file: {file} does not hold a token; name a file with only the token in it"
        ) from None


# --- which account ------------------------------------------------------------------------------------


def _account_to_serve(files: tuple[str, ...], seed: int, start: str | None, market: str | None) -> _Served:
    accounts = [name for name in files if name.endswith(".json")]
    if not accounts:
        return _from_documents(files, seed, start, market) if files else _empty(seed, start, market)
    if len(files) > 1 or start or market:
        raise SpecError(
            f"{accounts[0]} has its own start and market; leave --start, --market and other files out"
        )
    from tidemill.cli.session import open_account

    account = open_account(Path(accounts[0]))
    timeline, cloud = account.apart()
    click.echo(f"the account starts as {accounts[0]}; changes are not written back to it", err=True)
    return _Served(cloud, timeline, account.history().region, {})


def _empty(seed: int, start: str | None, market: str | None) -> _Served:
    from tidemill.catalog import load

    timeline, cloud = _account(load(), _ZONES, _instant(start), seed, {"offers": market or "plenty"})
    return _Served(cloud, timeline, "us-east-1", {})


def _from_documents(files: tuple[str, ...], seed: int, start: str | None, market: str | None) -> _Served:
    from tidemill.cli.loading import load_spec
    from tidemill.sim.cloud.account_file import NOBODYS_ACCOUNT

    spec, scenario = load_spec(files)
    platform = spec.platform.spec
    begins = _instant(start) if start or scenario is None else scenario.spec.start
    sold = scenario.spec.market.model_dump() if scenario is not None else {}
    zones = tuple(sorted(platform.subnets)) or (f"{platform.region}a",)
    timeline, cloud = _account(
        spec.catalog, zones, begins, seed, sold | ({"offers": market} if market else {}),
        account=platform.account_id or NOBODYS_ACCOUNT,
    )  # fmt: skip
    for owned in scenario.spec.reservations if scenario is not None else ():
        cloud.add_reservation(owned, owner=platform.deployment)
    taints = {taint.key for pool in spec.pools.values() for taint in pool.spec.startup_taints}
    images = {id_ for built in spec.node_classes.values() for id_ in built.image_ids}
    roles = [platform.node_role, *(one.spec.role for one in spec.node_classes.values())]
    return _Served(
        cloud,
        timeline,
        platform.region,
        platform.subnets,
        platform.cluster if platform.cluster.name else None,
        frozenset(taints),
        frozenset(images),
        frozenset(_names(role for role in roles if not _is_profile(role))),
        frozenset(_names(role for role in roles if _is_profile(role))),
        frozenset(platform.security_groups),
    )


def _names(roles: Iterable[str]) -> Iterator[str]:
    """From names and ARNs."""
    return (role.rpartition("/")[2] for role in roles if role)


def _is_profile(role: str) -> bool:
    return ":instance-profile/" in role


def _account(
    catalog: Any,
    zones: tuple[str, ...],
    begins: datetime,
    seed: int,
    market: dict[str, Any],
    account: str = "",
) -> tuple[Timeline, SimCloud]:
    from tidemill.sim.cloud.account_file import NOBODYS_ACCOUNT
    from tidemill.sim.cloud.cloud import SimCloud
    from tidemill.sim.timeline import Journal, Timeline
    from tidemill.spec.scenario import Market

    timeline = Timeline(begins.replace(microsecond=0))
    cloud = SimCloud(
        timeline, Journal(timeline.now), catalog, seed=seed, zones=zones, market=Market.model_validate(market),
        wake=lambda reason: None, identity=f"arn:aws:iam::{account or NOBODYS_ACCOUNT}:user/you",
    )  # fmt: skip
    return timeline, cloud


def _instant(written: str | None) -> datetime:
    from tidemill.engine.clock import WallClock
    from tidemill.spec.units import parse_instant

    try:
        return WallClock().now() if written is None else parse_instant(written)
    except ValueError as error:
        raise SpecError(f"--start: {error}") from None


# --- printing -------------------------------------------------------------------------------------


def _print_server(server: WireServer, as_json: bool) -> None:
    wire, network = server.wire, server.wire.network
    if as_json:
        head = {"endpoint": server.endpoint, "environment": server.environment}
        about = {"account": wire.account, "region": wire.region, **network.as_json()}
        clock = {"now": f"{server.clock.now():%Y-%m-%dT%H:%M:%SZ}", "speed": server.clock.speed}
        click.echo(json.dumps({**head, **about, **clock, "apiServer": server.api_server or None}))
        return
    click.echo(f"SIMULATED AWS at {server.endpoint}: no real account, no credentials, no money")
    click.echo(f"  account {wire.account} in {wire.region}, {_clock_text(server)}")
    click.echo("  in another shell, set:")
    for name, value in server.environment.items():
        click.echo(f"    export {name}={shlex.quote(value)}")
    click.echo(f"  network: {network.vpc}, security group {network.security_group}")
    for subnet in network.subnets:
        click.echo(f"    {subnet.zone}  {subnet.id}")
    for arch, image in network.images.items():
        click.echo(f"    {arch}  {image}")
    if server.api_server:
        click.echo(f"  instances become nodes of {server.api_server}: {server.endpoint}/tidemill/kubelets")
    click.echo(f"  clock, faults and journal: {server.endpoint}/tidemill")
    click.echo("Ctrl-C ends it.")


def _clock_text(server: WireServer) -> str:
    runs = f"{server.clock.speed:g} times real time" if server.clock.speed else "clock stopped"
    return f"{server.clock.now():%Y-%m-%d %H:%M:%S} UTC, {runs}"
