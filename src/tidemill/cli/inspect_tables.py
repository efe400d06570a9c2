"""An inspection as the terminal shows it: what is there, what ends when, what will go wrong, what was not read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click

from tidemill.cli.tables import console, table
from tidemill.render.figures import counted, span, usd
from tidemill.report.inspection import BlockSeen, GroupSeen, Inspection
from tidemill.report.instance_endings import Ending
from tidemill.report.trap import Trap
from tidemill.spec.problem import Problem

_MOST_IDS = 3


def show(found: Inspection, problems: tuple[Problem, ...]) -> None:
    _blocks(found)
    if found.endings:
        _endings(found)
    if found.groups:
        _groups(found)
    if found.untracked:
        click.echo(f"Untracked, without any owner tag: {', '.join(found.untracked)}\n")
    _traps(found.traps, looked=found.blocks is not None)
    _documents(found, problems)
    for line in _limits(found):
        click.echo(line)


def _blocks(found: Inspection) -> None:
    if found.blocks is None:
        return
    if not found.blocks:
        click.echo("AWS shows no block and no reservation.\n")
        return
    made = table(
        "reservation", "what", "state", "from, to (UTC)", "EC2 ends them", "extend until", "idle", "whose",
        title="Blocks and reservations", right=("idle",),
    )  # fmt: skip
    for column in (0, 1, 3):
        made.columns[column].no_wrap = True
    for one in found.blocks:
        kind = () if one.kind == "block" else (one.kind,)
        made.add_row(
            _together(one.id, *kind), _together(f"{one.count} x {one.type}", one.zone),
            _together(one.state, _slots(one)), _together(_at(one.start), _at(one.end)),
            _at(one.kill_at), _extend(one), _idle(one), _whose(one),
        )  # fmt: skip
    console().print(made)


def _together(*words: str) -> str:
    """Below each other on a terminal, which is narrow; in one line in a pipe, where people grep."""
    return ("\n" if console().is_terminal else ", ").join(words)


def _extend(one: BlockSeen) -> str:
    if one.extension_pending_to is None:
        return _at(one.extend_until)
    return _together(_at(one.extend_until), f"{_at(one.extension_pending_to)} unpaid")


def _slots(one: BlockSeen) -> str:
    return f"{one.used} used, {f'{one.unseen} unseen, ' if one.unseen else ''}{one.free} free"


def _idle(one: BlockSeen) -> str:
    if not one.free or one.state != "active":
        return "-"
    return "no price known" if one.idle_usd_h is None else f"{usd(one.idle_usd_h)}/h"


def _whose(one: BlockSeen) -> str:
    if one.held == "untracked":
        return one.held
    who = "ours" if one.held == "ours" else f"deployment {one.owner}"
    return f"{who}, pool {one.pool}" if one.pool else who


def _endings(found: Inspection) -> None:
    made = table("when (UTC)", "in", "nodes", "whose", "on", "why", "instances", title="What would end when")
    made.columns[4].no_wrap = True
    for one in found.endings:
        left = "-" if one.at is None else "now" if one.at <= found.at else span(one.at - found.at)
        count = str(len(one.instances))
        made.add_row(_at(one.at), left, count, one.whose, one.reservation, one.why, _instances(one))
    console().print(made)


def _instances(one: Ending) -> str:
    shown = ", ".join(one.instances[:_MOST_IDS])
    more = len(one.instances) - _MOST_IDS
    return f"{shown}{f' and {more} more' if more > 0 else ''}"


def _groups(found: Inspection) -> None:
    trouble = ("trouble",) if any(one.trouble for one in found.groups) else ()
    made = table(
        "group", "on", "size", "zones", "scheduled", "at 0 by", "in time", "hook", *trouble,
        title="Groups that launch there",
    )  # fmt: skip
    made.columns[1].no_wrap = True
    for one in found.groups:
        made.add_row(
            one.name if not one.node_group else f"node group {one.node_group} ({one.name})",
            _together(*one.reservations) or "-", f"{one.desired} ({one.minimum}..{one.maximum}), {one.members} there",
            _together(*one.zones) or "-", _scheduled(one), _at(one.zero_at), _in_time(one), _hook(one),
            *((one.trouble or "-",) if trouble else ()),
        )  # fmt: skip
    console().print(made)
    if found.other_groups:
        click.echo(f"{counted(found.other_groups, 'other group')} with nothing to do with a reservation\n")


def _scheduled(one: GroupSeen) -> str:
    return "; ".join(
        f"{_at(action.at)} {'-' if action.desired is None else action.desired}{' (EKS)' if action.eks else ''}"
        for action in one.actions
    ) or "-"  # fmt: skip


def _in_time(one: GroupSeen) -> str:
    return "-" if one.in_time is None else "yes" if one.in_time else "NO"


def _hook(one: GroupSeen) -> str:
    if one.node_group:
        return "EKS drains"
    if not one.hooks_known:
        return "-"
    return "none" if one.hook_s is None else f"{one.hook_s} s"


def _traps(found: tuple[Trap, ...], *, looked: bool) -> None:
    if not found:
        click.echo("No trap found." if looked else "Blocks could not be read, so nothing is said of traps.")
    else:
        click.echo(f"{counted(len(found), 'trap')} found")
    for number, one in enumerate(found, 1):
        click.echo(f"{number:3}. [{one.code}] {one.what}")
        click.echo(f"     do: {one.fix}")
    click.echo("")


def _documents(found: Inspection, problems: tuple[Problem, ...]) -> None:
    if not found.deployment:
        return
    made = table(
        "reservation", "would", "pools", "because", title=f"What deployment {found.deployment} would do"
    )
    for one in found.claims:
        made.add_row(one.id, one.would, ", ".join(one.pools) or "-", one.why)
    if found.claims:
        console().print(made)
    for problem in problems:
        click.echo(f"[{problem.code}] {problem}")
    if problems:
        click.echo("")


def _limits(found: Inspection) -> Iterator[str]:
    for one in found.not_read:
        yield f"not read: {one.what}: {one.why}"
    yield "Pods are not looked at: this reads AWS alone, and what is said of owners is what tags say."


def _at(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%m-%d %H:%M}"
