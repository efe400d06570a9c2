"""What `tidemill job run` and `job render` are told: options made into a request, and the nodes it would get."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.kube.training_jobs import TrainingJobs
    from tidemill.render.training_job import JobRequest
    from tidemill.report.job_nodes import JobNodes
    from tidemill.spec.compute_pool import ComputePool

F = TypeVar("F", bound=Callable[..., Any])

NAMESPACE_HELP = "Default: that of the kubeconfig's context."
_DEFAULT_INTERVAL = timedelta(minutes=30)
_RETRIES_WHEN_RESUMABLE = 3
_CLAIM = re.compile(r"([^:/\s]+):(\S+)")


def _duration(ctx: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    from tidemill.spec.units import parse_length

    try:
        return None if value is None else parse_length(value)
    except ValueError as error:
        raise SpecError(f"{parameter.opts[0]}: {error}") from None


Option = Callable[[F], F]


def _length(name: str, text: str) -> Option[Any]:
    return click.option(name, metavar="DURATION", callback=_duration, help=text)


def _text(name: str, metavar: str, text: str) -> Option[Any]:
    return click.option(name, metavar=metavar, default="", help=text)


def _many(name: str, into: str, metavar: str, text: str) -> Option[Any]:
    return click.option(name, into, multiple=True, metavar=metavar, help=f"{text} Repeatable.")


def _count(name: str, most: int, default: int, text: str) -> Option[Any]:
    kind = click.IntRange(min=1, max=most)
    return click.option(name, type=kind, default=default, show_default=True, help=text)


_OPTIONS: tuple[Option[Any], ...] = (
    click.option("--image", required=True, metavar="IMAGE", help="The container image."),
    _count("--gpus", 64, 8, "GPUs or Neuron devices of each node."),
    _count("--nodes", 5000, 1, "How many nodes; one pod on each."),
    _text("--name", "NAME", "Name of the job. Default: train-… with a random end."),
    click.option("-n", "--namespace", metavar="NAME", default="", help=NAMESPACE_HELP),
    _text("--pool", "NAME", "The compute pool. Default: the one that fits."),
    _text("--instance-type", "TYPE", "Only nodes of this type. Needed if no pool can be read."),
    _length("--duration", "How long it runs. It starts where this much time is left."),
    click.option("--resumable", is_flag=True, help="It goes on from its last checkpoint when it is started again."),
    _length("--checkpoint-interval", "How often it writes one; implies --resumable. Default with --resumable: 30m."),
    _length("--checkpoint-time", "How long a checkpoint takes; added to the grace its pods get when they must leave."),
    _length("--load-time", "From the start of its containers to useful work."),
    _length("--grace", "From SIGTERM to SIGKILL. Default: 30s and --checkpoint-time."),
    _length("--time-limit", "End it after this long. Waiting does not count."),
    click.option(
        "--retries", type=click.IntRange(min=0), default=None,
        help="How many failures of its own it survives. Default: 0; 3 with --resumable. Pods that leave with their "
        "node never count.",
    ),
    _text("--priority", "CLASS", "Its PriorityClass."),
    _text("--team", "NAME", "Who it is charged to."),
    click.option("--overflow", is_flag=True, help="It may run on spot and on-demand nodes of a pool that has blocks."),
    _many("--env", "env", "NAME[=VALUE]", "A variable; without a value, that of this shell."),
    _many("--secret", "secrets", "NAME", "A Secret whose keys become variables."),
    _many("--volume", "volumes", "CLAIM:/PATH", "A PersistentVolumeClaim and where to mount it."),
    _many("--annotation", "annotations", "KEY=VALUE", "On its pods."),
    _text("--service-account", "NAME", "Its ServiceAccount."),
    _text("--queue", "NAME", "A LocalQueue of Kueue: Kueue decides when it may start."),
    click.option("--jobset", is_flag=True, help="Make a JobSet instead of a Job and a Service. It must be installed."),
    click.option(
        "-f", "--file", "files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR", type=click.Path(),
        help="Documents with the pools. Default: the ComputePools of the cluster. Repeatable.",
    ),
)  # fmt: skip


def request_options(verb: F) -> F:
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


def request_of(given: Mapping[str, Any], command: Sequence[str], *, name: str, namespace: str) -> JobRequest:
    """SpecError: an option cannot be."""
    from tidemill.render.training_job import JobRequest, check_request

    resumable = given["resumable"] or given["checkpoint_interval"] is not None
    retries = given["retries"]
    request = JobRequest(
        name=given["name"] or name,
        namespace=given["namespace"] or namespace,
        image=given["image"],
        command=tuple(command),
        nodes=given["nodes"],
        gpus=given["gpus"],
        env=tuple(_variable(each) for each in given["env"]),
        secrets=given["secrets"],
        volumes=tuple(_claim(each) for each in given["volumes"]),
        annotations=tuple(_pair("--annotation", each) for each in given["annotations"]),
        priority_class=given["priority"],
        service_account=given["service_account"],
        instance_type=given["instance_type"],
        duration=given["duration"],
        checkpoint_every=(given["checkpoint_interval"] or _DEFAULT_INTERVAL) if resumable else None,
        checkpoint_time=given["checkpoint_time"] or timedelta(0),
        load_time=given["load_time"],
        grace=given["grace"],
        time_limit=given["time_limit"],
        retries=(_RETRIES_WHEN_RESUMABLE if resumable else 0) if retries is None else retries,
        team=given["team"],
        overflow=given["overflow"],
        queue=given["queue"],
        job_set=given["jobset"],
    )
    check_request(request)
    return request


def _pair(option: str, written: str) -> tuple[str, str]:
    key, equals, value = written.partition("=")
    if not key or not equals:
        raise SpecError(f"{option}: '{written}' has no value; write KEY=VALUE")
    return key, value


def _variable(written: str) -> tuple[str, str]:
    if "=" in written:
        return _pair("--env", written)
    if written not in os.environ:
        raise SpecError(f"--env: {written} is not set in this shell; write {written}=VALUE")
    return written, os.environ[written]


def _claim(written: str) -> tuple[str, str]:
    found = _CLAIM.fullmatch(written)
    if found is None:
        raise SpecError(
            f"--volume: '{written}' is not CLAIM:/PATH; write for example checkpoints:/checkpoints"
        )
    return found[1], found[2]


# --- which nodes --------------------------------------------------------------------------------------


def nodes_for(
    request: JobRequest, pool: str, files: Sequence[str], jobs: Callable[[], TrainingJobs] | None
) -> JobNodes:
    """From the documents that are named, else from the pools in the cluster, else from the type that is named.

    `jobs`: None: no cluster is to be asked.
    """
    from tidemill.catalog import load
    from tidemill.report.job_nodes import WantedNodes, choose_nodes, nodes_of_a_type

    wanted = WantedNodes(request.gpus, request.nodes, pool, request.instance_type, request.namespace)
    if files:
        from tidemill.cli.loading import load_spec

        spec, _ = load_spec(files)
        return choose_nodes(spec.pools, spec.catalog, wanted)
    pools = _pools_in_cluster(jobs()) if jobs is not None else None
    if pools is not None:
        return choose_nodes(pools, load(), wanted)
    if wanted.instance_type and not pool:
        return nodes_of_a_type(load(), wanted)
    raise SpecError(
        "the pools cannot be read: this cluster has no ComputePool objects, or you may not list them; name the "
        "documents with -f, or a type with --instance-type, such as p5.48xlarge"
    )


def _pools_in_cluster(jobs: TrainingJobs) -> dict[str, ComputePool] | None:
    """Those that can be read: somebody's wrong pool is not this user's."""
    from pydantic import ValidationError

    from tidemill.spec.compute_pool import ComputePool
    from tidemill.spec.names import API_VERSION

    found = jobs.pools()
    if found is None:
        return None
    pools: dict[str, ComputePool] = {}
    for thing in found:
        name = thing["metadata"]["name"]
        written = {"apiVersion": API_VERSION, "kind": "ComputePool", "spec": thing["spec"]}
        try:
            pools[name] = ComputePool.model_validate({**written, "metadata": {"name": name}})
        except ValidationError:
            click.echo(
                f"warning: pool {name} has errors and is left out; `kubectl describe computepool {name}`",
                err=True,
            )
    return pools
