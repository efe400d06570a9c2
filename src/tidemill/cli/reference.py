"""The reference of all commands, written from the commands themselves: `python -m tidemill.cli.reference`."""

from __future__ import annotations

import click

HEAD = """# The commands

Written from the commands themselves by `python -m tidemill.cli.reference`; a test keeps it true.
Results go to stdout, logs and progress to stderr. Exit codes: 0 fine, 1 it went wrong, 2 wrong input,
3 AWS does not let us (credentials, region, permission), 4 nobody knows whether it was done (a purchase that was not
answered: look before anything else), 130 interrupted. With `--json` a failure is an object on stdout too:
`{"error": …, "exit_code": …}`.
"""


def markdown() -> str:
    from tidemill.cli import root

    return HEAD + "".join(_section(root, "tidemill", click.Context(root, info_name="tidemill")))


def _section(command: click.Command, path: str, context: click.Context) -> list[str]:
    parts = []
    if context.parent is not None:
        usage = command.collect_usage_pieces(context)
        parts.append(f"\n## {path}\n\n```\n{' '.join([path, *usage])}\n```\n")
        if command.help:
            parts.append(f"\n{_prose(command.help)}\n")
        rows = [row for param in command.get_params(context) if (row := _row(param, context))]
        if rows:
            parts.append("\n| option | meaning |\n|---|---|\n" + "".join(rows))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                parts += _section(
                    inner, f"{path} {name}", click.Context(inner, parent=context, info_name=name)
                )
    return parts


def _prose(text: str) -> str:
    return "\n".join(line.strip() for line in text.replace("\b", "").strip().splitlines())


def _row(param: click.Parameter, context: click.Context) -> str:
    record = param.get_help_record(context)
    if record is None or "--help" in param.opts or (isinstance(param, click.Option) and param.hidden):
        return ""
    option, meaning = (part.replace("|", "\\|").replace("\n", " ") for part in record)
    return f"| `{option}` | {' '.join(meaning.split())} |\n"


if __name__ == "__main__":
    print(markdown(), end="")
