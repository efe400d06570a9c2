"""`tidemill watchdog`: says, and tells the platform's targets, when the engine is silent."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from tidemill.cli.up import duration_s, terminated_like_ctrl_c

if TYPE_CHECKING:
    from tidemill.notify.watchdog import Watchdog
    from tidemill.report.engine_heartbeat import Heard


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
    from tidemill.store.deployment_guard import Whose
    from tidemill.store.memory_alerts import MemoryAlerts
    from tidemill.store.open_ledger import WallClock, open_durable

    spec, _ = load_spec(documents)
    platform, clock = spec.platform, WallClock()
    ledger = open_durable(
        address, Whose.of(platform), clock=clock, writer="tidemill-watchdog", must_exist=True
    )
    try:
        dog = Watchdog(platform, senders(platform), ledger.alerts, MemoryAlerts(), clock)
        if every_s is None:
            heard = dog.look()
            _say(heard, as_json)
            ctx.exit(1 if heard.is_silent or heard.trouble or heard.last is None else 0)
        with terminated_like_ctrl_c():
            _go_on(dog, every_s, as_json)
    finally:
        ledger.close()


def _go_on(dog: Watchdog, every_s: float, as_json: bool) -> None:
    """A line when something changed; every look where a program reads it."""
    before = None
    while True:
        heard = dog.look()
        state = (heard.is_silent, bool(heard.trouble), heard.last is None)
        if as_json or state != before:
            _say(heard, as_json)
            before = state
        time.sleep(every_s)


def _say(heard: Heard, as_json: bool) -> None:
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
