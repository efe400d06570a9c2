"""`tidemill inspect`: what is in an account: blocks, what ends when, groups, traps. Nothing is changed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidemill.cli.kube_session import CONTEXT, KUBECONFIG, NEEDS_AWS
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
    from tidemill.report.cluster_inspection import ClusterInspection
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
            raise SpecError(f"--region is {given}, but the Platform is in {theirs}; leave --region out")
        return theirs

    def catalog(self, region: str) -> Catalog:
        from tidemill.cli.region_catalog import catalog_of

        return self.spec.catalog if self.spec is not None else catalog_of(region)


@click.command(short_help="Show what is in an AWS account. Changes nothing.")
@click.argument("files", nargs=-1, metavar="[FILE|DIR]...", type=click.Path())
@click.option(
    "-f", "--file", "more_files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR",
    type=click.Path(), help="The same as FILE|DIR.",
)  # fmt: skip
@AWS
@click.option("--region", metavar="NAME", help="Default: the Platform's, AWS_REGION, or the profile's.")
@PROFILE
@click.option(
    "--sim", envvar="TIDEMILL_SIM", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Use the simulated AWS account in this file.",
)  # fmt: skip
@click.option(
    "--kube", is_flag=True, envvar="TIDEMILL_KUBE",
    help="Read the cluster too: nodes of each block, pods that would die with it, what is in the way.",
)  # fmt: skip
@KUBECONFIG
@CONTEXT
@JSON
@click.pass_context
def inspect(
    ctx: click.Context, files: tuple[str, ...], more_files: tuple[str, ...], aws: bool, region: str | None,
    profile: str, sim: Path | None, kube: bool, kubeconfig: str | None, context: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show what is in an AWS account, what ends when, who owns it, and what will go wrong.

    Lists blocks and on-demand reservations with their deadlines; Auto Scaling groups, node groups and Karpenter nodes
    on them; untracked reservations; traps, each with a fix. No document is needed. With documents it also lists which
    blocks Tidemill would own and could adopt, and warnings about the documents. It makes only Describe, List and Get
    calls. What it may not read is named, and the rest is shown. Pods are read with --kube only: then it also lists the
    nodes of each block, the pods that still run when it ends with their grace against the time left, disruption budgets
    that let nobody go, other autoscalers, device plugins, and pods without requests.
    """
    documents = _load_documents(files, more_files)
    if kube and not (aws or profile or region):
        raise SpecError(NEEDS_AWS)
    if aws or profile or region:
        if sim is not None and sim.name:
            named = "--aws" if aws else "--region" if region else "--profile"
            raise SpecError(
                f"--sim {sim} and {named} name two accounts; leave one out (TIDEMILL_SIM may be set)"
            )
        found = _inspect_aws(documents, resolve_region(documents.region(region), profile), profile)
    elif sim is not None and sim.name:
        found = _inspect_file(documents, sim)
    else:
        raise SpecError(NO_AWS)
    cluster = _inspect_cluster(found, documents, kubeconfig, context) if kube else None
    _print_inspection(found, documents, cluster, as_json)
    if found.blocks is None:
        denied = any(unread.forbidden for unread in found.not_read)
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
    """The file is not created here. A simulated account in a file has no groups, only launches and purchases."""
    from tidemill.report.survey import Survey, surveyed_instances

    account = open_account(sim)
    region = account.history().region
    if documents.spec is not None and (theirs := documents.spec.platform.spec.region) != region:
        raise SpecError(
            f"{sim} is an account in {region}, but the Platform is in {theirs}; name another file"
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


def _inspect_cluster(
    found: Inspection, documents: _Documents, kubeconfig: str | None, context: str | None
) -> ClusterInspection:
    from tidemill.cli.inspect_cluster import inspect_cluster
    from tidemill.cli.session import clock_and_name

    clock, _ = clock_and_name()
    return inspect_cluster(found, documents.catalog(found.region), clock, kubeconfig, context)


# --- printing -------------------------------------------------------------------------------------


def _print_inspection(
    found: Inspection, documents: _Documents, cluster: ClusterInspection | None, as_json: bool
) -> None:
    if not as_json:
        _print_tables(found, documents.warnings, cluster)
        return
    from tidemill.report.rows import plain

    body: dict[str, Any] = plain(found)
    problems = [
        {
            "file": problem.file,
            "line": problem.line,
            "column": problem.column,
            "code": problem.code,
            "message": problem.message,
        }
        for problem in documents.warnings
    ]
    seen = {} if cluster is None else {"cluster": plain(cluster)}
    click.echo(json.dumps({**body, **seen, "problems": problems}, indent=2))


_MOST_IDS = 3


def _print_tables(
    found: Inspection, problems: tuple[Problem, ...], cluster: ClusterInspection | None
) -> None:
    _print_blocks(found)
    if found.endings:
        _print_endings(found)
    if found.groups:
        _print_groups(found)
    if found.untracked:
        click.echo(f"Untracked (no owner tag): {', '.join(found.untracked)}\n")
    _print_traps(found.traps, looked=found.blocks is not None, unread=bool(found.unread))
    _print_claims(found, problems)
    if cluster is not None:
        from tidemill.cli.inspect_cluster import print_cluster

        print_cluster(cluster)
    for line in _limits_of_inspection(found, pods_read=cluster is not None):
        click.echo(line)


def _print_blocks(found: Inspection) -> None:
    if found.blocks is None:
        return
    if found.unread:
        click.echo(f"There, but their records cannot be read: {', '.join(found.unread)}\n")
    elif not found.blocks:
        click.echo("AWS shows no block and no on-demand reservation.\n")
    if not found.blocks:
        return
    rows = table(
        "reservation", "what", "state", "from, to (UTC)", "EC2 ends them", "extend until", "idle", "owner",
        title="Blocks and reservations", right=("idle",),
    )  # fmt: skip
    for column in (0, 1, 3):
        rows.columns[column].no_wrap = True
    for block in found.blocks:
        kind = () if block.kind == "block" else (block.kind,)
        rows.add_row(
            _in_one_cell(block.id, *kind), _in_one_cell(f"{block.count} x {block.type}", block.zone),
            _in_one_cell(block.state, _slots(block)), _in_one_cell(_at(block.start), _at(block.end)),
            _at(block.kill_at), _extend(block), _idle(block), _whose(block),
        )  # fmt: skip
    console().print(rows)


def _in_one_cell(*words: str) -> str:
    """On separate lines on a terminal, which is narrow; on one line in a pipe, for grep."""
    return ("\n" if console().is_terminal else ", ").join(words)


def _extend(block: InspectedBlock) -> str:
    if block.extension_pending_to is None:
        return _at(block.extend_until)
    return _in_one_cell(_at(block.extend_until), f"{_at(block.extension_pending_to)} unpaid")


def _slots(block: InspectedBlock) -> str:
    return f"{block.used} used, {f'{block.unseen} unseen, ' if block.unseen else ''}{block.free} free"


def _idle(block: InspectedBlock) -> str:
    if not block.free or block.state != "active":
        return "-"
    return "no price known" if block.idle_usd_h is None else f"{usd(block.idle_usd_h)}/h"


def _whose(block: InspectedBlock) -> str:
    if block.held == "untracked":
        return block.held
    who = "tagged ours" if block.held == "tagged" else f"another's: {block.owner}"
    return f"{who}, pool {block.pool}" if block.pool else who


def _print_endings(found: Inspection) -> None:
    rows = table("when (UTC)", "in", "nodes", "owner", "on", "why", "instances", title="What ends when")
    rows.columns[4].no_wrap = True
    for ending in found.endings:
        left = "-" if ending.at is None else "now" if ending.at <= found.at else span(ending.at - found.at)
        count = str(len(ending.instances))
        rows.add_row(
            _at(ending.at), left, count, ending.whose, ending.reservation, ending.why, _instances(ending)
        )
    console().print(rows)


def _instances(ending: Ending) -> str:
    shown = ", ".join(ending.instances[:_MOST_IDS])
    more = len(ending.instances) - _MOST_IDS
    return f"{shown}{f' and {more} more' if more > 0 else ''}"


def _print_groups(found: Inspection) -> None:
    trouble = ("trouble",) if any(group.trouble for group in found.groups) else ()
    rows = table(
        "group", "on", "size", "zones", "scheduled", "at 0 by", "in time", "hook", *trouble,
        title="Groups that launch on them",
    )  # fmt: skip
    rows.columns[1].no_wrap = True
    for group in found.groups:
        rows.add_row(
            group.name if not group.node_group else f"node group {group.node_group} ({group.name})",
            _in_one_cell(*group.reservations) or "-",
            f"{group.desired} ({group.minimum}..{group.maximum}), {group.members} there",
            _in_one_cell(*group.zones) or "-", _scheduled(group), _at(group.zero_at), _in_time(group), _hook(group),
            *((group.trouble or "-",) if trouble else ()),
        )  # fmt: skip
    console().print(rows)
    if found.other_groups:
        click.echo(f"{counted(found.other_groups, 'other group')} not on a reservation\n")


def _scheduled(group: InspectedGroup) -> str:
    return "; ".join(
        f"{_at(action.at)} {'-' if action.desired is None else action.desired}{' (EKS)' if action.eks else ''}"
        for action in group.actions
    ) or "-"  # fmt: skip


def _in_time(group: InspectedGroup) -> str:
    return "-" if group.in_time is None else "yes" if group.in_time else "NO"


def _hook(group: InspectedGroup) -> str:
    if group.node_group:
        return "EKS drains"
    if not group.hooks_known:
        return "-"
    return "none" if group.hook_s is None else f"{group.hook_s} s"


def _print_traps(found: tuple[Trap, ...], *, looked: bool, unread: bool) -> None:
    if not found and looked:
        click.echo("No trap found in what could be read." if unread else "No trap found.")
    elif not found:
        click.echo("Blocks could not be read, so traps were not checked.")
    else:
        click.echo(f"{counted(len(found), 'trap')} found")
    for number, trap in enumerate(found, 1):
        click.echo(f"{number:3}. [{trap.code}] {trap.what}")
        click.echo(f"     fix: {trap.fix}")
    click.echo("")


def _print_claims(found: Inspection, problems: tuple[Problem, ...]) -> None:
    if not found.deployment:
        return
    rows = table(
        "reservation", "would", "pools", "because", title=f"What deployment {found.deployment} would do"
    )
    for claim in found.claims:
        rows.add_row(claim.id, claim.would, ", ".join(claim.pools) or "-", claim.why)
    if found.claims:
        console().print(rows)
    for problem in problems:
        click.echo(f"[{problem.code}] {problem}")
    if problems:
        click.echo("")


def _limits_of_inspection(found: Inspection, *, pods_read: bool) -> Iterator[str]:
    for unread in found.not_read:
        yield f"not read: {unread.what}: {unread.why}"
    if pods_read:
        yield "Owners are what the tags say; when a pod is done is what it says itself."
    else:
        yield "Pods were not read: this reads AWS only, and owners are what the tags say."


def _at(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%m-%d %H:%M}"
