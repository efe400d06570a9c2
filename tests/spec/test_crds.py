"""CustomResourceDefinitions from the models. A real API server takes them and judges by them in tests/cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.spec.crds import BY_KIND, definition, definitions
from tidemill.spec.crds.cel import RULES
from tidemill.spec.read import KINDS


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = definition(BY_KIND[kind])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def parts(node: Any, at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema."""
    if not isinstance(node, dict):
        return
    yield at, node
    for name, member in node.get("properties", {}).items():
        yield from parts(member, f"{at}.{name}")
    for key in ("items", "additionalProperties"):
        yield from parts(node.get(key), f"{at}[{key}]")


@pytest.mark.parametrize("kind", BY_KIND)
def test_the_schema_is_structural(kind: str):
    for at, part in parts(schema(kind)):
        assert "$ref" not in part, at
        assert "title" not in part, at
        untyped = part.get("x-kubernetes-int-or-string") or part.get("x-kubernetes-preserve-unknown-fields")
        assert part.get("type") or untyped, at
        assert part.get("additionalProperties") is not False, at
        assert isinstance(part.get("exclusiveMinimum", True), bool), at  # OpenAPI 3.0, not JSON Schema


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Scenario"])
def test_every_document_kind_is_an_object(kind: str):
    assert definition(BY_KIND[kind])["metadata"]["name"] == f"{BY_KIND[kind].plural}.tidemill.dev"


def test_every_field_can_be_explained():
    """`kubectl explain` shows the models' own words."""
    spec = schema("ComputePool")["properties"]["spec"]["properties"]
    assert spec["warm"]["description"].startswith("Block pools: how many nodes of a block run without pods")
    assert all(field.get("description") for field in spec.values())


def test_defaults_are_written_as_people_write_them():
    spec = schema("ComputePool")["properties"]["spec"]["properties"]
    assert spec["overflowAfter"]["default"] == "15m"
    assert spec["sources"]["default"] == [{"type": "on-demand"}]
    assert spec["disruption"]["default"] == {}
    weekly = schema("CapacityPlan")["properties"]["spec"]["properties"]["calendar"]["properties"]["entries"][
        "items"
    ]
    assert weekly["properties"]["weekly"]["properties"]["to"]["default"] == "24:00"


def test_a_default_is_left_out_where_a_written_value_would_be_an_error():
    """With a calendar, `proposeBefore` may not be written; the API server would write it."""
    assert "default" not in schema("CapacityPlan")["properties"]["spec"]["properties"]["proposeBefore"]


def test_null_is_kept_only_where_it_means_something_else_than_nothing():
    nullable = {at for kind in BY_KIND for at, part in parts(schema(kind)) if part.get("nullable")}
    assert nullable == {".spec.preemptAfter"}  # null: never; not given: the default


def test_every_rule_is_in_a_definition():
    """A rule of a model that is renamed or unused would silently check nothing."""
    used = {
        rule["rule"]
        for each in definitions()
        for _, part in parts(each["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        for rule in part.get("x-kubernetes-validations", ())
    }
    for model, rules in RULES.items():
        for rule in rules:
            assert rule.expression in used, (model, rule.message)
