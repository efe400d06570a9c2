"""`tidemill iam`: the IAM policies for observing, provisioning and purchasing."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.aws.iam import PolicyScope
    from tidemill.spec import Spec

_WHICH = ("observer", "provisioner", "purchaser", "platform", "external-secrets", "scp")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::(\d{12}|\*):(role|user)/\S+")


@click.command(short_help="Print the minimal IAM policies for Tidemill.")
@click.argument("which", type=click.Choice(_WHICH), required=False)
@click.option(
    "-f", "--file", "files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR", type=click.Path(),
    help="Documents: they give the region, account, owner tag and node roles.",
)  # fmt: skip
@click.option(
    "--purchaser-role",
    default="",
    metavar="ARN",
    help="scp: the only role that may buy. Default: role/tidemill-purchaser.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def iam(which: str | None, files: tuple[str, ...], purchaser_role: str, as_json: bool) -> None:
    """Print a policy: observer, provisioner, purchaser; or scp, which denies purchases to everybody else.

    They contain the calls that Tidemill makes, and no more. The provisioner and the purchaser need the observer's
    policy too. Run the purchaser as its own process with its own role. platform: what `tidemill secrets` needs, for
    the person or pipeline that sets the platform up. external-secrets: for the role of the External Secrets Operator.
    Without a name: a table of actions, policies and conditions; with --json all of them.
    """
    from tidemill.aws.iam import Role, external_secrets, policy, scp

    _check_purchaser(which, purchaser_role)
    place = _place(files)
    documents: dict[str, Any] = {role.value: policy(role, place) for role in Role}
    documents["external-secrets"] = external_secrets(place)
    documents["scp"] = scp(place, purchaser_role)
    if which is None and not as_json:
        _print_table()
        return
    if not place.complete and which != "observer":
        _say_what_to_replace()
    click.echo(json.dumps(documents if which is None else documents[which], indent=2))


def _check_purchaser(which: str | None, role: str) -> None:
    """Check the ARN now: a policy with a wrong role would be noticed only on the day of the purchase."""
    if role and which not in (None, "scp"):
        raise SpecError(f"--purchaser-role works with scp only; leave it out for {which}")
    if role and not _ROLE.fullmatch(role):
        raise SpecError(
            f"--purchaser-role: '{role}' is not an ARN of a role; write arn:aws:iam::ACCOUNT:role/NAME"
        )


def _place(files: tuple[str, ...]) -> PolicyScope:
    from tidemill.aws.iam import PolicyScope

    if not files:
        return PolicyScope(topics=("arn:aws:sns:REGION:ACCOUNT:TOPIC",))
    from tidemill.cli.loading import load_spec

    spec, _ = load_spec(files)
    platform, blank = spec.platform.spec, PolicyScope()
    check_roles(spec)
    roles = {platform.node_role, *(node_class.spec.role for node_class in spec.node_classes.values())} - {""}
    return PolicyScope(
        deployment=platform.deployment,
        region=platform.region,
        account=platform.account_id or blank.account,
        node_roles=tuple(sorted(roles)) or blank.node_roles,
        cluster=platform.cluster.name,
        topics=tuple(sorted({target.topic_arn for target in platform.notifications if target.topic_arn})),
        login_secret=f"{platform.database.login_secret}-*" if platform.database.login_secret else "rds!db-*",
    )


def check_roles(spec: Spec) -> None:
    """SpecError: a node role is an instance profile; its role, which iam:PassRole needs, is not in the documents."""
    for role in {
        spec.platform.spec.node_role,
        *(node_class.spec.role for node_class in spec.node_classes.values()),
    }:
        if ":instance-profile/" in role:
            raise SpecError(
                f"{role} is an instance profile, and a policy needs its role; write the role in nodeRole"
            )


def _say_what_to_replace() -> None:
    click.echo(
        "note: replace REGION, ACCOUNT, DEPLOYMENT and NODE-ROLE, or name documents with -f that have region, "
        "accountId, deployment and nodeRole",
        err=True,
    )


def _print_table() -> None:
    from tidemill.aws.iam import PERMISSIONS
    from tidemill.cli.terminal import console, table

    rows = table("policy", "action", "condition")
    for permission in PERMISSIONS:
        rows.add_row(permission.role.value, permission.action, permission.guard.value)
    console().print(rows)
