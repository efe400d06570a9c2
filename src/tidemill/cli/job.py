"""`tidemill job`: training jobs on one node or many, made by one command, watched, and stopped.

It needs a kubeconfig and the usual rights in a namespace: no ledger, no AWS account.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidemill.cli.job_options import NAMESPACE_HELP, nodes_for, request_of, request_options
from tidemill.cli.kube_session import CONTEXT, KUBECONFIG
from tidemill.cli.session import JSON
from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.kube.training_jobs import TrainingJobs
    from tidemill.render.training_job import JobRequest
    from tidemill.report.job_nodes import JobNodes
    from tidemill.report.training_jobs import JobRow

F = TypeVar("F", bound=Callable[..., Any])

_NAMESPACE = click.option("-n", "--namespace", metavar="NAME", default="", help=NAMESPACE_HELP)
_COMMAND = click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
_WITH_COMMAND = {"allow_interspersed_args": False}  # what follows the command is the command's


def _cluster_options(verb: F) -> F:
    wrapped: F = KUBECONFIG(CONTEXT(verb))
    return wrapped


@click.group(short_help="Run training jobs, and see why they wait.")
def job() -> None:
    """Run training jobs on one node or many, and see why they wait and when they would start."""


@job.command(context_settings=_WITH_COMMAND, short_help="Create a training job.")
@request_options
@click.option("--wait", is_flag=True, help="Wait until it ends; say why it waits and when it would start.")
@click.option("--follow", is_flag=True, help="The same, and print what it writes.")
@click.option("--dry-run", is_flag=True, help="Ask the API server whether it would take it; create nothing.")
@_cluster_options
@JSON
@_COMMAND
def run(
    command: tuple[str, ...], wait: bool, follow: bool, dry_run: bool, kubeconfig: str | None, context: str | None,
    as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Create a training job: a pod on each of --nodes nodes, all started together when there is room for all.

    Every pod gets MASTER_ADDR, MASTER_PORT, WORLD_SIZE, NODE_RANK and the variables from which torchrun takes its
    arguments, so that `-- torchrun train.py` is enough. Ctrl-C while it is followed leaves it running.
    """
    with _connected(kubeconfig, context, given["namespace"]) as jobs:
        request = request_of(given, command, name=f"train-{secrets.token_hex(3)}", namespace=jobs.namespace)
        nodes = nodes_for(request, given["pool"], given["files"], lambda: jobs)
        _check_priority(request, jobs)
        if dry_run:
            _try_out(request, nodes, jobs, as_json=as_json)
            return
        made = _create(request, nodes, jobs)
        _tell_created(request, nodes, as_json=as_json)
        if wait or follow:
            from tidemill.cli.job_follow import watch

            watch(jobs, made, with_logs=follow, as_json=as_json)


@job.command(context_settings=_WITH_COMMAND, short_help="Print a training job as YAML.")
@request_options
@_cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML.")
@_COMMAND
def render(
    command: tuple[str, ...], kubeconfig: str | None, context: str | None, as_json: bool, **given: Any
) -> None:
    """Print what `run` would create, as YAML for `kubectl apply` or a repository.

    It is held by the admission policies (`tidemill admission install`) when it is created. With -f or --instance-type
    no cluster is asked.
    """
    from tidemill.render.training_job import manifests

    request = request_of(given, command, name="train", namespace="")
    alone = given["files"] or (given["instance_type"] and not given["pool"])
    if alone:
        nodes = nodes_for(request, given["pool"], given["files"], None)
    else:
        nodes = _nodes_in_cluster(request, given["pool"], kubeconfig, context)
    _notes(request, nodes)
    _print_objects(manifests(request, nodes), as_json=as_json)


@job.command("list", short_help="List training jobs: state, reason, earliest start.")
@_NAMESPACE
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@_cluster_options
@JSON
def list_(
    namespace: str, all_namespaces: bool, kubeconfig: str | None, context: str | None, as_json: bool
) -> None:
    """List jobs that `run` made, and others that Tidemill holds or has admitted: why they wait, when they could
    start, how long they have run and were expected to."""
    from tidemill.report.training_jobs import is_training_job, job_row

    with _connected(kubeconfig, context, namespace, everywhere=all_namespaces) as jobs:
        found = [thing for thing in jobs.listed() if is_training_job(thing)]
        events = jobs.events() if found else []
        rows = sorted((job_row(thing, events) for thing in found), key=lambda row: row.created_at)
    if as_json:
        click.echo(json.dumps({"jobs": [_as_json(row) for row in rows]}, indent=2))
        return
    if not rows:
        where = "" if all_namespaces else f" in {jobs.namespace}"
        click.echo(f"no training jobs{where}; start one with `tidemill job run`")
        return
    from tidemill.cli.terminal import console, table
    from tidemill.render.job_text import COLUMNS, RIGHT, table_rows

    shown = table(*COLUMNS, right=RIGHT)
    for cells in table_rows(rows, datetime.now(UTC), with_namespace=all_namespaces):
        shown.add_row(*cells)
    console().print(shown)


@job.command(short_help="Print what the pods of a job write.")
@click.argument("name")
@_NAMESPACE
@click.option("--rank", type=click.IntRange(min=0), help="Only the pod of this node rank. Default: all.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends; wait for it to start.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last lines of each pod.")
@_cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line: rank, at, text.")
def logs(
    name: str, namespace: str, rank: int | None, follow: bool, tail: int | None, kubeconfig: str | None,
    context: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Print what the pods of the job NAME write, in the order of time, with the rank of each line."""
    from tidemill.cli.job_follow import Printer, watch
    from tidemill.kube.rank_logs import MOST_AT_ONCE, RankLogs
    from tidemill.render.job_text import progress_line
    from tidemill.report.training_jobs import job_row

    with _connected(kubeconfig, context, namespace) as jobs:
        thing = jobs.get(name)
        count = job_row(thing).nodes
        if rank is not None and rank >= count:
            raise SpecError(f"--rank: {name} has the ranks 0 to {count - 1}")
        if rank is None and count > MOST_AT_ONCE:
            raise SpecError(f"{name} has {count} pods, too many to read at once; choose one with --rank")
        if follow:
            watch(jobs, thing, with_logs=True, rank=rank, tail=tail, as_json=as_json)
            return
        pods = jobs.pods(thing)
        if not pods:
            click.echo(
                f"there are no pods yet: {name} {progress_line(job_row(thing, jobs.events()))}", err=True
            )
            return
        Printer(1 if rank is not None else count, as_json=as_json).show(
            RankLogs(jobs, rank=rank, tail=tail).now(pods)
        )


@job.command(short_help="Stop a job: its pods get their grace, then it is deleted.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_NAMESPACE
@click.option("--no-wait", is_flag=True, help="Do not wait until its pods have ended.")
@_cluster_options
@JSON
def stop(
    names: tuple[str, ...], namespace: str, no_wait: bool, kubeconfig: str | None, context: str | None, as_json: bool
) -> None:  # fmt: skip
    """Stop jobs that `run` made. Their pods get SIGTERM and their grace to write a checkpoint; then the Job and its
    Service are deleted, and nothing else. Other jobs are refused."""
    from tidemill.render.job_text import progress_line
    from tidemill.report.training_jobs import JobState, job_row

    with _connected(kubeconfig, context, namespace) as jobs:
        found = [jobs.get(name) for name in names]
        for thing in found:
            if not job_row(thing).ours:
                meta = thing["metadata"]
                raise SpecError(
                    f"{thing['kind']} {meta['name']} was not made by `tidemill job run`, so nothing was stopped; to "
                    f"delete it: kubectl delete {thing['kind'].lower()} {meta['name']} -n {meta['namespace']}"
                )
        for thing in found:
            jobs.delete(thing)
            if not (row := job_row(thing)).state.ended and row.ready:
                click.echo(f"{row.name} {progress_line(replace(row, state=JobState.STOPPING))}", err=True)
        if not no_wait:
            for thing in found:
                _wait_until_gone(jobs, thing)
    if as_json:
        click.echo(json.dumps({"stopped": list(names), "gone": not no_wait}, indent=2))
        return
    for name in names:
        click.echo(f"{name} is {'being stopped' if no_wait else 'stopped'}")


# --- parts of the verbs -------------------------------------------------------------------------------


@contextmanager
def _connected(
    kubeconfig: str | None, context: str | None, namespace: str, *, everywhere: bool = False
) -> Iterator[TrainingJobs]:
    """Which cluster it is goes to stderr first."""
    from tidemill.cli.kube_session import cluster_line, open_kube

    with closing(open_kube(kubeconfig, context)) as api:
        from tidemill.kube.training_jobs import TrainingJobs

        click.echo(cluster_line(api), err=True)
        yield TrainingJobs(api, "" if everywhere else namespace or api.namespace)


def _nodes_in_cluster(
    request: JobRequest, pool: str, kubeconfig: str | None, context: str | None
) -> JobNodes:
    try:
        with _connected(kubeconfig, context, request.namespace) as jobs:
            return nodes_for(request, pool, (), lambda: jobs)
    except SpecError as error:
        if error.code != "no-cluster":
            raise
        raise SpecError(f"{error}; or name documents with -f, and no cluster is needed") from None


def _check_priority(request: JobRequest, jobs: TrainingJobs) -> None:
    """Without it the Job is taken, and its pods are refused when it has been admitted."""
    if not request.priority_class:
        return
    known = jobs.priority_classes()
    if known is not None and request.priority_class not in known:
        from tidemill.spec.problem import suggestion

        near = suggestion(request.priority_class, known, what="PriorityClasses")
        raise SpecError(f"--priority: there is no PriorityClass '{request.priority_class}'; {near}")


def _create(request: JobRequest, nodes: JobNodes, jobs: TrainingJobs) -> Mapping[str, Any]:
    from tidemill.render.training_job import manifests, with_owner

    workload, *beside = manifests(request, nodes, held=True)
    return jobs.create_all(workload, lambda made: [with_owner(one, made) for one in beside])


def _try_out(request: JobRequest, nodes: JobNodes, jobs: TrainingJobs, *, as_json: bool) -> None:
    from tidemill.render.training_job import manifests

    objects = manifests(request, nodes, held=True)
    for one in objects:
        jobs.try_out(one)
    _notes(request, nodes)
    _print_objects(objects, as_json=as_json)
    click.echo("the API server takes it; nothing was created", err=True)


def _tell_created(request: JobRequest, nodes: JobNodes, *, as_json: bool) -> None:
    from tidemill.render.job_text import nodes_line

    _notes(request, nodes)
    where = f"{request.name} -n {request.namespace}"
    if as_json:
        document = {
            "name": request.name,
            "namespace": request.namespace,
            "kind": "JobSet" if request.job_set else "Job",
            "pool": nodes.pool,
            "instance_types": [kind.name for kind in nodes.types],
            "nodes": request.nodes,
            "requests": dict(nodes.requests),
        }
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(f"created {request.namespace}/{request.name}: {nodes_line(nodes, request.nodes)}")
    click.echo(f"follow it: tidemill job logs -f {where}; stop it: tidemill job stop {where}", err=True)


def _notes(request: JobRequest, nodes: JobNodes) -> None:
    """What a user may not have meant."""
    said = (request.duration, request.time_limit, request.checkpoint_every, nodes.default_duration)
    if all(each is None for each in said):
        click.echo(
            "note: nothing says how long it runs, so it may start on a block that ends before it is done; add "
            "--duration, or --checkpoint-interval if it can go on from a checkpoint",
            err=True,
        )
    if nodes.efa_differs:
        types = ", ".join(f"{kind.name} ({kind.efa})" for kind in nodes.types)
        click.echo(
            f"note: the types of pool {nodes.pool} differ in EFA interfaces, and the fewest are requested: {types}; "
            "--instance-type gets all of one",
            err=True,
        )
    for kind in nodes.types:
        if unused := kind.gpus % nodes.gpus:
            each = f"with {nodes.gpus} for each pod {unused} stay unused"
            click.echo(f"note: {kind.name} has {kind.gpus} GPUs: {each}", err=True)


def _print_objects(objects: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(objects, indent=2))
        return
    from tidemill.render.kubernetes_yaml import yaml_text

    click.echo(yaml_text(objects))


def _as_json(row: JobRow) -> dict[str, Any]:
    from tidemill.report.rows import plain
    from tidemill.spec.units import format_duration

    lengths = {
        "expected": None if row.expected is None else format_duration(row.expected),
        "grace": format_duration(row.grace),
    }
    document: dict[str, Any] = plain({**asdict(row), **lengths})
    return document


def _wait_until_gone(jobs: TrainingJobs, thing: Mapping[str, Any]) -> None:
    from tidemill.cli.job_follow import LOOK_S

    try:
        while jobs.again(thing) is not None:
            time.sleep(LOOK_S / 4)
    except KeyboardInterrupt:
        click.echo(f"\n{thing['metadata']['name']} goes on stopping without you", err=True)
        raise
