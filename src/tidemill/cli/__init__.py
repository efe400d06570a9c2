"""The command line: which verbs exist, and how failures are reported. Each group of verbs has a module here.

Importing this module must stay cheap: a verb is imported when it is called, never for `--help`. Results go to stdout,
everything else to stderr. Exit codes: 0 success, 1 failed (or the reader of our output closed the pipe), 2 wrong input,
3 AWS or the API server does not allow it, 4 outcome unknown, 5 another engine leads, 6 rehearsed safely but not served,
130 interrupted. With `--json` a failure is a JSON object on stdout too, so that a program can always parse stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any, NamedTuple

import click

from tidemill import __version__
from tidemill.model.errors import NotAllowed, OutcomeUnknown, SpecError, TidemillError

EXIT_FAILED, EXIT_USER, EXIT_NOT_ALLOWED, EXIT_UNKNOWN, EXIT_OVERTAKEN = 1, 2, 3, 4, 5
EXIT_NOT_SERVED, EXIT_INTERRUPTED = 6, 130


class Verb(NamedTuple):
    module: str
    attribute: str
    help: str


# In the order a new user needs them; `--help` shows this order.
VERBS = {
    "init": Verb("init", "init", "Write the first documents of a platform."),
    "up": Verb("up", "up", "Watch the engine run a simulated day."),
    "rehearse": Verb("rehearse", "rehearse", "Run a scenario in virtual time and report what would happen."),
    "validate": Verb("documents", "validate", "Check documents and list every error with its line."),
    "lint": Verb("lint", "lint", "Find traps in documents, manifests, charts and stacks."),
    "plan": Verb("status", "plan", "Show what the engine would do next, and why."),
    "status": Verb("status", "status", "Show pools, nodes, blocks and pending pods."),
    "plan-blocks": Verb("plan_blocks", "plan_blocks", "Show which blocks the planner would buy, and why."),
    "why": Verb("status", "why", "Say in one sentence why a pod is pending."),
    "doctor": Verb("doctor", "doctor", "Say what is set up, what is missing, and how to do it."),
    "inspect": Verb("inspect", "inspect", "Show what is in an AWS account: blocks, endings, traps."),
    "replay": Verb("replay", "replay", "Decide again what a controller decided, and explain it."),
    "run": Verb("run", "run", "Run the controller beside a cluster."),
    "pause": Verb("pause", "pause", "Stop purchases, launches and admissions for a while."),
    "resume": Verb("pause", "resume", "Let a paused engine go on."),
    "job": Verb("job", "job", "Run training jobs, and see why they wait."),
    "purchaser": Verb("run", "purchaser", "Run the process that alone may buy."),
    "offers": Verb("offers", "offers", "Search for Capacity Blocks, cheapest per GPU-hour first."),
    "buy": Verb("buy", "buy", "Buy an offer, or an approved intent."),
    "approve": Verb("approve", "approve", "Approve or refuse purchases, or list those that wait."),
    "extend": Verb("buy", "extend", "Buy more time on a block."),
    "blocks": Verb("blocks", "blocks", "List every block: state, times, owner, what to do next."),
    "adopt": Verb("blocks", "adopt", "Adopt a block that was bought elsewhere."),
    "settle": Verb("settle", "settle", "Find and record the outcome of an unanswered purchase."),
    "ledger": Verb("ledger", "ledger", "List intents, approvals, money and the audit trail."),
    "costs": Verb("costs", "costs", "Show what everything cost, by pool and team."),
    "handover": Verb("handover", "handover", "Show how services will move from one block to the next."),
    "alerts": Verb("alerts", "alerts", "List alerts and deliveries, or test a target."),
    "watchdog": Verb("alerts", "watchdog", "Alert when the engine is silent."),
    "secrets": Verb("secrets", "secrets", "Make, check, replace and sync the platform's secrets."),
    "iam": Verb("iam", "iam", "Print the minimal IAM policies for Tidemill."),
    "rbac": Verb("rbac", "rbac", "Print the minimal Kubernetes roles for Tidemill."),
    "admission": Verb("admission", "admission", "Hold workloads when they are created, and release them."),
    "sim": Verb("sim", "sim", "Create and control a simulated AWS account."),
    "catalog": Verb("catalog", "catalog", "List instance types, what pods can use, and prices."),
    "advise": Verb("advise", "advise", "Say which provisioner fits each pool, and why."),
    "bench": Verb("bench", "bench", "Measure how fast and how well pods are packed."),
    "render": Verb("render", "render", "Print CloudFormation, Karpenter objects, user data, agent."),
    "node": Verb("node", "node", "Run what a GPU node needs: the deadline agent."),
    "schema": Verb("documents", "schema", "Print the JSON Schema of the documents."),
    "import": Verb("documents", "import_", "Convert the compute pools of other tools."),
}


class _Failed(click.ClickException):
    """A TidemillError, shown as a message without a traceback."""

    exit_code = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class _UserMistake(_Failed):
    exit_code = EXIT_USER


class _NotAllowed(_Failed):
    """Wrong credentials, region or permission: a person must change them first."""

    exit_code = EXIT_NOT_ALLOWED


class _OutcomeUnknown(_Failed):
    """A purchase may have been made: a script must not just try again."""

    exit_code = EXIT_UNKNOWN


class _Overtaken(_Failed):
    """The ledger follows another leader: the process is started again and waits for its turn."""

    exit_code = EXIT_OVERTAKEN


class LazyGroup(click.Group):
    """A group that knows its verbs by name and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"tidemill.cli.{verb.module}"), verb.attribute
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in VERBS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches  # imported only after a typing error

        near = get_close_matches(name, VERBS, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"the commands are: {', '.join(VERBS)}"
        raise click.UsageError(f"unknown command '{name}'; {hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidemillError as error:
            raise _failure_of(error)(str(error)) from error


def _failure_of(error: TidemillError) -> type[_Failed]:
    if isinstance(error, SpecError):
        return _UserMistake
    if isinstance(error, NotAllowed):
        return _NotAllowed
    if error.code == "overtaken":
        return _Overtaken
    return _OutcomeUnknown if isinstance(error, OutcomeUnknown) else _Failed


@click.command(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog="Start with: tidemill up"
)
@click.version_option(__version__, prog_name="tidemill", message="%(prog)s %(version)s")
def root() -> None:
    """Buy GPU Capacity Blocks on AWS and run them as Kubernetes nodes.

    Tidemill buys blocks within a budget and with approval, starts their nodes, drains them before the block ends, and
    can rehearse all of it on a simulator.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Only a bug gives a traceback."""
    _prepare_output()
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        code = root.main(args=given, prog_name="tidemill", standalone_mode=False)
        sys.stdout.flush()  # here: at interpreter exit a closed pipe can no longer be handled
    except click.ClickException as failure:
        return _report_failure(failure, as_json="--json" in given)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except OSError as error:
        return _output_failed(error)
    return code if isinstance(code, int) else 0


def _report_failure(failure: click.ClickException, *, as_json: bool) -> int:
    """Print the failure. A verb that printed its own JSON object exits with a code and does not come here."""
    if isinstance(failure, click.MissingParameter) and failure.param is not None and failure.param.envvar:
        hint = f"Add it, or set {failure.param.envvar}."
        failure = click.MissingParameter(hint, failure.ctx, failure.param)
    failure.show()
    if as_json:
        document = {"error": failure.format_message(), "exit_code": failure.exit_code}
        try:
            click.echo(json.dumps(document, indent=2))
            sys.stdout.flush()
        except OSError as error:
            _output_failed(error)
    return failure.exit_code  # even if the output failed: 4 must not become 1


def _prepare_output() -> None:
    """Print a question mark for a character that the encoding of stdout lacks, instead of failing.

    After `>&-` or `2>&-` Python has None as the stream, and the next opened file would get its descriptor.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _output_failed(error: OSError) -> int:
    """Stdout cannot be written: silent if the reader closed the pipe, a message if the disk is full."""
    if error.filename is not None:  # an error of some other file, not of stdout: a bug
        raise error
    # Python flushes stdout again at exit; point it at /dev/null so that this cannot fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        click.echo(f"error: cannot write the output: {error.strerror or error}", err=True)
    return EXIT_FAILED
