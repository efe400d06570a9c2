"""`tidemill status`, `plan` and `why`: read models of one instant, printed. Nothing is changed.

The instant is what a running `tidemill up` shows; with files, the one a rehearsal has reached at `--at`; with `--kube`,
the running cluster and its account now; with `plan --aws`, an account without its cluster.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tidemill.cli.kube_session import LiveChoice, live_options
from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidemill.cli.live import LiveView
    from tidemill.cli.session import Session
    from tidemill.cli.snapshot_file import Snapshot
    from tidemill.model.world import World
    from tidemill.render.display_names import DisplayNames
    from tidemill.report import PodRow
    from tidemill.spec.scenario import Scenario

F = TypeVar("F", bound=Callable[..., Any])

NAMES_SHOWN = 6  # in a message; the rest is a count
_SQLITE_FILE = "sqlite:///"


def instant_options(verb: F) -> F:
    """The options that say which instant is meant."""
    at = click.option(
        "--at", metavar="TIME", help="With files: how far to play, such as 26h. Default: the start."
    )
    seed = click.option(
        "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="With files: the seed."
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    return at(seed(as_json(verb)))


@click.command(short_help="Show pools, nodes, blocks and pending pods.")
@click.argument("files", nargs=-1, metavar="[SCENARIO…]")
@instant_options
@live_options
def status(files: tuple[str, ...], at: str | None, seed: int, as_json: bool, live: LiveChoice | None) -> None:
    """Show pools, blocks, nodes, pending pods and the money.

    Without files: the instant a running `tidemill up` shows. With SCENARIO (YAML files, or `demo`): the instant a
    rehearsal has reached at --at. With --kube --aws and documents: the running cluster and its account now.
    """
    from tidemill.render.status_text import status_text

    if live is not None:
        with _live_view(files, at, live) as (view, show):
            show(view, view.status.as_json(), lambda: status_text(view.status, view.names), as_json=as_json)
        return
    snapshot = _snapshot(files, at, seed)
    if as_json:
        print_json(snapshot.scenario, snapshot.seed, snapshot.status.as_json())
    else:
        _print(snapshot, status_text(snapshot.status, _names(snapshot)))


@click.command(short_help="Show what the engine would do next, and why.")
@click.argument("files", nargs=-1, metavar="[SCENARIO…]")
@instant_options
@live_options
@click.option("--aws", is_flag=True, help="Show what would change in the account your credentials reach.")
def plan(
    files: tuple[str, ...], at: str | None, seed: int, as_json: bool, aws: bool, live: LiveChoice | None
) -> None:
    """Show what the engine would do next, with its reasons, and which pods wait. Nothing is done.

    Also lists launch templates, Auto Scaling groups, node groups and Karpenter objects that differ from what the
    documents and the blocks need: what the engine would create, change and remove.

    Without files: at the instant a running `tidemill up` shows. With SCENARIO (YAML files, or `demo`): at the instant
    a rehearsal has reached at --at. With --aws FILE…: compares the documents with the account; pods are not read. With
    --kube --aws FILE…: what the engine would do in the running cluster now.
    """
    from tidemill.render.status_text import plan_text

    if live is not None:
        with _live_view(files, at, live) as (view, show):
            show(view, view.next.as_json(), lambda: plan_text(view.next), as_json=as_json)
        return
    if aws:
        if at is not None:
            raise SpecError("--at works with scenarios only; --aws always shows the account as it is now")
        if not files:
            raise SpecError("--aws needs documents to compare the account with: tidemill plan --aws FILE…")
        _plan_account(files, as_json=as_json)
        return
    snapshot = _snapshot(files, at, seed)
    if as_json:
        print_json(snapshot.scenario, snapshot.seed, snapshot.next.as_json())
    else:
        _print(snapshot, plan_text(snapshot.next))


@click.command(short_help="Say in one sentence why a pod is pending.")
@click.argument("pod", metavar="POD")
@click.argument("files", nargs=-1, metavar="[SCENARIO…]")
@instant_options
@live_options
def why(
    pod: str, files: tuple[str, ...], at: str | None, seed: int, as_json: bool, live: LiveChoice | None
) -> None:
    """Say why POD is pending, or where it runs and until when, and the cheapest instance type that would hold it.

    POD is a name, namespace/name, or the beginning of one. The name of a job, a job stream or a service stands for
    its first pending pod. Without files: at the instant a running `tidemill up` shows. With SCENARIO (YAML files, or
    `demo`): at the instant a rehearsal has reached at --at. With --kube --aws FILE…: in the running cluster now.
    """
    from tidemill.report.rows import plain

    if not files and Path(pod).is_file():
        raise SpecError(f"{pod} is a file; name the pod first: tidemill why POD {pod}")
    if live is not None:
        with _live_view(files, at, live) as (view, show):
            row, others_wait = find_pod(pod, view.pods)
            body = {"at": plain(view.status.at), "pod": plain(row)}
            show(view, body, lambda: why_lines(pod, row, others_wait, view.names), as_json=as_json)
        return
    snapshot = _snapshot(files, at, seed)
    row, others_wait = find_pod(pod, snapshot.pods)
    if as_json:
        print_json(snapshot.scenario, snapshot.seed, {"at": plain(snapshot.status.at), "pod": plain(row)})
    else:
        click.echo(why_lines(pod, row, others_wait, _names(snapshot)))


def why_lines(pod: str, row: PodRow, others_wait: int, names: DisplayNames) -> str:
    from tidemill.render.price_text import price_text
    from tidemill.render.status_text import why_text

    lines = [why_text(row, names), price_text(row.price)]
    if others_wait:
        lines.append(f"{others_wait} more {'pod' if others_wait == 1 else 'pods'} of {pod} wait too.")
    return "\n".join(line for line in lines if line)


@contextmanager
def _live_view(
    files: tuple[str, ...], at: str | None, live: LiveChoice
) -> Iterator[tuple[LiveView, Callable[..., None]]]:
    """What was seen, and how to print of it. Imported here: without --kube no client of Kubernetes is needed."""
    from tidemill.cli.live import live_session, look, show

    if at is not None:
        raise SpecError("--at works with scenarios only; --kube always shows the cluster as it is now")
    with live_session(files, live) as session:
        yield look(session), show


# --- which instant ------------------------------------------------------------------------------------


def _snapshot(files: tuple[str, ...], at: str | None, seed: int) -> Snapshot:
    from tidemill.cli.snapshot_file import read_snapshot, take_snapshot

    if files:
        from tidemill.cli.loading import load_scenario
        from tidemill.cli.playback import run_until
        from tidemill.sim.scenario.rehearsal import Rehearsal

        spec, document = load_scenario(files)
        until = parse_at(at, document)
        rehearsal = Rehearsal(spec, document, seed)
        run_until(rehearsal, until)
        return take_snapshot(rehearsal, document.name)
    if at is not None:
        raise SpecError("--at needs a scenario to play; name a file, or `demo`")
    snapshot = read_snapshot()
    if snapshot is None:
        raise SpecError(
            "nothing is running; start `tidemill up` in another terminal, or name a scenario and an instant, for "
            "example: tidemill status demo --at 12h25m"
        )
    return snapshot


def parse_at(at: str | None, scenario: Scenario) -> datetime:
    """`26h` from the scenario's start, or an instant such as 2026-11-17T11:00:00Z."""
    from tidemill.spec.units import format_duration, format_instant, parse_duration, parse_instant

    start, end = scenario.spec.start, scenario.spec.start + scenario.spec.duration
    if at is None:
        return start
    try:
        instant = parse_instant(at) if "T" in at else start + parse_duration(at)
    except ValueError as error:
        raise SpecError(f"--at: {error}") from error
    if not start <= instant <= end:
        lasts = f"{format_duration(scenario.spec.duration)} from {format_instant(start)}"
        raise SpecError(f"--at: '{at}' is outside the scenario, which lasts {lasts}")
    return instant.replace(microsecond=0)


# --- which pod ----------------------------------------------------------------------------------------


def find_pod(written: str, pods: Sequence[PodRow]) -> tuple[PodRow, int]:
    """The pod that is meant, and, where a workload was named, how many more of its pods wait."""
    exact = [row for row in pods if written in (row.name, _short(row))]
    if len(exact) == 1:
        return exact[0], 0
    workload = [] if exact else _pods_of_workload(written, pods)
    if len(same := {row.workload for row in workload if written in _workload_names(row)}) > 1:
        raise SpecError(f"'{written}' matches several workloads; name one of: {_listed(same)}")
    if workload:
        waiting = [row for row in workload if row.state == "waiting"]
        return (waiting or workload)[0], max(len(waiting) - 1, 0)
    begins = exact or [row for row in pods if row.name.startswith(written) or _short(row).startswith(written)]
    if len(begins) == 1:
        return begins[0], 0
    raise SpecError(_not_found_message(written, pods, begins))


def _pods_of_workload(written: str, pods: Sequence[PodRow]) -> list[PodRow]:
    """`chat`, `train-7`, `Job/train-7`, `team/train-7` or `Job/team/train-7`; or the stream `train`, whose jobs are
    train-1, train-2 and so on. Sorted by number: 2 before 10."""
    named = [row for row in pods if written in _workload_names(row)]
    numbered = re.compile(re.escape(written) + r"-\d+")
    stream = (row for row in pods if any(numbered.fullmatch(name) for name in _workload_names(row)))
    return sorted(named or stream, key=lambda row: [int(n) for n in re.findall(r"\d+", _short(row))])


def _workload_names(row: PodRow) -> tuple[str, ...]:
    if not row.workload:
        return ()
    kind, name = row.workload.partition("/")[0], row.workload.rpartition("/")[2]
    namespace = row.name.partition("/")[0]
    return row.workload, name, f"{kind}/{name}", f"{namespace}/{name}", f"{kind}/{namespace}/{name}"


def _not_found_message(written: str, pods: Sequence[PodRow], begins: Sequence[PodRow]) -> str:
    from difflib import get_close_matches

    if begins:
        return f"'{written}' matches several pods; name one of: {_listed(row.name for row in begins)}"
    if not pods:
        return f"there is no pod '{written}': no pod exists at this instant; choose a later one with --at"
    known = {name: row.name for row in pods for name in (row.name, _short(row))}
    near = dict.fromkeys(known[name] for name in get_close_matches(written, known, n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {_listed(row.name for row in pods)}"
    return f"there is no pod '{written}' now; {hint}"


def _short(row: PodRow) -> str:
    return row.name.rsplit("/", 1)[-1]


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    more = len(every) - NAMES_SHOWN
    return ", ".join(every[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


# --- printing -----------------------------------------------------------------------------------------


def _names(snapshot: Snapshot) -> DisplayNames:
    from tidemill.render.display_names import DisplayNames

    return DisplayNames({row.id: row.name for row in snapshot.status.blocks})


def _print(snapshot: Snapshot, body: RenderableType) -> None:
    print_text(snapshot.scenario, snapshot.seed, _names(snapshot).both(snapshot.status.at), body)


def print_text(scenario: str, seed: int, at: str, body: RenderableType) -> None:
    from tidemill.cli.terminal import console

    stdout = console()
    stdout.print(f"SIMULATED  {scenario}, seed {seed}, {at}\n", style="bright_black")
    stdout.print(body)


def print_json(scenario: str, seed: int, body: dict[str, Any]) -> None:
    head = {"simulated": True, "scenario": scenario, "seed": seed}
    click.echo(json.dumps({**head, **body}, indent=2))


# --- a real account -----------------------------------------------------------------------------------


def _plan_account(files: Sequence[str], *, as_json: bool) -> None:
    """What launches need in the account, and what of it the engine would create, change and remove."""
    from tidemill.cli.session import DEFAULT_LEDGER, open_session
    from tidemill.cli.snapshot_file import change_rows
    from tidemill.cli.terminal import console
    from tidemill.provision import ProvisionedCloud
    from tidemill.render.status_text import changes_table
    from tidemill.report.rows import plain

    session = open_session(files, None, os.environ.get("TIDEMILL_LEDGER", DEFAULT_LEDGER), aws=True)
    try:
        world = _account_world(session)
        reconcilers = cast(ProvisionedCloud, session.cloud).reconciler
        rows, problems = change_rows(reconcilers.planned(world)), reconcilers.problems(world)
    finally:
        session.close()
    for subject, sentence in problems:
        click.echo(f"warning: {subject}: {sentence}", err=True)
    if as_json:
        click.echo(json.dumps({"at": plain(world.now), "changes": plain(rows)}, indent=2))
    elif rows:
        console().print(changes_table(rows))
    elif not problems:
        click.echo("Nothing to change: the account has everything that the documents and the blocks need.")


def _account_world(session: Session) -> World:
    """The account without its cluster. A ledger that does not exist is not created."""
    from tidemill.engine.ownership import unread_of_ours, with_true_owners
    from tidemill.model.nodes import Node
    from tidemill.model.world import World

    now, listed = session.now(), tuple(session.cloud.reservations())
    nodes = tuple(Node(instance, None) for instance in session.cloud.instances())
    path = Path(session.ledger_url.removeprefix(_SQLITE_FILE))
    if session.ledger_url.startswith(_SQLITE_FILE) and not path.exists():
        click.echo(f"no ledger at {path}: only tags say which blocks are ours", err=True)
        readable = tuple(one for one in listed if not one.unread)
        unread = unread_of_ours(listed, (), (), session.deployment)
        return World(now, reservations=readable, unread=unread, nodes=nodes)
    ledger = session.books
    books = ledger.purchases(), ledger.adoptions()
    held = with_true_owners(listed, *books, session.deployment, now)
    unread = unread_of_ours(listed, *books, session.deployment)
    return World(now, reservations=held, unread=unread, nodes=nodes, launches=ledger.launches())
