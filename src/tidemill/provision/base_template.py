"""An existing launch template as the ground that ours is laid on. A clash is the user's error, never a silent winner.

Both are LaunchTemplateData as EC2 spells it. User data is not here: texts are merged where they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.model.errors import SpecError

# Lists whose entries have names: entries of the same name are merged, others stand side by side.
_NAMED_BY = {"BlockDeviceMappings": "DeviceName", "TagSpecifications": "ResourceType", "Tags": "Key"}
# Two ways to say the same thing, which EC2 does not take together.
_INSTEAD_OF = {"InstanceRequirements": "InstanceType", "SecurityGroups": "SecurityGroupIds"}


def merge_templates(base: Mapping[str, Any], ours: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Everything of both. SpecError: the field both set, with both values."""
    for theirs, other in _INSTEAD_OF.items():
        if theirs in base and other in ours:
            raise SpecError(
                f"launch template {name} sets {theirs}, and Tidemill sets {other}: remove it there"
            )
    return _merged(base, ours, name, "")


def _merged(base: Mapping[str, Any], ours: Mapping[str, Any], name: str, at: str) -> dict[str, Any]:
    together = dict(base)
    for key, value in ours.items():
        place = f"{at}.{key}" if at else key
        together[key] = value if key not in base else _both(base[key], value, name, place, key)
    return together


def _both(theirs: Any, ours: Any, name: str, place: str, key: str) -> Any:
    if theirs == ours:
        return ours
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        return _merged(theirs, ours, name, place)
    if key in _NAMED_BY and isinstance(theirs, list) and isinstance(ours, list):
        return _by_name(theirs, ours, name, place, _NAMED_BY[key])
    raise SpecError(
        f"launch template {name} sets {place} to {_short(theirs)}, and Tidemill needs {_short(ours)} there:"
        " remove it from the template, or set the same in the documents"
    )


def _by_name(theirs: list[Any], ours: list[Any], name: str, place: str, key: str) -> list[Any]:
    found = {entry[key]: entry for entry in theirs}
    for entry in ours:
        known = found.get(entry[key])
        found[entry[key]] = entry if known is None else _merged(known, entry, name, f"{place}[{entry[key]}]")
    return list(found.values())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
