"""A real PostgreSQL of the tests' own: in a temporary folder, on a free port of loopback, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

HOW_TO_GET_IT = "no PostgreSQL server found under /usr/lib/postgresql: apt-get install postgresql"


def programs() -> Path | None:
    """The folder of the newest server that Debian's packages installed."""
    found = [one.parent for one in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(found, key=lambda folder: int(folder.parent.name), default=None)


class Server:
    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="tidemill-postgres-"))
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:  # it refuses to run as root
            user = pwd.getpwnam("postgres")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._databases = 0
        self._given: list[str] = []
        self._empty: list[str] = []

    def start(self) -> None:
        data, log = self._folder / "data", self._folder / "log"
        self._run(
            "initdb", "-D", data, "-U", "tidemill", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        # -F: nothing here survives the tests, so the disk need not be waited for.
        command: list[str | Path] = [self._programs / "postgres", "-D", data, "-k", self._folder]
        command += ["-p", str(self.port), "-h", "127.0.0.1", "-F"]
        with log.open("w") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd="/", **self._as)
        for _ in range(300):
            if self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError(log.read_text())

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:  # a client is still connected: do not wait for it
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_database(self) -> str:
        """The address of an empty one."""
        if not self._empty:
            self._databases += 1
            name = f"ledger{self._databases}"
            self.execute(f"CREATE DATABASE {name}")
            self._empty.append(name)
        self._given.append(self._empty.pop())
        return self._address(self._given[-1])

    def take_back(self) -> None:
        """Empties every database that was given out, for the next test: seven times cheaper than a new one."""
        while self._given:
            name = self._given.pop()
            self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            self.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public", name)
            self._empty.append(name)

    def require_password(self, user: str, password: str) -> None:
        """A user who may do everything here, and must say the password to do it."""
        self.execute(f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'")
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.execute("SELECT pg_reload_conf()")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self._address(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _address(self, database: str) -> str:
        return f"postgresql://tidemill@127.0.0.1:{self.port}/{database}"

    def _run(
        self, program: str, *arguments: object, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        command = [str(self._programs / program), *map(str, arguments)]
        return subprocess.run(command, check=check, capture_output=True, cwd="/", **self._as)
