"""Composes the purchaser over the real ports, starts and stops its parts in order, and gives the exit code."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass

import click
import structlog

from tidemill.aws.region_check import check_region
from tidemill.aws.session import Aws
from tidemill.cli.controller_engines import lacks
from tidemill.cli.kube_session import check_cluster, cluster_line, open_kube
from tidemill.cli.loading import documents_in, load_checked, within_ceilings
from tidemill.cli.region_catalog import catalog_of
from tidemill.cli.session import ROLE, account_line, check_account, clock_and_name, cloud_of, ledger_owner
from tidemill.controller.cluster_documents import ClusterDocuments
from tidemill.controller.documents import Documents, FileDocuments, Version
from tidemill.controller.health import Health, HealthServer, Threads
from tidemill.controller.leadership import CALL_SHARE, Leadership, LeaseGuard
from tidemill.controller.purchaser import PurchaserLoop, PurchaserMetrics
from tidemill.controller.startup import Patience, Stopped
from tidemill.controller.stopping import StopSignal
from tidemill.controller.wakes import Wakes
from tidemill.engine.clock import MappedClock
from tidemill.kube.api import KubeApi
from tidemill.kube.lease import LeaseElector
from tidemill.kube.own_objects import OwnObjects
from tidemill.model.errors import SpecError
from tidemill.spec import Spec
from tidemill.store.open_ledger import MEMORY, open_durable, redacted, sqlite_file
from tidemill.store.sql import SqlLedger

PROBE_S = 5.0
SHORTEST_LEASE_S = 5.0

log = structlog.stdlib.get_logger("tidemill.purchaser")


@dataclass(frozen=True, slots=True)
class PurchaserOptions:
    """The command line of `tidemill purchaser`."""

    files: tuple[str, ...]  # empty: the objects of the cluster
    from_cluster: bool
    kubeconfig: str | None
    context: str | None
    ledger_url: str
    lease_name: str
    lease_namespace: str
    lease_s: float
    metrics_addr: str
    grace_s: float


class PurchaserProcess:
    def __init__(self, options: PurchaserOptions) -> None:
        _check(options)
        self._options = options
        self._wakes = Wakes()
        self._stop = StopSignal(self._wakes, grace_s=options.grace_s)
        self._threads = Threads()
        self._metrics = PurchaserMetrics()
        self._beat_s = time.monotonic()
        self._loop: PurchaserLoop | None = None
        self._elector: LeaseElector | None = None

    def run(self) -> int:
        """The exit code. Raises what the command line prints."""
        self._stop.install()
        self._threads.install()
        with ExitStack() as stack:
            try:
                self._run(stack)
            except Stopped:
                return 0
        return 0

    def _run(self, stack: ExitStack) -> None:
        options = self._options
        patience = Patience(self._wakes, self._stop, beat=self._beat)
        clock, name = clock_and_name()
        self._serve(stack)
        api = open_kube(options.kubeconfig, options.context)
        stack.callback(api.close)
        click.echo(cluster_line(api), err=True)
        patience.until("the API server", lambda: api.get("/version", timeout_s=PROBE_S))
        documents = patience.until("the documents", lambda: self._open_documents(api))
        spec = documents.current.spec
        check_cluster(spec, api)
        elector = self._elector = self._open_elector(stack)
        aws = Aws(
            spec.platform.spec.region,
            role_arn=os.environ.get(ROLE, ""),
            longest_s=options.lease_s * CALL_SHARE,
            may_begin=LeaseGuard(elector.left_s).may_begin,
        )
        stack.callback(aws.close)
        who = patience.until("AWS", lambda: cloud_of(aws, spec, clock).identity())
        check_account(spec, who)
        line = account_line(name, who, spec.platform.spec.region, clock.now())
        click.echo(f"{line}; deployment {spec.platform.spec.deployment}", err=True)
        patience.until("EC2", lambda: check_region(aws, spec.platform))
        ledger = patience.until("the ledger", lambda: self._open_ledger(spec, who, clock))
        stack.callback(ledger.close)
        click.echo(f"ledger {redacted(options.ledger_url)}", err=True)
        documents.start()
        stack.callback(documents.stop)
        self._threads.must_live("documents", documents)
        self._lead(stack, documents, clock, aws, ledger, elector)

    def _lead(
        self, stack: ExitStack, documents: Documents, clock: MappedClock, aws: Aws, ledger: SqlLedger,
        elector: LeaseElector,
    ) -> None:  # fmt: skip
        def version() -> Version:
            return documents.current

        loop = self._loop = PurchaserLoop(
            version, clock, lambda spec: cloud_of(aws, spec, clock), ledger, lacks, self._wakes, self._metrics
        )
        stack.callback(elector.stop)  # gives the lease back
        elector.start()
        self._threads.must_live("lease", elector)
        leadership = Leadership(
            elector, ledger, self._wakes, lease_s=self._options.lease_s, stopping=self._stop, beat=self._beat
        )
        leadership.run(lambda: loop.run(lambda: leadership.go_on))

    # --- its parts ----------------------------------------------------------------------------------

    def _open_documents(self, api: KubeApi) -> Documents:
        files = self._options.files
        if not self._options.from_cluster:
            source = FileDocuments(lambda: load_checked(files)[0], lambda: documents_in(files))
            return Documents(source, self._wakes)
        return Documents(
            ClusterDocuments(OwnObjects(api).documents, within_ceilings, catalog_of), self._wakes
        )

    def _open_elector(self, stack: ExitStack) -> LeaseElector:
        """With a connection of its own, as the controller's."""
        options = self._options
        own = open_kube(options.kubeconfig, options.context)
        stack.callback(own.close)
        return LeaseElector(
            own, namespace=options.lease_namespace, name=options.lease_name, lease_s=round(options.lease_s),
            on_lead=lambda: self._wakes("lease"), on_lost=lambda: self._wakes("lease lost"),
        )  # fmt: skip

    def _open_ledger(self, spec: Spec, who: str, clock: MappedClock) -> SqlLedger:
        owner = ledger_owner(spec, who)
        return open_durable(self._options.ledger_url, owner, clock=clock, writer=who, process="purchaser")

    # --- what is shown ------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._beat_s = time.monotonic()

    def _serve(self, stack: ExitStack) -> None:
        if not self._options.metrics_addr:
            return
        health = Health(
            beat_s=lambda: max(self._beat_s, self._loop.beat_s if self._loop is not None else 0.0),
            ticking_since_s=lambda: self._loop.looking_since_s if self._loop is not None else None,
            threads=self._threads,
            is_ready=lambda: "" if self._loop is not None else "it has not begun yet",
        )
        server = HealthServer(self._options.metrics_addr, health, self._metrics.registry, self._refresh)
        server.start()
        stack.callback(server.stop)
        log.info("serving", port=server.port)

    def _refresh(self) -> None:
        if self._elector is not None:
            self._metrics.leads.set(self._elector.is_leader)


def _check(options: PurchaserOptions) -> None:
    if options.ledger_url == MEMORY or sqlite_file(options.ledger_url) is not None:
        raise SpecError(
            "a purchaser needs a ledger that it shares with the controller (--ledger postgresql://…); with SQLite the"
            " controller buys by itself"
        )
    if options.lease_s < SHORTEST_LEASE_S:
        raise SpecError(f"--lease-duration: {options.lease_s:g} s is too short for a call of AWS; write 30s")
