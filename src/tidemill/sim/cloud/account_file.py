"""The file that a simulated account is kept in: how it began, how its time runs, and every call that changed it.

The file holds no state of the account: replaying the calls at their instants gives the same account. It is read and
written under a lock, and replaced as a whole. This module does not know what a call does.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from tidemill.model.errors import SpecError
from tidemill.spec.scenario import Market

# The account of AWS's own examples: nobody's.
SHARING_ACCOUNT = "111122223333"  # another of those: the owner of blocks that are shared with the account
NOBODYS_ACCOUNT = "123456789012"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    at: AwareDatetime
    name: str
    given: list[Any]


@dataclass(slots=True)
class AccountHistory:
    """The content of the file. With `stands_at` time moves only by command; without, it runs `ahead` of wall time."""

    start: AwareDatetime
    region: str
    zones: tuple[str, ...]
    format: Literal["tidemill-simulated-account/1"] = "tidemill-simulated-account/1"
    account: str = NOBODYS_ACCOUNT
    seed: int = 1
    market: Market = field(default_factory=Market)
    ahead: timedelta = timedelta(0)
    stands_at: AwareDatetime | None = None
    calls: list[RecordedCall] = field(default_factory=list)

    def now(self, wall: datetime) -> datetime:
        """Never before the last call: the wall clock may be set back, this clock may not."""
        at = wall.replace(microsecond=0) + self.ahead if self.stands_at is None else self.stands_at
        return max(at, self.start, *(call.at for call in self.calls[-1:]))


_FORMAT = TypeAdapter(AccountHistory)


class AccountFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_as: tuple[int, int, int] | None = None
        self._story: AccountHistory | None = None

    def make(self, history: AccountHistory) -> bool:
        """False: the file exists already, and stays as it is."""
        if not self.path.parent.is_dir():
            raise SpecError(f"the simulated account cannot be at {self.path}: no folder {self.path.parent}")
        with self._locked():
            if self.path.exists():
                return False
            self.write(history)
            return True

    @contextmanager
    def open(self) -> Iterator[AccountHistory]:
        """Holds the lock. Yields the same object as before while no other process has changed the file."""
        self._read()  # no lock file next to a file that is not a simulated account
        with self._locked():
            yield self._read()

    def write(self, history: AccountHistory) -> None:
        """A crash leaves the old file or the new one. Call it inside `open`."""
        fresh = self.path.with_name(f".{self.path.name}.new")
        try:
            with fresh.open("wb") as file:
                file.write(_FORMAT.dump_json(history, indent=1))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
        except OSError as error:
            raise SpecError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._story, self._read_as = history, self._stamp()

    def _read(self) -> AccountHistory:
        try:
            stamp = self._stamp()
            if self._story is None or stamp != self._read_as:
                self._story, self._read_as = _FORMAT.validate_json(self.path.read_bytes()), stamp
        except OSError as error:
            raise SpecError(f"cannot read {self.path}: {error.strerror or error}") from error
        except ValidationError:
            raise SpecError(
                f"{self.path} is not a simulated account of this version; name another file"
            ) from None
        return self._story

    def _stamp(self) -> tuple[int, int, int]:
        found = self.path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A separate lock file: the account file is replaced at every write, and a lock on the old file would not hold.
        beside = self.path.with_name(f".{self.path.name}.lock")
        try:
            lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise SpecError(f"cannot write {beside}: {error.strerror or error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
