"""Identity providers as they are configured: a JSON array with one object a provider.

The shape is the one engines and their charts use (`key`, `name`, `issuer_url`, `client_id`, ...), so one secret serves
the engine's control plane and Tidemill's own pages. A fault names the field and never its value: the array contains
client secrets.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

# An array this long was not written by a person.
_LONGEST_ARRAY = 64


class OidcFault(StrEnum):
    NOT_JSON = "not-json"
    NOT_AN_ARRAY = "not-an-array"
    EMPTY = "empty"
    TOO_MANY = "too-many"
    FIELD = "field"  # of a provider: missing, unknown or of the wrong form
    SAME_KEY = "same-key"  # two providers would have one callback address


@dataclass(frozen=True, slots=True)
class OidcProblem:
    fault: OidcFault
    provider: int = -1  # its place in the array, from 0
    field: str = ""


class OidcProvider(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    key: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9_]*[a-z0-9])?$", max_length=63)]
    """Part of the callback address."""
    name: Annotated[str, Field(min_length=1, max_length=100)]
    """What the log-in page calls it."""
    issuer_url: Annotated[str, Field(pattern=r"^https://[^\s?#]+$", max_length=500)]
    client_id: Annotated[str, Field(min_length=1, max_length=500)]
    client_secret: SecretStr | None = None
    """Not needed by public clients, which use PKCE."""
    scopes: tuple[str, ...] = ("email", "profile")
    pkce: bool = True
    allow_sign_up: bool = False


def read_providers(text: str) -> tuple[tuple[OidcProvider, ...], tuple[OidcProblem, ...]]:
    """The providers that are right, and what is wrong with the others."""
    try:
        array = json.loads(text)
    except (ValueError, RecursionError):
        return (), (OidcProblem(OidcFault.NOT_JSON),)
    if not isinstance(array, list):
        return (), (OidcProblem(OidcFault.NOT_AN_ARRAY),)
    if not array:
        return (), (OidcProblem(OidcFault.EMPTY),)
    if len(array) > _LONGEST_ARRAY:
        return (), (OidcProblem(OidcFault.TOO_MANY),)
    found: list[OidcProvider] = []
    problems: list[OidcProblem] = []
    for place, given in enumerate(array):
        try:
            provider = OidcProvider.model_validate(given)
        except ValidationError as error:
            fields = {".".join(str(part) for part in one["loc"]) for one in error.errors(include_input=False)}
            problems += [OidcProblem(OidcFault.FIELD, place, field) for field in sorted(fields)]
            continue
        if any(other.key == provider.key for other in found):
            problems.append(OidcProblem(OidcFault.SAME_KEY, place, "key"))
        found.append(provider)
    return tuple(found), tuple(problems)
