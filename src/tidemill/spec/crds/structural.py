"""A model as the structural schema of a CustomResourceDefinition.

An API server takes less than JSON Schema has: no references, one type for each value, OpenAPI 3.0's bounds. Unknown
keys are not refused by the schema but by strict field validation, which kubectl asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from tidemill.spec.crds.cel import RULES, Rule
from tidemill.spec.schema import published_schema

Json = dict[str, Any]

# What an API server understands of a value beside its type. The rest (`title`, `$defs`) is left out.
_KEPT = (
    "description", "enum", "format", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum",
    "pattern", "required", "type",
)  # fmt: skip
# A default that the API server writes into the object looks as if a person had written it, and these fields may only
# be written where they have an effect.
_WITHOUT_DEFAULT = frozenset({("CapacityPlanSpec", "proposeBefore")})
# Bounds for lists and texts without one of their own: the cost of a CEL rule is estimated from the largest object.
_MOST_ITEMS, _MOST_KEYS, _LONGEST_TEXT = 256, 256, 16384


def structural(model: type[BaseModel]) -> Json:
    schema = published_schema(model)
    return _Structure(schema.get("$defs", {})).of(schema, model.__name__)


class _Structure:
    def __init__(self, definitions: Mapping[str, Json]) -> None:
        self._definitions = definitions

    def of(self, schema: Json, name: str = "") -> Json:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._beside(self.of(self._definitions[name], name), schema)
        if "anyOf" in schema:
            return self._one_of(schema)
        value = {key: schema[key] for key in _KEPT if key in schema}
        if "const" in schema:
            value["enum"] = [schema["const"]]
        for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if strict in schema:
                value |= {bound: schema[strict], strict: True}
        kind = schema.get("type")
        if kind == "array":
            value["maxItems"] = schema.get("maxItems", _MOST_ITEMS)
            value["items"] = self.of(schema["items"])
        elif kind == "object":
            value |= self._members(schema, name)
        elif kind == "string" and "enum" not in value and "format" not in value:
            value["maxLength"] = schema.get("maxLength", _LONGEST_TEXT)
        return self._beside(value, schema)

    def _members(self, schema: Json, name: str) -> Json:
        if "properties" not in schema:
            return {
                "additionalProperties": self.of(schema["additionalProperties"]),
                "maxProperties": _MOST_KEYS,
            }
        members = {key: self.of(value) for key, value in schema["properties"].items()}
        for key in members:
            if (name, key) in _WITHOUT_DEFAULT:
                members[key].pop("default", None)
        rules = RULES.get(name, ())
        return {"properties": members} | (
            {"x-kubernetes-validations": [_rule(r) for r in rules]} if rules else {}
        )

    def _one_of(self, schema: Json) -> Json:
        """A field that may be null, an integer or a text, or something that has no one type."""
        if schema.get("x-kubernetes-int-or-string"):
            bounds: Json = {key: schema[key] for key in ("minimum", "pattern") if key in schema}
            if "exclusiveMinimum" in schema:
                bounds |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
            return self._beside({"x-kubernetes-int-or-string": True, **bounds}, schema)
        given = [each for each in schema["anyOf"] if each.get("type") != "null"]
        value = self.of(given[0]) if len(given) == 1 else {"x-kubernetes-preserve-unknown-fields": True}
        if (
            schema.get("default") is not None
        ):  # else an API server drops the null, and nothing given is what it means
            value["nullable"] = True
        return self._beside(value, schema)

    @staticmethod
    def _beside(value: Json, schema: Json) -> Json:
        """What is written beside a reference or a choice is about the field and goes before what its type says."""
        if "description" in schema:
            value["description"] = " ".join(schema["description"].split())
        default = schema.get("default")
        if isinstance(default, dict) and "properties" in value:
            value["default"] = {}  # the API server then adds the defaults of its fields
        elif not _is_nothing(default):
            value["default"] = (
                [_without_nothing(each) for each in default] if isinstance(default, list) else default
            )
        return value


def _is_nothing(default: Any) -> bool:
    return default is None or default in ([], {}, "")


def _without_nothing(item: Any) -> Any:
    return (
        {key: value for key, value in item.items() if not _is_nothing(value)}
        if isinstance(item, dict)
        else item
    )


def _rule(rule: Rule) -> Json:
    return {"rule": rule.expression, "message": rule.message}
