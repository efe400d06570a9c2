"""What every document is made of: `Model` (frozen, strict about its keys, camelCase in YAML, snake_case in Python),
`Name`, and the envelope `Document` with its `Metadata`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tidemill.spec.names import API_VERSION

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)]


class Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class Metadata(Model):
    name: Name
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Document(Model):
    api_version: Literal["tidemill.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    metadata: Metadata

    @property
    def name(self) -> str:
        return self.metadata.name
