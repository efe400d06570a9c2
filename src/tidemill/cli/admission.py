"""`tidemill admission`: how workloads of ours are held when they are created, and how to release them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidemill.cli.kube_session import CONTEXT, KUBECONFIG
from tidemill.cli.session import JSON
from tidemill.model.errors import Gone, NotAllowed, Refused, SpecError

if TYPE_CHECKING:
    from tidemill.kube.admission.install import Installed
    from tidemill.kube.admission.release import Held
    from tidemill.kube.api import KubeApi

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_SHOWN = 20  # of what is held; the rest is a count

_CONTROLLER_NAMESPACE = click.option(
    "--controller-namespace", default="tidemill-system", show_default=True, metavar="NAME",
    help="Where Tidemill itself runs. Nothing there is ever held.",
)  # fmt: skip


def _cluster_options(verb: F) -> F:
    wrapped: F = KUBECONFIG(CONTEXT(verb))
    return wrapped


def _way_options(verb: F) -> F:
    """Which of the two ways: policies, or a webhook at a URL or a service."""
    url = click.option("--webhook", "url", metavar="URL", help="Use the webhook at this https address.")
    service = click.option(
        "--service", metavar="NAMESPACE/NAME[:PORT]", help="Use the webhook behind this Service."
    )
    ca = click.option(
        "--ca-file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
        help="With a webhook: the CA certificate (PEM) that its own is checked with.",
    )  # fmt: skip
    return url(service(ca(_CONTROLLER_NAMESPACE(verb))))


@click.group(short_help="Hold workloads when they are created, and release them.")
def admission() -> None:
    """Hold workloads of ours when they are created, until Tidemill admits them.

    Ours are workloads in namespaces with the label tidemill.dev/managed=true, and those with the label themselves.
    """


@admission.command(short_help="Print the policies, or the webhook configuration.")
@_way_options
@JSON
def render(
    url: str | None, service: str | None, ca_file: Path | None, controller_namespace: str, as_json: bool
) -> None:
    """Print the objects that hold workloads, as YAML for `kubectl apply`.

    Without options: MutatingAdmissionPolicies, for Kubernetes 1.36 and later. With --webhook or --service: a
    MutatingWebhookConfiguration for `tidemill admission webhook`, for Kubernetes 1.30 and later.
    """
    objects = _objects(url, service, ca_file, controller_namespace)
    if as_json:
        click.echo(json.dumps(objects, indent=2))
        return
    from tidemill.render.kubernetes_yaml import yaml_text

    click.echo(yaml_text(objects))


@admission.command(short_help="Install the policies or the webhook configuration.")
@_way_options
@_cluster_options
@JSON
def install(
    url: str | None, service: str | None, ca_file: Path | None, controller_namespace: str,
    kubeconfig: str | None, context: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Apply what `render` prints. Run it again after an upgrade. Changing from one way to the other is one command.

    Fields that somebody else changed are not overwritten: the command fails and says whose they are. It returns when
    the API server holds what is created, and fails if it does not within half a minute.
    """
    from tidemill.kube.admission.install import install, probe_namespace, serves_policies, wait_until_held

    objects = _objects(url, service, ca_file, controller_namespace)
    with _connected(kubeconfig, context) as api:
        if not (url or service) and not serves_policies(api):
            raise SpecError(
                "this API server does not serve MutatingAdmissionPolicy v1 (Kubernetes 1.36 and later do); "
                "run `tidemill admission webhook` and add --service or --webhook"
            )
        removed = install(api, objects)
        _show_installed([(each["kind"], each["metadata"]["name"]) for each in objects], removed, as_json)
        try:
            if probe := probe_namespace(api, (controller_namespace,)):
                wait_until_held(api, probe)
        except (Refused, Gone) as error:
            click.echo(f"it could not be seen whether it is in force: {error}", err=True)


@admission.command(short_help="Remove the policies and the webhook configuration.")
@_cluster_options
@JSON
def uninstall(kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Remove what `install` installed: new workloads are not held any more. What is held stays held: see `release`."""
    from tidemill.kube.admission.install import installed, remove

    with _connected(kubeconfig, context) as api:
        removed = remove(api, installed(api))
    _show_installed([], removed, as_json)


def _show_installed(applied: Sequence[tuple[str, str]], removed: Sequence[Installed], as_json: bool) -> None:
    if as_json:
        document = {
            "installed": [{"kind": kind, "name": name} for kind, name in applied],
            "removed": [{"kind": each.kind, "name": each.name} for each in removed],
        }
        click.echo(json.dumps(document, indent=2))
        return
    for kind, name in applied:
        click.echo(f"installed {kind} {name}")
    for each in removed:
        click.echo(f"removed {each.kind} {each.name}")
    if not applied and not removed:
        click.echo("nothing was installed")


@admission.command(short_help="Show how workloads are held, and what is held now.")
@_CONTROLLER_NAMESPACE
@_cluster_options
@JSON
def status(controller_namespace: str, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Show which objects of ours are installed, which namespaces are ours, and what is held now."""
    from tidemill.kube.admission.install import installed, managed_namespaces, outdated, serves_policies
    from tidemill.kube.admission.release import held_objects

    with _connected(kubeconfig, context) as api:
        found = installed(api)
        ways = {"webhook" if each.kind == "MutatingWebhookConfiguration" else "policies" for each in found}
        document = {
            "server": api.server,
            "serves_policies": serves_policies(api),
            "installed": sorted(ways),
            "outdated": outdated(found, (controller_namespace,)),
            "namespaces": managed_namespaces(api),
            "held": [_row(each) for each in held_objects(api)],
        }
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    _print_status(document)


def _print_status(document: Mapping[str, Any]) -> None:
    from tidemill.cli.terminal import console, table

    served = "served" if document["serves_policies"] else "not served (a webhook is needed)"
    click.echo(f"MutatingAdmissionPolicy v1: {served}")
    click.echo(f"installed: {', '.join(document['installed']) or 'nothing; run tidemill admission install'}")
    if document["outdated"]:
        click.echo(f"not as this version installs it: {', '.join(document['outdated'])}")
    click.echo(f"namespaces of ours: {', '.join(document['namespaces']) or 'none'}")
    held = document["held"]
    if not held:
        click.echo("held: nothing")
        return
    rows = table("KIND", "NAMESPACE", "NAME", "CREATED", title=f"Held: {len(held)}")
    for each in held[:_NAMES_SHOWN]:
        rows.add_row(each["kind"], each["namespace"], each["name"], each["created"])
    console().print(rows)
    if len(held) > _NAMES_SHOWN:
        click.echo(f"… and {len(held) - _NAMES_SHOWN} more; --json lists all")


@admission.command(short_help="Release everything that is held.")
@click.option(
    "--namespace", default="", metavar="NAME", help="Only this namespace. Taints of nodes then stay."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@_cluster_options
@JSON
def release(namespace: str, yes: bool, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Release everything that Tidemill holds: gates are removed, suspensions of ours lifted, held nodes opened.

    For when Tidemill is removed, or away for long. What is released starts where Kubernetes finds room: nothing asks
    how long a block still lasts, and gangs may start in part. Gates and suspensions of others stay.
    """
    from tidemill.cli.terminal import confirmed
    from tidemill.kube.admission.install import installed
    from tidemill.kube.admission.release import held_objects, release_all

    with _connected(kubeconfig, context) as api:
        with suppress(NotAllowed):  # somebody who may only write in a namespace can release it all the same
            if installed(api):
                click.echo("new workloads will be held: run `tidemill admission uninstall` first", err=True)
        held = held_objects(api, namespace)
        if held and not confirmed(f"Release {_counted(held)}?", yes=yes):
            raise click.Abort
        released, failed = release_all(api, held)
    if as_json:
        failures = [_row(each.held) | {"error": str(each.error)} for each in failed]
        click.echo(json.dumps({"released": [_row(each) for each in released], "failed": failures}, indent=2))
    else:
        click.echo(f"released: {_counted(released)}")
        for each in failed:
            click.echo(f"error: {each.held.full_name}: {each.error}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


@admission.command(short_help="Serve the webhook.")
@click.option("--certificate", required=True, metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="The server's certificate (PEM). Read again when it changes.")  # fmt: skip
@click.option("--key", required=True, metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Its private key (PEM).")  # fmt: skip
@click.option(
    "--listen", default="0.0.0.0:8443", show_default=True, metavar="HOST:PORT", help="Where to listen."
)
def webhook(certificate: Path, key: Path, listen: str) -> None:
    """Serve the webhook that `render --webhook` or `--service` names, until SIGTERM or Ctrl-C."""
    from tidemill.cli.terminal import sigterm_as_interrupt
    from tidemill.kube.admission.webhook import WebhookServer

    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise SpecError(f"--listen: '{listen}' has no port; write for example 0.0.0.0:8443")
    with WebhookServer((host.strip("[]"), int(port)), certificate, key) as server, sigterm_as_interrupt():
        click.echo(f"listening on {host}:{server.server_port}", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("stopped", err=True)


def _objects(
    url: str | None, service: str | None, ca_file: Path | None, controller_namespace: str
) -> list[dict[str, Any]]:
    from tidemill.kube.admission.policy import policy_objects

    if url and service:
        raise SpecError("give --webhook or --service, not both")
    if not (url or service):
        if ca_file:
            raise SpecError("--ca-file is for a webhook; add --webhook or --service")
        return policy_objects((controller_namespace,))
    from tidemill.kube.admission.webhook import webhook_object

    return [webhook_object(_client(url, service), ca=_ca(ca_file), excluded=(controller_namespace,))]


def _client(url: str | None, service: str | None) -> dict[str, Any]:
    if url:
        if not url.startswith("https://") or "?" in url or "#" in url:
            raise SpecError(
                f"--webhook: '{url}' is not an https address; write for example https://host:8443"
            )
        return {"url": url}
    namespace, _, rest = (service or "").partition("/")
    name, _, port = rest.partition(":")
    if not (namespace and name and (port or "443").isdigit()):
        raise SpecError(f"--service: '{service}' is not NAMESPACE/NAME or NAMESPACE/NAME:PORT")
    return {"service": {"namespace": namespace, "name": name, "port": int(port or 443)}}


def _ca(ca_file: Path | None) -> bytes:
    if ca_file is None:
        return b""
    try:
        ca = ca_file.read_bytes()
    except OSError as error:
        raise SpecError(f"--ca-file: cannot read {ca_file}: {error.strerror}") from None
    if b"-----BEGIN CERTIFICATE-----" not in ca:
        raise SpecError(f"--ca-file: {ca_file} has no PEM certificate")
    return ca


@contextmanager
def _connected(kubeconfig: str | None, context: str | None) -> Iterator[KubeApi]:
    """Which cluster it is goes to stderr first."""
    from tidemill.kube.connect import connect

    with closing(connect(kubeconfig, context)) as api:
        click.echo(f"cluster: {api.name} ({api.server})", err=True)
        yield api


def _row(held: Held) -> dict[str, str]:
    return {
        "kind": held.kind.kind, "namespace": held.namespace, "name": held.name, "created": held.created
    }  # fmt: skip


def _counted(held: Sequence[Held]) -> str:
    counts = Counter(each.kind.kind for each in held)
    return (
        ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items()) or "nothing"
    )
