"""The documents as JSON Schema for editors and other tools, and as a Markdown reference for people.

Both are derived from the models alone, so they cannot differ from what is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from tidemill.spec import capacity_plan, faults, units
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.document import Document
from tidemill.spec.names import API_VERSION
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.read import KINDS
from tidemill.spec.scenario import Fault, Scenario

_ANY: TypeAdapter[Document] = TypeAdapter(
    Annotated[Platform | NodeClass | ComputePool | CapacityPlan | Scenario, Field(discriminator="kind")]
)
DIALECT = "https://json-schema.org/draft/2020-12/schema"


# pydantic passes a bound on as it is named in Python where a validator of ours runs before the type's own.
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


class _AsWritten(GenerateJsonSchema):
    """Bounds under JSON Schema's names, and defaults as people write them: `15m`, not `PT15M`."""

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return _named_bounds(super().generate(schema, mode))  # type: ignore[no-any-return]

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        written, inner = super().default_schema(schema), schema["schema"]
        while inner["type"] == "nullable":
            inner = inner["schema"]
        unit = cast("dict[str, Any]", inner.get("serialization", {}))
        if written.get("default") is not None and unit.get("type") == "function-plain":
            written["default"] = unit["function"](schema["default"])
        return written


def _named_bounds(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_named_bounds(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    bounded = isinstance(schema.get("type"), str) or "anyOf" in schema  # else its keys are names of fields
    return {_BOUNDS.get(key, key) if bounded else key: _named_bounds(value) for key, value in schema.items()}


def published_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True, schema_generator=_AsWritten)


def json_schema(kind: str | None = None) -> dict[str, Any]:
    """The schema of one kind, or one schema for all kinds, which `kind` discriminates."""
    if kind is not None:
        schema = published_schema(KINDS[kind])
        _require_kind(schema)
        title = kind
    else:
        schema = _ANY.json_schema(by_alias=True, schema_generator=_AsWritten)
        for name in KINDS:
            _require_kind(schema["$defs"][name])
        title = "Tidemill document"
    return {
        "$schema": DIALECT,
        "$id": f"https://{API_VERSION}/{kind or 'documents'}.json",
        **schema,
        "title": title,
    }


def _require_kind(schema: dict[str, Any]) -> None:
    """Python callers may leave `kind` out, because the models have a default; a YAML document must have it."""
    schema["required"] = ["kind", *schema.get("required", [])]


_UNITS: dict[Any, str] = {
    units.parse_duration: "duration",
    units.parse_length: "duration, more than 0s",
    units.parse_cpu: "CPU quantity",
    units.parse_memory: "memory quantity",
    units.parse_instant: "instant",
    capacity_plan.parse_time_of_day: "time of day",
    units.parse_positive_int: "integer",
}
_PLAIN: dict[Any, str] = {str: "text", bool: "true or false", int: "integer", float: "number"}

_HEAD = f"""# Documents

<!-- Generated from the models by `tidemill schema --markdown`; edit those. -->

Every document has `apiVersion: {API_VERSION}` (may be left out), `kind`, `metadata` with a `name`,
and `spec`. A file may hold several, separated by `---`. Unknown keys are errors.

| written | means |
|---|---|
| duration | `30s`, `5m`, `36h`, `14d`, `1h30m` |
| instant | `2026-11-16T11:30:00Z`; the zone is required |
| time of day | `'08:00'`, in quotes; UTC; `'24:00'` ends the day |
| CPU quantity | `180`, `0.5`, `250m` |
| memory quantity | `1700Gi`, `512Mi`, or bytes |
"""


def markdown() -> str:
    parts = [_HEAD]
    described: set[type[BaseModel]] = set()
    for kind, document in KINDS.items():
        parts.append(f"## {kind}\n")
        queue = list(_models_in(document.model_fields["spec"].annotation))
        while queue:
            model = queue.pop(0)
            if model not in described:
                described.add(model)
                parts.append(_section(model))
                if model is Fault:
                    parts.append(faults.table(faults.FaultKind) + "\n")
                queue += [n for field in model.model_fields.values() for n in _models_in(field.annotation)]
    return "\n".join(parts)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _section(model: type[BaseModel]) -> str:
    lines = [f"### {model.__name__}", ""]
    if model.__doc__ and model.__doc__ != BaseModel.__doc__:
        lines += [" ".join(model.__doc__.split()), ""]
    lines += ["| field | type | default | meaning |", "|---|---|---|---|"]
    lines += [_row(field.alias or name, field) for name, field in model.model_fields.items()]
    return "\n".join(lines) + "\n"


def _row(name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split())
    cells = (f"`{name}`", _type(field.annotation, field.metadata) + _bounds(field), _default(field), meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """In words for readers. A unit is recognised by the function that parses it."""
    for mark in metadata:
        if isinstance(mark, BeforeValidator) and mark.func in _UNITS:
            return _UNITS[mark.func]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return " or ".join(_type(each) for each in arguments if each is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin is tuple:
        several = "list of " if arguments[-1] is Ellipsis else f"{len(arguments)} of "
        return several + _type(arguments[0])
    if origin is dict:
        return f"map of text to {_type(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return ", ".join(f"`{each.value}`" for each in annotation)
    name = annotation.__name__
    return f"[{name}](#{name.lower()})" if issubclass(annotation, BaseModel) else _PLAIN[annotation]


def _bounds(field: FieldInfo) -> str:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "min_length": "at least"}
    bounds = [
        f"{word} {value}"
        for mark in field.metadata
        for name, word in words.items()
        if (value := getattr(mark, name, None)) is not None
    ]
    return f", {', '.join(bounds)}" if bounds else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default()
    if default is None or default == () or default == {} or default == "":
        return ""
    for mark in field.metadata:
        if isinstance(mark, PlainSerializer):  # a unit, printed as people write it
            return f"`{mark.func(default)}`"  # type: ignore[call-arg]
    if isinstance(default, timedelta):  # of a field that may also be null
        return f"`{units.format_duration(default)}`"
    if isinstance(default, BaseModel):
        return ""  # its own defaults are in its own table
    if isinstance(default, tuple):
        shown = [
            each.model_dump(exclude_defaults=True) if isinstance(each, BaseModel) else each
            for each in default
        ]
        return f"`{json.dumps(shown)}`"
    return f"`{json.dumps(default)}`" if not isinstance(default, str) else f"`{default}`"
