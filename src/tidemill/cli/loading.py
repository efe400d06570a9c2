"""Documents for a verb: read and checked, or a SpecError that lists everything wrong with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from tidemill.cli.catalog_cache import catalog_of
from tidemill.model.errors import SpecError
from tidemill.spec import Spec
from tidemill.spec.ceilings import lowered, read_ceilings
from tidemill.spec.problem import Problem
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
    spec, scenario, warnings = load_checked(files)
    for problem in warnings:
        click.echo(f"{problem}", err=True)
    return spec, scenario


def load_checked(files: Sequence[str]) -> tuple[Spec, Scenario | None, tuple[Problem, ...]]:
    """With the warnings, for a verb that shows them among its results."""
    loaded = load([_path(name) for name in documents_in(files)], catalog_of=catalog_of)
    if loaded.errors:
        count = len(loaded.errors)
        listed = "\n".join(f"  {problem}" for problem in loaded.errors)
        for problem in loaded.warnings:
            click.echo(f"{problem}", err=True)
        raise SpecError(f"{count} {'error' if count == 1 else 'errors'} in the documents:\n{listed}")
    if loaded.spec is None:
        raise SpecError(f"{', '.join(files)}: there is no Platform document")
    return _under_the_ceilings(loaded.spec), loaded.scenario, loaded.warnings


def _under_the_ceilings(spec: Spec) -> Spec:
    platform = lowered(spec.platform, read_ceilings(os.environ))
    return spec if platform is spec.platform else replace(spec, platform=platform)


def documents_in(paths: Sequence[str]) -> list[str]:
    """Files as they are; of a folder the YAML files in it, by name."""
    found: list[str] = []
    for name in paths:
        path = Path(name)
        if not path.is_dir():
            found.append(name)
            continue
        try:
            inside = sorted(str(one) for one in path.iterdir() if one.suffix in (".yaml", ".yml"))
        except OSError as error:
            raise SpecError(f"{name}: the folder cannot be read: {error.strerror}") from None
        if not inside:
            raise SpecError(f"{name}: there is no .yaml file in this folder")
        found += inside
    return found


def _path(name: str) -> Path:
    if name == DEMO and not Path(name).exists():
        from tidemill.cli.up import demo_path

        return demo_path()
    return Path(name)
