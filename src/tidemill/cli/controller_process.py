"""Composes the controller's parts over the real ports, starts and stops them in order, and gives the exit code."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import click
import structlog

from tidemill.aws.event_queue import EventQueue
from tidemill.aws.region_check import check_region
from tidemill.aws.session import Aws, RateLimits
from tidemill.cli.controller_engines import Engines
from tidemill.cli.kube_session import check_cluster, cluster_line, open_kube
from tidemill.cli.loading import documents_in, load_checked, within_ceilings
from tidemill.cli.region_catalog import catalog_of
from tidemill.cli.session import ROLE, account_line, check_account, clock_and_name, cloud_of, ledger_owner
from tidemill.controller.beside import AlertReporter, KnownIds, QueueThread
from tidemill.controller.cluster_documents import ClusterDocuments
from tidemill.controller.documents import Documents, FileDocuments, Version
from tidemill.controller.flight_recorder import FlightRecorder
from tidemill.controller.health import Health, HealthServer, Threads
from tidemill.controller.kueue_checks import KueueReporter
from tidemill.controller.leadership import CALL_SHARE, Leadership, LeaseGuard, nothing_may_begin
from tidemill.controller.logs import LogReporter
from tidemill.controller.loop import ControlLoop, Reporter
from tidemill.controller.metrics import Metrics
from tidemill.controller.node_phases import PhaseReporter
from tidemill.controller.object_events import EventReporter
from tidemill.controller.object_status import StatusWriter
from tidemill.controller.shadow import ShadowReporter
from tidemill.controller.startup import DrainerWatch, Patience, Stopped, check_synced
from tidemill.controller.stopping import StopSignal
from tidemill.controller.wakes import Wakes
from tidemill.engine.clock import MappedClock
from tidemill.kube.api import KubeApi
from tidemill.kube.cluster import KubeCluster
from tidemill.kube.drainers import find_drainers
from tidemill.kube.events import EventRecorder
from tidemill.kube.lease import LeaseElector
from tidemill.kube.node_phases import NodePhasePublisher
from tidemill.kube.own_objects import OwnObjects
from tidemill.kube.workload_checks import WorkloadChecks
from tidemill.model.errors import SpecError
from tidemill.render.shadow_text import shadow_text
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner
from tidemill.store.memory import MemoryLedger
from tidemill.store.open_ledger import MEMORY, open_durable, read_ledger, redacted, sqlite_file
from tidemill.store.sole_use import SoleUse
from tidemill.store.sql import SqlLedger

log = structlog.stdlib.get_logger("tidemill.controller")

# Ticks stop while a call waits for our own rate limit; the engine asks again anyway.
ENGINE_PATIENCE_S = 2.0
ALERTS_WITHIN_S = 5.0
# Listing 20,000 pods takes some seconds.
QUIET_SYNC_S = 10.0
PROBE_S = 5.0
SHORTEST_LEASE_S = 5.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The command line of `tidemill run`."""

    files: tuple[str, ...]  # empty: the objects of the cluster
    from_cluster: bool
    kubeconfig: str | None
    context: str | None
    ledger_url: str
    lease_name: str
    lease_namespace: str
    lease_s: float
    replicas: int
    queue_url: str | None
    metrics_addr: str
    accepted: tuple[str, ...]
    dry_run: bool
    once: bool
    grace_s: float
    record: str | None = None
    record_max_mb: int = 512
    purchaser_apart: bool = False  # `tidemill purchaser` submits what is approved
    shadow: bool = False
    report_every_s: float = 86400.0
    report_to: str | None = None


class ControllerProcess:
    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._wakes = Wakes()
        self._stop = StopSignal(self._wakes, grace_s=options.grace_s)
        self._beat_s = time.monotonic()
        self._loop: ControlLoop | None = None
        self._cluster: KubeCluster | None = None
        self._elector: LeaseElector | None = None
        self._leadership: Leadership | None = None
        self._recorder: EventRecorder | None = None
        self._flight: FlightRecorder | None = None
        self._threads = Threads()
        self._drainers: DrainerWatch | None = None
        self._code, self._done = 0, False  # of --once
        self._objects: ClusterDocuments | None = None  # where the documents are objects of the cluster
        self._opened: Documents | None = None if options.from_cluster else self._open_files()

    def run(self) -> int:
        """The exit code. Raises what the command line prints."""
        _check_replicas(self._options)
        self._stop.install()
        self._threads.install()
        with ExitStack() as stack:
            try:
                return self._run(stack)
            except Stopped:
                return 0

    def _run(self, stack: ExitStack) -> int:
        options = self._options
        patience = Patience(self._wakes, self._stop, beat=self._beat)
        clock, name = clock_and_name()
        api = open_kube(options.kubeconfig, options.context)
        stack.callback(api.close)
        click.echo(cluster_line(api), err=True)
        if self._opened is not None:
            check_cluster(self._opened.current.spec, api)
        metrics = Metrics(dry_run=options.dry_run)
        self._serve(stack, metrics)
        patience.until("the API server", lambda: api.get("/version", timeout_s=PROBE_S))
        if self._opened is None:
            self._opened = patience.until("a Platform object", lambda: self._open_objects(api))
            check_cluster(self._opened.current.spec, api)
        spec = self._opened.current.spec
        elector = self._elector = self._open_elector(stack)
        may_begin = nothing_may_begin if elector is None else LeaseGuard(elector.left_s).may_begin
        api.may_begin = may_begin
        api.write_timeout_s = min(api.write_timeout_s, options.lease_s * CALL_SHARE)
        aws = Aws(
            spec.platform.spec.region,
            role_arn=os.environ.get(ROLE, ""),
            rate_limits=RateLimits(patience_s=ENGINE_PATIENCE_S),
            longest_s=options.lease_s * CALL_SHARE,
            may_begin=may_begin,
        )
        stack.callback(aws.close)
        who = patience.until("AWS", lambda: cloud_of(aws, spec, clock).identity())
        check_account(spec, who)
        line = account_line(name, who, spec.platform.spec.region, clock.now())
        click.echo(f"{line}; deployment {spec.platform.spec.deployment}", err=True)
        # Before the ledger: its first use binds it to the region.
        patience.until("EC2", lambda: check_region(aws, spec.platform))
        ledger = self._open_ledger(stack, patience, spec, who, clock)
        drainers = DrainerWatch(
            lambda: find_drainers(api, _provisioners(self._version().spec)), options.accepted, self._wakes
        )
        self._drainers = drainers
        # A shadow is there to stand beside another: it only says who that is.
        patience.until("the API server", drainers.warn if options.shadow else drainers.refuse)
        cluster = self._cluster = KubeCluster(api, clock, wake=self._wakes)
        cluster.start()
        stack.callback(cluster.stop)
        reader = cluster.reader
        for each in reader.reflectors:
            self._threads.must_live(f"watch-{each.kind.name}", each)
        patience.until(
            "the first full list of the cluster", lambda: check_synced(reader), quiet_s=QUIET_SYNC_S
        )
        for name, part in (("documents", self._opened), ("drainers", drainers)):
            part.start()
            stack.callback(part.stop)
            self._threads.must_live(name, part)
        return self._tick(stack, api, aws, clock, ledger, cluster, metrics, elector)

    def _tick(
        self, stack: ExitStack, api: KubeApi, aws: Aws, clock: MappedClock, ledger: SqlLedger | MemoryLedger,
        cluster: KubeCluster, metrics: Metrics, elector: LeaseElector | None,
    ) -> int:  # fmt: skip
        options = self._options
        if elector is not None:
            stack.callback(elector.stop)  # gives the lease back, after the last event was sent
        metrics.read_hours_from(ledger)
        known = KnownIds()
        reporters: list[Reporter] = [
            LogReporter(dry_run=options.dry_run, every_tick=options.once),
            metrics,
            known,
        ]
        shadow = self._open_shadow(stack, reporters) if options.shadow else None
        if options.record:
            reporters.append(self._record(stack, Path(options.record)))
        alerts: AlertReporter | None = None
        if not options.dry_run:
            recorder = self._recorder = EventRecorder(
                api, instance=elector.identity if elector is not None else "tidemill"
            )
            recorder.start()
            stack.callback(recorder.stop)
            alerts = AlertReporter(ledger.alerts, clock)
            phases = NodePhasePublisher(api, clock)
            phases.start()
            stack.callback(phases.stop)
            self._threads.must_live("events", recorder)
            self._threads.must_live("node-phases", phases)
            kueue = KueueReporter(WorkloadChecks(api, cluster.reader), self._leads)
            kueue.start()
            stack.callback(kueue.stop)
            self._threads.must_live("kueue-checks", kueue)
            reporters += [EventReporter(recorder), PhaseReporter(phases), alerts, kueue]
            if self._objects is not None:
                reporters.append(self._write_status(stack, api, clock, recorder, self._objects))
        engines = Engines(
            aws, api, clock, cluster, ledger, metrics, self._wakes,
            dry_run=options.dry_run, once=options.once, buys=not options.purchaser_apart, shadow=shadow,
            refused_pools=self._refused_pools,
        )  # fmt: skip
        loop = self._loop = ControlLoop(engines.engine_of, self._version, self._wakes, clock, reporters)
        if elector is None:  # a dry run: nobody has to lead to look
            if options.once:
                return _code_of(loop, lambda: not self._stop(), dry_run=True)
            loop.run(lambda: not self._stop())
            return 0
        assert isinstance(ledger, SqlLedger) and alerts is not None
        elector.start()  # not before: who holds the lease must be able to act
        self._threads.must_live("lease", elector)
        leadership = self._leadership = Leadership(
            elector, ledger, self._wakes, lease_s=options.lease_s,
            no_other=_why_alone(options), stopping=self._is_over, beat=self._beat,
        )  # fmt: skip
        if options.queue_url:
            # A connection of its own: a long poll waits longer than a call that must end within the lease.
            polling = Aws(aws.region, role_arn=os.environ.get(ROLE, ""))
            queue = EventQueue(polling, options.queue_url, wake=partial(self._wake_to_look, aws), known=known)
            self._read_events(stack, QueueThread(queue.poll, lambda: leadership.go_on))
        self._lead(leadership, loop, alerts)
        return self._code

    def _open_shadow(self, stack: ExitStack, reporters: list[Reporter]) -> ShadowReporter:
        options = self._options
        target = Path(options.report_to) if options.report_to else None
        shadow = ShadowReporter(
            timedelta(seconds=options.report_every_s), lambda report: click.echo(shadow_text(report)), target
        )
        stack.callback(shadow.tell)
        reporters.append(shadow)
        return shadow

    def _record(self, stack: ExitStack, folder: Path) -> FlightRecorder:
        flight = self._flight = FlightRecorder(folder, self._options.record_max_mb * 2**20)
        flight.start()
        stack.callback(flight.stop)
        self._threads.must_live("recording", flight)
        return flight

    def _wake_to_look(self, aws: Aws, reason: str) -> None:
        """AWS told of a change: the next tick lists instances anew."""
        aws.note_change()
        self._wakes(reason)

    # --- the documents ------------------------------------------------------------------------------

    def _open_files(self) -> Documents:
        files = self._options.files
        return Documents(
            FileDocuments(lambda: load_checked(files)[0], lambda: documents_in(files)), self._wakes
        )

    def _open_objects(self, api: KubeApi) -> Documents:
        """Retryable: the cluster has no Platform that can be used, yet. The log says so meanwhile."""
        self._objects = ClusterDocuments(OwnObjects(api).documents, within_ceilings, catalog_of)
        return Documents(self._objects, self._wakes)

    def _version(self) -> Version:
        assert self._opened is not None
        return self._opened.current

    def _write_status(
        self, stack: ExitStack, api: KubeApi, clock: MappedClock, recorder: EventRecorder,
        documents: ClusterDocuments,
    ) -> StatusWriter:  # fmt: skip
        writer = StatusWriter(OwnObjects(api), documents, clock, self._leads, recorder.tell)
        writer.start()
        stack.callback(writer.stop)
        self._threads.must_live("object-status", writer)
        return writer

    def _refused_pools(self) -> tuple[tuple[str, str], ...]:
        return self._drainers.refused_pools if self._drainers is not None else ()

    def _leads(self) -> bool:
        return self._leadership is not None and self._leadership.go_on

    # --- leading ------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._done or self._stop()

    def _lead(self, leadership: Leadership, loop: ControlLoop, alerts: AlertReporter) -> None:
        def term() -> None:
            try:
                if self._options.once:
                    self._code = _code_of(loop, lambda: leadership.go_on, dry_run=False)
                    self._done = True
                else:
                    loop.run(lambda: leadership.go_on)
            finally:
                alerts.stop(timedelta(seconds=min(ALERTS_WITHIN_S, self._stop.left_s())))

        leadership.run(term)

    def _open_elector(self, stack: ExitStack) -> LeaseElector | None:
        """With a connection of its own: renewing the lease does not ask whether enough of it is left."""
        options = self._options
        if options.dry_run:
            return None
        own = open_kube(options.kubeconfig, options.context)
        elector = LeaseElector(
            own, namespace=options.lease_namespace, name=options.lease_name, lease_s=round(options.lease_s),
            on_lead=lambda: self._wakes("lease"), on_lost=lambda: self._wakes("lease lost"),
        )  # fmt: skip
        stack.callback(own.close)
        return elector

    def _read_events(self, stack: ExitStack, thread: QueueThread) -> None:
        thread.start()
        stack.callback(thread.stop)
        self._threads.must_live("aws-events", thread)

    # --- the ledger ---------------------------------------------------------------------------------

    def _open_ledger(
        self, stack: ExitStack, patience: Patience, spec: Spec, who: str, clock: MappedClock
    ) -> SqlLedger | MemoryLedger:
        url, owner = self._options.ledger_url, ledger_owner(spec, who)
        file = sqlite_file(url)
        if self._options.dry_run:
            if file is not None and not file.exists():
                click.echo(f"no ledger at {file}: this dry run begins with an empty one", err=True)
                return MemoryLedger(clock, spec.platform.spec.deployment)
            ledger = patience.until("the ledger", lambda: read_ledger(url, clock))
            ledger.owner().agreed_with(owner)
        else:
            if file is not None and file.parent.is_dir():
                stack.callback(SoleUse(file).release)
            ledger = patience.until("the ledger", lambda: open_durable(url, owner, clock=clock, writer=who))
        stack.callback(ledger.close)
        click.echo(f"ledger {redacted(url)}", err=True)
        return ledger

    # --- what is shown ------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._beat_s = time.monotonic()

    def _serve(self, stack: ExitStack, metrics: Metrics) -> None:
        if not self._options.metrics_addr:
            return
        health = Health(
            beat_s=lambda: max(self._beat_s, self._loop.beat_s if self._loop is not None else 0.0),
            ticking_since_s=lambda: self._loop.ticking_since_s if self._loop is not None else None,
            threads=self._threads,
            is_ready=self._why_not_ready,
        )
        server = HealthServer(
            self._options.metrics_addr, health, metrics.registry, lambda: self._refresh(metrics)
        )
        server.start()
        stack.callback(server.stop)
        log.info("serving", port=server.port)

    def _why_not_ready(self) -> str:
        if self._cluster is None or not self._cluster.synced:
            return "the cluster was not seen whole yet"
        return ""

    def _refresh(self, metrics: Metrics) -> None:
        """What changes between ticks."""
        metrics.documents_good(self._opened is None or not self._opened.problem)
        if self._cluster is not None:
            metrics.synced.set(self._cluster.synced)
            metrics.show_lags(self._cluster.reader.lags())
        if self._recorder is not None:
            metrics.show_events(self._recorder.sent, self._recorder.dropped)
        if (flight := self._flight) is not None:
            metrics.show_recording(flight.kept, flight.lost, flight.bytes_used, good=not flight.trouble)
        if self._elector is not None:
            metrics.leads.set(self._elector.is_leader)
            metrics.lease_left_s.set(self._elector.left_s())
        if (leadership := self._leadership) is not None:
            metrics.epoch.set(leadership.epoch)


def _check_replicas(options: RunOptions) -> None:
    if options.ledger_url == MEMORY:
        raise SpecError("a controller needs a ledger that lasts: --ledger sqlite:///FILE or postgresql://…")
    if options.lease_s < SHORTEST_LEASE_S:
        raise SpecError(f"--lease-duration: {options.lease_s:g} s is too short for a call of AWS; write 30s")
    if options.purchaser_apart and sqlite_file(options.ledger_url) is not None:
        raise SpecError(
            "--purchaser-apart needs a ledger that two processes share (--ledger postgresql://…); with SQLite the"
            " controller buys by itself"
        )
    if options.replicas > 1 and sqlite_file(options.ledger_url) is not None:
        raise SpecError(
            f"{options.replicas} replicas need a ledger on PostgreSQL (--ledger postgresql://…); SQLite allows one"
        )


def _why_alone(options: RunOptions) -> str:
    """Why no other process may lead meanwhile; empty: it may, and this one waits."""
    if options.once:
        return "--once does not wait for its turn"
    if sqlite_file(options.ledger_url) is not None:
        return "a ledger on SQLite allows one process: run one replica, or keep the ledger in PostgreSQL"
    return ""


def _provisioners(spec: Spec) -> dict[str, Provisioner]:
    return {name: pool.spec.provisioner for name, pool in spec.pools.items()}


def _code_of(loop: ControlLoop, go_on: Callable[[], bool], *, dry_run: bool) -> int:
    """One tick: 1 if it saw nothing, failed, or an action of it did."""
    report = loop.tick(go_on, ("once",))
    if report.tick is None:
        return 1
    return int(not dry_run and any(outcome.failed for outcome in report.tick.outcomes))
