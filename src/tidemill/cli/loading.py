"""Documents for a verb: read and checked, or a SpecError that lists everything wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tidemill.errors import SpecError
from tidemill.spec import Spec
from tidemill.spec.read import load
from tidemill.spec.scenario import Scenario

DEMO = "demo"


def load_scenario(files: Sequence[str]) -> tuple[Spec, Scenario]:
    """The word `demo` stands for the scenario that ships with Tidemill."""
    spec, scenario = load_spec(files)
    if scenario is None:
        raise SpecError(f"{', '.join(files)}: there is no Scenario document; a rehearsal needs one")
    return spec, scenario


def load_spec(files: Sequence[str]) -> tuple[Spec, Scenario | None]:
    loaded = load([_path(name) for name in files])
    for problem in loaded.problems:
        if problem.severity == "warning":
            click.echo(f"{problem}", err=True)
    if loaded.errors:
        count = len(loaded.errors)
        listed = "\n".join(f"  {problem}" for problem in loaded.errors)
        raise SpecError(f"{count} {'error' if count == 1 else 'errors'} in the documents:\n{listed}")
    if loaded.spec is None:
        raise SpecError(f"{', '.join(files)}: there is no Platform document")
    return loaded.spec, loaded.scenario


def _path(name: str) -> Path:
    if name == DEMO and not Path(name).exists():
        from tidemill.cli.up import demo_path

        return demo_path()
    return Path(name)
