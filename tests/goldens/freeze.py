"""What the engine, the packer and the planner answer today, in small compressed files that a test compares with.

`make goldens` writes them anew. Each answer is kept twice: `full` with its reasons, `bare` without any sentence.
A change of words alters `full` only. A change of `bare` is a change of behaviour, and its commit says why.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]
SEEDS = (1, 2, 3, 4, 5)
SLOW = frozenset({"weekly-calendar", "two-months"})  # compared in the slow tier, and so are the later seeds
QUICK_SEEDS = (1, 2)
PODS = 1000  # of every packing mix
INSTANTS = (0.0, 0.3, 0.7)  # at which part of its length a scenario is asked for its plans
# The keys under which sentences stand.
PROSE = frozenset(
    {"reason", "note", "detail", "message", "sentence", "why", "text", "words", "changes", "warnings"}
)

Lines = list[str]


def scenarios() -> dict[str, Path]:
    found = {path.stem: path for path in sorted((ROOT / "examples").glob("*.yaml"))}
    found["demo"] = ROOT / "src" / "tidemill" / "cli" / "demo.yaml"
    return found


def cases() -> dict[str, Callable[[], Lines]]:
    """Every golden by its name. Nothing runs until it is called."""
    from tidemill.bench.mixes import MIXES

    found: dict[str, Callable[[], Lines]] = {}
    for name, path in scenarios().items():
        for seed in SEEDS:
            found[f"actions-{name}-{seed}"] = lambda path=path, seed=seed: _actions(path, seed)  # type: ignore[misc]
        found[f"plans-{name}"] = lambda path=path: _plans(path)  # type: ignore[misc]
    for mix in MIXES:
        found[f"packing-{mix}"] = lambda mix=mix: _packing(mix)  # type: ignore[misc]
    return found


def is_slow(case: str) -> bool:
    is_late_seed = case.startswith("actions-") and int(case.rpartition("-")[2]) not in QUICK_SEEDS
    return is_late_seed or any(name in case for name in SLOW)


# --- the answers --------------------------------------------------------------------------------------


def _actions(path: Path, seed: int) -> Lines:
    """One line for each action of a rehearsal: when, what, and what came of it."""
    from tidemill.wording import sentence

    rehearsal = _rehearsal(path, seed)
    rehearsal.run()
    return [
        _line(
            {
                "at": done.at,
                "do": type(done.action).__name__,
                "error": done.error,
                **_fields(done.action),
                "reason": sentence(done.action.reason),
            }
        )
        for done in rehearsal.done
    ]


def _plans(path: Path) -> Lines:
    """`plan --json` and `plan-blocks --json` at a few instants, a line for each of their entries."""
    lines: Lines = []
    for part in INSTANTS:
        at = timedelta(seconds=int(_length(path).total_seconds() * part))
        for verb in ("plan", "plan-blocks"):
            answer = _command(verb, str(path), "--at", _offset(at), "--json")
            lines += [_line({"verb": verb, "at": str(at), "entry": entry}) for entry in _entries(answer)]
    return lines


def _packing(mix: str) -> Lines:
    """Who goes where, and at which price."""
    from tidemill.bench.mixes import build
    from tidemill.decide.packer import solve

    problem = build(mix, PODS)
    solution = solve(problem)
    head = {
        "price": round(solution.price, 6),
        "opened": len(solution.opened),
        "unplaced": sorted(solution.unplaced),
    }
    opened = [{"option": node.option.name, "pods": sorted(node.pods)} for node in solution.opened]
    existing = [{"node": place, "pods": sorted(pods)} for place, pods in solution.existing.items()]
    return [_line(head), *sorted(_line(node) for node in (*opened, *existing))]


# --- how they are written -----------------------------------------------------------------------------


def _rehearsal(path: Path, seed: int) -> Any:
    from tidemill.sim.scenario.rehearsal import Rehearsal
    from tidemill.spec.read import load

    loaded = load([path])
    return Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), seed)


def _length(path: Path) -> timedelta:
    from tidemill.spec.read import load

    return load([path]).checked_scenario().spec.duration


def _offset(at: timedelta) -> str:
    from tidemill.spec.units import format_duration

    return format_duration(at)


def _command(*arguments: str) -> Any:
    """What a verb prints as JSON."""
    from click.testing import CliRunner

    from tidemill.cli import root

    result = CliRunner().invoke(root, list(arguments), catch_exceptions=True)
    if result.exit_code:
        return {"exit": str(result.exception)}
    return json.loads(result.stdout)


def _entries(answer: Any) -> Iterator[Any]:
    for key, value in answer.items():
        if key in ("scenario", "simulated"):
            continue
        for entry in value if isinstance(value, list) and value else [value]:
            yield {key: entry}


def _fields(thing: Any) -> dict[str, Any]:
    """Without those that are as they are by default: a new field changes no answer that does not use it."""
    return {
        field.name: value
        for field in dataclasses.fields(thing)
        if (value := getattr(thing, field.name)) != field.default
    }


def _line(document: Any) -> str:
    return json.dumps(_plain(document), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ").replace(".000000Z", "Z")
        case timedelta():
            return value.total_seconds()
        case float():
            return round(value, 6)
        case dict():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _ if dataclasses.is_dataclass(value):
            return _plain(_fields(value))
        case _:
            return value


def bare(line: str) -> str:
    """The same line without a sentence in it."""
    return json.dumps(_without_prose(json.loads(line)), sort_keys=True, ensure_ascii=False)


def _without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_prose(inner) for key, inner in value.items() if key not in PROSE}
    if isinstance(value, list):
        return [_without_prose(inner) for inner in value]
    return value


# --- files --------------------------------------------------------------------------------------------


def read(kind: str, case: str) -> Lines:
    path = DATA / f"{case}.{kind}.gz"
    return gzip.decompress(path.read_bytes()).decode().splitlines() if path.exists() else []


def write(kind: str, case: str, lines: Lines) -> None:
    """The same lines give the same bytes: no time, no name in the header."""
    text = "".join(f"{line}\n" for line in lines)
    (DATA / f"{case}.{kind}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main(names: list[str]) -> None:
    os.environ["TIDEMILL_CATALOG"] = "shipped"
    for case, answer in cases().items():
        if names and not any(name in case for name in names):
            continue
        lines = answer()
        changed = []
        for kind, wanted in (("full", lines), ("bare", [bare(line) for line in lines])):
            if read(kind, case) != wanted:
                changed.append(kind)
                write(kind, case, wanted)
        print(f"{case}: {len(lines)} lines, {'changed: ' + ', '.join(changed) if changed else 'as before'}")


if __name__ == "__main__":
    main(sys.argv[1:])
