"""The schema and the reference say what the models accept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from tidemill.spec.read import KINDS
from tidemill.spec.schema import json_schema, markdown

ROOT = Path(__file__).parents[2]


def test_one_schema_discriminates_all_kinds_by_kind() -> None:
    schema = json_schema()
    assert set(schema["discriminator"]["mapping"]) == set(KINDS)
    assert len(schema["oneOf"]) == len(KINDS)
    for kind in KINDS:
        assert schema["$defs"][kind]["properties"]["kind"]["const"] == kind
        assert schema["$defs"][kind]["required"] == ["kind", "metadata", "spec"]


def test_the_schema_of_one_kind_stands_alone() -> None:
    schema = json_schema("ComputePool")
    assert schema["title"] == "ComputePool"
    assert "Platform" not in schema["$defs"]


def test_the_schema_has_the_yaml_names_and_allows_no_others() -> None:
    definitions = json_schema()["$defs"]
    assert "consolidateAfter" in definitions["Disruption"]["properties"]
    objects = [each for each in definitions.values() if each.get("type") == "object"]
    assert objects
    assert not [each["title"] for each in objects if each.get("additionalProperties") is not False]


def test_the_committed_reference_is_the_generated_one() -> None:
    committed = (ROOT / "docs/reference/spec.md").read_text(encoding="utf-8")
    assert committed == markdown(), "run: tidemill schema --markdown > docs/reference/spec.md"


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def test_the_reference_names_every_field() -> None:
    rows = {line.split("`")[1] for line in markdown().splitlines() if line.startswith("| `")}
    models: list[type[BaseModel]] = [model.model_fields["spec"].annotation for model in KINDS.values()]  # type: ignore[misc]
    for model in models:  # grows below: the models of its fields, too
        fields = model.model_fields
        assert {field.alias or name for name, field in fields.items()} <= rows
        nested = (inner for field in fields.values() for inner in models_in(field.annotation))
        models += [inner for inner in nested if inner not in models]
    assert len(models) > len(KINDS)
