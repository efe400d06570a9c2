"""Mutants of the code: one condition, guard, comparison or bound changed in one function of `decide` or `engine`.

A mutant is put into the functions of this process by their code objects, so that it costs no import. What runs when a
module is imported (constants, classes, decorators) is not changed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import tidemill

ROOT = Path(tidemill.__file__).parent
# The packer and the planner search for a good answer: their own checkers judge how good it is.
WHERE = ("decide", "engine")
NOT_HERE = ("decide/packer/", "decide/purchasing/planner/")
_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True, order=True)
class CodeMutant:
    path: str  # below src/tidemill
    line: int
    what: str  # how it was changed, for people
    index: int  # the number of the change in its file

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


@dataclass(frozen=True)
class _Change:
    line: int
    what: str
    make: Callable[[], None]


def all_mutants(*, everywhere: bool = False) -> list[CodeMutant]:
    found = []
    for path in sorted(path for folder in WHERE for path in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if everywhere or not name.startswith(NOT_HERE):
            changes = _changes(_functions(ast.parse(_source(path))))
            found += [CodeMutant(name, one.line, one.what, index) for index, one in enumerate(changes)]
    return found


@lru_cache(maxsize=1024)
def _source(path: Path) -> str:
    """As it was when the campaign began, and its modules were imported."""
    return path.read_text()


def _functions(tree: ast.Module) -> list[ast.stmt]:
    """Functions and methods; what is inside of them is theirs."""
    found: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found += [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
        elif isinstance(node, ast.FunctionDef):
            found.append(node)
    return found


def _changes(functions: list[ast.stmt]) -> list[_Change]:
    return [change for function in functions for node in ast.walk(function) for change in _of_node(node)]


def _of_node(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield _negated(node)
    if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], (ast.Continue, ast.Return)):
        yield _replaced(node, "test", ast.Constant(value=False), "guard dropped: ")
    if isinstance(node, ast.comprehension):
        for index, test in enumerate(node.ifs):
            yield _element(node.ifs, index, ast.Constant(value=True), f"filter dropped: {ast.unparse(test)}")
    if isinstance(node, ast.BoolOp):
        neutral = ast.Constant(value=isinstance(node.op, ast.And))
        for index, part in enumerate(node.values):
            yield _element(node.values, index, neutral, f"part dropped: {ast.unparse(part)}")
    if isinstance(node, ast.Compare):
        yield from _of_comparison(node)


def _of_comparison(node: ast.Compare) -> Iterator[_Change]:
    text = ast.unparse(node)
    for index, operator in enumerate(node.ops):
        other = _SWAPPED[type(operator)]()
        yield _element(
            node.ops, index, other, f"{type(operator).__name__} is {type(other).__name__}: {text}", node
        )
    for index, side in enumerate(node.comparators):
        if isinstance(side, ast.Constant) and isinstance(side.value, int | float):
            more = ast.Constant(value=side.value + 1)
            yield _element(node.comparators, index, more, f"bound + 1: {text}")


def _negated(node: ast.If | ast.IfExp | ast.While) -> _Change:
    return _replaced(node, "test", ast.UnaryOp(op=ast.Not(), operand=node.test), "negated: ")


def _replaced(node: Any, name: str, by: ast.expr, what: str) -> _Change:
    said = ast.unparse(getattr(node, name))
    return _Change(
        node.test.lineno, f"{what}{said}", lambda: setattr(node, name, ast.copy_location(by, node.test))
    )


def _element(items: list[Any], index: int, by: Any, what: str, where: ast.AST | None = None) -> _Change:
    old = items[index]

    def make() -> None:
        items[index] = ast.copy_location(by, old) if isinstance(by, ast.expr) else by

    return _Change(getattr(where or old, "lineno"), what, make)  # noqa: B009


# --- putting one in -------------------------------------------------------------------------------------


def put_in(mutant: CodeMutant) -> None:
    """Into the functions of this process, for good."""
    path = ROOT / mutant.path
    tree = ast.parse(_source(path))
    change = _changes(_functions(tree))[mutant.index]
    assert (change.line, change.what) == (mutant.line, mutant.what)
    change.make()
    new = _codes(compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True))
    name = "tidemill." + mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    module = importlib.import_module(name)
    for function in _live_functions(module):
        key = (function.__code__.co_qualname, function.__code__.co_firstlineno)
        if key in new and function.__code__ != new[key]:
            function.__code__ = new[key]


def _codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    found: dict[tuple[str, int], CodeType] = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found[inner.co_qualname, inner.co_firstlineno] = inner
            if inner.co_name and not inner.co_flags & inspect.CO_OPTIMIZED:  # the body of a class
                found |= _codes(inner)
    return found


def _live_functions(module: Any) -> Iterator[FunctionType]:
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from filter(None, map(_function_of, vars(value).values()))
        elif (function := _function_of(value)) is not None and function.__module__ == module.__name__:
            yield function


def _function_of(value: Any) -> FunctionType | None:
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    value = getattr(value, "func", value) if not isinstance(value, FunctionType) else value  # cached_property
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


# --- which lines a scenario reaches ----------------------------------------------------------------------


def lines_reached(run: Callable[[], object]) -> set[tuple[str, int]]:
    reached: set[tuple[str, int]] = set()

    def lines(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            reached.add((_named(frame.f_code.co_filename), frame.f_lineno))
        return lines

    def calls(frame: FrameType, event: str, arg: object) -> Any:
        return lines if _named(frame.f_code.co_filename) else None

    sys.settrace(calls)
    try:
        run()
    finally:
        sys.settrace(None)
    return reached


@lru_cache(maxsize=4096)
def _named(filename: str) -> str:
    """Below src/tidemill, where mutants are made; empty: elsewhere."""
    path = Path(filename)
    if not path.is_relative_to(ROOT):
        return ""
    name = path.relative_to(ROOT).as_posix()
    return name if name.startswith(WHERE) else ""
