"""`tidemill doctor`: the eight steps from an empty account to GPUs in use, each done, missing, or cannot tell."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.kube_session import CONTEXT, KUBECONFIG
from tidemill.cli.region_catalog import PROFILE
from tidemill.cli.session import AWS, FILES, JSON
from tidemill.model.errors import Retryable, SpecError

if TYPE_CHECKING:
    from tidemill.platform.checklist import Finding, Views
    from tidemill.spec import Spec

_EXIT_MISSING, _EXIT_CANNOT_TELL = 1, 3
_WATCH_EVERY_S = 10.0
_WEB_TIMEOUT_S = 10.0


@click.command(short_help="Say what is set up, what is missing, and how to do it.")
@FILES
@AWS
@PROFILE
@click.option(
    "--kube", is_flag=True, envvar="TIDEMILL_KUBE", help="Look at the cluster too. Nothing is changed."
)
@KUBECONFIG
@CONTEXT
@click.option(
    "--namespace",
    default="tidemill-system",
    show_default=True,
    metavar="NAME",
    help="Where `tidemill run` runs.",
)
@click.option(
    "--watch", is_flag=True, help="Look again every ten seconds until everything is done. Ctrl-C ends it."
)
@JSON
@click.pass_context
def doctor(
    ctx: click.Context, files: tuple[str, ...], aws: bool, profile: str, kube: bool, kubeconfig: str | None,
    context: str | None, namespace: str, watch: bool, as_json: bool,
) -> None:  # fmt: skip
    """Say, for each of the eight steps to GPUs in use, what is done, what is missing, and the command that does it.

    What cannot be looked at (no right, no answer) is "cannot tell", never "missing". Nothing is changed. Exit code: 0
    all is done, 1 something is missing, 3 something could not be looked at.
    """
    if not (aws or profile):
        raise SpecError("--aws: the checklist looks at an account; add --aws (or set TIDEMILL_AWS)")
    from tidemill.cli.loading import load_spec
    from tidemill.platform.checklist import State, run_checklist

    spec, _ = load_spec(files)
    with ExitStack() as opened:
        views = _views(spec, profile, (kubeconfig, context) if kube else None, namespace, opened)
        while True:
            found = run_checklist(spec, _now(views), _wanted_secrets(spec, views))
            _print(found, files, as_json)
            states = {one.state for one in found}
            if not watch or states == {State.DONE}:
                break
            time.sleep(_WATCH_EVERY_S)
    if State.MISSING in states:
        ctx.exit(_EXIT_MISSING)
    if State.CANNOT_TELL in states:
        ctx.exit(_EXIT_CANNOT_TELL)


def _views(
    spec: Spec, profile: str, cluster: tuple[str | None, str | None] | None, namespace: str, opened: ExitStack
) -> Views:
    from tidemill.aws.account import AwsAccount
    from tidemill.aws.account_survey import ReadOnlyAws
    from tidemill.aws.platform_survey import AwsPlatform
    from tidemill.aws.secrets import SecretsManager
    from tidemill.cli.session import ROLE, account_line, check_account, clock_and_name
    from tidemill.engine.clock import WallClock
    from tidemill.platform.checklist import Views

    platform = spec.platform.spec
    clock, name = clock_and_name()
    aws = ReadOnlyAws(platform.region, profile=profile, role_arn=os.environ.get(ROLE, ""))
    who = str(aws.read("sts", "GetCallerIdentity").get("Arn") or "")
    check_account(spec, who)
    click.echo(account_line(name, who, platform.region, clock.now()), err=True)
    account = AwsAccount(aws, clock, spec.catalog, owner=platform.deployment)
    secrets = SecretsManager(aws, platform.deployment)
    seen: Any = None
    objects: Any = None
    if cluster is not None:
        from tidemill.cli.kube_session import check_cluster, cluster_line, open_kube
        from tidemill.kube.external_secrets import ExternalSecretObjects
        from tidemill.kube.platform_survey import KubePlatform

        api = open_kube(*cluster)
        opened.callback(api.close)
        check_cluster(spec, api)
        click.echo(cluster_line(api), err=True)
        seen, objects = KubePlatform(api, namespace), ExternalSecretObjects(api)
    view = AwsPlatform(aws, account, platform.deployment)
    return Views(view, secrets, secrets, seen, objects, _Web(), WallClock().now())


def _now(views: Views) -> Views:
    """At the instant of this look."""
    from dataclasses import replace

    from tidemill.engine.clock import WallClock

    return replace(views, wall=WallClock().now())


def _wanted_secrets(spec: Spec, views: Views) -> Sequence[dict[str, Any]]:
    """As they are rendered; none where the name of the login is not known."""
    from tidemill.model.errors import PortError
    from tidemill.platform.secrets import SecretKind, check_secrets, layout_of
    from tidemill.render.external_secrets import external_secret_objects

    platform = spec.platform.spec
    if not platform.database.login_secret:
        try:
            (login,) = check_secrets(layout_of(platform), views.secrets, views.servers, (SecretKind.LOGIN,))
        except PortError:
            return ()
        if not login.name:
            return ()
        database = platform.database.model_copy(update={"login_secret": login.name})
        platform = platform.model_copy(update={"database": database})
    return external_secret_objects(platform)


class _Web:
    """Whether a page answers. The certificate is checked: a browser would."""

    def status(self, url: str) -> int:
        import http.client
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        connection = http.client.HTTPSConnection(parts.netloc, timeout=_WEB_TIMEOUT_S)
        try:
            connection.request("GET", parts.path or "/")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise Retryable(f"{url} does not answer: {error}") from None
        finally:
            connection.close()


def _print(found: Sequence[Finding], files: Sequence[str], as_json: bool) -> None:
    from tidemill.platform.checklist import State, Step
    from tidemill.render.checklist_text import MARKS, STEPS, finding_text, fix_text

    if as_json:
        checks = [
            {
                "step": one.step.value, "check": one.check.value, "state": one.state.value, "about": one.about or None,
                "text": finding_text(one), "fix": fix_text(one, files) or None,
            }
            for one in found
        ]  # fmt: skip
        done = {
            step.value: all(one.state is State.DONE for one in found if one.step is step) for step in Step
        }
        click.echo(json.dumps({"steps": done, "checks": checks}, indent=2))
        return
    for step in Step:
        mine = [one for one in found if one.step is step]
        worst = next(
            (s for s in (State.MISSING, State.CANNOT_TELL) if any(one.state is s for one in mine)), State.DONE
        )
        click.echo(f"{MARKS[worst]} {step.value} {STEPS[step]}")
        for one in mine:
            click.echo(f"    {MARKS[one.state]} {finding_text(one)}")
            if fix := fix_text(one, files):
                click.echo(f"        {fix}")
