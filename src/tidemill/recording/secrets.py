"""What looks like a secret is taken out of what is written: passwords in addresses, keys, tokens.

Nothing that is recorded should hold one: documents name secrets, and a world has no environment and no annotations.
This is for what people write where it does not belong: a tag, a note, an error text. It is found by its look alone, so
a secret that looks like an ordinary word stays. Labels are kept as they are: pods are matched by them.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

LEFT_OUT: Final = "left-out-of-the-recording"

# Each is specific enough that no id of AWS or Kubernetes looks like it. The last group of a match is what is replaced.
_LOOKS = (
    r"[a-z][a-z0-9+.-]*://[^\s/:@\x00-\x1f]*:([^\s/@\x00-\x1f]+)@",  # postgresql://user:PASSWORD@host
    r"\b((?:AKIA|ASIA)[0-9A-Z]{16})\b",
    (
        r"(?i:(?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|authorization|credential)s?"
        r"[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?)([^\s\"',;&\x00-\x1f]{4,})"
    ),
    r"(?i:\b(?:bearer|basic)\s+)([A-Za-z0-9+/=._~-]{12,})",
    r"\b(gh[pousr]_[A-Za-z0-9]{20,}|xox[abeprs]-[A-Za-z0-9-]{10,}|glpat-[A-Za-z0-9_-]{16,})",
    r"\b(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)",
    r"hooks\.slack\.com/services/([A-Za-z0-9/]+)",
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?)",
)
# Without any of these there is no secret. Found in C: the common case is that there is none, and must cost little.
_HINTS = (
    b"://", b"akia", b"asia", b"bearer", b"basic ", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"xox", b"glpat",
    b"eyj", b"private key", b"hooks.slack", b"passw", b"pwd", b"secret", b"token", b"authorization", b"credential",
    b"key=", b"key:", b'key"', b"key'", b"key ", b"keys",
)  # fmt: skip
_SHORTEST = 16  # with what tells that it is one
_LOOK = tuple(re.compile(look) for look in _LOOKS)


def without_secrets(text: str) -> str:
    for look in _LOOK if text else ():
        text = look.sub(_left_out, text)
    return text


def _left_out(match: re.Match[str]) -> str:
    begin, end = match.start(1) - match.start(), match.end(1) - match.start()
    whole = match.group()
    return whole[:begin] + LEFT_OUT + whole[end:]


def clean(message: bytes) -> bytes:
    """A message of msgpack with every string cleaned. Without a hint of a secret it is passed as it is."""
    if len(message) < _SHORTEST:
        return message
    lower = message.lower()
    if not any(hint in lower for hint in _HINTS):
        return message
    return msgspec.msgpack.encode(cleaned(msgspec.msgpack.decode(message)))


def cleaned(value: Any) -> Any:
    """Plain data with every string cleaned."""
    match value:
        case str():
            return without_secrets(value)
        case list():
            return [cleaned(one) for one in value]
        case dict():
            return {cleaned(key): cleaned(one) for key, one in value.items()}
    return value
