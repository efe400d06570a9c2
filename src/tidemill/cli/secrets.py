"""`tidemill secrets`: make, check, replace and sync the secrets of a deployment. No value is ever printed.

A value comes from an environment variable, a file or stdin, never from the command line: other users of the machine
see that in the list of processes.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.kube_session import CONTEXT, KUBECONFIG
from tidemill.cli.region_catalog import PROFILE
from tidemill.cli.session import AWS, FILES, JSON, NO_AWS, YES
from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from tidemill.aws.secrets import SecretsManager
    from tidemill.kube.external_secrets import ExternalSecretObjects
    from tidemill.platform.secrets import Layout
    from tidemill.platform.secrets.sync import Synced
    from tidemill.ports import Clock
    from tidemill.spec import Spec

_SETTABLE = ("cookies", "oidc", "redis", "storage", "database")
_LONGEST_BYTES = 65_536
_LOOK_EVERY_S = 1.0
_EXIT_NOT_FINE, _EXIT_CANNOT_TELL = 1, 3


@dataclass(frozen=True, slots=True)
class _Opened:
    spec: Spec
    layout: Layout
    store: SecretsManager
    clock: Clock


@click.group(short_help="Make, check, replace and sync the platform's secrets.")
def secrets() -> None:
    """Make, check, replace and sync the secrets of a deployment in AWS Secrets Manager.

    Six of them: login and database (RDS), storage (S3), redis, oidc, cookies. Values are never printed, and never taken
    from the command line. `tidemill iam platform` prints the policy that these commands need.
    """


def _with_aws(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: add --file, --aws and --profile, and pass the verb what they open."""

    @FILES
    @AWS
    @PROFILE
    @functools.wraps(verb)
    def run(*, files: tuple[str, ...], aws: bool, profile: str, **given: Any) -> Any:
        if not (aws or profile):
            raise SpecError(NO_AWS.partition(", or --sim")[0] + " (or set TIDEMILL_AWS)")
        return verb(opened=_open(files, profile), **given)

    return run


def _open(files: tuple[str, ...], profile: str) -> _Opened:
    from tidemill.aws.secrets import SecretsManager
    from tidemill.aws.session import Aws
    from tidemill.cli.loading import load_spec
    from tidemill.cli.session import ROLE, account_line, check_account, clock_and_name
    from tidemill.platform.secrets import layout_of

    spec, _ = load_spec(files)
    platform = spec.platform.spec
    clock, name = clock_and_name()
    aws = Aws(platform.region, profile=profile, role_arn=os.environ.get(ROLE, ""))
    who = str(aws.read("sts", "GetCallerIdentity").get("Arn") or "")
    check_account(spec, who)
    line = account_line(name, who, platform.region, clock.now())
    click.echo(f"{line}; deployment {platform.deployment}", err=True)
    return _Opened(spec, layout_of(platform), SecretsManager(aws, platform.deployment), clock)


# --- check ----------------------------------------------------------------------------------------------


@secrets.command(short_help="Show the state of every secret.")
@_with_aws
@click.option("--kube", is_flag=True, help="Look at the store and the external secrets in the cluster too.")
@KUBECONFIG
@CONTEXT
@JSON
@click.pass_context
def check(
    ctx: click.Context,
    opened: _Opened,
    kube: bool,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
) -> None:
    """Show which secrets are fine, missing or wrong, and what to type. Changes nothing, and prints no value.

    What could not be looked at is "cannot tell". Exit code: 0 all fine, 1 something is missing or wrong, 3 something
    could not be looked at.
    """
    from tidemill.platform.secrets import SecretState, check_secrets
    from tidemill.platform.secrets.sync import check_sync

    checks = check_secrets(opened.layout, opened.store, opened.store)
    synced: tuple[Synced, ...] = ()
    if kube:
        with _objects(kubeconfig, context) as objects:
            synced = check_sync(objects, _wanted(opened), _wall())
    _print_checks(opened, checks, synced, as_json)
    states = {one.state for one in checks} | {one.state for one in synced}
    if states & {SecretState.MISSING, SecretState.WRONG}:
        ctx.exit(_EXIT_NOT_FINE)
    if SecretState.CANNOT_TELL in states:
        ctx.exit(_EXIT_CANNOT_TELL)


def _print_checks(opened: _Opened, checks: Any, synced: tuple[Synced, ...], as_json: bool) -> None:
    from tidemill.cli.terminal import console, table
    from tidemill.render.secrets_text import STATES, check_text, fault_text

    if as_json:
        document = {
            "deployment": opened.layout.deployment,
            "secrets": [
                {
                    "secret": one.kind.value,
                    "name": one.name or None,
                    "state": one.state.value,
                    "faults": [
                        {"kind": fault.kind.value, "field": fault.field, "text": fault_text(fault)}
                        for fault in one.faults
                    ],
                    "why": one.why or None,
                    "changed_at": one.changed_at.isoformat() if one.changed_at else None,
                    "rotates": one.rotates,
                }
                for one in checks
            ],
            "cluster": [_synced_json(one) for one in synced],
        }
        click.echo(json.dumps(document, indent=2))
        return
    rows = table("secret", "name", "state", "changed", "what to do")
    for one in checks:
        changed = f"{one.changed_at:%Y-%m-%d %H:%M}" if one.changed_at else ""
        said = check_text(one, opened.layout.instance)
        rows.add_row(one.kind.value, one.name, STATES[one.state], changed, said)
    console().print(rows)
    if synced:
        _print_synced(synced)


def _synced_json(one: Synced) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "state": one.state.value,
        "refreshed_at": one.refreshed_at.isoformat() if one.refreshed_at else None,
        "missing_keys": list(one.missing_keys),
        "late": one.late,
        "message": one.message or None,
    }


def _print_synced(synced: tuple[Synced, ...]) -> None:
    from tidemill.cli.terminal import console, table
    from tidemill.render.secrets_text import STATES, synced_text

    rows = table("in the cluster", "name", "state", "refreshed", "what to do")
    for one in synced:
        refreshed = f"{one.refreshed_at:%Y-%m-%d %H:%M:%S}" if one.refreshed_at else ""
        rows.add_row(one.kind, one.name, STATES[one.state], refreshed, synced_text(one))
    console().print(rows)


# --- init and set ---------------------------------------------------------------------------------------


@secrets.command(short_help="Make the secrets that are missing.")
@_with_aws
@click.option("--redis", metavar="FROM", help="The Redis token, or its whole address.")
@click.option("--oidc", metavar="FROM", help="The identity providers: a JSON array.")
@click.option("--dry-run", is_flag=True, help="Say what would be made, and make nothing.")
@JSON
@click.pass_context
def init(
    ctx: click.Context, opened: _Opened, redis: str | None, oidc: str | None, dry_run: bool, as_json: bool
) -> None:
    """Make the secrets that are missing. What is there is left as it is, so this is safe to repeat.

    cookies is random; storage comes from the Platform's bucket; database from RDS. redis and oidc must be given, FROM
    an environment variable (env:NAME), a file (file:PATH) or stdin (-). login is written by RDS itself.

    Exit code: 0 all are there, 1 some are still missing or wrong, 3 some could not be looked at.
    """
    from tidemill.cli.terminal import console, table
    from tidemill.platform.secrets import Outcome, SecretKind, initialise
    from tidemill.render.secrets_text import OUTCOMES, made_text

    given = {
        kind: _value(source)
        for kind, source in ((SecretKind.REDIS, redis), (SecretKind.OIDC, oidc))
        if source is not None
    }
    made = initialise(opened.layout, opened.store, opened.store, given, dry_run=dry_run)
    said = {**OUTCOMES, Outcome.MADE: "would be created"} if dry_run else OUTCOMES
    if as_json:
        secrets_ = [
            {"secret": one.kind.value, "name": one.name or None, "outcome": one.outcome.value,
             "why": made_text(one, opened.layout.instance) or None}
            for one in made
        ]  # fmt: skip
        click.echo(json.dumps({"dry_run": dry_run, "secrets": secrets_}, indent=2))
    else:
        rows = table("secret", "name", "", "what to do")
        for one in made:
            rows.add_row(one.kind.value, one.name, said[one.outcome], made_text(one, opened.layout.instance))
        console().print(rows)
    outcomes = {one.outcome for one in made}
    if outcomes & {Outcome.NOT_GIVEN, Outcome.NOT_YET, Outcome.WRONG}:
        ctx.exit(_EXIT_NOT_FINE)
    if Outcome.CANNOT_TELL in outcomes:
        ctx.exit(_EXIT_CANNOT_TELL)


@secrets.command("set", short_help="Replace one secret.")
@click.argument("secret", type=click.Choice(_SETTABLE))
@_with_aws
@click.option("--from", "source", metavar="FROM", help="env:NAME, file:PATH, or - for stdin.")
@YES
@JSON
def set_(opened: _Opened, secret: str, source: str | None, yes: bool, as_json: bool) -> None:
    """Replace one secret. The value is checked first; the same value again changes nothing.

    Without --from: cookies gets a new random value, storage and database what the Platform and RDS say. The value
    before stays in Secrets Manager as AWSPREVIOUS. Then run `tidemill secrets sync`.
    """
    from tidemill.cli.terminal import confirmed
    from tidemill.platform.secrets import SecretKind, WrongValue, replace_secret
    from tidemill.render.secrets_text import faults_text

    kind = SecretKind(secret)
    given = _value(source) if source is not None else None
    if kind is SecretKind.COOKIES and not confirmed(
        "A new cookies secret logs everybody out. Replace it?", yes=yes
    ):
        raise click.Abort
    try:
        done = replace_secret(kind, opened.layout, opened.store, opened.store, given)
    except WrongValue as error:
        raise SpecError(f"the value for {kind} was not written: {faults_text(error.faults)}") from None
    name = opened.layout.name(kind)
    if as_json:
        click.echo(json.dumps({"secret": secret, "name": name, "outcome": done.value}, indent=2))
    else:
        click.echo(f"{name}: {done.value}")


def _value(source: str) -> SecretStr:
    """SpecError: it cannot be read. The message never has what was read in it."""
    from pydantic import SecretStr

    if source == "-":
        text = sys.stdin.read(_LONGEST_BYTES + 1)
    elif source.startswith("env:"):
        name = source.removeprefix("env:")
        if name not in os.environ:
            raise SpecError(f"there is no environment variable '{name}'")
        text = os.environ[name]
    elif source.startswith("file:"):
        path = Path(source.removeprefix("file:")).expanduser()
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(
                f"{path} cannot be read: {getattr(error, 'strerror', '') or 'it is no text'}"
            ) from None
    else:
        # Not quoted: what was typed here by mistake may be the secret itself.
        raise SpecError("a value comes from env:NAME, file:PATH or - (stdin), never from the command line")
    if not text.strip():
        raise SpecError("the value is empty")
    return SecretStr(text.strip())


# --- sync -----------------------------------------------------------------------------------------------


@secrets.command(short_help="Have the cluster fetch the secrets now.")
@_with_aws
@KUBECONFIG
@CONTEXT
@click.option("--wait", "wait_s", default=120, show_default=True, type=click.IntRange(0, 3600), metavar="SECONDS",
              help="How long to wait until all are fetched. 0: do not wait.")  # fmt: skip
@JSON
@click.pass_context
def sync(
    ctx: click.Context,
    opened: _Opened,
    kubeconfig: str | None,
    context: str | None,
    wait_s: int,
    as_json: bool,
) -> None:
    """Have the External Secrets Operator fetch every secret now, and wait until it has.

    It would fetch them by itself: the control plane's every 3 minutes, the others every hour. Exit code 1: some were
    not fetched in time.
    """
    from tidemill.platform.secrets import SecretState
    from tidemill.platform.secrets.sync import check_sync

    wanted = _wanted(opened)
    with _objects(kubeconfig, context) as objects:
        began = _wall()
        for one in wanted:
            if one["kind"] == "ExternalSecret":
                objects.force_sync(one["metadata"]["namespace"], one["metadata"]["name"], began)
        synced = check_sync(objects, wanted, began)
        until = time.monotonic() + wait_s
        while time.monotonic() < until and not all(_fetched(one, began) for one in synced):
            time.sleep(_LOOK_EVERY_S)
            synced = check_sync(objects, wanted, _wall())
    if as_json:
        click.echo(json.dumps({"cluster": [_synced_json(one) for one in synced]}, indent=2))
    else:
        _print_synced(synced)
    if wait_s and not all(_fetched(one, began) for one in synced):
        ctx.exit(_EXIT_NOT_FINE)
    if any(one.state is SecretState.CANNOT_TELL for one in synced):
        ctx.exit(_EXIT_CANNOT_TELL)


def _fetched(one: Synced, since: datetime) -> bool:
    from tidemill.platform.secrets import SecretState

    if one.state is not SecretState.FINE:
        return False
    # Kubernetes times have whole seconds.
    return one.kind != "ExternalSecret" or (
        one.refreshed_at is not None and one.refreshed_at >= since - timedelta(seconds=1)
    )


def _wall() -> datetime:
    """The operator's times are wall time, whatever clock a simulated account has."""
    from tidemill.engine.clock import WallClock

    return WallClock().now()


def _wanted(opened: _Opened) -> list[dict[str, Any]]:
    """As they are rendered. The name of the login is asked of RDS where the Platform does not have it."""
    from tidemill.platform.secrets import SecretKind, check_secrets
    from tidemill.render.external_secrets import external_secret_objects

    platform = opened.spec.platform.spec
    if not platform.database.login_secret:
        (login,) = check_secrets(opened.layout, opened.store, opened.store, (SecretKind.LOGIN,))
        database = platform.database.model_copy(update={"login_secret": login.name})
        platform = platform.model_copy(update={"database": database})
    return external_secret_objects(platform)


@contextmanager
def _objects(kubeconfig: str | None, context: str | None) -> Iterator[ExternalSecretObjects]:
    from tidemill.cli.kube_session import cluster_line, open_kube
    from tidemill.kube.external_secrets import ExternalSecretObjects

    api = open_kube(kubeconfig, context)
    click.echo(cluster_line(api), err=True)
    try:
        yield ExternalSecretObjects(api)
    finally:
        api.close()
