"""EC2's answers as XML, by botocore's model of the call.

moto can write them too, ten times as slowly: a list of a thousand instances would take seconds, and an engine that
looks every few seconds would spend its time waiting for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


def written(operation: Any, result: Mapping[str, Any], request_id: str) -> str:
    """Every name in the result must be one of the model's; what is None is left out."""
    out = [_HEAD, f'<{operation.name}Response xmlns="{_NAMESPACE}"><requestId>{request_id}</requestId>']
    if operation.output_shape is not None:
        _structure(operation.output_shape, result, out)
    out.append(f"</{operation.name}Response>")
    return "".join(out)


def _structure(shape: Any, value: Mapping[str, Any], out: list[str]) -> None:
    members = _members(shape)
    for name, inner in value.items():
        if inner is not None:
            tag, member = members[name]
            _element(tag, member, inner, out)


def _element(tag: str, shape: Any, value: Any, out: list[str]) -> None:
    kind = shape.type_name
    if kind == "list" and shape.serialization.get("flattened"):
        for one in value:
            _element(tag, shape.member, one, out)
        return
    if kind == "structure":
        out.append(f"<{tag}>")
        _structure(shape, value, out)
        out.append(f"</{tag}>")
    elif kind == "list":
        item = shape.member.serialization.get("name", "item")
        out.append(f"<{tag}>")
        for one in value:
            _element(item, shape.member, one, out)
        out.append(f"</{tag}>")
    else:
        out.append(f"<{tag}>{_scalar(value)}</{tag}>")


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.000Z"
    return escape(value if isinstance(value, str) else str(value))


@cache
def _members(shape: Any) -> dict[str, tuple[str, Any]]:
    """Name in the model -> name on the wire, and what it is. Shapes live as long as the process."""
    return {name: (member.serialization.get("name", name), member) for name, member in shape.members.items()}
