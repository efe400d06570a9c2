"""The documents as JSON Schema, for editors and for other tools, derived from the models and nothing else."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.model import Document
from tidemill.spec.names import API_VERSION
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.read import KINDS
from tidemill.spec.scenario import Scenario

_ANY: TypeAdapter[Document] = TypeAdapter(
    Annotated[Platform | NodeClass | ComputePool | CapacityPlan | Scenario, Field(discriminator="kind")]
)
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: str | None = None) -> dict[str, Any]:
    """Of one kind, or of all of them as one schema that tells them apart by `kind`."""
    if kind is not None:
        schema = KINDS[kind].model_json_schema(by_alias=True)
        _name_itself(schema)
        title = kind
    else:
        schema = _ANY.json_schema(by_alias=True)
        for each in KINDS:
            _name_itself(schema["$defs"][each])
        title = "Tidemill document"
    return {
        "$schema": DIALECT,
        "$id": f"https://{API_VERSION}/{kind or 'documents'}.json",
        **schema,
        "title": title,
    }


def _name_itself(schema: dict[str, Any]) -> None:
    """The models fill in `kind` for Python callers; a written document must say it."""
    schema["required"] = ["kind", *schema.get("required", [])]
