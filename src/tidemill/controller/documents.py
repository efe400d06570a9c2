"""The documents while the process runs: read again when the files change; a bad version is not used.

A mounted ConfigMap changes by swapping a symbolic link, so contents are compared, not times. What names the place
(deployment, account, region, cluster) cannot change under a running engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import structlog

from tidemill.controller.worker import Worker
from tidemill.model.errors import SpecError, TidemillError
from tidemill.spec import Spec

LOOK_EVERY_S = 5.0

log = structlog.stdlib.get_logger("tidemill.controller.documents")


@dataclass(frozen=True, slots=True)
class Version:
    """One reading of the documents. `number` grows with every version that was taken."""

    number: int
    spec: Spec


class Documents(Worker):
    """`load` reads and checks all documents, and raises SpecError. `files` lists those that are there now."""

    def __init__(
        self, load: Callable[[], Spec], files: Callable[[], Sequence[str]], wake: Callable[[str], None]
    ) -> None:
        """Raises what `load` raises: a process does not start with bad documents."""
        super().__init__("documents")
        self._load, self._files, self._wake = load, files, wake
        self._digest = self._read()
        self.current = Version(1, load())
        self.problem = ""  # why the newest version is not used; empty: it is

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception:
                log.exception("cannot look at the documents; the last good version stays")

    def look(self) -> bool:
        """True: there is a new version, and it is good."""
        digest = self._read()
        if digest == self._digest:
            return False
        self._digest = digest
        try:
            spec = self._load()
            _check_same_place(self.current.spec, spec)
        except TidemillError as error:
            self.problem = str(error)
            log.error("the documents changed, but the last good version stays", why=self.problem)
            return False
        self.problem = ""
        self.current = Version(self.current.number + 1, spec)
        log.info("the documents changed", version=self.current.number)
        self._wake("documents")
        return True

    def _read(self) -> str:
        """A digest of every file; one that cannot be read counts as changed when it can be."""
        digest = sha256()
        try:
            names = self._files()
        except TidemillError as error:
            return str(error)
        for name in names:
            digest.update(name.encode())
            try:
                digest.update(Path(name).read_bytes())
            except OSError as error:
                digest.update(str(error.errno).encode())
        return digest.hexdigest()


def _check_same_place(old: Spec, new: Spec) -> None:
    before, after = old.platform.spec, new.platform.spec
    for name, one, other in (
        ("deployment", before.deployment, after.deployment),
        ("account", before.account_id, after.account_id),
        ("region", before.region, after.region),
        ("cluster", before.cluster.name, after.cluster.name),
    ):
        if one != other:
            raise SpecError(f"the Platform's {name} changed from {one} to {other}; restart to move there")
