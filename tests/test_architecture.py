"""The walls hold, and would not hold by accident: a core that reaches for the clock is caught."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tidemill"
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = [
    path
    for folder in ("model", "spec", "catalog", "decide")
    for path in sorted((PACKAGE / folder).rglob("*.py"))
]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("decide/__init__.py", "import time", "The core knows no SDK"),
        ("catalog/__init__.py", "import random", "The core knows no SDK"),
        ("decide/__init__.py", "import tidemill.ports", "The flow has one direction"),
        ("engine/loop.py", "import tidemill.sim", "The flow has one direction"),
        ("sim/__init__.py", "import tidemill.cli", "The flow has one direction"),
        ("sim/__init__.py", "import boto3", "Virtual time is the only time"),
    ],
)
def test_a_hole_in_a_wall_is_found(tmp_path, module, statement, contract):
    copy = tmp_path / "tidemill"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / module).open("a") as file:
        file.write(f"\n{statement}\n")
    found = lint_imports(tmp_path)
    assert found.returncode != 0
    broken = [line for line in found.stdout.splitlines() if " BROKEN" in line]
    assert [line for line in broken if line.startswith(contract)], found.stdout


def test_the_walls_hold():
    found = lint_imports(ROOT / "src")
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_never_asks_what_time_it_is(path):
    asked = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"now", "utcnow", "today"}
        # `world.now` is a fact; `datetime.now` is a question
        and isinstance(node.value, ast.Name)
        and node.value.id in {"datetime", "date"}
    ]
    assert not asked


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_no_module_is_a_drawer_for_odds_and_ends():
    drawers = {"utils", "util", "helpers", "common", "manager", "base", "misc"}
    assert not [name(path) for path in MODULES if drawers & {*path.parts, path.stem}]


def test_no_file_or_function_outgrows_its_reader():
    # Most files are under 250 lines and most functions under 30: this is where a reason no longer helps.
    long_files = [name(path) for path in MODULES if len(path.read_text().splitlines()) > 500]
    long_functions = [
        f"{name(path)}:{node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, FUNCTIONS) and (node.end_lineno or node.lineno) - node.lineno >= 70
    ]
    assert not long_files
    assert not long_functions
