"""What a model refused, said in plain words at the place where it stands.

Translates pydantic's findings; adds no rule of its own. Nobody should have to know pydantic to read these.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tidemill.spec.document import Parsed, Path, place
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


def explain(error: ValidationError, model: type[BaseModel], parsed: Parsed, root: str) -> Iterator[Problem]:
    """One problem for each thing that is wrong; what the YAML walk already complained about is left out."""
    told = parsed.told | {Position(problem.line, problem.column) for problem in parsed.problems}
    unions: dict[Path, list[Any]] = defaultdict(list)
    findings = error.errors(include_url=False)
    inner = {tuple(finding["loc"][:-1]) for finding in findings}
    for finding in findings:
        path: Path = tuple(finding["loc"])
        if finding["type"] == "too_short" and any(each[: len(path)] == path for each in inner):
            continue  # pydantic counts the items it accepted; the ones it refused are told themselves
        if finding["type"] == "missing":
            yield from _missing(path, parsed, root)
        elif finding["type"] == "extra_forbidden":
            yield _unknown_key(path, model, parsed, root)
        elif parsed.at(path) not in told:
            unions[parsed.known(path)].append(finding)
    for path, branches in unions.items():
        line, column = parsed.at(path)
        message = _sentence(branches, path, parsed.spelled.get(path, ""))
        yield Problem(parsed.file, line, column, message, "value")


def _missing(path: Path, parsed: Parsed, root: str) -> Iterator[Problem]:
    if path[:-1] not in parsed.values:
        return  # a branch of a union that was not written at all
    line, column = parsed.at_key(path[:-1])
    message = f"missing key {quoted(path[-1])} in {place(root, path[:-1])}"
    yield Problem(parsed.file, line, column, message, "missing-key")


def _unknown_key(path: Path, model: type[BaseModel], parsed: Parsed, root: str) -> Problem:
    owner = model_at(model, path[:-1])
    valid = [field.alias or name for name, field in owner.model_fields.items()] if owner else []
    hint = suggestion(str(path[-1]), valid)
    line, column = parsed.at_key(path)
    message = f"unknown key {quoted(path[-1])} in {place(root, path[:-1])}; {hint}"
    return Problem(parsed.file, line, column, message, "unknown-key")


def _sentence(findings: list[Any], path: Path, spelled: str) -> str:
    """Several findings for one value are the branches of a union: any of them would have done."""
    name = place("", path[1:] if path[:1] == ("spec",) and len(path) > 1 else path)
    phrases = list(dict.fromkeys(_phrase(finding, spelled) for finding in findings))
    wishes = [phrase.removeprefix("must be ") for phrase in phrases if phrase.startswith("must be ")]
    if len(wishes) == len(phrases):
        return f"{name} must be {', or '.join(wishes)}"
    other = next(phrase for phrase in phrases if not phrase.startswith("must be "))
    return (
        f"{name} {other}"
        if other.startswith(("must ", "cannot ", "is ", "has ", "needs "))
        else f"{name}: {other}"
    )


def _phrase(finding: Any, spelled: str) -> str:
    kind, limits = finding["type"], finding.get("ctx", {})
    if finding["input"] is None:
        return "is empty; give it a value or leave the key out"
    if kind in ("value_error", "greater_than_equal") and _NEGATIVE.match(spelled) and not limits.get("ge"):
        return "must not be negative"
    if kind == "value_error":
        return str(limits["error"])
    if kind in ("literal_error", "enum"):
        return _choice(finding["input"], limits["expected"])
    if kind == "string_pattern_mismatch":
        return f"{quoted(finding['input'])} {_PATTERNS.get(limits['pattern'], _NOT_A_NAME)}"
    if kind == "string_type":
        return f"must be text: put it in quotes, '{spelled}'" if spelled else "must be text"
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
            return f"needs at least {limits['min_length']} of its kind, and the list is shorter"
        case "too_long":
            return f"has more than {limits['max_length']} entries"
        case "string_too_long":
            return f"is longer than {limits['max_length']} characters"
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
    """The model that reads the value at a path; none where there is a plain value."""
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
    """What a tuple or a dict holds."""
    for member in _members(annotation):
        arguments = get_args(member)
        if arguments and get_origin(member) is not Literal:
            return arguments[1] if get_origin(member) is dict else arguments[0]
    return None
