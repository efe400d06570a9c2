"""`tidemill inspect`: an account as it is, without changing anything: blocks, what ends when, groups, traps."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidemill.cli.catalog_refresh import PROFILE, where
from tidemill.cli.session import AWS, JSON, NO_AWS, check_the_account, open_account, reached
from tidemill.model.errors import SpecError

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
        from tidemill.cli.catalog_cache import catalog_of

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
    documents = _read(files, more_files)
    if aws or profile or region:
        if sim is not None and sim.name:
            named = "--aws" if aws else "--region" if region else "--profile"
            raise SpecError(
                f"--sim {sim} and {named} name two accounts, the other at AWS: leave one out (TIDEMILL_SIM may be set)"
            )
        found = _of_aws(documents, where(documents.region(region), profile), profile)
    elif sim is not None and sim.name:
        found = _of_a_file(documents, sim)
    else:
        raise SpecError(NO_AWS)
    _tell(found, documents, as_json)
    if found.blocks is None:
        denied = any(one.forbidden for one in found.not_read)
        ctx.exit(_EXIT_NOT_ALLOWED if denied else _EXIT_FAILED)


def _read(files: tuple[str, ...], more_files: tuple[str, ...]) -> _Documents:
    if not files and not more_files:
        return _Documents(None, ())
    from tidemill.cli.loading import load_checked

    spec, _, warnings = load_checked((*files, *more_files))
    return _Documents(spec, warnings)


# --- which account ------------------------------------------------------------------------------------


def _of_aws(documents: _Documents, region: str, profile: str) -> Inspection:
    from tidemill.aws.account_survey import Looking, survey
    from tidemill.cli.real_aws import ROLE, clock_and_name

    clock, name = clock_and_name()
    catalog = documents.catalog(region)
    seen = survey(Looking(region, profile=profile, role_arn=os.environ.get(ROLE, "")), clock, catalog)
    return _judged(documents, name, seen, catalog)


def _of_a_file(documents: _Documents, sim: Path) -> Inspection:
    """It is never made here. Such an account has no groups: nothing but launches and purchases is kept in it."""
    from tidemill.report.survey import Survey, machines_of

    account = open_account(sim)
    region = account.story().region
    if documents.spec is not None and (theirs := documents.spec.platform.spec.region) != region:
        raise SpecError(
            f"{sim} is an account in {region}, and the Platform is in {theirs}: name another file"
        )
    seen = Survey(
        account.now(), region, account.identity(), account.reservations(), machines_of(account.instances())
    )
    return _judged(documents, f"SIMULATED AWS in {sim}", seen, documents.catalog(region))


def _judged(documents: _Documents, name: str, seen: Survey, catalog: Catalog) -> Inspection:
    from tidemill.report.inspection import inspection

    click.echo(f"{reached(name, seen.who, seen.region, seen.at)}; nothing is changed", err=True)
    if documents.spec is not None:
        check_the_account(documents.spec, seen.who)
    return inspection(seen, catalog, documents.spec)


# --- what is said -------------------------------------------------------------------------------------


def _tell(found: Inspection, documents: _Documents, as_json: bool) -> None:
    if not as_json:
        from tidemill.cli.inspect_tables import show

        show(found, documents.warnings)
        return
    from tidemill.report.rows import plain

    body: dict[str, Any] = plain(found)
    problems = [
        {"file": one.file, "line": one.line, "column": one.column, "code": one.code, "message": one.message}
        for one in documents.warnings
    ]
    click.echo(json.dumps({**body, "problems": problems}, indent=2))
