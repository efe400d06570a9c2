"""`tidemill alerts` and `watchdog`: list the alerts and their deliveries, test a target, alert on a silent engine."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.terminal import duration_s, sigterm_as_interrupt

if TYPE_CHECKING:
    from tidemill.model.alerts import Delivery, Raised
    from tidemill.notify.alert_tracker import Heartbeat
    from tidemill.notify.watchdog import Watchdog
    from tidemill.spec.platform import Notification


class _ListsByDefault(click.Group):
    """`tidemill alerts ADDRESS` means `tidemill alerts list ADDRESS`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--help" not in args[:1] and "-h" not in args[:1] and (not args or args[0] not in self.commands):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListsByDefault, short_help="List alerts, and test where they go.")
def alerts() -> None:
    """List alerts and their deliveries, or test a target. `tidemill alerts ADDRESS` is short for `alerts list`."""


@alerts.command("list")
@click.argument("address", envvar="TIDEMILL_LEDGER")
@click.option("--open", "open_only", is_flag=True, help="Only alerts that are not resolved.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: every alert with every delivery."
)
def list_(address: str, open_only: bool, as_json: bool) -> None:
    """List the alerts that were raised and resolved, and which deliveries failed, the newest last.

    ADDRESS is the address of the engine's ledger, such as sqlite:////var/lib/tidemill/ledger.db. Default:
    TIDEMILL_LEDGER. Nothing is changed.
    """
    from tidemill.store.open_ledger import read_ledger

    ledger = read_ledger(address)
    try:
        alerts_found, heartbeat = ledger.alerts.alerts(open_only=open_only), ledger.alerts.heartbeat()
    finally:
        ledger.close()
    if as_json:
        click.echo(json.dumps(_alerts_document(alerts_found, heartbeat), indent=2))
        return
    for raised in alerts_found:
        _print_alert(raised)
    if not alerts_found:
        click.echo("no alert is open" if open_only else "no alert was raised")
    click.echo(f"last heartbeat of the engine: {_at(heartbeat) if heartbeat else 'never'}")


def _alerts_document(alerts_found: tuple[Raised, ...], heartbeat: datetime | None) -> dict[str, Any]:
    from tidemill.store.rows import document

    return {
        "heartbeat_at": None if heartbeat is None else heartbeat.isoformat(),
        "alerts": [
            {
                **document(raised.alert),
                "state": _state(raised),
                "first_at": raised.first_at.isoformat(),
                "raised_at": raised.raised_at.isoformat(),
                "resolved_at": None if raised.resolved_at is None else raised.resolved_at.isoformat(),
                "occasion": raised.occasion,
                "deliveries": [{**document(delivery), "id": delivery.id} for delivery in raised.deliveries],
            }
            for raised in alerts_found
        ],
    }


def _print_alert(raised: Raised) -> None:
    alert = raised.alert
    click.echo(f"{_at(raised.raised_at)}  {alert.severity.value:<8}  {alert.kind.value:<17}  {alert.title}")
    click.echo(f"  {alert.text}")
    click.echo(f"  {_state(raised)}; {alert.key}")
    for delivery in raised.deliveries:
        if delivery.occasion == raised.occasion:
            click.echo(f"  {delivery.target}: {_delivery_text(delivery)}")
    if not raised.deliveries:
        click.echo("  no target takes this alert")


def _state(raised: Raised) -> str:
    if not raised.alert.lasts:
        return "happened"
    return "open" if raised.resolved_at is None else f"resolved {_at(raised.resolved_at)}"


def _delivery_text(delivery: Delivery) -> str:
    what = delivery.word.value
    if delivery.sent_at is not None:
        return f"{what}, sent {_at(delivery.sent_at)} ({delivery.answer})"
    if delivery.failure == "misconfigured":
        return f"{what}, NOT sent and not retried: {delivery.answer}"
    if delivery.failure:
        return f"{what}, NOT sent, gave up after {delivery.attempts} tries: {delivery.answer}"
    last = f" ({delivery.answer})" if delivery.answer else ""
    return f"{what}, waiting for a retry after {delivery.attempts} tries{last}"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"


@alerts.command()
@click.argument("name")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT…")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def test(ctx: click.Context, name: str, documents: tuple[str, ...], as_json: bool) -> None:
    """Send a test alert to the target NAME of the Platform in DOCUMENT…, and print its answer.

    On PagerDuty the test alert is resolved at once, so that nobody is paged. Exits 1 if the target did not accept it.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.engine.clock import WallClock
    from tidemill.model.alerts import AlertEvent
    from tidemill.notify.targets import sender

    spec, _ = load_spec(documents)
    target = _target(spec.platform.spec.notifications, name)
    now = WallClock().now()
    send = sender(target)
    answer = send(_message(spec.platform, AlertEvent.RAISED, now), now)
    if answer.outcome == "sent" and target.type == "pagerduty":
        answer = send(_message(spec.platform, AlertEvent.RESOLVED, now), now)
    if as_json:
        click.echo(json.dumps({"target": name, "outcome": answer.outcome, "answer": answer.detail}))
    elif answer.outcome == "sent":
        click.echo(f"{name} accepted it: {answer.detail}")
    else:
        retried = (
            "an alert would be retried" if answer.outcome == "retry" else "an alert would not be retried"
        )
        click.echo(f"{name} did not accept it, {retried}: {answer.detail}", err=True)
    ctx.exit(0 if answer.outcome == "sent" else 1)


def _target(targets: tuple[Notification, ...], name: str) -> Notification:
    from tidemill.model.errors import SpecError

    for target in targets:
        if target.name == name:
            return target
    known = ", ".join(target.name for target in targets)
    hint = (
        f"the targets are: {known}" if known else "the Platform has none; add one to its spec.notifications"
    )
    raise SpecError(f"there is no target '{name}'; {hint}")


def _message(platform: Any, word: Any, now: datetime) -> Any:
    from tidemill.model.alerts import Alert, AlertKind, Delivery, Raised, Severity
    from tidemill.notify.bodies import Message

    alert = Alert(
        f"test/{now:%Y-%m-%dT%H:%M:%SZ}",
        AlertKind.TEST,
        Severity.INFO,
        platform.spec.deployment,
        "Test alert from Tidemill",
        "Nothing is wrong, and there is nothing to do.",
        (("sent by", "tidemill alerts test"),),
    )
    delivery = Delivery(alert.key, 1, "test", word, now, now)
    return Message.of(Raised(alert, now, now, 1, now if word == "resolved" else None), delivery, platform)


# --- watchdog -----------------------------------------------------------------------------------------


@click.command(short_help="Alert when the engine is silent.")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT…")
@click.option(
    "--ledger",
    "address",
    envvar="TIDEMILL_LEDGER",
    required=True,
    metavar="ADDRESS",
    help="The address of the engine's ledger.",
)
@click.option(
    "--every",
    "every_s",
    callback=duration_s,
    metavar="TIME",
    help="Check repeatedly, such as 60s.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per check.")
@click.pass_context
def watchdog(
    ctx: click.Context, documents: tuple[str, ...], address: str, every_s: float | None, as_json: bool
) -> None:
    """Check the engine's heartbeat in the ledger, and alert the targets of the Platform in DOCUMENT… if it is too old.

    A dead engine cannot alert, so run this apart from it: in another process on another machine, or from cron.
    `alerts.silentAfter` of the Platform says how old is too old. Checks once and exits 0 (the engine runs) or 1 (it is
    silent, or the ledger cannot be read). With --every it checks until it is stopped, and also alerts if the ledger
    stays unreadable.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.engine.clock import WallClock
    from tidemill.notify.targets import senders
    from tidemill.notify.watchdog import Watchdog
    from tidemill.store.ledger_owner import LedgerOwner
    from tidemill.store.memory import MemoryAlerts
    from tidemill.store.open_ledger import open_durable

    spec, _ = load_spec(documents)
    platform, clock = spec.platform, WallClock()
    ledger = open_durable(
        address, LedgerOwner.of(platform), clock=clock, writer="tidemill-watchdog", must_exist=True
    )
    try:
        dog = Watchdog(platform, senders(platform), ledger.alerts, MemoryAlerts(), clock)
        if every_s is None:
            heard = dog.look()
            _print_heard(heard, as_json)
            ctx.exit(1 if heard.is_silent or heard.trouble or heard.last is None else 0)
        with sigterm_as_interrupt():
            _watch(dog, every_s, as_json)
    finally:
        ledger.close()


def _watch(dog: Watchdog, every_s: float, as_json: bool) -> None:
    """Print a line when the state changes; with --json, a line per check."""
    before = None
    while True:
        heard = dog.look()
        state = (heard.is_silent, bool(heard.trouble), heard.last is None)
        if as_json or state != before:
            _print_heard(heard, as_json)
            before = state
        time.sleep(every_s)


def _print_heard(heard: Heartbeat, as_json: bool) -> None:
    if as_json:
        last = None if heard.last is None else heard.last.isoformat()
        document = {
            "at": heard.at.isoformat(),
            "heartbeat_at": last,
            "silent": heard.is_silent,
            "trouble": heard.trouble,
        }
        click.echo(json.dumps(document))
    else:
        click.echo(f"{heard.at:%Y-%m-%d %H:%M:%S} {heard.sentence()}")
    sys.stdout.flush()  # somebody may read along in a pipe
