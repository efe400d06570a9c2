"""Tags as EC2 reads and writes them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from tidemill.model.labels import Pairs
from tidemill.sim.wire.errors import AwsError

_MOST = 50
_LONGEST_KEY, _LONGEST_VALUE = 128, 256


def as_tags(tags: Pairs) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags]


def from_tags(given: Iterable[Mapping[str, Any]]) -> Pairs:
    """AwsError: what EC2 does not take as a tag."""
    tags: dict[str, str] = {}
    for tag in given:
        if not tag.get("Key"):
            raise AwsError("MissingParameter", "The request must contain the parameter Tag.Key")
        tags[str(tag["Key"])] = str(tag.get("Value") or "")
    for key, value in tags.items():
        if key.startswith("aws:"):
            raise AwsError("InvalidParameterValue", f"Tag keys starting with 'aws:' are reserved: {key}")
        if len(key) > _LONGEST_KEY or len(value) > _LONGEST_VALUE:
            raise AwsError(
                "InvalidParameterValue", f"a tag's key has at most 128 characters, its value 256: {key}"
            )
    if len(tags) > _MOST:
        raise AwsError("TagLimitExceeded", f"The maximum number of tags for a resource is {_MOST}")
    return tuple(sorted(tags.items()))


def specified(given: Iterable[Mapping[str, Any]], kinds: Container[Any], for_: Container[Any]) -> Pairs:
    """Of TagSpecifications, those for some kinds of resource; `kinds` are those that may be named at all."""
    tags: list[Mapping[str, Any]] = []
    for specification in given:
        kind = specification.get("ResourceType")
        if kind not in kinds:
            raise AwsError(
                "InvalidParameterValue", f"'{kind}' is not a valid taggable resource type for this operation."
            )
        if kind in for_:
            tags += specification.get("Tags") or ()
    return from_tags(tags)
