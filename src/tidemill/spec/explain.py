"""Pydantic's validation errors as problems in plain English, each at its position.

Adds no rule of its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tidemill.spec.located_yaml import ParsedYaml, Path, path_text
from tidemill.spec.problem import Position, Problem, quoted, suggestion

_PATTERNS = {
    r"^\d{12}$": "is not an account id: 12 digits, in quotes",
    r"^ami-[0-9a-f]+$": "is not an AMI id such as 'ami-0abc1234'",
    r"^lt-[0-9a-f]+$": "is not a launch template id such as 'lt-0abc1234'",
}
_NOT_A_NAME = (
    "is not a name: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
)
_QUOTED_CHOICE = re.compile(r"'([^']*)'")
_NEGATIVE = re.compile(r"-[\d.]")


def explain(
    error: ValidationError, model: type[BaseModel], parsed: ParsedYaml, root: str
) -> Iterator[Problem]:
    """One problem for each error; positions that already have a YAML problem are left out."""
    reported = parsed.reported | {Position(problem.line, problem.column) for problem in parsed.problems}
    unions: dict[Path, list[Any]] = defaultdict(list)
    findings = error.errors(include_url=False)
    parents = {tuple(finding["loc"][:-1]) for finding in findings}
    for finding in findings:
        path: Path = tuple(finding["loc"])
        if finding["type"] == "too_short" and any(parent[: len(path)] == path for parent in parents):
            continue  # pydantic counts only the items it accepted; the refused ones have their own error
        if finding["type"] == "missing":
            yield from _missing(path, parsed, root)
        elif finding["type"] == "extra_forbidden":
            yield _unknown_key(path, model, parsed, root)
        elif parsed.at(path) not in reported:
            unions[parsed.known(path)].append(finding)
    for path, branches in unions.items():
        line, column = parsed.at(path)
        message = _sentence(branches, path, parsed.source_text.get(path, ""))
        yield Problem(parsed.file, line, column, message, "value")


def _missing(path: Path, parsed: ParsedYaml, root: str) -> Iterator[Problem]:
    if path[:-1] not in parsed.values:
        return  # a branch of a union that is not in the document
    line, column = parsed.at_key(path[:-1])
    message = f"missing key {quoted(path[-1])} in {path_text(root, path[:-1])}"
    yield Problem(parsed.file, line, column, message, "missing-key")


def _unknown_key(path: Path, model: type[BaseModel], parsed: ParsedYaml, root: str) -> Problem:
    owner = model_at(model, path[:-1])
    valid = [field.alias or name for name, field in owner.model_fields.items()] if owner else []
    hint = suggestion(str(path[-1]), valid)
    line, column = parsed.at_key(path)
    message = f"unknown key {quoted(path[-1])} in {path_text(root, path[:-1])}; {hint}"
    return Problem(parsed.file, line, column, message, "unknown-key")


def _sentence(findings: list[Any], path: Path, source_text: str) -> str:
    """Several errors for one value are the branches of a union: any of them would be accepted."""
    name = path_text("", path[1:] if path[:1] == ("spec",) and len(path) > 1 else path)
    phrases = list(dict.fromkeys(_phrase(finding, source_text) for finding in findings))
    expected_values = [phrase.removeprefix("must be ") for phrase in phrases if phrase.startswith("must be ")]
    if len(expected_values) == len(phrases):
        return f"{name} must be {', or '.join(expected_values)}"
    other = next(phrase for phrase in phrases if not phrase.startswith("must be "))
    return (
        f"{name} {other}"
        if other.startswith(("must ", "cannot ", "is ", "has ", "needs "))
        else f"{name}: {other}"
    )


def _phrase(finding: Any, source_text: str) -> str:
    kind, limits = finding["type"], finding.get("ctx", {})
    if finding["input"] is None:
        return "is empty; give it a value or leave the key out"
    if (
        kind in ("value_error", "greater_than_equal")
        and _NEGATIVE.match(source_text)
        and not limits.get("ge")
    ):
        return "must not be negative"
    if kind == "value_error":
        return str(limits["error"])
    if kind in ("literal_error", "enum"):
        return _choice(finding["input"], limits["expected"])
    if kind == "string_pattern_mismatch":
        return f"{quoted(finding['input'])} {_PATTERNS.get(limits['pattern'], _NOT_A_NAME)}"
    if kind == "string_type":
        return f"must be text: put it in quotes, '{source_text}'" if source_text else "must be text"
    return _limit(kind, limits) or _type(kind) or str(finding["msg"]).replace("Input should be", "must be")


def _choice(given: Any, expected: str) -> str:
    choices = _QUOTED_CHOICE.findall(expected)
    if len(choices) == 1:
        return f"must be {quoted(choices[0])}, not {quoted(given)}"
    return f"cannot be {quoted(given)}; {suggestion(str(given), choices)}"


def _limit(kind: str, limits: dict[str, Any]) -> str:
    match kind:
        case "greater_than_equal":
            return f"must be at least {limits['ge']}"
        case "greater_than":
            return f"must be greater than {limits['gt']}"
        case "less_than_equal":
            return f"must be at most {limits['le']}"
        case "too_short":
            return (
                f"must have at least {limits['min_length']} entries"
                if limits["min_length"] != 1
                else "must not be empty"
            )
        case "too_long":
            return f"must have at most {limits['max_length']} entries"
        case "string_too_long":
            return f"must have at most {limits['max_length']} characters"
    return ""


def _type(kind: str) -> str:
    match kind:
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return "must be a whole number"
        case "float_type" | "float_parsing" | "finite_number":
            return "must be a number"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
        case "tuple_type":
            return "must be a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "must be a mapping of keys to values"
    return ""


def model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model for the value at a path; None for a plain value."""
    here: Any = model
    for part in path:
        owner = _model_in(here)
        if owner is not None:
            fields = {field.alias or name: field for name, field in owner.model_fields.items()}
            here = fields[part].annotation if isinstance(part, str) and part in fields else None
        else:
            here = _element(here)
    return _model_in(here)


def _members(annotation: Any) -> tuple[Any, ...]:
    """The branches of a union, or the annotation itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for member in _members(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return member
    return None


def _element(annotation: Any) -> Any:
    """The type of the elements of a tuple or the values of a dict."""
    for member in _members(annotation):
        arguments = get_args(member)
        if arguments and get_origin(member) is not Literal:
            return arguments[1] if get_origin(member) is dict else arguments[0]
    return None
