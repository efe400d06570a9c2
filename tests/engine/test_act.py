"""One outcome per action; written before the call, written after it, and a failure stops nobody else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.decide.builders import ahead, hourly_pool, launch_intent, spec
from tests.engine.ports import Outside
from tidemill.model import reasons
from tidemill.model.errors import Gone, NoCapacity, NotAllowed, OutcomeUnknown, Refused, Retryable
from tidemill.model.nodes import InstanceState
from tidemill.model.offers import OfferQuery
from tidemill.model.plan import (
    Action,
    Admit,
    AnnounceEnd,
    AnnounceNodeEnd,
    Evict,
    ForceDelete,
    Launch,
    MarkReady,
    Plan,
    Recreate,
    RemoveNode,
    RequestCheckpoint,
    SearchOffers,
    SettleLaunch,
    StartDrain,
    Terminate,
)
from tidemill.model.purchase_reasons import SearchKind, SearchReason
from tidemill.model.purchases import LaunchState
from tidemill.sim.scenario.crash import EngineCrashed
from tidemill.spec import names

INTENT = launch_intent(count=2)
WAIT = reasons.LaunchReason(reasons.LaunchKind.PODS_WAIT, "ml/train-1")
ENDS = reasons.DrainReason(reasons.DrainKind.SOURCE_ENDS, at=ahead("1h"), name="cr-1")
PASSED = reasons.StepReason(reasons.StepKind.NODE_CHECK_PASSED)
GONE = reasons.StepReason(reasons.StepKind.INSTANCE_GONE, "i-1")


@pytest.fixture
def outside() -> Outside:
    return Outside(spec(hourly_pool("p5", "p5.48xlarge")))


@pytest.mark.parametrize(
    ("action", "asked"),
    [
        (
            Admit(
                ("a", "b"),
                "cr-1",
                None,
                reasons.AdmitReason(reasons.AdmitKind.NODES_FREE, "cr-1", 2),
                "train",
            ),
            [("admit", ("a", "b"), "cr-1", None, "train")],
        ),
        (MarkReady("n", PASSED), [("mark_ready", "n")]),
        (StartDrain("n", ENDS), [("start_drain", "n", ENDS)]),
        (
            AnnounceEnd("a", ahead("1h"), reasons.EndReason(reasons.EndKind.SOURCE_ENDS, ahead("1h"))),
            [("announce_end", "a", ahead("1h"))],
        ),
        (
            AnnounceNodeEnd("n", ahead("1h"), reasons.EndReason(reasons.EndKind.END_MOVED, ahead("1h"))),
            [("announce_node_end", "n", ahead("1h"))],
        ),
        (
            RequestCheckpoint("a", reasons.StepReason(reasons.StepKind.NODE_DRAINS)),
            [("request_checkpoint", "a")],
        ),
        (Evict("a", reasons.EvictReason(ENDS)), [("evict", "a")]),
        (
            ForceDelete("a", 40, reasons.EndReason(reasons.EndKind.LAST_SAFE_MOMENT, ahead("1h"))),
            [("delete", "a", 40, True)],
        ),
        (
            Recreate("a", reasons.RecreateReason(reasons.RecreateKind.NO_ROOM_LEFT, "cr-1")),
            [("delete", "a", None, True)],
        ),
        (RemoveNode("n", GONE), [("remove_node", "n")]),
    ],
)
def test_each_action_asks_the_cluster_for_exactly_one_thing(outside: Outside, action, asked):
    (outcome,) = outside.act(action)
    assert outcome.error == ""
    assert outside.cluster.asked == asked


def test_what_found_no_room_time_after_time_is_remembered_for_an_hour(outside: Outside):
    no_room = reasons.RecreateReason(reasons.RecreateKind.NO_ROOM_LEFT, "cr-1")
    lost = reasons.RecreateReason(reasons.RecreateKind.GANG_LOST_PODS, "g", 1, 2)
    actor = outside.actor()
    first = (Recreate("a", no_room, "Job/g"), Recreate("b", no_room, "Job/g"), Recreate("c", lost, "Job/h"))
    actor.carry_out(Plan(first))
    assert [(one.workload, one.times) for one in actor.taken_back] == [("Job/g", 1)]
    outside.clock.pass_time(seconds=60)
    actor.carry_out(Plan(first[:1]))
    assert [one.times for one in actor.taken_back] == [2]
    outside.clock.pass_time(seconds=3601)
    assert actor.taken_back == ()


def tried_at(outside: Outside, action: Action, seconds: int) -> list[int]:
    """When it was tried, of an action that every plan asks for, every second."""
    actor, tries = outside.actor(), []
    for second in range(seconds):
        tries += [second for _ in actor.carry_out(Plan((action,)))]
        outside.clock.pass_time(seconds=1)
    return tries


def test_what_is_done_and_has_no_effect_is_done_again_later_and_later(outside: Outside):
    """Such as a node that a finalizer keeps: every plan removes it."""
    assert tried_at(outside, RemoveNode("n", GONE), 200) == [0, 1, 2, 7, 17, 37, 77, 157]


def test_a_refused_termination_is_tried_again_later_and_later(outside: Outside):
    """Such as that of an instance which somebody protected."""
    outside.cloud.before["terminate"] = [Refused("protected")] * 9
    lost = reasons.TerminateReason(reasons.TerminateKind.KUBELET_LOST)
    assert tried_at(outside, Terminate("i-1", lost), 100) == [0, 5, 15, 35, 75]


def test_a_pod_that_must_go_is_not_kept_waiting_by_a_rest(outside: Outside):
    due = ForceDelete("a", 40, reasons.EndReason(reasons.EndKind.LAST_SAFE_MOMENT, ahead("1h")))
    assert tried_at(outside, due, 6) == [0, 1, 2, 3, 4, 5]


def test_a_failing_action_does_not_stop_the_others(outside: Outside):
    outside.cluster.fail("mark_ready", Retryable("slow down"))
    outcomes = outside.act(MarkReady("n1", PASSED), MarkReady("n2", PASSED))
    assert [outcome.error for outcome in outcomes] == ["retryable", ""]
    assert outside.cluster.asked == [("mark_ready", "n2")]


def test_what_is_gone_already_is_done(outside: Outside):
    outside.cluster.fail("remove_node", Gone("n"))
    outcomes = outside.act(
        RemoveNode("n", GONE), Terminate("i-404", reasons.TerminateReason(reasons.TerminateKind.KUBELET_LOST))
    )
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert "already gone" in outcomes[0].detail


def test_a_drained_instance_is_ended_only_when_the_cluster_knows_its_node_to_be_empty(outside: Outside):
    drained = Terminate("i-404", reasons.TerminateReason(reasons.TerminateKind.DRAINED))
    outside.cluster.empty = False
    (outcome,) = outside.act(drained)
    assert (outcome.error, outcome.failed) == ("not-yet", False)
    outside.cluster.empty = True
    (outcome,) = outside.act(drained)
    assert "already gone" in outcome.detail


def test_an_eviction_that_a_budget_forbids_is_an_outcome_and_not_a_force(outside: Outside):
    outside.cluster.evictable = False
    (outcome,) = outside.act(Evict("a", reasons.EvictReason(ENDS)))
    assert outcome.error == "refused"
    assert outside.cluster.asked == [("evict", "a")]


def test_a_search_leaves_a_dated_answer(outside: Outside):
    query = OfferQuery("p5.48xlarge", 4, ahead("14d") - ahead("0s"), ahead("1d"), ahead("20d"))
    actor = outside.actor()
    assert actor._attempt(SearchOffers(query, SearchReason(SearchKind.REPLAN))).detail == "0 offers"
    assert actor.buyer.searches[query].at == outside.clock.now()


# --- launches -------------------------------------------------------------------------------------------


def written(outside: Outside):
    (intent,) = outside.books.launches()
    return intent


@pytest.mark.requirement("PE-23")
def test_a_launch_is_written_down_and_tagged_with_its_owner_and_intent(outside: Outside):
    (outcome,) = outside.act(Launch(INTENT, WAIT))
    assert outcome.detail == "2 of 2: i-0, i-1"
    assert (written(outside).state, written(outside).instance_ids) == (LaunchState.LAUNCHED, ("i-0", "i-1"))
    made = outside.cloud.running["i-0"]
    assert (made.owner, made.intent_id, made.pool) == ("tides", "ti-1", "p5")
    assert names.TAG_OWNER == "deployment"


def test_a_launch_is_in_the_ledger_before_the_call_is_made(outside: Outside):
    outside.crashes.arm("before:launch")
    with pytest.raises(EngineCrashed):
        outside.act(Launch(INTENT, WAIT))
    assert written(outside).state is LaunchState.WRITTEN
    assert not outside.cloud.running


def test_a_crash_between_the_call_and_the_note_neither_loses_nor_doubles(outside: Outside):
    outside.crashes.arm("after:launch")
    with pytest.raises(EngineCrashed):
        outside.act(Launch(INTENT, WAIT))
    assert written(outside).state is LaunchState.WRITTEN
    outside.act(Launch(written(outside), reasons.LaunchReason(reasons.LaunchKind.ANSWER_LOST)))
    assert len(outside.cloud.running) == 2
    assert written(outside).state is LaunchState.LAUNCHED


def test_a_launch_whose_outcome_is_unknown_stays_written_and_the_same_id_is_safe(outside: Outside):
    outside.cloud.fail("launch", OutcomeUnknown("timed out"), after=True)
    (outcome,) = outside.act(Launch(INTENT, WAIT))
    assert outcome.error == "outcome-unknown"
    assert written(outside).state is LaunchState.WRITTEN
    outside.clock.pass_time(seconds=30)
    outside.act(Launch(written(outside), reasons.LaunchReason(reasons.LaunchKind.ANSWER_LOST)))
    assert (len(outside.cloud.running), written(outside).id) == (2, INTENT.id)


@pytest.mark.parametrize(
    ("error", "label"), [(NoCapacity("none"), "no-capacity"), (Retryable("throttled"), "retryable")]
)
def test_a_launch_that_failed_is_remembered_with_its_label(outside: Outside, error: Exception, label: str):
    outside.cloud.fail("launch", error)
    (outcome,) = outside.act(Launch(INTENT, WAIT))
    assert outcome.error == label
    assert (written(outside).state, written(outside).failure) == (LaunchState.FAILED, label)
    assert written(outside).state_at == outside.clock.now()


def test_a_launch_that_a_group_was_asked_for_is_written_down_as_asked(outside: Outside):
    outside.cloud.launch = lambda intent, tags: ()  # type: ignore[method-assign]
    (outcome,) = outside.act(Launch(INTENT, WAIT))
    assert outcome.detail == "a group was asked for 2"
    assert (written(outside).state, written(outside).in_flight) == (LaunchState.ASKED, 2)
    outside.act(
        SettleLaunch(
            INTENT.id, reasons.SettleReason(reasons.SettleKind.GROUP_LATE, 0, 2), failure="no-capacity"
        )
    )
    assert (written(outside).state, written(outside).failure) == (LaunchState.FAILED, "no-capacity")


def test_nothing_is_launched_if_the_intent_cannot_be_written(outside: Outside):
    outside.books.away = True
    (outcome,) = outside.act(Launch(INTENT, WAIT))
    assert outcome.error == "retryable"
    assert not outside.cloud.running


def launched(outside: Outside) -> list[str]:
    outside.act(Launch(INTENT, WAIT))
    return list(outside.cloud.running)


NEVER_JOINED = reasons.TerminateReason(reasons.TerminateKind.NEVER_JOINED, limit=timedelta(minutes=15))


@pytest.mark.requirement("MG-5")
def test_the_console_of_a_node_that_never_joined_is_read_before_it_is_ended(outside: Outside):
    instance_id, _ = launched(outside)
    start = launch_intent(f"start-{instance_id}", state=LaunchState.NEVER_READY, state_at=outside.clock.now())
    (outcome,) = outside.act(Terminate(instance_id, NEVER_JOINED, start))
    assert (outcome.error, outcome.detail) == ("", f"boot of {instance_id}\nnodeadm: Unauthorized")
    assert start in outside.books.launches()


@pytest.mark.requirement("MG-5")
def test_a_console_that_cannot_be_read_keeps_no_instance_alive(outside: Outside):
    instance_id, _ = launched(outside)
    outside.cloud.fail("console_output", NotAllowed("ec2:GetConsoleOutput"))
    start = launch_intent("start-1", state=LaunchState.NEVER_READY, state_at=outside.clock.now())
    (outcome,) = outside.act(Terminate(instance_id, NEVER_JOINED, start))
    assert (outcome.error, outcome.detail) == ("", "its console could not be read: ec2:GetConsoleOutput")
    assert outside.cloud.running[instance_id].state is InstanceState.TERMINATED


def test_a_settled_launch_is_no_longer_open(outside: Outside):
    outside.act(Launch(INTENT, WAIT), SettleLaunch("ti-1", reasons.SettleReason(reasons.SettleKind.ALL_SEEN)))
    assert outside.books.launches() == ()


def test_what_is_left_of_a_plan_is_not_begun_once_the_engine_must_stop(outside: Outside):
    """The action under way is finished; a term that ended or a signal stops before the next one."""
    plan = Plan((MarkReady("n1", PASSED), MarkReady("n2", PASSED), MarkReady("n3", PASSED)))
    outcomes = outside.actor().carry_out(plan, lambda: len(outside.cluster.asked) < 2)
    assert [outcome.action for outcome in outcomes] == list(plan.actions[:2])
    assert outside.cluster.asked == [("mark_ready", "n1"), ("mark_ready", "n2")]
