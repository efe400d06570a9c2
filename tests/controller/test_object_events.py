"""Kubernetes Events say why, in one sentence, on the object it is about, and do not flood."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.decide.builders import ahead, node, pod, spec
from tests.decide.builders import world as world_of
from tidemill.controller.loop import TickReport
from tidemill.controller.object_events import (
    AGAIN_AFTER_S,
    CALM_S,
    MOST_WAITING_IN_A_TICK,
    EventReporter,
    events_of_actions,
)
from tidemill.engine.loop import Tick
from tidemill.kube.events import Subject
from tidemill.model import reasons
from tidemill.model.plan import (
    Admit,
    Evict,
    ForceDelete,
    Outcome,
    Plan,
    ScaleWorkload,
    StartDrain,
    Terminate,
    Unmet,
)
from tidemill.spec import names
from tidemill.wording import sentence

ENDS = reasons.DrainReason(reasons.DrainKind.SOURCE_ENDS, at=ahead("1h"), name="cr-1")
HELD = reasons.HoldReason(next(iter(reasons.HoldKind)))


class Recorder:
    def __init__(self) -> None:
        self.told: list[tuple[Subject, str, str, bool]] = []
        self.facts: list[dict[str, str]] = []

    def tell(
        self, subject: Subject, reason: str, note: str, *, action: str, warning: bool = False, facts=None
    ) -> None:
        self.told.append((subject, reason, note, warning))
        self.facts.append(dict(facts or {}))


class Clock:
    at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


def report(world, plan=None, outcomes=()) -> TickReport:
    tick = Tick(world, plan or Plan(), tuple(outcomes), world.now)
    return TickReport(1, spec(), (), tick, 0.1)


def waiting(*pods, code="no-capacity", earliest=None) -> Plan:
    return Plan(unmet=tuple(Unmet(one.uid, one.full_name, code, HELD, earliest) for one in pods))


def test_what_is_done_to_pods_and_nodes_is_told_on_them_with_the_reason():
    there = node()
    evicted = pod(node=there.name)
    world = world_of(nodes=(there,), pods=(evicted,))
    assert there.instance is not None
    outcomes = (
        Outcome(StartDrain(there.name, ENDS)),
        Outcome(Evict(evicted.uid, reasons.EvictReason(ENDS))),
        Outcome(
            Terminate(there.instance.id, reasons.TerminateReason(reasons.TerminateKind.DRAINED, drain=ENDS))
        ),
    )
    events = list(events_of_actions(world, outcomes))
    assert [(event.subject.kind, event.subject.name, event.reason) for event in events] == [
        ("Node", there.name, "Draining"),
        ("Pod", evicted.name, "Evicting"),
        ("Node", there.name, "Terminating"),
    ]
    assert events[0].note.lower() == sentence(ENDS).lower()
    assert events[0].note[0].isupper()


def test_a_failed_action_is_a_warning_with_what_went_wrong():
    evicted = pod()
    world = world_of(pods=(evicted,))
    (event,) = events_of_actions(
        world, (Outcome(Evict(evicted.uid, reasons.EvictReason(ENDS)), "refused", "a budget forbids it"),)
    )
    assert (event.reason, event.warning) == ("EvictingFailed", True)
    assert event.note.endswith("it failed: a budget forbids it")


def test_an_admission_that_failed_is_not_called_admitted():
    waits = pod(gated=True)
    reason = reasons.AdmitReason(reasons.AdmitKind.NODE_FREE, "n")
    failed = Outcome(Admit((waits.uid,), "cr-1", None, reason), "retryable", "away")
    (event,) = events_of_actions(world_of(pods=(waits,)), (failed,))
    assert (event.reason, event.warning) == ("AdmissionFailed", True)


def test_a_hand_over_that_another_manager_stops_is_told_on_the_service():
    surge = reasons.HandoverReason(reasons.HandoverKind.SURGE, count=2, sources=("cr-1",))
    action = ScaleWorkload("Deployment/serving/chat", 4, 2, (), surge)
    outcome = Outcome(action, "refused", "another manager owns .spec.replicas")
    (event,) = events_of_actions(world_of(), (outcome,))
    assert event.subject == Subject("Deployment", "chat", "serving", api_version="apps/v1")
    assert (event.reason, event.warning) == ("HandingOverFailed", True)
    assert event.note.endswith("it failed: another manager owns .spec.replicas")


def test_a_forced_delete_is_a_warning():
    forced = pod()
    reason = reasons.EndReason(reasons.EndKind.LAST_SAFE_MOMENT, at=ahead("1m"))
    (event,) = events_of_actions(world_of(pods=(forced,)), (Outcome(ForceDelete(forced.uid, 30, reason)),))
    assert event.warning


def test_pods_that_a_held_job_has_yet_to_make_are_told_on_the_job():
    pods = tuple(
        replace(pod(), uid=f"1b2c-3d.{index}", namespace="ml", name=f"train-{index}", workload="Job/ml/train")
        for index in range(3)
    )
    admitted = Admit(
        tuple(one.uid for one in pods),
        "cr-1",
        None,
        reasons.AdmitReason(reasons.AdmitKind.NODES_FREE, "cr-1", 3),
    )
    events = list(events_of_actions(world_of(pods=pods), (Outcome(admitted),)))
    assert {event.subject for event in events} == {Subject("Job", "train", "ml", "1b2c-3d", "batch/v1")}


@pytest.mark.requirement("PE-13")
def test_why_a_pod_waits_is_said_again_only_when_its_kind_changes_or_after_long():
    recorder, clock, one = Recorder(), Clock(), pod()
    reporter = EventReporter(recorder, now_s=clock)
    world = world_of(pods=(one,))
    for _ in range(100):
        clock.at_s += 1
        reporter.report(report(world, waiting(one)))
    assert [reason for _, reason, _, _ in recorder.told] == ["WaitingNoCapacity"]
    clock.at_s += CALM_S
    reporter.report(report(world, waiting(one, code="launching")))
    clock.at_s += AGAIN_AFTER_S
    reporter.report(report(world, waiting(one, code="launching")))
    assert [reason for _, reason, _, _ in recorder.told][1:] == ["WaitingLaunching"] * 2


@pytest.mark.requirement("PE-15")
def test_when_it_could_start_is_a_fact_of_the_event_and_is_told_again_when_it_moves_by_long():
    recorder, clock, one = Recorder(), Clock(), pod()
    reporter = EventReporter(recorder, now_s=clock)
    for minute in range(60):  # the start creeps by a second a minute, and once by an hour
        clock.at_s = 60.0 * minute
        earliest = ahead("2h" if minute < 20 else "3h") + timedelta(seconds=minute)
        reporter.report(report(world_of(pods=(one,)), waiting(one, earliest=earliest)))
    starts = [facts[names.EARLIEST_START] for facts in recorder.facts]
    assert [datetime.fromisoformat(start) - ahead("2h") for start in starts] == [
        timedelta(0), timedelta(hours=1, seconds=20), timedelta(hours=1, seconds=50),
    ]  # fmt: skip


def test_what_was_admitted_and_waits_again_for_the_same_reason_is_told_again():
    recorder, clock, one = Recorder(), Clock(), pod(gated=True)
    reporter = EventReporter(recorder, now_s=clock)
    world = world_of(pods=(one,))
    reporter.report(report(world, waiting(one)))
    clock.at_s = 120
    admitted = Admit((one.uid,), "cr-1", None, reasons.AdmitReason(reasons.AdmitKind.NODE_FREE, "n"))
    reporter.report(report(world, outcomes=(Outcome(admitted),)))
    clock.at_s = 240
    reporter.report(report(world, waiting(one)))
    assert [reason for _, reason, _, _ in recorder.told] == [
        "WaitingNoCapacity",
        "Admitted",
        "WaitingNoCapacity",
    ]


def test_a_reason_that_flickers_is_said_once_a_minute_at_most():
    recorder, clock, one = Recorder(), Clock(), pod()
    reporter = EventReporter(recorder, now_s=clock)
    for second in range(120):
        clock.at_s = float(second)
        reporter.report(report(world_of(pods=(one,)), waiting(one, code=("held", "limit")[second % 2])))
    assert len(recorder.told) <= 3


def test_ten_thousand_waiting_pods_take_their_turns():
    recorder, pods = Recorder(), tuple(pod(name=f"p-{number}") for number in range(10_000))
    reporter = EventReporter(recorder, now_s=Clock())
    world = world_of(pods=pods)
    reporter.report(report(world, waiting(*pods)))
    assert len(recorder.told) == MOST_WAITING_IN_A_TICK
    reporter.report(report(world, waiting(*pods)))
    assert len({subject for subject, *_ in recorder.told}) == 2 * MOST_WAITING_IN_A_TICK
