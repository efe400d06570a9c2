"""The walls hold, and would not hold by accident: a core that reaches for the clock is caught."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from grimp import ImportGraph
from importlinter.adapters.building import GraphBuilder
from importlinter.application import use_cases
from importlinter.application.app_config import settings
from importlinter.configuration import configure

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tidemill"
PYPROJECT = ROOT / "pyproject.toml"
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = [
    path
    for folder in ("model", "spec", "catalog", "decide")
    for path in sorted((PACKAGE / folder).rglob("*.py"))
]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


class Graph:
    """import-linter's graph of the package, built once; each check may add one import to a copy."""

    def __init__(self) -> None:
        self.added: tuple[str, str] | None = None

    def build(self, **options: Any) -> ImportGraph:
        graph = deepcopy(_built(**options | {"root_package_names": tuple(options["root_package_names"])}))
        if self.added is not None:
            importer, imported = self.added
            assert importer in graph.modules
            graph.add_import(importer=importer, imported=imported)
        return graph


@cache
def _built(**options: Any) -> ImportGraph:
    return GraphBuilder().build(**options)


@pytest.fixture
def graph() -> Iterator[Graph]:
    configure()
    graph = Graph()
    settings.configure(GRAPH_BUILDER=graph)
    yield graph
    configure()


def broken(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The names of the broken contracts, as `lint-imports` prints them."""
    kept = use_cases.lint_imports(str(PYPROJECT), cache_dir=None, no_logo=True)
    printed = " ".join(capsys.readouterr().out.split())
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    names = [contract["name"] for contract in contracts]
    assert all(f"{name} KEPT" in printed or f"{name} BROKEN" in printed for name in names), printed
    found = [name for name in names if f"{name} BROKEN" in printed]
    assert kept == (not found), printed
    return found


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
def test_a_hole_in_a_wall_is_found(graph, capsys, module, statement, contract):
    importer = ".".join(["tidemill", *Path(module).with_suffix("").parts]).removesuffix(".__init__")
    graph.added = importer, statement.removeprefix("import ")
    assert [name for name in broken(capsys) if name.startswith(contract)]


def test_the_walls_hold(graph, capsys):
    assert broken(capsys) == []


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_never_asks_what_time_it_is(path):
    asked = [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and node.attr in {"now", "utcnow", "today"}
        # `world.now` is a fact; `datetime.now` is a question
        and isinstance(node.value, ast.Name)
        and node.value.id in {"datetime", "date"}
    ]
    assert not asked


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(tree(path))


def test_no_module_is_a_drawer_for_odds_and_ends():
    drawers = {"utils", "util", "helpers", "common", "manager", "base", "misc"}
    assert not [name(path) for path in MODULES if drawers & {*path.parts, path.stem}]


def test_no_file_or_function_outgrows_its_reader():
    # Most files are under 250 lines and most functions under 30: this is where a reason no longer helps.
    long_files = [name(path) for path in MODULES if len(path.read_text().splitlines()) > 500]
    long_functions = [
        f"{name(path)}:{node.name}"
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, FUNCTIONS) and (node.end_lineno or node.lineno) - node.lineno >= 70
    ]
    assert not long_files
    assert not long_functions


def test_the_folders_that_the_quick_tier_leaves_out_exist():
    (line,) = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("NOT_QUICK := ")
    ]
    folders = line.removeprefix("NOT_QUICK := ").split()
    assert folders
    assert not [folder for folder in folders if not [*(ROOT / "tests" / folder).glob("test_*.py")]]


PAGE = ROOT / "docs" / "architecture.md"


def test_every_file_that_the_architecture_page_names_exists():
    named = re.findall(r"`([\w./]+(?:\.py|/))`", PAGE.read_text())
    assert len(named) > 50
    missing = [path for path in named if not ((PACKAGE / path).exists() or (ROOT / path).exists())]
    assert not missing


def test_every_package_has_a_row_in_the_architecture_page():
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    rows = set(re.findall(r"^\| `(\w+)/` \|", PAGE.read_text(), re.MULTILINE))
    assert packages == rows


# --- the judges of the packer ------------------------------------------------------------------------------

QUESTION = "tidemill.decide.packer.problem"  # what both the packer and its judges are asked
JUDGES = [
    ROOT / "benchmarks" / "exact_optimum.py",
    *sorted(path for path in (PACKAGE / "bench").rglob("*.py") if path.name != "packing_run.py"),
]


def imported(source: str) -> set[str]:
    """The modules that a file imports, `from package import name` as `package.name` too."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def shared_with_decide(source: str) -> set[str]:
    """What a file imports of `tidemill.decide` beside the question."""
    return {
        module
        for module in imported(source)
        if module == "tidemill.decide"
        or (
            module.startswith("tidemill.decide.")
            and module != QUESTION
            and not module.startswith(f"{QUESTION}.")
        )
    }


@pytest.mark.parametrize("path", JUDGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_judges_of_the_packer_share_nothing_with_it(path):
    assert shared_with_decide(path.read_text()) == set()


@pytest.mark.parametrize(
    "statement",
    [
        "from tidemill.decide.packer.supply import Supply",
        "from tidemill.decide import scheduler_rules",
        "import tidemill.decide.packer",
        "def late():\n    from tidemill.decide.scheduler_rules import selects",
    ],
)
def test_a_judge_that_imports_decide_is_found(statement):
    assert shared_with_decide(statement)
    assert not shared_with_decide(f"from {QUESTION} import Problem")
