"""One look at the running cluster and its account: the engine's own eyes, and what it would decide. Nothing is changed.

All ports are read-only here. The documents are those of the command line, which need not be those of a controller that
runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.kube_session import LiveChoice, check_cluster, cluster_line, document_files, open_kube
from tidemill.cli.session import account_line, check_account, clock_and_name, cloud_of, ledger_owner
from tidemill.model.errors import NotAllowed, Refused, Retryable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidemill.engine.clock import MappedClock
    from tidemill.kube.api import KubeApi
    from tidemill.kube.cluster_view import ClusterReader
    from tidemill.model.plan import Plan
    from tidemill.model.world import World
    from tidemill.ports import Cloud, Ledger
    from tidemill.provision import ProvisionedCloud
    from tidemill.render.display_names import DisplayNames
    from tidemill.report import NextSteps, PodRow, Status
    from tidemill.report.rows import ChangeRow
    from tidemill.report.savings import Savings
    from tidemill.spec import Spec
    from tidemill.store.sql import SqlLedger

# A list of 20,000 pods takes some seconds; an API server that is slower than this is in trouble.
SYNC_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class LiveSession:
    """Documents, ports that can only be read, and who is asked: enough for every verb that looks."""

    spec: Spec
    cloud: Cloud
    ledger: Ledger
    clock: MappedClock
    who: str
    api: KubeApi
    reader: ClusterReader
    provisioned: ProvisionedCloud
    sql: SqlLedger | None  # None: there is no ledger yet

    @property
    def books(self) -> Ledger:
        """The same as `ledger`: everything here only looks."""
        return self.ledger

    @property
    def deployment(self) -> str:
        return self.spec.platform.spec.deployment

    def now(self) -> datetime:
        return self.clock.now()

    def head(self) -> dict[str, Any]:
        """What begins every JSON object: where this was seen."""
        return {
            "account": self.who.split(":")[4],
            "region": self.spec.platform.spec.region,
            "cluster": self.api.name,
            "server": self.api.server,
            "deployment": self.deployment,
        }


@dataclass(frozen=True, slots=True)
class LiveView:
    """The read models of one instant, as `status`, `plan` and `why` show them."""

    session: LiveSession
    world: World
    plan: Plan
    status: Status
    next: NextSteps
    pods: tuple[PodRow, ...]
    problems: tuple[str, ...]

    @property
    def names(self) -> DisplayNames:
        from tidemill.render.display_names import DisplayNames

        return DisplayNames({row.id: row.name for row in self.status.blocks})


@contextmanager
def live_session(files: tuple[str, ...], live: LiveChoice) -> Iterator[LiveSession]:
    """Account, cluster and ledger are named on stderr before anything is read of them."""
    from tidemill.aws.session import Aws
    from tidemill.cli.loading import load_spec
    from tidemill.cli.session import ROLE
    from tidemill.controller.dry_run import ReadOnlyCloud, ReadOnlyLedger
    from tidemill.controller.leadership import nothing_may_begin
    from tidemill.kube.cluster_view import ClusterReader

    spec, _ = load_spec(document_files(files))
    clock, name = clock_and_name()
    aws = Aws(spec.platform.spec.region, role_arn=os.environ.get(ROLE, ""), may_begin=nothing_may_begin)
    api = open_kube(live.kubeconfig, live.context)
    api.may_begin = nothing_may_begin
    click.echo(cluster_line(api), err=True)
    check_cluster(spec, api)
    sql, ledger = _ledger(spec, live.ledger_url, clock)
    guarded = ReadOnlyLedger(ledger)
    provisioned = cloud_of(aws, spec, clock, guarded)
    reader = ClusterReader(api, clock)
    try:
        who = provisioned.identity()
        check_account(spec, who)
        line = account_line(name, who, spec.platform.spec.region, clock.now())
        click.echo(f"{line}; deployment {spec.platform.spec.deployment}", err=True)
        if sql is not None:
            sql.owner().agreed_with(ledger_owner(spec, who))
        reader.start()
        wait_synced(reader)
        yield LiveSession(
            spec, ReadOnlyCloud(provisioned), guarded, clock, who, api, reader, provisioned, sql
        )
    finally:
        reader.stop()
        aws.close()
        if sql is not None:
            sql.close()


def _ledger(spec: Spec, url: str, clock: MappedClock) -> tuple[SqlLedger | None, Ledger]:
    """A ledger that does not exist is not created: then nothing was bought or launched yet."""
    from tidemill.store.memory import MemoryLedger
    from tidemill.store.open_ledger import read_ledger, redacted, sqlite_file

    file = sqlite_file(url)
    if file is not None and not file.exists():
        click.echo(f"no ledger at {file}: only tags say which blocks are ours", err=True)
        return None, MemoryLedger(clock, spec.platform.spec.deployment)
    sql = read_ledger(url, clock)
    click.echo(f"ledger {redacted(url)}", err=True)
    return sql, sql


def wait_synced(reader: ClusterReader) -> None:
    """Until everything was listed. A right that is missing, or a wrong credential, ends it at once."""
    give_up_s = time.monotonic() + SYNC_WITHIN_S
    while not reader.synced:
        errors = reader.errors()
        for error in errors.values():
            if isinstance(error, NotAllowed | Refused):
                raise error
            if error.code == "unreachable":  # a person who looks does not wait for an API server that is away
                raise error
        if time.monotonic() > give_up_s:
            raise next(iter(errors.values()), Retryable("the API server is too slow; nothing was shown"))
        time.sleep(0.02)


def look(session: LiveSession) -> LiveView:
    """Observe and decide, as the engine does."""
    from tidemill.controller.dry_run import ReadOnlyCluster
    from tidemill.decide import decide
    from tidemill.engine.observe import Observer
    from tidemill.report import next_steps, pods, status

    cluster = ReadOnlyCluster(session.reader)
    observer = Observer(session.clock, session.cloud, cluster, session.ledger, session.deployment)
    world = observer.look()
    plan = decide(session.spec, world)
    changes, problems = _changes(session, world)
    return LiveView(
        session,
        world,
        plan,
        status(session.spec, world, plan, used_gpu_hours=_used_hours(session), savings=_savings(session)),
        next_steps(session.spec, world, plan, changes),
        pods(session.spec, world, plan),
        problems,
    )


def _changes(session: LiveSession, world: World) -> tuple[tuple[ChangeRow, ...], tuple[str, ...]]:
    """What launches need and lack, by provisioner."""
    from tidemill.cli.snapshot_file import change_rows
    from tidemill.kube.custom_objects import CustomObjects
    from tidemill.provision.karpenter.reconciler import KarpenterReconciler, karpenter_pools

    groups = session.provisioned.reconciler
    rows = change_rows(groups.planned(world))
    if karpenter_pools(session.spec):
        karpenter = KarpenterReconciler(session.spec, CustomObjects(session.api), session.provisioned.ends)
        rows += change_rows(karpenter.planned(world))
    return rows, tuple(f"{about}: {sentence}" for about, sentence in groups.problems(world))


def _savings(session: LiveSession) -> Savings | None:
    """As `tidemill costs` has it. None: there is no ledger."""
    from tidemill.report.ledger_costs import ledger_costs
    from tidemill.report.savings import savings

    ledger = session.sql
    if ledger is None:
        return None
    costs = ledger_costs(
        session.spec.catalog, ledger.purchases(), ledger.block_hours(), ledger.cost_lines(), session.now()
    )
    return savings(costs)


def _used_hours(session: LiveSession) -> dict[str, float] | None:
    if session.sql is None:
        return None
    hours: dict[str, float] = {}
    for line in session.sql.block_hours():
        hours[line.reservation_id] = hours.get(line.reservation_id, 0.0) + line.used_h
    return hours


def show(
    view: LiveView, body: Mapping[str, Any], text: Callable[[], RenderableType], *, as_json: bool
) -> None:
    """Print one read model. Problems go to stderr."""
    for problem in view.problems:
        click.echo(f"warning: {problem}", err=True)
    if as_json:
        click.echo(json.dumps({**view.session.head(), **body}, indent=2))
        return
    from tidemill.cli.terminal import console

    shown = text()
    if isinstance(shown, str):
        click.echo(shown)
    else:
        console().print(shown)
