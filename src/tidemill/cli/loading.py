"""Load the documents that a verb names, check them, and raise one SpecError that lists every error in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from tidemill.cli.region_catalog import catalog_of
from tidemill.model.errors import SpecError
from tidemill.spec import Spec
from tidemill.spec.ceilings import lowered, read_ceilings
from tidemill.spec.problem import Problem
from tidemill.spec.read import load
from tidemill.spec.scenario import Scenario

DEMO = "demo"


def load_scenario(files: Sequence[str]) -> tuple[Spec, Scenario]:
    """The name `demo` stands for the scenario that ships with Tidemill."""
    spec, scenario = load_spec(files)
    if scenario is None:
        raise SpecError(
            f"{', '.join(files)}: no Scenario document; add one (see `tidemill schema Scenario`), or name `demo`"
        )
    return spec, scenario


def load_spec(files: Sequence[str]) -> tuple[Spec, Scenario | None]:
    """The spec; warnings go to stderr."""
    spec, scenario, warnings = load_checked(files)
    for problem in warnings:
        click.echo(f"{problem}", err=True)
    return spec, scenario


def load_checked(files: Sequence[str]) -> tuple[Spec, Scenario | None, tuple[Problem, ...]]:
    """Like load_spec, but returns the warnings, for a verb that prints them among its results."""
    loaded = load([_path(name) for name in documents_in(files)], catalog_of=catalog_of)
    if loaded.errors:
        count = len(loaded.errors)
        listed = "\n".join(f"  {problem}" for problem in loaded.errors)
        for problem in loaded.warnings:
            click.echo(f"{problem}", err=True)
        raise SpecError(f"{count} {'error' if count == 1 else 'errors'} in the documents:\n{listed}")
    if loaded.spec is None:
        raise SpecError(f"{', '.join(files)}: no Platform document; add one (see `tidemill schema Platform`)")
    return within_ceilings(loaded.spec), loaded.scenario, loaded.warnings


def within_ceilings(spec: Spec) -> Spec:
    """Documents can only lower what the environment of this process allows."""
    platform = lowered(spec.platform, read_ceilings(os.environ))
    return spec if platform is spec.platform else replace(spec, platform=platform)


def documents_in(paths: Sequence[str]) -> list[str]:
    """Each file as it is; for a folder, the YAML files in it, sorted by name."""
    files: list[str] = []
    for name in paths:
        path = Path(name)
        if not path.is_dir():
            files.append(name)
            continue
        try:
            inside = sorted(str(file) for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
        except OSError as error:
            raise SpecError(f"{name}: the folder cannot be read: {error.strerror}") from None
        if not inside:
            raise SpecError(f"{name}: this folder has no .yaml file; name a folder or a file with documents")
        files += inside
    return files


def demo_path() -> Path:
    """The scenario that ships with Tidemill."""
    return Path(__file__).with_name("demo.yaml")


def _path(name: str) -> Path:
    return demo_path() if name == DEMO and not Path(name).exists() else Path(name)
