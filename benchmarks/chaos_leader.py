"""Two controllers on a real control plane, the leader killed, mostly inside drains: what did it cost, was it harmless?

    python -m benchmarks.chaos_leader --runs 30

A scene has six kills and one freeze; as many scenes are played, each with its seed, as the kills need. Of six kills
four wait for a drain, one for a launch, one for a purchase or an extension; each falls at a random moment inside it.
Exit code 1 if anything was launched or bought twice, a drain was lost, a frozen leader wrote, or nobody took over in
time.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from controlplane.clean import clean
from controlplane.components import Options
from controlplane.start import ControlPlane
from tests.cluster.leader_chaos import ALLOWANCE_S, Outcome, make_namespaces, play
from tests.cluster.leader_moments import DRAINS, Activity
from tests.cluster.leader_scene import LEASE_S
from tests.store.postgres import HOW_TO_GET_IT, Server, programs

KILLS = 6  # of one scene


COLUMNS = (
    "seed", "kills", "freezes", "take-over median", "worst", "terms", "Jobs", "launches", "instances", "blocks",
    "extensions", "approved", "in doubt", "drained", "retired", "faults",
)  # fmt: skip


def rows(outcomes: list[Outcome]) -> list[str]:
    lines = [_row(*COLUMNS), _row(*("---" for _ in COLUMNS))]
    for one in outcomes:
        told = one.judgement
        took = [kill.takeover_s for kill in one.kills] or [0.0]
        cells = (
            one.seed, len(one.kills), len(one.freezes), f"{statistics.median(took):.1f} s", f"{max(took):.1f} s",
            told.epochs, told.jobs, told.launches, told.instances, told.blocks, told.extensions, told.approved,
            len(told.in_doubt), told.drained, told.retired, len(one.faults),
        )  # fmt: skip
        lines.append(_row(*cells))
    return lines


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def summary(outcomes: list[Outcome]) -> list[str]:
    kills = [kill for one in outcomes for kill in one.kills]
    freezes = [freeze for one in outcomes for freeze in one.freezes]
    lines = [f"{len(kills)} kills; the lease is {LEASE_S} s, {LEASE_S + ALLOWANCE_S:g} s are allowed"]
    if kills:
        lines.append(_spread("from a kill until another led", [kill.led_s for kill in kills]))
        lines.append(_spread("until its first tick was done", [kill.takeover_s for kill in kills]))
    amid = Counter(activity for kill in kills for activity in kill.amid)
    inside = sum(bool(DRAINS & set(kill.amid)) for kill in kills)
    nothing = sum(not kill.amid for kill in kills)
    split = ", ".join(f"{activity} {amid[activity]}" for activity in Activity)
    lines.append(f"killed inside a drain: {inside} of {len(kills)}")
    lines.append(f"under way at the kill (several may be at once): {split}; nothing {nothing}")
    wrote = sum(len(freeze.wrote) for freeze in freezes)
    lines.append(f"{len(freezes)} freezes past the lease; writes after waking up: {wrote}")
    lines += [f"fault (seed {one.seed}): {fault}" for one in outcomes for fault in one.faults]
    return lines


def _spread(what: str, took_s: list[float]) -> str:
    return f"{what}: median {statistics.median(took_s):.1f} s, worst {max(took_s):.1f} s"


@contextlib.contextmanager
def _database() -> Iterator[Server]:
    found = programs()
    if found is None:
        raise click.ClickException(HOW_TO_GET_IT)
    server = Server(found)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@click.command()
@click.option("--runs", default=30, help="How many kills.")
@click.option("--from", "first", default=1, metavar="SEED")
@click.option("--freezes", default=1, help="... and freezes in each scene.")
def main(runs: int, first: int, freezes: int) -> None:
    outcomes: list[Outcome] = []
    kept = Path(tempfile.mkdtemp(prefix="tidemill-chaos-leader-"))
    with _database() as server, ControlPlane(options=Options(audit=True)) as plane:
        for seed, left in enumerate(range(runs, 0, -KILLS), first):
            clean(plane.admin())
            namespaces = make_namespaces(plane, f"scene-{seed}")
            folder = kept / str(seed)
            folder.mkdir()
            outcome = play(
                plane, folder, server.new_database(), namespaces, seed, kills=min(left, KILLS), freezes=freezes,
                tell=lambda line: click.echo(f"  {line}", err=True),
            )  # fmt: skip
            outcomes.append(outcome)
            click.echo(f"seed {seed}: {len(outcome.faults)} faults", err=True)
    click.echo("\n".join((*rows(outcomes), "", *summary(outcomes))))
    if any(one.faults for one in outcomes):
        click.echo(f"the logs are in {kept}", err=True)
        sys.exit(1)
    shutil.rmtree(kept)


if __name__ == "__main__":
    main()
