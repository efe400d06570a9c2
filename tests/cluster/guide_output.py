"""What a guide shows of a cluster, made by a test: compared, once what differs between two runs has fixed words.

A block is marked in the guide by a comment, `<!-- output: NAME -->`. TIDEMILL_WRITE_GUIDE=1 writes the blocks instead.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_IDS = (
    (r"\bcr-[0-9a-f]{17}\b", "cr-0a1b2c3d4e5f60718"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"),
    (r"(Resource Version: +)\d+", r"\g<1>4711"),
    (r"\btest-[0-9a-f]{8}\b", "research"),
    # The account's time runs faster than the wall's: what the API server shows of it follows the speed of the scene.
    (r"(Ends At: +)\S+", r"\g<1>2026-11-19T11:30:00Z"),
    (r"(Drain From: +)\S+", r"\g<1>2026-11-19T10:50:00Z"),
    (r"(Ends In: +)\S+", r"\g<1>1d2h15m"),
    (r"((?:Timestamp|Time): +)20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", r"\g<1>2026-11-18T08:40:00Z"),
)
_COLUMNS = (
    (re.compile(r"\bSTART\b"), "2026-11-18T08:31:00Z"),
    (re.compile(r"\bEND\b"), "2026-11-19T11:30:00Z"),
    (re.compile(r"\bENDS IN\b"), "1d2h15m"),
)
_AGE = re.compile(r"(?<=  )(\d+[smhd]){1,3}(?= |$)", re.MULTILINE)


def normalised(printed: str) -> str:
    for pattern, fixed in _IDS:
        printed = re.sub(pattern, fixed, printed)
    return "\n".join(line.rstrip() for line in printed.strip().splitlines()) + "\n"


def table(printed: str) -> str:
    """Ages and instants have one value each; columns stay where they are."""
    printed = _AGE.sub(lambda match: "5m".ljust(len(match[0])), printed)
    head, *rows = printed.splitlines()
    for column, fixed in _COLUMNS:
        if found := column.search(head):
            start, end = found.start(), found.start() + len(fixed)
            rows = [row[:start] + fixed + row[end:] for row in rows]
    return "\n".join((head, *rows)) + "\n"


def events(printed: str) -> str:
    """Of `kubectl describe`: the columns again as wide as what is in them now, in an order of their own."""
    rows = [re.split(r" {2,}", line.strip()) for line in table(printed).splitlines() if line.strip()]
    rows = [*rows[:2], *sorted(rows[2:])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def check_guide(guide: Path, outputs: dict[str, str]) -> None:
    """Every marked block of the guide is what was printed, and every output is in it."""
    text = guide.read_text()
    found = dict(re.findall(r"<!-- output: (\w+) -->\n```\n(.*?)```", text, flags=re.DOTALL))
    assert set(found) == set(outputs)
    for name, printed in outputs.items():
        if os.environ.get("TIDEMILL_WRITE_GUIDE") == "1":
            start = f"<!-- output: {name} -->\n```\n"
            before, _, rest = text.partition(start)
            _, _, after = rest.partition("```")
            text = f"{before}{start}{normalised(printed)}```{after}"
            guide.write_text(text)
        else:
            assert found[name] == normalised(printed), (
                f"{guide.name}: run this test with TIDEMILL_WRITE_GUIDE=1"
            )
