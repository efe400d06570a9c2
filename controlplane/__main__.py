"""A control plane for people: `python -m controlplane build | up | kubeconfig | down`.

python -m controlplane up            # builds what is missing, starts, prints how to reach it, and returns
export KUBECONFIG=$(python -m controlplane kubeconfig)
python -m controlplane down
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from controlplane.build import MODULES, CannotBuild, build
from controlplane.processes import end_by_pid
from controlplane.start import ControlPlane, NotStarted

DEFAULT = Path(tempfile.gettempdir()) / "tidemill-controlplane"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m controlplane", description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("build", help="build the binaries into the cache folder and print where")
    making.add_argument("modules", nargs="*", choices=[*MODULES, []], help="default: kubernetes")
    for verb, says in (
        ("up", "start one and leave it running"),
        ("kubeconfig", "print the path of its administrator's kubeconfig"),
        ("down", "end what `up` started"),
    ):
        one = verbs.add_parser(verb, help=says)
        one.add_argument(
            "--folder", type=Path, default=DEFAULT, help="keys, logs, data (default: %(default)s)"
        )
    asked = parser.parse_args()
    try:
        if asked.verb == "build":
            for name in asked.modules or ["kubernetes"]:
                print(build(MODULES[name]))
            return 0
        verbs_of_a_plane = {"up": up, "kubeconfig": kubeconfig, "down": down}
        return verbs_of_a_plane[asked.verb](asked.folder.resolve())
    except (CannotBuild, NotStarted, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def up(folder: Path) -> int:
    if (folder / "running.json").exists():
        print(f"error: one is up in {folder}; end it with: python -m controlplane down", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    began = time.monotonic()
    plane = ControlPlane(folder, outlive_us=True)
    try:
        plane.start()
    except BaseException:
        plane.close(keep_logs=True)
        raise
    print(f"ready after {time.monotonic() - began:.0f} s at {plane.server}")
    print(f"  export KUBECONFIG={plane.kubeconfig}")
    print(f"  {plane.binaries / 'kubectl'} get nodes")
    return 0


def kubeconfig(folder: Path) -> int:
    if not (folder / "running.json").exists():
        print(f"error: none is up in {folder}; start one with: python -m controlplane up", file=sys.stderr)
        return 1
    print(folder / "kubeconfig")
    return 0


def down(folder: Path) -> int:
    state = folder / "running.json"
    if not state.exists():
        print(f"none is up in {folder}")
        return 0
    processes = json.loads(state.read_text())["processes"]
    for name, (pid, begun) in reversed(processes.items()):
        if not end_by_pid(pid, begun):
            print(f"{name} ({pid}) was gone already")
    state.unlink()
    shutil.rmtree(folder / "etcd", ignore_errors=True)
    print("down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
