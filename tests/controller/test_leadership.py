"""Terms of leading: waited for, fenced, guarded, lost, and refused where only one may live."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import structlog

from tidemill.controller.leadership import ALIVE_AFTER, Leadership, LeaseGuard, Overtaken
from tidemill.controller.wakes import Wakes
from tidemill.model.errors import Gone, NotAllowed, Refused, Retryable, Throttled, TidemillError

LEASE_S = 30.0


class Elector:
    def __init__(self) -> None:
        self.is_leader = False
        self.other_holder = ""
        self.trouble = ""
        self.error: TidemillError | None = None

    def left_s(self) -> float:
        return LEASE_S if self.is_leader else 0.0


class Ledger:
    def __init__(self) -> None:
        self.overtaken = False
        self.epoch = 6
        self.away: list[Exception] = []
        self.waits: Callable[[], object] = lambda: None  # before this one may write

    def lead(self, may_lead: Callable[[], None]) -> int:
        if self.away:
            raise self.away.pop(0)
        self.waits()
        may_lead()
        self.overtaken = False
        self.epoch += 1
        return self.epoch


class Script(Wakes):
    """Each wait is half a second, and runs the next step of the test."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.steps = list(steps)
        self.at_s = 0.0

    def wait(self, timeout_s: float, *, gather_s: float = 0.1) -> tuple[str, ...]:
        self.at_s += timeout_s
        if self.steps:
            self.steps.pop(0)()
        return ()


class Stage:
    def __init__(self, *, no_other: str = "") -> None:
        self.elector, self.ledger, self.wakes = Elector(), Ledger(), Script()
        self.stopping = False
        self.terms: list[int] = []
        self.leadership = Leadership(
            self.elector, self.ledger, self.wakes, lease_s=LEASE_S, no_other=no_other,
            stopping=lambda: self.stopping, now_s=lambda: self.wakes.at_s,
        )  # fmt: skip

    def stop(self) -> None:
        self.stopping = True

    def win(self) -> None:
        self.elector.is_leader = True


def test_a_term_begins_when_the_lease_is_held_and_the_ledger_has_a_new_epoch():
    stage = Stage()
    stage.wakes.steps = [lambda: None, stage.win]

    def term() -> None:
        stage.terms.append(stage.leadership.epoch)
        assert stage.leadership.go_on
        stage.stop()
        assert not stage.leadership.go_on

    stage.leadership.run(term)
    assert stage.terms == [7]


@pytest.mark.requirement("CB-4")
def test_a_lost_lease_ends_the_term_and_the_next_one_has_its_own_epoch():
    stage = Stage()
    stage.win()

    def term() -> None:
        stage.terms.append(stage.leadership.epoch)
        stage.elector.is_leader = False
        assert not stage.leadership.go_on
        stage.wakes.steps = [stage.win] if len(stage.terms) == 1 else [stage.stop]

    stage.leadership.run(term)
    assert stage.terms == [7, 8]


@pytest.mark.requirement("CB-4")
def test_a_leader_that_the_ledger_refuses_ends_the_process():
    stage = Stage()
    stage.win()

    def term() -> None:
        stage.ledger.overtaken = True
        assert not stage.leadership.go_on

    with pytest.raises(Overtaken, match="another engine has become the leader"):
        stage.leadership.run(term)


def test_nothing_is_begun_before_the_ledger_has_taken_the_epoch():
    stage = Stage()
    stage.win()
    stage.ledger.away = [Retryable("no connection")] * 3
    stage.leadership.run(lambda: (stage.terms.append(stage.leadership.epoch), stage.stop()))
    assert stage.terms == [7]
    assert stage.wakes.at_s >= 1.5


@pytest.mark.requirement("CB-4")
def test_a_lease_that_ends_while_the_ledger_is_waited_for_takes_no_epoch():
    """Somebody else leads by then, and the epoch of a candidate that was slow would end it."""
    stage = Stage()
    stage.win()

    def lose() -> None:
        stage.elector.is_leader, stage.elector.other_holder = False, "another"
        stage.wakes.steps = [stage.stop]

    stage.ledger.waits = lose
    stage.leadership.run(lambda: stage.terms.append(stage.leadership.epoch))
    assert (stage.terms, stage.ledger.epoch) == ([], 6)


def test_a_stop_while_waiting_ends_it_without_a_term():
    stage = Stage()
    stage.wakes.steps = [stage.stop]
    stage.leadership.run(lambda: stage.terms.append(1))
    assert stage.terms == []
    assert stage.ledger.epoch == 6


def test_with_one_replica_allowed_another_live_holder_is_refused_with_a_sentence():
    stage = Stage(no_other="SQLite allows one: use PostgreSQL")
    stage.elector.other_holder = "tidemill-6f9_1"
    with pytest.raises(Refused, match=r"tidemill-6f9_1 leads.*PostgreSQL"):
        stage.leadership.run(lambda: None)
    assert stage.wakes.at_s > ALIVE_AFTER * LEASE_S


@pytest.mark.parametrize(
    "error", [Gone("there is no namespace tidemill-system: kubectl create namespace"), NotAllowed("no right")]
)
def test_a_lease_that_cannot_be_had_ends_the_start_with_its_sentence(error: TidemillError):
    stage = Stage()
    stage.elector.error, stage.elector.trouble = error, str(error)
    stage.wakes.steps = [*[lambda: None] * 100, stage.stop]
    with pytest.raises(type(error), match=str(error)):
        stage.leadership.run(lambda: None)
    assert stage.wakes.at_s < 10


def test_a_right_that_is_missing_for_a_moment_or_after_the_first_term_is_waited_for():
    stage = Stage()
    stage.elector.error = NotAllowed("not read yet")

    def comes() -> None:
        stage.elector.error = None
        stage.win()

    def term() -> None:
        stage.terms.append(stage.leadership.epoch)
        stage.elector.is_leader, stage.elector.error = False, Gone("somebody deletes the namespace")
        stage.wakes.steps = [*[lambda: None] * 100, stage.stop]

    stage.wakes.steps = [comes]
    stage.leadership.run(term)
    assert stage.terms == [7]


def test_a_process_that_waits_says_at_once_who_leads():
    stage = Stage(no_other="SQLite allows one")
    stage.elector.other_holder = "pod-a_1"
    stage.wakes.steps = [lambda: None, stage.stop]
    with structlog.testing.capture_logs() as logs:
        stage.leadership.run(lambda: None)
    (told,) = logs
    assert told["event"] == "another process leads, and this one waits"
    assert (told["holder"], told["ends_after"]) == ("pod-a_1", "45 s: SQLite allows one")


def test_the_lease_of_a_process_that_died_is_waited_for():
    """It runs out within its time; only somebody who renews holds it longer."""
    stage = Stage(no_other="SQLite allows one: use PostgreSQL")
    stage.elector.other_holder = "the one before"
    stage.wakes.steps = [lambda: None] * int(LEASE_S / 0.5) + [stage.win]
    stage.leadership.run(stage.stop)
    assert stage.ledger.epoch == 7


def test_an_api_server_that_is_away_says_nothing_about_other_holders():
    stage = Stage(no_other="SQLite allows one: use PostgreSQL")
    stage.elector.other_holder, stage.elector.trouble = "somebody", "the API server does not answer"
    stage.wakes.steps = [lambda: None] * 1000 + [stage.stop]
    stage.leadership.run(lambda: None)


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(("left_s", "timeout_s", "begins"), [(20, 15, True), (15, 15, False), (0, 1, False)])
def test_no_call_is_begun_with_less_lease_left_than_its_time_out(
    left_s: float, timeout_s: float, begins: bool
):
    guard = LeaseGuard(lambda: left_s)
    if begins:
        guard.may_begin(timeout_s)
        return
    with pytest.raises(Throttled, match="not begun") as refused:  # certainly not done, whatever it was
        guard.may_begin(timeout_s)
    assert refused.value.code == "no-lease"
