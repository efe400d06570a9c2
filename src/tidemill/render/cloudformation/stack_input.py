"""What a stack is rendered for: one source of a pool, with what is known of its block; and placeholders.

`@{Name}@` in any text is a placeholder for a parameter or resource of the stack and is filled in last. So the functions
that make launch templates and user data need to know nothing of CloudFormation.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.errors import SpecError
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, matching_types
from tidemill.spec.units import format_instant


@dataclass(frozen=True, slots=True)
class StackInput:
    kind: SourceKind
    instance_type: str
    zone: str
    reservation: str = ""  # cr-…; what is not known of the block becomes a parameter
    start: datetime | None = None
    end: datetime | None = None
    count: int | None = None
    engine: bool = True  # False: none will run, so nodes get no taint that only an engine removes

    @property
    def reserved(self) -> bool:
        return self.kind in (SourceKind.BLOCK, SourceKind.ODCR)


def resolve_stack_input(
    spec: Spec,
    pool: ComputePool,
    *,
    instance_type: str = "",
    zone: str = "",
    reservation: str = "",
    start: datetime | None = None,
    end: datetime | None = None,
    count: int | None = None,
    engine: bool = True,
) -> StackInput:
    """The input with what the documents imply. Raises SpecError where they leave a choice that is not made."""
    if start is not None and end is not None and end <= start:
        raise SpecError(f"--end {format_instant(end)} is not after --start {format_instant(start)}")
    return StackInput(
        kind=SourceKind(pool.spec.sources[0].type),
        instance_type=_one_of(
            "--type", instance_type, [k.name for k in matching_types(spec.catalog, pool.spec.requirements)]
        ),
        zone=_one_of("--zone", zone, sorted(zone for zone, ids in spec.platform.spec.subnets.items() if ids)),
        reservation=reservation,
        start=start,
        end=end,
        count=count,
        engine=engine,
    )


def _one_of(option: str, given: str, allowed: list[str]) -> str:
    if given:
        if given not in allowed:
            raise SpecError(f"{option} {given}: the documents allow {', '.join(allowed) or 'none'}")
        return given
    if len(allowed) != 1:
        shown = ", ".join(allowed[:6]) + (", …" if len(allowed) > 6 else "")
        raise SpecError(f"choose one with {option}: the documents allow {shown or 'none'}")
    return allowed[0]


_PLACEHOLDER = re.compile(r"@\{(\w+)\}@")


def placeholder(name: str) -> str:
    return f"@{{{name}}}@"


def fill_placeholders(value: Any, parameters: Container[str]) -> Any:
    """A placeholder alone becomes Ref (a parameter) or GetAtt of GroupId or Arn (a resource); inside a text, Sub."""
    if isinstance(value, dict):
        return {key: fill_placeholders(item, parameters) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill_placeholders(item, parameters) for item in value]
    if not isinstance(value, str) or not _PLACEHOLDER.search(value):
        return value
    alone = _PLACEHOLDER.fullmatch(value)
    if alone is None:
        return sub(value)
    name = alone.group(1)
    if name in parameters:
        return {"Ref": name}
    return {"Fn::GetAtt": [name, "GroupId" if name.endswith("SecurityGroup") else "Arn"]}


def sub(text: str) -> dict[str, str] | str:
    """Fn::Sub of a text with placeholders. Shell variables in it stay as they are."""
    if not _PLACEHOLDER.search(text):
        return text
    return {"Fn::Sub": _PLACEHOLDER.sub(r"${\1}", text.replace("${", "${!"))}
