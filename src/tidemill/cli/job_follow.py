"""Watch a training job until it ends: why it waits and when it would start, then what its pods write.

Status goes to stderr, logs to stdout. Ctrl-C stops watching, never the job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

import click

from tidemill.kube.rank_logs import LogLine, RankLogs
from tidemill.kube.training_jobs import TrainingJobs
from tidemill.model.errors import Retryable
from tidemill.render.job_text import log_text, progress_line
from tidemill.report.training_jobs import JobRow, JobState, job_row

LOOK_S = 2.0
# The engine looks every few seconds and writes Events within a second; after this long something is wrong.
_SILENT_S = 60.0
_PATIENCE_S = 10.0  # before it is worth a line that the engine has not spoken yet
_LOOK_FOR_CONTROLLER = (
    "Tidemill has said nothing about this job for a minute: does its controller run? "
    "(kubectl get pods -n tidemill-system)"
)


class Printer:
    """Lines of logs, with their rank where there are several, or as JSON lines."""

    def __init__(self, ranks: int, *, as_json: bool = False) -> None:
        self._ranks, self._as_json = ranks, as_json

    def show(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            if self._as_json:
                click.echo(json.dumps({"rank": line.rank, "at": line.at, "text": line.text}))
            else:
                click.echo(log_text(line.rank, line.text, ranks=self._ranks))


def follow(
    jobs: TrainingJobs, thing: Mapping[str, Any], *, logs: RankLogs | None, printer: Printer
) -> JobRow | None:
    """The job as it ended; None: somebody deleted it."""
    name = thing["metadata"]["name"]
    shown, began_s, hinted, away = "", time.monotonic(), False, False
    while True:
        try:
            current = jobs.again(thing)
            if current is None:
                return None
            pods = jobs.pods(current)
            row = job_row(current, jobs.events(), pods)
        except Retryable as error:
            if not away:
                click.echo(f"{error}; trying again", err=True)
            away = True
            time.sleep(LOOK_S)
            continue
        away = False
        silent_s = time.monotonic() - began_s if row.state is JobState.WAITING and not row.code else 0.0
        if (line := progress_line(row)) != shown and (not silent_s or silent_s > _PATIENCE_S):
            click.echo(f"{name} {line}", err=True)
            shown = line
        if silent_s > _SILENT_S and not hinted:
            click.echo(_LOOK_FOR_CONTROLLER, err=True)
            hinted = True
        if logs is None:
            if row.state.ended:
                return row
            time.sleep(LOOK_S)
            continue
        logs.look(pods)
        printer.show(logs.lines(LOOK_S))
        if row.state.ended and logs.finished:
            printer.show(logs.rest())
            return row


def watch(
    jobs: TrainingJobs, thing: Mapping[str, Any], *, with_logs: bool, rank: int | None = None,
    tail: int | None = None, as_json: bool = False,
) -> None:  # fmt: skip
    """Follow it to its end; the exit code is that of the job: 0 done, 1 failed or deleted."""
    row = job_row(thing)
    logs = RankLogs(jobs, rank=rank, tail=tail) if with_logs else None
    printer = Printer(1 if rank is not None else row.nodes, as_json=as_json)
    try:
        ended = follow(jobs, thing, logs=logs, printer=printer)
    except KeyboardInterrupt:
        where = f"{row.name} -n {row.namespace}"
        click.echo(
            f"\n{row.name} goes on without you. Follow it again: tidemill job logs -f {where}; "
            f"stop it: tidemill job stop {where}",
            err=True,
        )
        raise
    finally:
        if logs is not None:
            logs.close()
    if ended is None:
        click.echo(f"{row.name} was deleted", err=True)
    if ended is None or ended.state is JobState.FAILED:
        raise click.exceptions.Exit(1)
