"""A secret, read where its reference says each time it is used: rotation needs no restart. It is never shown."""

from __future__ import annotations

import os
from pathlib import Path

from tidemill.model.errors import SpecError
from tidemill.spec.platform import SecretRef


def read(ref: SecretRef, what: str) -> str:
    """SpecError: it is not there, is empty, or cannot be read; the message names the place only."""
    if ref.env:
        value = os.environ.get(ref.env, "").strip()
        if not value:
            raise SpecError(f"{what}: the environment variable {ref.env} is not set")
        return value
    try:
        value = Path(ref.file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SpecError(f"{what}: {ref.file} cannot be read: {reason}") from None
    if not value:
        raise SpecError(f"{what}: {ref.file} is empty")
    return value
