"""The cluster's part of `tidemill inspect --kube`: read once, joined with the account, printed. Nothing is changed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from tidemill.cli.kube_session import cluster_line, open_kube
from tidemill.cli.terminal import console, table
from tidemill.render.figures import counted, span
from tidemill.report.cluster_inspection import ClusterFacts, ClusterInspection, cluster_inspection

if TYPE_CHECKING:
    from tidemill.catalog import Catalog
    from tidemill.engine.clock import MappedClock
    from tidemill.report.inspection import Inspection

_MOST = 20


def inspect_cluster(
    account: Inspection, catalog: Catalog, clock: MappedClock, kubeconfig: str | None, context: str | None
) -> ClusterInspection:
    """The cluster is named on stderr before it is read. All calls are GET."""
    from tidemill.cli.live import wait_synced
    from tidemill.controller.leadership import nothing_may_begin
    from tidemill.kube.cluster_view import ClusterReader
    from tidemill.kube.installed import installed

    api = open_kube(kubeconfig, context)
    api.may_begin = nothing_may_begin
    click.echo(cluster_line(api), err=True)
    reader = ClusterReader(api, clock)
    try:
        reader.start()
        wait_synced(reader)
        view = reader.view()
        autoscalers, plugins, missed = installed(api)
    finally:
        reader.stop()
        api.close()
    facts = ClusterFacts(api.name, view.nodes, view.pods, view.budgets, autoscalers, plugins, missed)
    return cluster_inspection(facts, account, catalog)


def print_cluster(found: ClusterInspection) -> None:
    click.echo(f"Cluster {found.cluster}: {counted(found.nodes, 'node')}, {counted(found.pods, 'pod')}\n")
    if found.on_blocks:
        rows = table(
            "reservation", "ends (UTC)", "nodes", "pods", "not in this cluster", title="Nodes on reservations"
        )
        for one in found.on_blocks:
            missing = ", ".join(one.missing[:3]) or "-"
            rows.add_row(one.reservation, _at(one.ends_at), str(len(one.nodes)), str(one.pods), missing)
        console().print(rows)
    if found.dying:
        _print_dying(found)
    for workload, pods in found.blocking:
        click.echo(
            f"A disruption budget of {workload} lets no pod go now; {counted(pods, 'pod')} of it on reservations."
        )
    for what, names in (
        ("Pods on reservations that ask for no CPU or no memory", found.without_requests),
        ("Nodes of accelerated types that offer no accelerator (no device plugin?)", found.without_devices),
        ("Others that drain or scale nodes", found.autoscalers),
        ("Device plugins", found.device_plugins),
    ):
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        click.echo(f"{what}: {', '.join(names[:_MOST]) or 'none'}{more}")
    for missed in found.not_read:
        click.echo(f"not read: {missed}")
    click.echo("")


def _print_dying(found: ClusterInspection) -> None:
    rows = table(
        "pod", "node", "ends (UTC)", "left", "grace", "would be done", "then",
        title="Pods that still run when their node ends, if nobody drains it",
    )  # fmt: skip
    for one in found.dying[:_MOST]:
        then = "made again" if one.comes_back else "lost"
        grace = _span(one.grace_s) if one.has_time else f"{_span(one.grace_s)}: TOO LONG"
        rows.add_row(
            one.pod, one.node, _at(one.ends_at), _span(one.left_s), grace, _at(one.expected_end), then
        )
    console().print(rows)
    if len(found.dying) > _MOST:
        click.echo(f"and {len(found.dying) - _MOST} more (--json has all of them)\n")


def _span(seconds: int) -> str:
    return span(timedelta(seconds=seconds))


def _at(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%m-%d %H:%M}"
