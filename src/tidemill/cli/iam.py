"""`tidemill iam`: the IAM policies of the engine, of whoever buys, and of whoever only looks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.aws.iam import PolicyScope
    from tidemill.spec import Spec

_WHICH = ("observer", "provisioner", "purchaser", "scp")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::(\d{12}|\*):(role|user)/\S+")


@click.command(short_help="Print the IAM policies Tidemill needs, and no more.")
@click.argument("which", type=click.Choice(_WHICH), required=False)
@click.option(
    "-f", "--file", "files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR", type=click.Path(),
    help="The documents: region, account, owner tag and node roles are taken from them.",
)  # fmt: skip
@click.option(
    "--purchaser-role",
    default="",
    metavar="ARN",
    help="scp: who alone may buy. Default: role/tidemill-purchaser.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def iam(which: str | None, files: tuple[str, ...], purchaser_role: str, as_json: bool) -> None:
    """Print one of the policies: observer, provisioner, purchaser; or scp, which forbids purchases to all others.

    They are written from the calls the adapter really makes. Whatever launches or buys needs the observer's as well;
    the purchaser is a process and a service account of its own. Without a name: which action is in which policy, and
    on what condition; with --json all four.
    """
    from tidemill.aws.iam import Role, policy, scp

    _check_purchaser(which, purchaser_role)
    place = _place(files)
    documents: dict[str, Any] = {role.value: policy(role, place) for role in Role}
    documents["scp"] = scp(place, purchaser_role)
    if which is None and not as_json:
        _print_table()
        return
    if not place.complete and which != "observer":
        _say_what_to_replace()
    click.echo(json.dumps(documents if which is None else documents[which], indent=2))


def _check_purchaser(which: str | None, role: str) -> None:
    """A policy that lets nobody buy, because of a word that is no role, is noticed on the day of the purchase."""
    if role and which not in (None, "scp"):
        raise SpecError(f"--purchaser-role is for scp: {which} does not name who buys")
    if role and not _ROLE.fullmatch(role):
        raise SpecError(f"--purchaser-role: '{role}' is no ARN; write arn:aws:iam::ACCOUNT:role/NAME")


def _place(files: tuple[str, ...]) -> PolicyScope:
    from tidemill.aws.iam import PolicyScope

    if not files:
        return PolicyScope()
    from tidemill.cli.loading import load_spec

    spec, _ = load_spec(files)
    platform, blank = spec.platform.spec, PolicyScope()
    check_roles(spec)
    roles = {platform.node_role, *(one.spec.role for one in spec.node_classes.values())} - {""}
    return PolicyScope(
        deployment=platform.deployment,
        region=platform.region,
        account=platform.account_id or blank.account,
        node_roles=tuple(sorted(roles)) or blank.node_roles,
        cluster=platform.cluster.name,
    )


def check_roles(spec: Spec) -> None:
    """SpecError: an instance profile, of which nobody can tell the role that must be passed."""
    for role in {spec.platform.spec.node_role, *(one.spec.role for one in spec.node_classes.values())}:
        if ":instance-profile/" in role:
            raise SpecError(
                f"{role} is an instance profile: a policy needs the role in it; name that as nodeRole"
            )


def _say_what_to_replace() -> None:
    click.echo(
        "note: replace the words in capitals (REGION, ACCOUNT, DEPLOYMENT, NODE-ROLE), or name documents with -f that "
        "say them (region, accountId, deployment, nodeRole)",
        err=True,
    )


def _print_table() -> None:
    from tidemill.aws.iam import PERMISSIONS
    from tidemill.cli.terminal import console, table

    made = table("policy", "action", "condition")
    for one in PERMISSIONS:
        made.add_row(one.role.value, one.action, one.guard.value)
    console().print(made)
