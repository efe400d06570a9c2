"""A ledger in a file has one engine at a time: a lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tidemill.model.errors import Refused


class SoleUse:
    """Held until `release` or the end of the process, however it ends. People's commands do not ask for it."""

    def __init__(self, ledger_file: Path) -> None:
        """Refused: another process holds it."""
        path = ledger_file.with_name(f"{ledger_file.name}.engine")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(self._descriptor, 20).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            who = f"process {pid}" if pid.isdigit() else "another process"
            raise Refused(
                f"{who} runs an engine on the ledger {ledger_file}; SQLite allows one: stop it, or keep the ledger in "
                "PostgreSQL"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)
