"""What a bare word in YAML means, and where YAML 1.1 means something its writer did not.

`no` is false, `12:30` is 750, `010` is 8: each is read, but with a complaint that says what to write instead.
A value with a complaint stays the text it was, so that nothing is built on a misreading.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tidemill.spec.problem import quoted

TAG = "tag:yaml.org,2002:"
_BOOLEANS = {"true": True, "false": False}
_YAML_1_1 = {"yes": "true", "on": "true", "no": "false", "off": "false"}


class Reading(NamedTuple):
    value: Any
    complaint: str = ""
    code: str = ""


def read_scalar(tag: str, text: str) -> Reading:
    match tag.removeprefix(TAG):
        case "str" | "timestamp" | "value" | "merge":
            return Reading(text)  # timestamps stay text: whether a zone was written must not get lost
        case "null":
            return Reading(None)
        case "bool":
            return _boolean(text)
        case "int":
            return _integer(text)
        case "float":
            return _base_60(text) if ":" in text else _number(text, float)
    return Reading(text, f"the tag {quoted(tag)} is not understood here", "tag")


def _boolean(text: str) -> Reading:
    if text.lower() in _BOOLEANS:
        return Reading(_BOOLEANS[text.lower()])
    meaning = _YAML_1_1.get(text.lower())
    if meaning is None:
        return Reading(text, f"{quoted(text)} is neither true nor false", "bare-boolean")
    complaint = f"YAML reads a bare {quoted(text)} as {meaning}; write {meaning}, or put the word in quotes"
    return Reading(text, complaint, "bare-boolean")


def _integer(text: str) -> Reading:
    digits = text.replace("_", "").lstrip("+-")
    if ":" in digits:
        return _base_60(text)
    if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        complaint = f"YAML reads {quoted(text)} as octal; drop the leading zero or put it in quotes"
        return Reading(text, complaint, "octal")
    return _number(text, lambda plain: int(plain, 0))


def _base_60(text: str) -> Reading:
    complaint = (
        f"YAML reads {quoted(text)} as a number in base 60; put it in quotes,"
        " or write a duration such as '12h30m'"
    )
    return Reading(text, complaint, "base-60")


def _number(text: str, convert: Callable[[str], float]) -> Reading:
    try:
        number = convert(text.replace("_", ""))
        if math.isfinite(number):
            return Reading(number)
    except (ValueError, OverflowError):  # .inf, .nan, !!int x, thousands of digits
        pass
    return Reading(text, f"{quoted(text)} is not a number that can be used", "number")
