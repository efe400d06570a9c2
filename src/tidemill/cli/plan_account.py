"""`tidemill plan --aws`: what launches need in a real account, and what of it would be made, changed and removed.

Reads only, and makes no ledger where there is none. The cluster is not asked: which pods wait is another question.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click

from tidemill.cli.session import DEFAULT_LEDGER, Desk, open_desk
from tidemill.cli.snapshot_file import change_rows
from tidemill.cli.tables import console
from tidemill.engine.ownership import ours
from tidemill.model.nodes import Node
from tidemill.model.world import World
from tidemill.provision import Provisioned
from tidemill.render.status_text import changes_table
from tidemill.report.rows import plain

_IN_A_FILE = "sqlite:///"


def plan_account(files: Sequence[str], *, as_json: bool) -> None:
    desk = open_desk(files, None, os.environ.get("TIDEMILL_LEDGER", DEFAULT_LEDGER), aws=True)
    try:
        world = _world(desk)
        keeper = cast(Provisioned, desk.cloud).keeper
        rows, problems = change_rows(keeper.planned(world)), keeper.problems(world)
    finally:
        desk.close()
    for about, sentence in problems:
        click.echo(f"warning: {about}: {sentence}", err=True)
    if as_json:
        click.echo(json.dumps({"at": plain(world.now), "changes": plain(rows)}, indent=2))
    elif rows:
        console().print(changes_table(rows))
    elif not problems:
        click.echo("Everything that launches need is as the documents want it.")


def _world(desk: Desk) -> World:
    now, listed = desk.now(), tuple(desk.cloud.reservations())
    nodes = tuple(Node(one, None) for one in desk.cloud.instances())
    path = Path(desk.ledger_url.removeprefix(_IN_A_FILE))
    if desk.ledger_url.startswith(_IN_A_FILE) and not path.exists():
        click.echo(f"there is no ledger {path}: blocks count as ours by their tag alone", err=True)
        return World(now, reservations=listed, nodes=nodes)
    ledger = desk.ledger
    held = ours(listed, ledger.purchases(), ledger.adoptions(), desk.deployment, now)
    return World(now, reservations=held, nodes=nodes, launches=ledger.launches())
