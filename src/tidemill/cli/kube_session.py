"""Which cluster a verb works with, and who is named before anything is done: cluster, server and user, on stderr."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tidemill.model.errors import Refused, SpecError

if TYPE_CHECKING:
    from tidemill.kube.api import KubeApi
    from tidemill.spec import Spec

IN_CLUSTER = "in-cluster"
NEEDS_AWS = "--kube looks at a cluster and the account that its nodes are in; add --aws (or set TIDEMILL_AWS)"

KUBECONFIG = click.option(
    "--kubeconfig", metavar="FILE", envvar="TIDEMILL_KUBECONFIG",
    help="Kubeconfig. Default: KUBECONFIG, the service account of this pod, ~/.kube/config.",
)  # fmt: skip
CONTEXT = click.option(
    "--context",
    metavar="NAME",
    envvar="TIDEMILL_CONTEXT",
    help="Context in the kubeconfig. Default: its current one.",
)


@dataclass(frozen=True, slots=True)
class LiveChoice:
    """The user wants the running cluster and the account, not a scenario."""

    kubeconfig: str | None
    context: str | None
    ledger_url: str


def live_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: add --kube and what goes with it, and pass the verb `live`; None: --kube was not given. It stands
    above the options --aws and ADDRESS of a verb that has them.

    A KUBECONFIG in the environment is not enough: it is set in most shells, and must not change what a verb means.
    """
    from tidemill.cli.session import DEFAULT_LEDGER

    named = {given.name for given in getattr(verb, "__click_params__", ())}
    has_aws, has_ledger = "aws" in named, "address" in named

    @functools.wraps(verb)
    def run(
        *, kube: bool, kubeconfig: str | None, context: str | None, live_ledger: str = "", **given: Any
    ) -> Any:
        aws = given["aws"] if has_aws else given.pop("aws")
        if not kube and (kubeconfig or context) and not _from_environment("kubeconfig", "context"):
            raise SpecError("--kubeconfig and --context need --kube")
        if kube and not aws:
            raise SpecError(NEEDS_AWS)
        if aws and not kube and not has_aws:
            raise SpecError("--aws needs --kube here: this verb shows the cluster and the account together")
        return verb(live=LiveChoice(kubeconfig, context, live_ledger) if kube else None, **given)

    options = [
        click.option(
            "--kube", is_flag=True, envvar="TIDEMILL_KUBE",
            help="Look at the running cluster and, with --aws, its account. Nothing is changed.",
        ),
        KUBECONFIG,
        CONTEXT,
    ]  # fmt: skip
    if not has_ledger:
        options.append(
            click.option(
                "--ledger", "live_ledger", envvar="TIDEMILL_LEDGER", default=DEFAULT_LEDGER, show_default=True,
                metavar="URL", help="With --kube: the engine's ledger. Only read.",
            )
        )  # fmt: skip
    if not has_aws:
        options.append(
            click.option("--aws", is_flag=True, envvar="TIDEMILL_AWS", help="With --kube: the account.")
        )
    for option in reversed(options):
        run = option(run)
    return run


def with_session_or_cluster(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: like `with_session`; with --kube the session only looks, and has the cluster too."""
    from tidemill.cli.session import AWS, FILES, LEDGER, SIM, open_session

    @FILES
    @SIM
    @AWS
    @LEDGER
    @click.option(
        "--kube",
        is_flag=True,
        envvar="TIDEMILL_KUBE",
        help="Look at the running cluster too. Nothing is changed.",
    )
    @KUBECONFIG
    @CONTEXT
    @functools.wraps(verb)
    def run(
        *, files: tuple[str, ...], sim: Any, aws: bool, ledger_url: str, kube: bool, kubeconfig: str | None,
        context: str | None, **given: Any,
    ) -> Any:  # fmt: skip
        if kube:
            from tidemill.cli.live import live_session

            if not aws:
                raise SpecError(NEEDS_AWS)
            with live_session(files, LiveChoice(kubeconfig, context, ledger_url)) as live:
                return verb(session=live, **given)
        session = open_session(files, sim, ledger_url, aws=aws)
        try:
            return verb(session=session, **given)
        finally:
            session.close()

    return run


def _from_environment(*names: str) -> bool:
    from click.core import ParameterSource

    context = click.get_current_context()
    return all(context.get_parameter_source(name) is not ParameterSource.COMMANDLINE for name in names)


def document_files(files: tuple[str, ...]) -> tuple[str, ...]:
    """Those on the command line, or those of TIDEMILL_FILES."""
    named = files or tuple(name for name in os.environ.get("TIDEMILL_FILES", "").split(os.pathsep) if name)
    if not named:
        raise SpecError(
            "--kube needs the documents that the engine runs with: name files, or set TIDEMILL_FILES"
        )
    return named


def open_kube(kubeconfig: str | None, context: str | None) -> KubeApi:
    """SpecError: the kubeconfig is wrong. Nothing is sent yet."""
    try:
        from tidemill.kube.connect import connect
    except ImportError:
        raise SpecError("a cluster needs its client: pip install 'tidemill[kube]'") from None
    return connect(kubeconfig, context)


def cluster_line(api: KubeApi) -> str:
    """Cluster, server and user, for stderr."""
    return f"cluster {api.name} at {api.server}, as {api.identity}"


def check_cluster(spec: Spec, api: KubeApi) -> None:
    """Refused: the documents name another API server. Instances would never be seen to join this one."""
    wanted = spec.platform.spec.cluster.endpoint
    if wanted and api.name != IN_CLUSTER and _host(wanted) != _host(api.server):
        raise Refused(
            f"the Platform's cluster {spec.platform.spec.cluster.name} is at {wanted}, but this kubeconfig reaches "
            f"{api.server}; name another --context"
        )


def _host(address: str) -> str:
    from urllib.parse import urlsplit

    return (urlsplit(address if "//" in address else f"//{address}").hostname or address).lower()
