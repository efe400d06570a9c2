"""`tidemill run`, the controller, and `tidemill purchaser`, which buys apart from it. Both run until a signal.

Account, cluster, ledger and deployment are named on stderr before anything is done. Purchases are made only as the
Platform's approval says; ceilings in the environment hold whatever the documents say.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import click

from tidemill.cli.kube_session import CONTEXT, KUBECONFIG
from tidemill.cli.session import AWS, LEDGER
from tidemill.cli.terminal import duration_s
from tidemill.model.errors import SpecError

LEASE_S = 30.0
REPORT_EVERY_S = 86400.0
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


def _option(name: str, *declared: str, **given: Any) -> Callable[..., Any]:
    """An option that the environment can give too: --lease-name as TIDEMILL_LEASE_NAME."""
    return click.option(name, *declared, envvar=f"TIDEMILL_{name[2:].upper().replace('-', '_')}", **given)


# What the controller and the purchaser are told alike.
_DOCUMENTS = click.option(
    "-f", "--file", "files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR", type=click.Path(),
    help="Documents: the Platform, pools, plans. A folder stands for its YAML files. Repeatable.",
)  # fmt: skip
_FROM_CLUSTER = _option(
    "--from-cluster",
    is_flag=True,
    help="Work by the cluster's own Platform, NodeClass, ComputePool and CapacityPlan objects.",
)
_LEASE_NAMESPACE = _option(
    "--lease-namespace", metavar="NAME", help="Its namespace. Default: the pod's own, or tidemill-system."
)
_LEASE_DURATION = _option(
    "--lease-duration",
    "lease_s",
    callback=duration_s,
    metavar="TIME",
    help="A dead leader is replaced after this; a call to AWS may take half of it. [default: 30s]",
)
_METRICS_ADDR = _option(
    "--metrics-addr",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz there; :PORT for every address, '' for none.",
)
_GRACE = _option(
    "--grace",
    "grace_s",
    callback=duration_s,
    metavar="TIME",
    help="After SIGTERM the process ends within this. [default: 25s]",
)
_LOG_FORMAT = _option(
    "--log-format",
    type=click.Choice(("console", "json")),
    default="console",
    show_default=True,
    help="One line for each event, for people or for programs.",
)


@click.command(short_help="Run the controller beside a cluster.")
@_DOCUMENTS
@_FROM_CLUSTER
@KUBECONFIG
@CONTEXT
@AWS
@LEDGER
@_option(
    "--lease-name",
    default="tidemill",
    show_default=True,
    metavar="NAME",
    help="The Lease that elects the leader.",
)
@_LEASE_NAMESPACE
@_LEASE_DURATION
@_option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many processes there are. More than one needs a ledger on PostgreSQL.",
)
@_option(
    "--purchaser-apart",
    is_flag=True,
    help="Submit no purchase: `tidemill purchaser` does, which alone may buy. Needs a ledger on PostgreSQL.",
)
@_option(
    "--queue-url",
    metavar="URL",
    help="The SQS queue with AWS's events. Without it the engine looks every ten minutes.",
)
@_METRICS_ADDR
@_option(
    "--accept-drainer",
    "accepted",
    multiple=True,
    metavar="NAME",
    help="Start although this drainer, as the refusal names it, acts on the same nodes. Repeatable.",
)
@click.option(
    "--dry-run", is_flag=True, help="Decide and log what would be done. Nothing is written anywhere."
)
@_option(
    "--shadow",
    is_flag=True,
    help="Like --dry-run, beside another set-up: report what would be done if its nodes were Tidemill's.",
)
@_option(
    "--report-every",
    "report_every_s",
    callback=duration_s,
    metavar="TIME",
    help="With --shadow: print the report this often, and at the end. [default: 24h]",
)
@_option(
    "--report-to", metavar="FILE", help="With --shadow: append each report to this file, as a line of JSON."
)
@_option(
    "--record",
    metavar="DIR",
    help="Keep every tick there, for `tidemill replay`. It holds no secrets; it never stops the engine.",
)
@_option(
    "--record-max-mb",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="The oldest ticks are removed above this.",
)
@click.option(
    "--once", is_flag=True, help="One tick, then exit: 1 if an action failed or nothing could be seen."
)
@_GRACE
@_LOG_FORMAT
@_option("--verbose", is_flag=True, help="Log every tick too, with what woke it and how long it took.")
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:  # fmt: skip
    """Run the controller: it buys, launches, admits, drains and hands over, as the documents say.

    The documents are files, or objects of the cluster (--from-cluster; `tidemill render crds` prints their
    definitions). They are read again when they change; a bad version is not used. One process leads at a time, by a
    Lease in the cluster and an epoch in the ledger. SIGTERM finishes the action under way, gives the lease back and
    exits 0; a second one exits at once. Exits 5 if the ledger follows another leader: start it again.
    """
    if not given.pop("aws"):
        raise SpecError("a controller needs the account that it launches in: add --aws (or set TIDEMILL_AWS)")
    try:
        from tidemill.cli.controller_process import ControllerProcess, RunOptions
    except ImportError as error:
        raise SpecError(f"a controller needs {error.name}: pip install 'tidemill[aws,kube]'") from None
    _prepare(given, verbose=given.pop("verbose"))
    given["dry_run"] = given["dry_run"] or given["shadow"]
    given["report_every_s"] = given["report_every_s"] or REPORT_EVERY_S
    ctx.exit(ControllerProcess(RunOptions(**given)).run())


@click.command(short_help="Run the process that alone may buy.")
@_DOCUMENTS
@_FROM_CLUSTER
@KUBECONFIG
@CONTEXT
@AWS
@LEDGER
@click.option(
    "--lease-name", default="tidemill-purchaser", show_default=True, metavar="NAME",
    help="The Lease that elects the one that buys.",
)  # fmt: skip
@_LEASE_NAMESPACE
@_LEASE_DURATION
@_METRICS_ADDR
@_GRACE
@_LOG_FORMAT
@click.pass_context
def purchaser(ctx: click.Context, /, **given: Any) -> None:
    """Submit approved purchases, beside controllers that run with --purchaser-apart.

    Only this process needs the policy `purchaser` (`tidemill iam purchaser`): the controller decides and proposes,
    people approve, and this checks approval, budget and offers again and buys. Both work on one ledger on PostgreSQL;
    each has a Lease and an epoch of its own. It asks nothing of the cluster but its Lease and, with --from-cluster,
    the documents.
    """
    if not given.pop("aws"):
        raise SpecError("a purchaser needs the account that it buys in: add --aws (or set TIDEMILL_AWS)")
    try:
        from tidemill.cli.purchaser_process import PurchaserOptions, PurchaserProcess
    except ImportError as error:
        raise SpecError(
            f"a purchaser needs {error.name}: pip install 'tidemill[aws,kube,postgres]'"
        ) from None
    _prepare(given, verbose=False)
    ctx.exit(PurchaserProcess(PurchaserOptions(**given)).run())


def _prepare(given: dict[str, Any], *, verbose: bool) -> None:
    """Logs, and what the options leave open."""
    from tidemill.controller.logs import configure_logs

    if bool(given["files"]) == given["from_cluster"]:
        raise SpecError("name the documents with --file, or add --from-cluster: one of them")
    configure_logs(given.pop("log_format"), logging.DEBUG if verbose else logging.INFO)
    given["lease_s"] = given["lease_s"] or LEASE_S
    given["lease_namespace"] = given["lease_namespace"] or _own_namespace()
    given["grace_s"] = given["grace_s"] or 25.0


def _own_namespace() -> str:
    try:
        with open(NAMESPACE_FILE, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return os.environ.get("POD_NAMESPACE", "tidemill-system")
