"""`tidemill node`: what runs on a GPU node."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tidemill.cli.kube_session import KUBECONFIG

if TYPE_CHECKING:
    from tidemill.node.agent import AgentClock

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ENDS_WITHIN_S = 6.0  # one call of the API server


@click.group()
def node() -> None:
    """What runs on a GPU node. `tidemill render node-agent` prints its DaemonSet."""


@node.command()
@click.option(
    "--node", "name", envvar="NODE_NAME", required=True, metavar="NAME", help="The node it runs on."
)
@KUBECONFIG
@click.option(
    "--boot-file", default="/etc/tidemill/ends-at", show_default=True, metavar="FILE",
    help="The end that the node was launched with, written at its first boot.",
)  # fmt: skip
@click.option("--simulated-clock", metavar="URL", hidden=True, help="Tests: the time of this simulated AWS.")
def agent(name: str, kubeconfig: str | None, boot_file: str, simulated_clock: str | None) -> None:
    """Empty this node in time if the engine has not: every pod gets its whole grace period.

    The end is the annotation tidemill.dev/ends-at of the Node, which the engine writes; until it does, the end that the
    node was launched with. A running engine drains the node earlier.
    """
    from tidemill.kube.connect import connect
    from tidemill.node.agent import Agent, read_boot_end

    api, clock = connect(kubeconfig), _clock(simulated_clock)
    running = Agent(api, name, clock, boot_end=read_boot_end(boot_file), say=_say)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # for all threads; this one waits for them
    stop = threading.Event()
    thread = threading.Thread(target=running.run, args=(stop,), daemon=True)
    thread.start()
    while thread.is_alive():
        if signal.sigtimedwait(_SIGNALS, 1.0) is not None:
            stop.set()
            running.wake()
            thread.join(_ENDS_WITHIN_S)
            return
    raise click.ClickException("the agent ended by itself; this is a bug")


def _clock(simulated: str | None) -> AgentClock:
    from tidemill.engine.clock import FasterClock
    from tidemill.node.steady_clock import SteadyClock

    if simulated is not None:
        from tidemill.cli.simulated_clock import SimulatedClock

        return SimulatedClock(simulated)
    anchor = datetime.now(UTC)
    return FasterClock(anchor, anchor, 1.0, SteadyClock().now)


def _say(sentence: str) -> None:
    click.echo(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {sentence}", err=True)
