"""Two engines on one ledger: of two who decided on the same reading one moves the intent, and the other is told."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import event, text

from tests.decide.builders import NOW
from tests.decide.purchases import intent, yes
from tests.store.ledgers import Opener
from tests.store.postgres import Server
from tests.store.probes import engine_of
from tidemill.model.errors import OutcomeUnknown, Refused, Retryable, Throttled
from tidemill.model.purchases import PurchaseState
from tidemill.store import database
from tidemill.store.sql import SqlLedger

ENGINES = 4


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("attempt", range(3))
def test_only_one_of_several_engines_can_submit(url: str, opened: Opener, attempt: int):
    approved = intent("approved", approved_by=("ana",))
    ledgers = [opened(url, writer=f"engine-{place}") for place in range(ENGINES)]
    ledgers[0].propose(approved)
    start = threading.Barrier(ENGINES)

    def submit(place: int) -> tuple[str, str]:
        after = replace(approved, state=PurchaseState.SUBMITTED, note=f"engine-{place}", state_at=NOW)
        start.wait()
        try:
            ledgers[place].advance(approved, after)
        except Refused as refused:
            return "", str(refused)
        return after.note, ""

    with ThreadPoolExecutor(ENGINES) as engines:
        answers = list(engines.map(submit, range(ENGINES)))
    (winner,) = [note for note, _ in answers if note]
    assert {why for note, why in answers if not note} == {"purchase tp-1 is submitted by now, not approved"}
    (held,) = ledgers[0].purchases()
    assert held.note == winner
    assert ledgers[0].audit("tp-1")[-1].who == winner
    assert len(ledgers[0].audit("tp-1")) == 2


@pytest.mark.requirement("CB-3")
def test_two_verdicts_at_once_do_not_lose_one(url: str, opened: Opener):
    read = intent()
    ledgers = {who: opened(url, writer=who) for who in ("ana", "bo")}
    ledgers["ana"].propose(read)
    start = threading.Barrier(2)

    def decide(who: str) -> None:
        start.wait()
        while True:
            (held,) = ledgers[who].purchases()
            try:
                return ledgers[who].advance(held, replace(held, verdicts=(*held.verdicts, yes(who))))
            except Refused:
                continue  # somebody was quicker: read again

    with ThreadPoolExecutor(2) as people:
        list(people.map(decide, ledgers))
    (held,) = ledgers["ana"].purchases()
    assert {one.who for one in held.verdicts} == {"ana", "bo"}


@pytest.mark.requirement("CB-4")
def test_proposing_at_once_proposes_once(url: str, opened: Opener):
    ledgers = [opened(url) for _ in range(ENGINES)]
    start = threading.Barrier(ENGINES)

    def propose(place: int) -> None:
        start.wait()
        ledgers[place].propose(intent())

    with ThreadPoolExecutor(ENGINES) as engines:
        list(engines.map(propose, range(ENGINES)))
    assert ledgers[0].purchases() == (intent(),)
    assert len(ledgers[0].audit("tp-1")) == 1


# --- an old leader ---


@pytest.mark.requirement("CB-4")
def test_an_old_leader_cannot_write_any_more(url: str, opened: Opener):
    old, new = opened(url), opened(url)
    old.lead()
    old.propose(intent("approved"))
    assert new.lead() == 2
    for write in (
        lambda: old.propose(intent(id="tp-2")),
        lambda: old.advance(intent("approved"), intent("submitted")),
    ):
        with pytest.raises(Refused, match="another engine has become the leader"):
            write()
    assert (old.overtaken, new.overtaken) == (True, False)
    assert new.purchases() == (intent("approved"),)
    new.advance(intent("approved"), intent("submitted"))


@pytest.mark.requirement("CB-4")
def test_a_candidate_that_lost_its_turn_while_it_waited_does_not_end_the_leader(url: str, opened: Opener):
    late, leader = opened(url), opened(url)
    late.lead()
    assert leader.lead() == 2

    def too_late() -> None:
        raise Throttled("this process does not lead", code="no-lease")

    with pytest.raises(Throttled):
        late.lead(too_late)
    leader.propose(intent())
    with pytest.raises(Refused, match="another engine has become the leader"):
        late.propose(intent(id="tp-2"))
    assert [line.subject for line in leader.audit("leader")] == ["leader"] * 2
    asked: list[str] = []
    assert late.lead(lambda: asked.append("may I")) == 3
    assert asked == ["may I"]


@pytest.mark.requirement("CB-4")
def test_a_leader_that_froze_inside_a_write_keeps_nobody_from_leading(
    postgres: Server, opened: Opener, monkeypatch: pytest.MonkeyPatch
):
    """It holds the lock of every write, and its connection looks alive."""
    monkeypatch.setattr(database, "IDLE_S", 1)
    url = postgres.new_database()
    frozen, new = opened(url), opened(url)
    frozen.lead()

    def freeze_inside_a_write() -> None:
        with frozen._writing() as connection:
            connection.execute(text("UPDATE ledger SET epoch = epoch + 100"))
            assert new.lead() == 2

    with pytest.raises(OutcomeUnknown):
        freeze_inside_a_write()
    with pytest.raises(Refused, match="another engine has become the leader"):
        frozen.propose(intent())


def test_a_person_may_decide_whichever_engine_leads(url: str, opened: Opener):
    engine, person = opened(url), opened(url, writer="ana")
    engine.lead()
    engine.propose(intent())
    person.advance(intent(), intent("voided"))
    assert engine.purchases() == (intent("voided"),)


# --- a database that fails ---


@pytest.mark.requirement("CB-4")
def test_a_write_waits_for_a_lock_and_then_fails(url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "WAIT_S", 1)
    ledger = opened(url)
    with engine_of(opened(url)).connect().execution_options(writes=True) as other, other.begin():
        other.execute(text("UPDATE ledger SET epoch = epoch"))
        with pytest.raises(Retryable, match="cannot be reached"):
            ledger.propose(intent())
    ledger.propose(intent())
    assert ledger.purchases() == (intent(),)


@pytest.mark.requirement("CB-4")
def test_when_the_server_goes_away_during_a_write_nothing_is_written(postgres: Server, opened: Opener):
    ledger = opened(postgres.new_database())
    cut(postgres, ledger, "before_cursor_execute", where="INSERT INTO audit")
    with pytest.raises(Retryable) as raised:
        ledger.propose(intent())
    assert not isinstance(raised.value, OutcomeUnknown)
    assert ledger.purchases() == ()  # and it is reached again at the next call


@pytest.mark.requirement("CB-4")
def test_a_commit_without_an_answer_is_an_unknown_outcome(postgres: Server, opened: Opener):
    ledger = opened(postgres.new_database())
    cut(postgres, ledger, "commit")
    with pytest.raises(OutcomeUnknown):
        ledger.propose(intent())
    assert ledger.purchases() == ()


def cut(postgres: Server, ledger: SqlLedger, when: str, *, where: str = "") -> None:
    """The server drops every other connection, once, at that moment."""
    done: list[bool] = []

    def strike(*told: object) -> None:
        if not done and (not where or where in str(told[2])):
            done.append(True)
            postgres.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'tidemill' AND pid <> pg_backend_pid()"
            )

    event.listen(engine_of(ledger), when, strike)
