"""One line for each action, with the tick and the reason; repetitions are counted."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from tests.controller.running import Running
from tests.decide.builders import hourly_pool, launch_intent, node, pod, spec, world
from tidemill.controller.logs import REPEAT_EVERY_S, LogReporter, configure_logs, names_in, subject_of
from tidemill.controller.loop import TickReport
from tidemill.engine.loop import Tick
from tidemill.model import reasons
from tidemill.model.plan import Admit, Evict, Launch, MarkReady, Outcome, Plan, Terminate

PASSED = reasons.StepReason(reasons.StepKind.NODE_CHECK_PASSED)


class Written:
    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    stream = io.StringIO()
    root, ours = logging.getLogger(), logging.getLogger("tidemill")
    before = root.handlers[:], root.level, ours.level
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs("json")
    yield Written(stream)
    root.handlers[:], root.level, ours.level = before[0], before[1], before[2]
    structlog.reset_defaults()


def report(*outcomes: Outcome) -> TickReport:
    return TickReport(1, spec(), (), Tick(world(), Plan(), outcomes, world().now), 0.1)


def test_an_action_is_a_line_with_its_tick_and_its_reason(written: Written):
    running = Running(spec(hourly_pool("g6", "g6.xlarge")), LogReporter())
    running.outside.cluster.pods = [pod(name="train-1", gpus=1)]
    running.run_for(0.5)
    (acted,) = [line for line in written.lines() if line["event"] == "acted"]
    assert (acted["tick"], acted["action"], acted["level"]) == (1, "Launch", "info")
    assert acted["reason"] == "ml/train-1 waits"
    assert acted["subject"] == "g6 g6.xlarge x 1"
    assert "ticked" not in [line["event"] for line in written.lines()], "what it did has its own lines"


def test_every_tick_is_a_line_when_it_is_asked_for(written: Written):
    logging.getLogger("tidemill").setLevel(logging.DEBUG)
    running = Running(spec(hourly_pool("g6", "g6.xlarge")), LogReporter())
    running.outside.cluster.pods = [pod(name="train-1", gpus=1)]
    running.run_for(0.5)
    ticked = next(line for line in written.lines() if line["event"] == "ticked")
    assert (ticked["woken_by"], ticked["actions"]) == ("start", 1)


def test_lines_of_the_engine_carry_the_tick_too(written: Written):
    running = Running(spec(), LogReporter())
    running.outside.cluster.away = True
    running.run_for(0.5)
    (line,) = [line for line in written.lines() if line["logger"] == "tidemill.engine.loop"]
    assert (line["tick"], line["level"]) == (1, "warning")


def test_a_failure_that_repeats_is_told_now_and_then_with_its_number(written: Written):
    at_s = 0.0
    reporter = LogReporter(now_s=lambda: at_s)
    for _ in range(200):
        at_s += 5
        reporter.report(report(Outcome(MarkReady("n", PASSED), "retryable", "away")))
    failures = [line for line in written.lines() if line["event"] == "action failed"]
    assert len(failures) == 1 + int(995 / REPEAT_EVERY_S)
    assert failures[1]["repeated"] == REPEAT_EVERY_S / 5 - 1


def test_a_dry_run_says_would(written: Written):
    LogReporter(dry_run=True).report(report(Outcome(MarkReady("n", PASSED), "refused", "dry run")))
    events = [line["event"] for line in written.lines()]
    assert events == ["would act"]


def test_a_bug_is_one_line_with_its_traceback(written: Written):
    running = Running(spec())
    running.fail_with = [ZeroDivisionError("a bug")]
    running.run_for(0.5)
    (line,) = [line for line in written.lines() if line["level"] == "error"]
    assert line["exception"][0]["exc_type"] == "ZeroDivisionError"


def test_the_console_format_is_for_people(monkeypatch: pytest.MonkeyPatch, written: Written):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs("console")
    LogReporter().report(report(Outcome(MarkReady("node-7", PASSED))))
    assert "acted" in stream.getvalue()
    assert "node-7" in stream.getvalue()


@pytest.mark.parametrize(
    ("action", "subject"),
    [
        (MarkReady("n", PASSED), "n"),
        (Terminate("i-1", reasons.TerminateReason(reasons.TerminateKind.DRAINED)), "i-1"),
        (
            Admit(tuple("abcde"), "cr-1", None, reasons.AdmitReason(reasons.AdmitKind.NODES_FREE, "cr-1", 2)),
            "a, b, c and 2 more",
        ),
        (
            Launch(launch_intent(count=2), reasons.LaunchReason(reasons.LaunchKind.PODS_WAIT, "a/b")),
            "p5 p5.48xlarge x 2",
        ),
    ],
)
def test_what_an_action_is_about(action: Any, subject: str):
    assert subject_of(action) == subject


def test_pods_are_named_and_one_that_is_gone_keeps_its_uid():
    admitted = reasons.AdmitReason(reasons.AdmitKind.NODES_FREE, "cr-1", 2)
    action = Admit(("u-1", "u-2"), "cr-1", None, admitted)
    assert subject_of(action, {"u-1": "ml/train-0"}) == "ml/train-0, u-2"
    assert subject_of(Evict("u-1", reasons.EvictReason(None)), {"u-1": "ml/train-0"}) == "ml/train-0"


def test_an_instance_that_is_ended_is_named_with_its_node_and_pool():
    end = Terminate("i-1", reasons.TerminateReason(reasons.TerminateKind.DRAINED))
    joined = node("i-1", pool="train")
    assert joined.kube is not None
    assert subject_of(end, names_in(world(joined))) == f"i-1 (node {joined.kube.name}, pool train)"
    booting = replace(joined, kube=None)
    assert subject_of(end, names_in(world(booting))) == "i-1 (no node yet, pool train)"
    assert subject_of(end, names_in(world())) == "i-1"


def test_one_look_that_finds_nothing_to_do_is_a_line(written: Written):
    LogReporter().report(report())
    assert written.lines() == []
    LogReporter(every_tick=True).report(report())
    assert [line["event"] for line in written.lines()] == ["ticked"]
