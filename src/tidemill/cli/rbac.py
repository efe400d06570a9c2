"""`tidemill rbac`: the Kubernetes roles of the controller, of observers, of the node agent and of users."""

from __future__ import annotations

import json

import click

_ROLES = ("controller", "documents", "karpenter", "observer", "node-agent", "purchaser", "release", "users")


@click.command(short_help="Print the minimal Kubernetes roles for Tidemill.")
@click.argument("which", type=click.Choice(_ROLES), required=False)
@click.option(
    "--namespace", default="tidemill-system", metavar="NAME", help="Where Tidemill runs.", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rbac(which: str | None, namespace: str, as_json: bool) -> None:
    """Print a ServiceAccount with its roles, ready for `kubectl apply -f -`.

    They contain the calls that Tidemill makes, and no more. The controller is `tidemill run`; to the same
    ServiceAccount `documents` adds what it needs to work by the cluster's own objects (--from-cluster), and `karpenter`
    what it needs for pools whose provisioner is Karpenter; the observer is for the commands that only look (`tidemill
    status --kube`); the node agent is the DaemonSet that empties a node if the engine is away; the purchaser is
    `tidemill purchaser`; release is for who removes Tidemill (`tidemill admission uninstall`, `release`); `users`
    lets everybody who has an account see the pools, for `tidemill job`. Without a name: a table of resources, verbs and
    why they are needed.
    """
    from tidemill.kube.rbac import Role, manifests

    if which is None:
        _print_table(as_json)
        return
    objects = manifests(Role(which), namespace)
    if as_json:
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2))
        return
    import yaml

    click.echo(yaml.safe_dump_all(objects, sort_keys=False), nl=False)


def _print_table(as_json: bool) -> None:
    from tidemill.cli.terminal import console, table
    from tidemill.kube.rbac import Role, rights

    if as_json:
        whole = {
            role.value: [
                {
                    "group": right.group,
                    "resource": right.resource,
                    "verbs": list(right.verbs),
                    "why": right.why,
                }
                for right in rights(role)
            ]
            for role in Role
        }
        click.echo(json.dumps(whole, indent=2))
        return
    rows = table("role", "resource", "verbs", "why")
    for role in Role:
        for right in rights(role):
            what = f"{right.resource}.{right.group}" if right.group else right.resource
            rows.add_row(role.value, what, ", ".join(right.verbs), right.why)
    console().print(rows)
