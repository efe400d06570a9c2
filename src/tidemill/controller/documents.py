"""The documents while the process runs: read again when they change; a bad version is not used.

They are files or objects of the cluster. What names the place (deployment, account, region, cluster) cannot change
under a running engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

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


class DocumentSource(Protocol):
    def digest(self) -> str:
        """Another text whenever a document has changed. May raise what a port raises: looked at again later."""

    def load(self) -> Spec:
        """All documents, checked. Raises SpecError."""

    @property
    def problem(self) -> str:
        """Why something of what was loaded last is not used, though the rest is; empty: all of it is."""


class FileDocuments:
    """`load` reads and checks the files, `files` lists those that are there now."""

    problem = ""

    def __init__(self, load: Callable[[], Spec], files: Callable[[], Sequence[str]]) -> None:
        self.load, self._files = load, files

    def digest(self) -> str:
        """Of contents, not of times: a mounted ConfigMap changes by swapping a symbolic link. A file that cannot be
        read counts as changed when it can be."""
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


class Documents(Worker):
    def __init__(self, source: DocumentSource, wake: Callable[[str], None]) -> None:
        """Raises what loading raises: a process does not start with bad documents."""
        super().__init__("documents")
        self._source, self._wake = source, wake
        self._digest = source.digest()
        self.current = Version(1, source.load())
        self.problem = source.problem  # why the newest version is not used, or not all of it; empty: it is

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception:
                log.exception("cannot look at the documents; the last good version stays")

    def look(self) -> bool:
        """True: there is a new version, and it is good."""
        digest = self._source.digest()
        if digest == self._digest:
            return False
        self._digest = digest
        try:
            spec = self._source.load()
            _check_same_place(self.current.spec, spec)
        except TidemillError as error:
            self.problem = str(error)
            log.error("the documents changed, but the last good version stays", why=self.problem)
            return False
        self.problem = self._source.problem
        if self.problem:
            log.error("some documents are not used", why=self.problem)
        if spec == self.current.spec:
            return False
        self.current = Version(self.current.number + 1, spec)
        log.info("the documents changed", version=self.current.number)
        self._wake("documents")
        return True


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
