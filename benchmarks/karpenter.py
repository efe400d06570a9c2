"""How fast does Karpenter pack the same workload on the same machine, and at what price?

    python -m benchmarks.karpenter [--pods 1000 5000 …] [--rounds 1] [--limit 900] [--version v1.N.N] [--json]

Runs Karpenter's own scheduling benchmark, fetched as a Go module and built outside this repository, and
`tidemill bench pack --mix karpenter` right after it at each size. Needs Go; the first build takes minutes,
later runs start from the built benchmark. Exits 1 where one side could not be run at every size.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULE = "sigs.k8s.io/karpenter"
PACKAGE = Path("pkg/controllers/provisioning/scheduling")
BENCHMARK = "scheduling_benchmark_test.go"
ROOT = Path(__file__).parents[1]  # of the checkout, from which `python -m benchmarks` runs
PRICE = Path(__file__).with_name("karpenter_price_test.go")
SIZES = (1000, 5000, 10000, 20000)  # the sizes from 1,000 up that Karpenter's file also has, but for 2,000

# After each of these lines of Karpenter's benchmark goes one of ours. The first is inside the timed loop and
# only keeps a struct; the second comes after the clock has been read.
HOOKS = (
    ("\t\tif i == 0 {\n", "\t\t\tfirstResults = results\n"),
    ('\tb.ReportMetric(float64(nodesInRound1), "nodes")\n', "\treportPrice(b)\n"),
)


class CannotRun(Exception):
    """One side of the comparison cannot be measured; the message says why."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One side at one size. The price is per hour, of all nodes together."""

    pods: int
    pods_per_s: float
    nodes: int
    price: float
    cpu_s: float  # of the whole process: what a busy machine cannot stretch

    @property
    def price_per_pod(self) -> float:
        return self.price / self.pods


@dataclass(frozen=True, slots=True)
class Row:
    pods: int
    load: float  # the machine's load average (1 min) before the two runs
    karpenter: Packed | None
    tidemill: Packed | None

    @property
    def ratio(self) -> float | None:
        if self.karpenter is None or self.tidemill is None:
            return None
        return self.tidemill.pods_per_s / self.karpenter.pods_per_s


# --- Karpenter's benchmark, from module to binary ----------------------------------------------------


def go(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which("go") is None:
        raise CannotRun("no Go toolchain on the PATH: Karpenter's benchmark is built from source")
    # The toolchain that is here, no workspace and no flags of the user's: the same build for everyone.
    environment = {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    return subprocess.run(
        ("go", *arguments), cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def newest(versions: Sequence[str]) -> str:
    """The newest released v1: not a pre-release, and compared by number (v1.15 is after v1.9)."""
    released = [version for version in versions if re.fullmatch(r"v1\.\d+\.\d+", version)]
    if not released:
        raise CannotRun(f"no released v1 of {MODULE} was found")
    return max(released, key=numbers)


def published_versions() -> list[str]:
    listed = go("list", "-m", "-versions", f"{MODULE}@latest")
    if listed.returncode:
        raise CannotRun(f"the versions of {MODULE} cannot be listed: {last_line(listed.stderr)}")
    return listed.stdout.split()[1:]


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def go_directive(wanted: str, here: str) -> str | None:
    """The Go version to write into the copy's go.mod, or None to leave it as it is.

    A module may ask for a patch release that is newer than the toolchain here; patch releases change neither the
    language nor the library, so the copy asks for what is here. A newer minor release is refused.
    """
    if numbers(wanted) <= numbers(here):
        return None
    if numbers(wanted)[:2] == numbers(here)[:2]:
        return here
    raise CannotRun(f"needs Go {wanted} and this is Go {here}; try an older release with --version")


def hooked(source: str) -> str:
    for line, ours in HOOKS:
        if source.count(line) != 1:
            raise CannotRun(f"{BENCHMARK} has changed: `{line.strip()}` is there {source.count(line)} times")
        source = source.replace(line, line + ours)
    return source


def unpack(version: str, folder: Path) -> Path:
    """A writable copy of the module's source, checksums verified by Go as it downloads."""
    # If the module needs a newer Go, the answer has an error as well as the path of the zip.
    download = json.loads(go("mod", "download", "-json", f"{MODULE}@{version}", cwd=folder).stdout or "{}")
    if "Zip" not in download:
        raise CannotRun(f"{MODULE}@{version} cannot be downloaded: {download.get('Error', 'no message')}")
    with zipfile.ZipFile(download["Zip"]) as source:
        source.extractall(folder)
    return folder / f"{MODULE}@{version}"


def built(version: str, cache: Path) -> Path:
    """The benchmark's binary, from the cache where it was built before."""
    go_here = go("env", "GOVERSION").stdout.strip().removeprefix("go")
    ours = hashlib.sha256(PRICE.read_bytes() + repr(HOOKS).encode()).hexdigest()[:8]
    binary = cache / f"karpenter-{version}-go{go_here}-{ours}.test"
    if binary.exists():
        return binary
    cache.mkdir(parents=True, exist_ok=True)
    print(f"building the benchmark of {MODULE} {version} in {cache} (minutes, once) ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        module = unpack(version, Path(folder))
        wanted = re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
        directive = go_directive(wanted[1], go_here) if wanted else None
        if directive and wanted:
            print(f"it asks for Go {wanted[1]}; built with Go {go_here}", file=sys.stderr)
            go("mod", "edit", f"-go={directive}", cwd=module)
        benchmark = module / PACKAGE / BENCHMARK
        benchmark.write_text(hooked(benchmark.read_text()))
        shutil.copy(PRICE, module / PACKAGE)
        made = Path(folder) / "made.test"
        build = go("test", "-c", "-tags", "test_performance", "-o", str(made), f"./{PACKAGE}", cwd=module)
        if build.returncode:
            raise CannotRun(f"the benchmark does not build:\n{build.stderr.strip()[-2000:]}")
        made.rename(binary)
    return binary


# --- the two sides -----------------------------------------------------------------------------------


def timed_run(command: Sequence[str | Path], limit_s: float) -> tuple[str, float]:
    """What a command wrote, and the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise CannotRun(f"not done within {limit_s:.0f} s") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise CannotRun(last_line(ran.stderr or ran.stdout))
    return ran.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def karpenter_figures(output: str, pods: int, cpu_s: float) -> Packed:
    """Reads Go's benchmark line: the name, the rounds, then pairs of value and unit."""
    line = re.search(rf"^BenchmarkScheduling{pods}(?:-\d+)?\s+\d+\s+(.+)$", output, re.MULTILINE)
    if line is None:
        raise CannotRun(f"Karpenter's file has no benchmark of {pods:,} pods")
    words = line[1].split()
    by_unit = {unit: float(value) for value, unit in zip(words[::2], words[1::2], strict=True)}
    if by_unit["pods"] != pods:
        raise CannotRun(f"Karpenter placed {by_unit['pods']:,.0f} of {pods:,} pods")
    return Packed(pods, by_unit["pods/sec"], int(by_unit["nodes"]), by_unit["price"], cpu_s)


def run_karpenter(binary: Path, pods: int, limit_s: float) -> Packed:
    # One solve per process: a second solve on the same scheduler would begin with the first one's nodes, and
    # each size then draws its pods from the beginning of the same random stream.
    only = f"-test.bench=^BenchmarkScheduling{pods}$"
    output, cpu_s = timed_run(
        (binary, "-test.run=^$", only, "-test.benchtime=1x", "-test.timeout=0"), limit_s
    )
    return karpenter_figures(output, pods, cpu_s)


def tidemill_figures(answer: dict[str, Any], pods: int, cpu_s: float) -> Packed:
    if not answer["checked"]:
        raise CannotRun("the checker objects to Tidemill's placement")
    if answer["placed"] != pods:
        raise CannotRun(f"Tidemill placed {answer['placed']:,} of {pods:,} pods")
    return Packed(pods, answer["pods_per_s"], answer["nodes"], answer["price"], cpu_s)


def run_tidemill(pods: int, limit_s: float) -> Packed:
    command = (
        sys.executable,
        "-m",
        "tidemill",
        "bench",
        "pack",
        "--mix",
        "karpenter",
        "--pods",
        str(pods),
        "--json",
    )
    output, cpu_s = timed_run(command, limit_s)
    return tidemill_figures(json.loads(output)["packings"][0], pods, cpu_s)


def median_of(rounds: int, measure: Callable[[], Packed], who: str, pods: int) -> Packed | None:
    """The round with the median speed (the lower one of an even number); None, and why on stderr, on failure."""
    try:
        packed = [measure() for _ in range(rounds)]
    except CannotRun as why:
        print(f"{who}, {pods:,} pods: {why}", file=sys.stderr)
        return None
    middle = statistics.median_low(run.pods_per_s for run in packed)
    return next(run for run in packed if run.pods_per_s == middle)


def compare(binary: Path, pods: int, rounds: int, limit_s: float) -> Row:
    load = os.getloadavg()[0]
    theirs = median_of(rounds, lambda: run_karpenter(binary, pods, limit_s), "karpenter", pods)
    ours = median_of(rounds, lambda: run_tidemill(pods, limit_s), "tidemill", pods)
    return Row(pods, load, theirs, ours)


# --- what is printed ---------------------------------------------------------------------------------

TITLES = (
    "pods", "karpenter pods/s", "tidemill pods/s", "ratio", "nodes k.", "nodes t.",
    "price/pod k.", "price/pod t.", "load",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    """One cell per title; a dash where a side was not measured."""

    def both(read: Callable[[Packed], float], form: str) -> list[str]:
        return [f"{read(side):{form}}" if side else "-" for side in (row.karpenter, row.tidemill)]

    return [
        f"{row.pods:,}",
        *both(lambda side: side.pods_per_s, ",.0f"),
        f"{row.ratio:,.0f}x" if row.ratio else "-",
        *both(lambda side: side.nodes, ",d"),
        *both(lambda side: side.price_per_pod, ".4f"),
        f"{row.load:.1f}",
    ]


def aligned(values: Sequence[str]) -> str:
    """Right-aligned under the titles; no cell is wider than its title, or than 7 (`100,000`)."""
    return "  ".join(f"{value:>{max(len(title), 7)}}" for title, value in zip(TITLES, values, strict=True))


def as_json(row: Row) -> dict[str, Any]:
    def side(packed: Packed | None) -> dict[str, Any] | None:
        return dataclasses.asdict(packed) | {"price_per_pod": packed.price_per_pod} if packed else None

    sides = {"karpenter": side(row.karpenter), "tidemill": side(row.tidemill)}
    return {"pods": row.pods, "ratio": row.ratio, "load": row.load, **sides}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, nargs="+", default=SIZES)
    parser.add_argument(
        "--rounds", type=int, default=1, help="runs of each side at each size; the median counts"
    )
    parser.add_argument("--limit", type=float, default=900, help="seconds one run may take")
    parser.add_argument("--version", help="a release of Karpenter; the newest v1 if not given")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemill" / "karpenter-bench"
    try:
        version = options.version or newest(published_versions())
        binary = built(version, cache)
    except CannotRun as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    if not options.json:
        print(
            f"Karpenter {version} on {os.cpu_count()} CPUs; k. is Karpenter's, t. Tidemill's, prices per hour"
        )
        print(aligned(TITLES))
    rows = []
    for pods in options.pods:
        rows.append(compare(binary, pods, options.rounds, options.limit))
        if not options.json:
            print(aligned(cells(rows[-1])), flush=True)
    if options.json:
        document = {"karpenter": version, "cpus": os.cpu_count(), "sizes": [as_json(row) for row in rows]}
        json.dump(document, sys.stdout, indent=2)
        print()
    return 1 if any(row.ratio is None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
