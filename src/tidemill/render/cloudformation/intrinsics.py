"""Holes in a template: `@{Name}@` in any text stands for a parameter or a resource of that name, and is filled in last.

So everything above can be made by functions that know nothing of CloudFormation, user data included.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

_HOLE = re.compile(r"@\{(\w+)\}@")


def hole(name: str) -> str:
    return f"@{{{name}}}@"


def filled_in(value: Any, parameters: Container[str]) -> Any:
    """A hole alone becomes Ref (a parameter) or GetAtt of its GroupId or Arn (a resource); one inside a text, Sub."""
    if isinstance(value, dict):
        return {key: filled_in(one, parameters) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [filled_in(one, parameters) for one in value]
    if not isinstance(value, str) or not _HOLE.search(value):
        return value
    alone = _HOLE.fullmatch(value)
    if alone is None:
        return sub(value)
    name = alone.group(1)
    if name in parameters:
        return {"Ref": name}
    return {"Fn::GetAtt": [name, "GroupId" if name.endswith("SecurityGroup") else "Arn"]}


def sub(text: str) -> dict[str, str] | str:
    """What a shell would call a variable stays one."""
    if not _HOLE.search(text):
        return text
    return {"Fn::Sub": _HOLE.sub(r"${\1}", text.replace("${", "${!"))}
