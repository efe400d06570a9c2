"""The long lists of a rehearsal, jobs and journal: what the page shows and how much it leaves out.

Every job travels with the page, so that the filter finds all of them; the journal is cut, evenly by kind.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tidemill.render.rehearsal_facts import JOB_STATES
from tidemill.render.rehearsal_lanes import Axis
from tidemill.sim.scenario.outcome import JobRow
from tidemill.sim.timeline import Line

JOBS_SHOWN = 500
JOURNAL_SHOWN = 2_000


def script_json(value: Any) -> Markup:
    """JSON that may stand inside <script>: no `</script>`, `<!--` or entity can come out of a name in it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def job_table(jobs: tuple[JobRow, ...], axis: Axis) -> dict[str, Any]:
    """All jobs, in the order of the columns the page's script expects; repeated words are kept once."""
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    rows = [
        [
            job.name,
            word(job.stream),
            word(job.team),
            job.gpus,
            job.pods,
            int((job.arrived - axis.start).total_seconds()),
            None if job.started is None else int((job.started - axis.start).total_seconds()),
            None if job.finished is None else int((job.finished - axis.start).total_seconds()),
            JOB_STATES.index(job.state),
            int(job.late),
            job.restarts,
            word(", ".join(job.sources)),
            word(job.reason),
        ]
        for job in jobs
    ]
    return {"words": list(words), "states": JOB_STATES, "rows": rows, "shown": JOBS_SHOWN}


@dataclass(frozen=True, slots=True)
class JournalCut:
    lines: tuple[Line, ...]
    kinds: tuple[tuple[str, int], ...]  # kind and how many lines of it there are in all, by name
    left_out: tuple[tuple[str, int], ...]  # the chattiest first

    @property
    def left_out_count(self) -> int:
        return sum(count for _, count in self.left_out)


def cut_journal(journal: tuple[tuple[Any, str, str, str], ...], limit: int = JOURNAL_SHOWN) -> JournalCut:
    """Keep all of the rare kinds and the first lines of the chatty ones.

    Cutting the tail instead would hide how the run ended behind thousands of pods that started.
    """
    counts = Counter(kind for _, kind, _, _ in journal)
    quota = _quota(list(counts.values()), limit)
    taken: Counter[str] = Counter()
    lines = []
    for at, kind, about, sentence in journal:
        taken[kind] += 1
        if taken[kind] <= quota:
            lines.append(Line(at, kind, about, sentence))
    left_out = ((kind, count - quota) for kind, count in counts.items() if count > quota)
    return JournalCut(
        tuple(lines),
        tuple(sorted(counts.items())),
        tuple(sorted(left_out, key=lambda pair: (-pair[1], pair[0]))),
    )


def _quota(counts: list[int], limit: int) -> int:
    """The largest number of lines each kind may have so that together they stay within the limit."""
    left = limit
    for position, count in enumerate(sorted(counts)):
        fair = left // (len(counts) - position)
        if count > fair:
            return fair
        left -= count
    return limit
