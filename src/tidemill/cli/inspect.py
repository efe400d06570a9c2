"""`tidemill inspect`: an account as it is, without changing anything: blocks, what ends when, groups, traps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidemill.cli.region_catalog import PROFILE, resolve_region
from tidemill.cli.session import AWS, JSON, NO_AWS, account_line, check_account, open_account
from tidemill.cli.terminal import console, table
from tidemill.model.errors import SpecError
from tidemill.render.figures import counted, span, usd
from tidemill.report.account_traps import Trap
from tidemill.report.inspection import InspectedBlock, InspectedGroup, Inspection
from tidemill.report.instance_endings import Ending
from tidemill.spec.problem import Problem

if TYPE_CHECKING:
    from tidemill.catalog import Catalog
    from tidemill.report.inspection import Inspection
    from tidemill.report.survey import Survey
    from tidemill.spec import Spec
    from tidemill.spec.problem import Problem

_EXIT_FAILED, _EXIT_NOT_ALLOWED = 1, 3


class _Documents(NamedTuple):
    spec: Spec | None
    warnings: tuple[Problem, ...]

    def region(self, given: str | None) -> str | None:
        if self.spec is None:
            return given
        theirs = self.spec.platform.spec.region
        if given and given != theirs:
            raise SpecError(f"--region is {given}, and the Platform is in {theirs}: leave one out")
        return theirs

    def catalog(self, region: str) -> Catalog:
        from tidemill.cli.region_catalog import catalog_of

        return self.spec.catalog if self.spec is not None else catalog_of(region)


@click.command(short_help="Look at an AWS account, and change nothing.")
@click.argument("files", nargs=-1, metavar="[FILE|DIR]...", type=click.Path())
@click.option(
    "-f", "--file", "more_files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR",
    type=click.Path(), help="The same, as other verbs have it.",
)  # fmt: skip
@AWS
@click.option("--region", metavar="NAME", help="Of AWS. Default: the Platform's, or the usual one.")
@PROFILE
@click.option(
    "--sim", envvar="TIDEMILL_SIM", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="The simulated AWS account in this file.",
)  # fmt: skip
@JSON
@click.pass_context
def inspect(
    ctx: click.Context, files: tuple[str, ...], more_files: tuple[str, ...], aws: bool, region: str | None,
    profile: str, sim: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Look at an AWS account and say what is there, what ends when and whose it is, and what will go wrong.

    Blocks and on-demand reservations with their deadlines; Auto Scaling groups, node groups and Karpenter's nodes on
    them; reservations that nobody keeps track of; traps, each with what to do. No document is needed. With documents it
    also says what Tidemill would own and could take in, and what is doubtful in them. Only Describe, List and Get calls
    are made; what may not be read is named, and the rest is shown. What pods run there is not looked at.
    """
    documents = _load_documents(files, more_files)
    if aws or profile or region:
        if sim is not None and sim.name:
            named = "--aws" if aws else "--region" if region else "--profile"
            raise SpecError(
                f"--sim {sim} and {named} name two accounts, the other at AWS: leave one out (TIDEMILL_SIM may be set)"
            )
        found = _inspect_aws(documents, resolve_region(documents.region(region), profile), profile)
    elif sim is not None and sim.name:
        found = _inspect_file(documents, sim)
    else:
        raise SpecError(NO_AWS)
    _print_inspection(found, documents, as_json)
    if found.blocks is None:
        denied = any(one.forbidden for one in found.not_read)
        ctx.exit(_EXIT_NOT_ALLOWED if denied else _EXIT_FAILED)


def _load_documents(files: tuple[str, ...], more_files: tuple[str, ...]) -> _Documents:
    if not files and not more_files:
        return _Documents(None, ())
    from tidemill.cli.loading import load_checked

    spec, _, warnings = load_checked((*files, *more_files))
    return _Documents(spec, warnings)


# --- which account ------------------------------------------------------------------------------------


def _inspect_aws(documents: _Documents, region: str, profile: str) -> Inspection:
    from tidemill.aws.account_survey import ReadOnlyAws, survey_account
    from tidemill.cli.session import ROLE, clock_and_name

    clock, name = clock_and_name()
    catalog = documents.catalog(region)
    seen = survey_account(
        ReadOnlyAws(region, profile=profile, role_arn=os.environ.get(ROLE, "")), clock, catalog
    )
    return _inspection_of(documents, name, seen, catalog)


def _inspect_file(documents: _Documents, sim: Path) -> Inspection:
    """It is never made here. Such an account has no groups: nothing but launches and purchases is kept in it."""
    from tidemill.report.survey import Survey, surveyed_instances

    account = open_account(sim)
    region = account.history().region
    if documents.spec is not None and (theirs := documents.spec.platform.spec.region) != region:
        raise SpecError(
            f"{sim} is an account in {region}, and the Platform is in {theirs}: name another file"
        )
    seen = Survey(
        account.now(),
        region,
        account.identity(),
        account.reservations(),
        surveyed_instances(account.instances()),
    )
    return _inspection_of(documents, f"SIMULATED AWS in {sim}", seen, documents.catalog(region))


def _inspection_of(documents: _Documents, name: str, seen: Survey, catalog: Catalog) -> Inspection:
    from tidemill.report.inspection import inspection

    click.echo(f"{account_line(name, seen.who, seen.region, seen.at)}; nothing is changed", err=True)
    if documents.spec is not None:
        check_account(documents.spec, seen.who)
    return inspection(seen, catalog, documents.spec)


# --- what is said -------------------------------------------------------------------------------------


def _print_inspection(found: Inspection, documents: _Documents, as_json: bool) -> None:
    if not as_json:
        _print_tables(found, documents.warnings)
        return
    from tidemill.report.rows import plain

    body: dict[str, Any] = plain(found)
    problems = [
        {"file": one.file, "line": one.line, "column": one.column, "code": one.code, "message": one.message}
        for one in documents.warnings
    ]
    click.echo(json.dumps({**body, "problems": problems}, indent=2))


# --- inspect_tables ---


_MOST_IDS = 3


def _print_tables(found: Inspection, problems: tuple[Problem, ...]) -> None:
    _print_blocks(found)
    if found.endings:
        _print_endings(found)
    if found.groups:
        _print_groups(found)
    if found.untracked:
        click.echo(f"Untracked, without any owner tag: {', '.join(found.untracked)}\n")
    _print_traps(found.traps, looked=found.blocks is not None)
    _print_claims(found, problems)
    for line in _limits_of_inspection(found):
        click.echo(line)


def _print_blocks(found: Inspection) -> None:
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
            _in_one_cell(one.id, *kind), _in_one_cell(f"{one.count} x {one.type}", one.zone),
            _in_one_cell(one.state, _slots(one)), _in_one_cell(_at(one.start), _at(one.end)),
            _at(one.kill_at), _extend(one), _idle(one), _whose(one),
        )  # fmt: skip
    console().print(made)


def _in_one_cell(*words: str) -> str:
    """Below each other on a terminal, which is narrow; in one line in a pipe, where people grep."""
    return ("\n" if console().is_terminal else ", ").join(words)


def _extend(one: InspectedBlock) -> str:
    if one.extension_pending_to is None:
        return _at(one.extend_until)
    return _in_one_cell(_at(one.extend_until), f"{_at(one.extension_pending_to)} unpaid")


def _slots(one: InspectedBlock) -> str:
    return f"{one.used} used, {f'{one.unseen} unseen, ' if one.unseen else ''}{one.free} free"


def _idle(one: InspectedBlock) -> str:
    if not one.free or one.state != "active":
        return "-"
    return "no price known" if one.idle_usd_h is None else f"{usd(one.idle_usd_h)}/h"


def _whose(one: InspectedBlock) -> str:
    if one.held == "untracked":
        return one.held
    who = "ours" if one.held == "ours" else f"deployment {one.owner}"
    return f"{who}, pool {one.pool}" if one.pool else who


def _print_endings(found: Inspection) -> None:
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


def _print_groups(found: Inspection) -> None:
    trouble = ("trouble",) if any(one.trouble for one in found.groups) else ()
    made = table(
        "group", "on", "size", "zones", "scheduled", "at 0 by", "in time", "hook", *trouble,
        title="Groups that launch there",
    )  # fmt: skip
    made.columns[1].no_wrap = True
    for one in found.groups:
        made.add_row(
            one.name if not one.node_group else f"node group {one.node_group} ({one.name})",
            _in_one_cell(*one.reservations) or "-",
            f"{one.desired} ({one.minimum}..{one.maximum}), {one.members} there",
            _in_one_cell(*one.zones) or "-", _scheduled(one), _at(one.zero_at), _in_time(one), _hook(one),
            *((one.trouble or "-",) if trouble else ()),
        )  # fmt: skip
    console().print(made)
    if found.other_groups:
        click.echo(f"{counted(found.other_groups, 'other group')} with nothing to do with a reservation\n")


def _scheduled(one: InspectedGroup) -> str:
    return "; ".join(
        f"{_at(action.at)} {'-' if action.desired is None else action.desired}{' (EKS)' if action.eks else ''}"
        for action in one.actions
    ) or "-"  # fmt: skip


def _in_time(one: InspectedGroup) -> str:
    return "-" if one.in_time is None else "yes" if one.in_time else "NO"


def _hook(one: InspectedGroup) -> str:
    if one.node_group:
        return "EKS drains"
    if not one.hooks_known:
        return "-"
    return "none" if one.hook_s is None else f"{one.hook_s} s"


def _print_traps(found: tuple[Trap, ...], *, looked: bool) -> None:
    if not found:
        click.echo("No trap found." if looked else "Blocks could not be read, so nothing is said of traps.")
    else:
        click.echo(f"{counted(len(found), 'trap')} found")
    for number, one in enumerate(found, 1):
        click.echo(f"{number:3}. [{one.code}] {one.what}")
        click.echo(f"     do: {one.fix}")
    click.echo("")


def _print_claims(found: Inspection, problems: tuple[Problem, ...]) -> None:
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


def _limits_of_inspection(found: Inspection) -> Iterator[str]:
    for one in found.not_read:
        yield f"not read: {one.what}: {one.why}"
    yield "Pods are not looked at: this reads AWS alone, and what is said of owners is what tags say."


def _at(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%m-%d %H:%M}"
