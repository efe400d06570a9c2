"""The catalog of a region: what was refreshed from AWS on this machine where it is newer, else what ships.

A file under $XDG_CACHE_HOME/tidemill for each region, replaced whole. One that cannot be used is named once on stderr
and otherwise as good as none. TIDEMILL_CATALOG=shipped leaves it aside, for results that are the same on every machine.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.catalog import Catalog, load
from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.catalog.refreshed import Refreshed

CHOICE = "TIDEMILL_CATALOG"
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_NAME = re.compile(r"catalog-([a-z0-9-]{1,40})\.json")
# Some hundred types are 100 kB: whatever is far larger is no catalog.
_LARGEST_BYTES = 8 * 2**20


def catalog_of(region: str) -> Catalog:
    """The same object each time, as long as nobody refreshes it: what follows from a catalog is remembered with it."""
    file = file_of(region)
    if file is None or os.environ.get(CHOICE) == "shipped":
        return load()
    try:
        found = file.stat()
    except OSError:
        return load()
    return _read(file, region, found.st_ino, found.st_mtime_ns, found.st_size)


def file_of(region: str) -> Path | None:
    """None: it is no name of a region, or there is no home to keep it in."""
    folder = _folder()
    return folder / f"catalog-{region}.json" if folder and _REGION.fullmatch(region) else None


def regions() -> tuple[str, ...]:
    """For which there is a file."""
    folder = _folder()
    try:
        names = sorted(one.name for one in folder.iterdir()) if folder else []
    except OSError:
        return ()
    return tuple(found.group(1) for name in names if (found := _NAME.fullmatch(name)))


def keep(refreshed: Refreshed) -> Path:
    """Written whole or not at all."""
    from tidemill.catalog.refreshed import written

    file = file_of(refreshed.region)
    if file is None:
        raise SpecError(f"'{refreshed.region}' is no region, or there is no home: set XDG_CACHE_HOME")
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("w", encoding="utf-8") as out:
            out.write(written(refreshed))
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise SpecError(f"cannot write {file}: {error.strerror or error}; set XDG_CACHE_HOME") from error
    return file


def _folder() -> Path | None:
    written = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(written):  # the rule of XDG: a relative one is as good as none
        return Path(written) / "tidemill"
    try:
        return Path.home() / ".cache" / "tidemill"
    except RuntimeError:
        return None


@cache
def _read(file: Path, region: str, *stamp: int) -> Catalog:
    from tidemill.catalog.refreshed import applied, read

    try:
        if stamp[-1] > _LARGEST_BYTES:
            raise ValueError("it is far too large")
        found = read(file.read_bytes(), region)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        cure = f"`tidemill catalog refresh --region {region}` writes it anew"
        click.echo(f"note: {file} is not used, the shipped catalog is: {why}; {cure}", err=True)
        return load()
    return applied(found) if found.newer else load()
