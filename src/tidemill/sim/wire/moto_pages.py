"""Pages of the EC2 lists that moto answers: it gives them whole, whatever MaxResults says.

The rest of a list is kept as it was written at the first page, under a token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from tidemill.sim.wire.errors import AwsError

_NAMESPACE = re.compile(rb' xmlns="[^"]*"')
_PAGES_KEPT = 100
_LEAST, _MOST = 5, 1000


class MotoPages:
    def __init__(self) -> None:
        self._rest: dict[str, ET.Element] = {}
        self._made = 0

    def begun(self, params: Mapping[str, Any]) -> bytes | None:
        """The next page of a list whose first was given; None: no page was asked for by a token."""
        token = params.get("NextToken")
        if not token:
            return None
        rest = self._rest.get(str(token))
        if rest is None:
            raise AwsError("InvalidNextToken", "The specified token is not one of ours, or is too old")
        return self._cut(_copy(rest), _size(params) or _MOST)

    def first(self, params: Mapping[str, Any], body: bytes) -> bytes:
        """Of moto's answer the first page; the answer itself where no size was asked for."""
        size = _size(params)
        if size is None:
            return body
        return self._cut(ET.fromstring(_NAMESPACE.sub(b"", body, count=1)), size)

    def _cut(self, answer: ET.Element, size: int) -> bytes:
        listed = next((inner for inner in answer if inner.find("item") is not None), None)
        for old in answer.findall("nextToken"):
            answer.remove(old)
        if listed is not None and len(listed) > size:
            rest = _copy(answer)
            _list_of(rest, listed.tag)[:size] = []
            listed[size:] = []
            ET.SubElement(answer, "nextToken").text = self._keep(rest)
        written: bytes = ET.tostring(answer, encoding="utf-8", xml_declaration=True)
        return written

    def _keep(self, rest: ET.Element) -> str:
        self._made += 1
        token = f"moto-page-{self._made:012x}"
        self._rest[token] = rest
        while len(self._rest) > _PAGES_KEPT:
            self._rest.pop(next(iter(self._rest)))
        return token


def _size(params: Mapping[str, Any]) -> int | None:
    size = params.get("MaxResults")
    if size is not None and not _LEAST <= int(size) <= _MOST:
        said = f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between {_LEAST} and {_MOST}."
        raise AwsError("InvalidParameterValue", said)
    return None if size is None else int(size)


def _copy(answer: ET.Element) -> ET.Element:
    return ET.fromstring(ET.tostring(answer))


def _list_of(answer: ET.Element, tag: str) -> ET.Element:
    found = answer.find(tag)
    assert found is not None, tag
    return found
