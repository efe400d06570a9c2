"""Which pod is meant by what somebody typed: a pod, or the job, stream or service they know it by.

Knows rows of pods and nothing about how they came to be; a word that cannot be told is a SpecError with the
nearest names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.report import PodRow

SHOWN = 6  # names in a message; the rest is a count


def find(written: str, pods: Sequence[PodRow]) -> tuple[PodRow, int]:
    """The pod, and how many more wait where a workload was named."""
    exact = [row for row in pods if written in (row.name, _short(row))]
    if len(exact) == 1:
        return exact[0], 0
    workload = [] if exact else _of_workload(written, pods)
    if workload:
        waiting = [row for row in workload if row.state == "waiting"]
        return (waiting or workload)[0], max(len(waiting) - 1, 0)
    begins = exact or [row for row in pods if row.name.startswith(written) or _short(row).startswith(written)]
    if len(begins) == 1:
        return begins[0], 0
    raise SpecError(_cannot_tell(written, pods, begins))


def _of_workload(written: str, pods: Sequence[PodRow]) -> list[PodRow]:
    """`chat`, `train-7` or `Job/train-7`, with or without the namespace; or the stream `train`, whose jobs are
    train-1, train-2 and so on. In the order people count: 2 before 10."""
    one = [row for row in pods if written in _workload_names(row)]
    numbered = re.compile(re.escape(written) + r"-\d+")
    stream = (row for row in pods if any(numbered.fullmatch(name) for name in _workload_names(row)))
    return sorted(one or stream, key=lambda row: [int(n) for n in re.findall(r"\d+", _short(row))])


def _workload_names(row: PodRow) -> tuple[str, ...]:
    if not row.workload:
        return ()
    name = row.workload.rpartition("/")[2]
    return row.workload, name, f"{row.name.partition('/')[0]}/{name}"


def _cannot_tell(written: str, pods: Sequence[PodRow], begins: Sequence[PodRow]) -> str:
    if begins:
        return f"'{written}' fits several pods: {_listed(row.name for row in begins)}"
    if not pods:
        return f"there is no pod '{written}': no pod exists at this instant"
    known = {name: row.name for row in pods for name in (row.name, _short(row))}
    near = dict.fromkeys(known[name] for name in get_close_matches(written, known, n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {_listed(row.name for row in pods)}"
    return f"there is no pod '{written}' now; {hint}"


def _short(row: PodRow) -> str:
    return row.name.rsplit("/", 1)[-1]


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    return ", ".join(every[:SHOWN]) + (f" and {len(every) - SHOWN} more" if len(every) > SHOWN else "")
