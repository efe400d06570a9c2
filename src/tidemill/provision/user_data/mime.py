"""MIME multipart archives, as cloud-init and nodeadm read them from an instance's user data.

Written and read by hand: the standard library's writer folds and encodes what must arrive as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from email import message_from_string
from email.message import Message

from tidemill.model.errors import SpecError

NODE_CONFIG = "application/node.eks.aws"
SHELL = 'text/x-shellscript; charset="us-ascii"'
_BOUNDARY = "//TIDEMILL//"


@dataclass(frozen=True, slots=True)
class Part:
    content_type: str
    text: str


def write(parts: list[Part]) -> str:
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"', ""]
    for part in parts:
        lines += [f"--{_BOUNDARY}", f"Content-Type: {part.content_type}", "", part.text.rstrip("\n"), ""]
    return "\n".join([*lines, f"--{_BOUNDARY}--", ""])


def read(text: str) -> list[Part]:
    """The parts of somebody's user data: of an archive each, else the text as the one thing it is."""
    start = text.lstrip()
    if start.lower().startswith(("mime-version:", "content-type:")):
        found = [_part(each) for each in message_from_string(start).walk() if not each.is_multipart()]
        if not found:
            raise SpecError("the user data looks like a MIME archive and has no parts")
        return found
    if start.startswith("#!"):
        return [Part(SHELL, text)]
    if "kind: NodeConfig" in text:
        return [Part(NODE_CONFIG, text)]
    raise SpecError(
        "the user data is neither a script (which starts with '#!'), nor a NodeConfig, nor a MIME archive of them"
    )


def _part(message: Message) -> Part:
    payload = message.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return Part(str(message["Content-Type"] or "text/plain"), payload.decode())
