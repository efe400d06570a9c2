"""Rehearses documents as a user's file and says what went wrong: an invariant, an exception or too much time.

A fault has a signature, which is the same for two documents that fail in the same way: the invariant and its words
without names and numbers, or the exception with the place in our code that raised it.
"""

from __future__ import annotations

import io
import json
import logging
import re
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import FrameType

from benchmarks.vopr.coverage import seen_in
from tidemill.model.errors import InvariantViolated
from tidemill.sim.scenario.outcome import Outcome
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally
from tidemill.spec.read import load

CPU_LIMIT_S = 60.0
_NAMES = re.compile(r"\S*[0-9/:$]\S*")


class TooSlow(BaseException):
    """The time of a document is up. Not an Exception: nothing in the engine may catch it."""


@dataclass(slots=True)
class Verdict:
    """What became of one document. `signature` is empty where nothing went wrong."""

    refused: tuple[str, ...] = ()  # the errors of the reader, where it refused the documents
    signature: str = ""
    story: str = ""
    cpu_s: float = 0.0
    virtual_h: float = 0.0
    digest: str = ""  # of the whole result: the same documents and seed give the same one
    seen: Counter[str] = field(default_factory=Counter)


def judge(text: str, seed: int, *, cpu_limit_s: float = CPU_LIMIT_S, reports: bool = True) -> Verdict:
    """`text` is a file; `seed` is the rehearsal's."""
    verdict, began = Verdict(), time.process_time()
    quiet = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the engine logs every fault, thousands of times
    try:
        with cpu_limited(cpu_limit_s):
            _rehearse(text, seed, verdict, reports)
    except TooSlow as slow:
        verdict.signature = "too slow"
        verdict.story = f"still running after {cpu_limit_s:.0f} s of CPU, in {_place(slow)}"
    except Exception as error:  # whatever it is, the documents were accepted
        verdict.signature = f"{type(error).__name__} in {_place(error)}"
        verdict.story = "".join(traceback.format_exception(error, limit=-6))
    finally:
        logging.disable(quiet)
    verdict.cpu_s = time.process_time() - began
    return verdict


def _rehearse(text: str, seed: int, verdict: Verdict, reports: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "platform.yaml"
        file.write_text(text, encoding="utf-8")
        loaded = load([file])
        verdict.refused = tuple(f"{problem.code}: {problem.message}" for problem in loaded.errors)
    if loaded.errors:
        return
    if loaded.spec is None or loaded.scenario is None:
        verdict.refused = ("incomplete: no Platform or no Scenario",)
        return
    rehearsal = Rehearsal(loaded.spec, loaded.scenario, seed)
    violation: InvariantViolated | None = None
    try:
        rehearsal.run()
    except InvariantViolated as violated:
        violation = violated
        words = _NAMES.sub("_", violated.objects[-1] if violated.objects else "")
        verdict.signature, verdict.story = f"invariant {violated.number}: {words}", str(violated)
    verdict.virtual_h = (rehearsal.timeline.now() - rehearsal.start).total_seconds() / 3600
    verdict.seen = seen_in(rehearsal)
    if reports:
        outcome = tally(rehearsal, scenario="platform.yaml", wall_s=0.0, violation=violation)
        verdict.digest = blake2b(_written(outcome).encode(), digest_size=8).hexdigest()


def _written(outcome: Outcome) -> str:
    """Every report of a rehearsal: JSON, the terminal's and the page."""
    from rich.console import Console

    from tidemill.render.rehearsal_page import page
    from tidemill.render.rehearsal_text import summary

    terminal = io.StringIO()
    Console(width=100, file=terminal).print(summary(outcome, 100, False))
    return json.dumps(outcome.as_json(), allow_nan=False) + terminal.getvalue() + page(outcome)


def _place(error: BaseException) -> str:
    """The innermost frame in our code."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/tidemill/" in frame.filename] or frames
    return f"{ours[-1].filename.rpartition('/tidemill/')[2]}:{ours[-1].name}" if ours else "unknown"


@contextmanager
def cpu_limited(seconds: float) -> Iterator[None]:
    """At most so many seconds of CPU, by a timer that counts only those."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
