"""`tidemill alerts`: what was raised, to whom it was told, what failed; and a test of one target."""

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
    """`tidemill alerts ADDRESS` lists; only a word that is a command of its own is one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--help" not in args[:1] and "-h" not in args[:1] and (not args or args[0] not in self.commands):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListsByDefault, short_help="List alerts, and test where they go.")
def alerts() -> None:
    """What people were told, and whether it reached them. `tidemill alerts ADDRESS` lists it all."""


@alerts.command("list")
@click.argument("address", envvar="TIDEMILL_LEDGER")
@click.option("--open", "open_only", is_flag=True, help="Only what is not over yet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: every alert with every delivery.")
def list_(address: str, open_only: bool, as_json: bool) -> None:
    """List what was raised, sent, resolved and failed, the newest last.

    ADDRESS is that of the engine's ledger, such as sqlite:////var/lib/tidemill/ledger.db; it may be in the environment
    as TIDEMILL_LEDGER. Nothing is changed.
    """
    from tidemill.store.open_ledger import read_ledger

    ledger = read_ledger(address)
    try:
        found, heartbeat = ledger.alerts.alerts(open_only=open_only), ledger.alerts.heartbeat()
    finally:
        ledger.close()
    if as_json:
        click.echo(json.dumps(_alerts_document(found, heartbeat), indent=2))
        return
    for one in found:
        _print_alert(one)
    if not found:
        click.echo("no alert is open" if open_only else "no alert was raised")
    click.echo(f"engine last heard: {_at(heartbeat) if heartbeat else 'never'}")


def _alerts_document(found: tuple[Raised, ...], heartbeat: datetime | None) -> dict[str, Any]:
    from tidemill.store.rows import document

    return {
        "heartbeat_at": None if heartbeat is None else heartbeat.isoformat(),
        "alerts": [
            {
                **document(one.alert),
                "state": _state(one),
                "first_at": one.first_at.isoformat(),
                "raised_at": one.raised_at.isoformat(),
                "resolved_at": None if one.resolved_at is None else one.resolved_at.isoformat(),
                "occasion": one.occasion,
                "deliveries": [{**document(word), "id": word.id} for word in one.deliveries],
            }
            for one in found
        ],
    }


def _print_alert(one: Raised) -> None:
    alert = one.alert
    click.echo(f"{_at(one.raised_at)}  {alert.severity.value:<8}  {alert.kind.value:<17}  {alert.title}")
    click.echo(f"  {alert.text}")
    click.echo(f"  {_state(one)}; {alert.key}")
    for word in one.deliveries:
        if word.occasion == one.occasion:
            click.echo(f"  {word.target}: {_delivery_text(word)}")
    if not one.deliveries:
        click.echo("  no target wanted it")


def _state(one: Raised) -> str:
    if not one.alert.lasts:
        return "happened"
    return "open" if one.resolved_at is None else f"resolved {_at(one.resolved_at)}"


def _delivery_text(word: Delivery) -> str:
    what = f"that it was {word.word.value}"
    if word.sent_at is not None:
        return f"{what}, sent {_at(word.sent_at)} ({word.answer})"
    if word.failure == "misconfigured":
        return f"{what}, NOT sent, will not be tried again: {word.answer}"
    if word.failure:
        return f"{what}, NOT sent, given up after {word.attempts} tries: {word.answer}"
    last = f" ({word.answer})" if word.answer else ""
    return f"{what}, waiting after {word.attempts} tries{last}"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"


@alerts.command()
@click.argument("name")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT…")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def test(ctx: click.Context, name: str, documents: tuple[str, ...], as_json: bool) -> None:
    """Send a test alert to the target NAME of the Platform in DOCUMENT…, and say what it answered.

    PagerDuty is told at once that it is over, so that nobody is called. Exits 1 when it did not arrive.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.model.alerts import AlertEvent
    from tidemill.notify.targets import sender
    from tidemill.store.open_ledger import WallClock

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
        click.echo(f"{name} took it: {answer.detail}")
    else:
        told = "it would be tried again" if answer.outcome == "retry" else "it would not be tried again"
        click.echo(f"{name} did not take it, {told}: {answer.detail}", err=True)
    ctx.exit(0 if answer.outcome == "sent" else 1)


def _target(targets: tuple[Notification, ...], name: str) -> Notification:
    from tidemill.model.errors import SpecError

    for one in targets:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in targets) or "none; give the Platform some under 'notifications'"
    raise SpecError(f"there is no target '{name}'; there are: {known}")


def _message(platform: Any, word: Any, now: datetime) -> Any:
    from tidemill.model.alerts import Alert, AlertKind, Delivery, Raised, Severity
    from tidemill.notify.bodies import Message

    alert = Alert(
        f"test/{now:%Y-%m-%dT%H:%M:%SZ}",
        AlertKind.TEST,
        Severity.INFO,
        platform.spec.deployment,
        "A test of Tidemill's alerts",
        "Nothing is wrong and nothing is to be done.",
        (("sent by", "tidemill alerts test"),),
    )
    delivery = Delivery(alert.key, 1, "test", word, now, now)
    return Message.of(Raised(alert, now, now, 1, now if word == "resolved" else None), delivery, platform)


# --- watchdog ---


@click.command(short_help="Alert when the engine is silent.")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT…")
@click.option(
    "--ledger",
    "address",
    envvar="TIDEMILL_LEDGER",
    required=True,
    metavar="ADDRESS",
    help="The engine's ledger.",
)
@click.option(
    "--every",
    "every_s",
    callback=duration_s,
    metavar="TIME",
    help="Look again and again, such as every 60s.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look.")
@click.pass_context
def watchdog(
    ctx: click.Context, documents: tuple[str, ...], address: str, every_s: float | None, as_json: bool
) -> None:
    """Look whether the engine has been heard of lately, and alert the targets of the Platform in DOCUMENT… if not.

    A dead engine cannot alert by itself: run this apart from it, in another process on another machine or from cron.
    `alerts.silentAfter` of the Platform says how long is too long. Looks once and exits 0 (heard) or 1 (silent, or the
    ledger cannot be read); with --every it goes on until it is stopped, and tells also when the ledger stays away.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.notify.targets import senders
    from tidemill.notify.watchdog import Watchdog
    from tidemill.store.deployment_guard import LedgerOwner
    from tidemill.store.memory_alerts import MemoryAlerts
    from tidemill.store.open_ledger import WallClock, open_durable

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
    """A line when something changed; every look where a program reads it."""
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
        told = {
            "at": heard.at.isoformat(),
            "heartbeat_at": last,
            "silent": heard.is_silent,
            "trouble": heard.trouble,
        }
        click.echo(json.dumps(told))
    else:
        click.echo(f"{heard.at:%Y-%m-%d %H:%M:%S} {heard.sentence()}")
    sys.stdout.flush()  # a program, or a person, reads along
