"""The lease elector against leases kept in memory, with a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from tidemill.kube.api import KubeApi
from tidemill.kube.lease import LeaseElector
from tidemill.model.errors import Gone, NotAllowed, Retryable


class Leases:
    """One Lease, with the API server's rules: created once, and replaced only by who has read the last version."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.fails: Exception | None = None
        self.before_answer: Callable[[], None] = lambda: None
        self.guarded = 0

    def get(self, path: str, params: object = None, *, timeout_s: float = 0) -> bytes:
        if self.fails is not None:
            raise self.fails
        if self.stored is None:
            raise Gone("no such lease", code="not-found")
        return json.dumps(self.stored).encode()

    def send(
        self, method: str, path: str, body: bytes, *, timeout_s: float, unguarded: bool = False
    ) -> bytes:
        self.guarded += not unguarded
        if self.fails is not None:
            raise self.fails
        new = json.loads(body)
        version = int(self.stored["metadata"]["resourceVersion"]) if self.stored else 0
        if method == "POST" and self.stored is not None:
            raise Retryable("it is there", code="already-exists")
        if method == "PUT" and new["metadata"]["resourceVersion"] != str(version):
            raise Retryable("it was changed", code="conflict")
        new["metadata"]["resourceVersion"] = str(version + 1)
        self.stored = new
        self.before_answer()
        return json.dumps(new).encode()


class Time:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.fixture
def time() -> Time:
    return Time()


def elector(leases: Leases, time: Time, identity: str, story: list[str] | None = None) -> LeaseElector:
    told = story if story is not None else []
    return LeaseElector(
        cast(KubeApi, leases), namespace="tidemill", identity=identity, lease_s=15, monotonic=time,
        on_lead=lambda: told.append(f"{identity} leads"), on_lost=lambda: told.append(f"{identity} lost"),
    )  # fmt: skip


def test_the_first_leads_and_the_second_names_it(leases: Leases, time: Time) -> None:
    one, two = elector(leases, time, "one"), elector(leases, time, "two")
    one.step(), two.step()
    assert (one.is_leader, two.is_leader) == (True, False)
    assert (one.other_holder, two.other_holder) == ("", "one")
    assert leases.guarded == 0, "the lease does not ask the guard that asks it"


def test_what_is_left_is_counted_from_before_the_request_was_sent(leases: Leases, time: Time) -> None:
    def slow() -> None:
        time.now_s += 4

    leases.before_answer = slow
    one = elector(leases, time, "one")
    one.step()
    assert one.left_s() == 11


def test_a_renewal_comes_after_a_third_of_the_lease(leases: Leases, time: Time) -> None:
    one = elector(leases, time, "one")
    wait_s = one.step()
    assert 0.8 * 5 <= wait_s <= 5
    time.now_s += wait_s
    one.step()
    assert one.left_s() == 15


def test_nobody_takes_over_before_the_holder_has_stopped(leases: Leases, time: Time) -> None:
    one, two = elector(leases, time, "one"), elector(leases, time, "two")
    one.step()
    time.now_s += 0.5
    two.step()
    while not two.is_leader:
        assert one.is_leader or time.now_s >= 1_015
        time.now_s += 0.25
        two.step()
    assert not one.is_leader
    assert time.now_s == 1_015.5, "a lease after it was seen"
    assert leases.stored is not None
    assert leases.stored["spec"]["leaseTransitions"] == 2


def test_a_holder_that_renews_is_left_alone(leases: Leases, time: Time) -> None:
    one, two = elector(leases, time, "one"), elector(leases, time, "two")
    for _ in range(100):
        one.step(), two.step()
        assert (one.is_leader, two.is_leader) == (True, False)
        time.now_s += 5


def test_a_holder_that_cannot_renew_stops_in_time_and_is_told(leases: Leases, time: Time) -> None:
    story: list[str] = []
    one = elector(leases, time, "one", story)
    one.step()
    leases.fails = Retryable("the API server is away")
    while time.now_s < 1_015:
        assert one.is_leader
        time.now_s += one.step()
    one.step()
    assert not one.is_leader
    assert one.left_s() == 0
    assert one.trouble == "the API server is away"
    assert story == ["one leads", "one lost"]
    leases.fails = None
    one.step()
    assert story == ["one leads", "one lost", "one leads"]
    assert one.trouble == ""


def test_a_frozen_holder_wakes_up_without_the_lease(leases: Leases, time: Time) -> None:
    story: list[str] = []
    one, two = elector(leases, time, "one", story), elector(leases, time, "two", story)
    one.step(), two.step()
    time.now_s += 60
    assert not one.is_leader, "before it has asked anybody"
    two.step()
    one.step()
    assert (one.is_leader, two.is_leader) == (False, True)
    assert story == ["one leads", "two leads", "one lost"]


def test_a_freeze_that_nobody_used_begins_a_new_term(leases: Leases, time: Time) -> None:
    story: list[str] = []
    one = elector(leases, time, "one", story)
    one.step()
    time.now_s += 60
    one.step()
    assert story == ["one leads", "one lost", "one leads"]


def test_a_renewal_whose_answer_was_lost_does_not_count_but_the_next_does(leases: Leases, time: Time) -> None:
    one = elector(leases, time, "one")
    one.step()

    def lost() -> None:
        raise Retryable("no answer", code="time-out")

    leases.before_answer = lost
    time.now_s += 5
    one.step()
    assert one.left_s() == 10
    leases.before_answer = lambda: None
    one.step()
    assert one.left_s() == 15


def test_of_two_that_take_an_old_lease_one_leads(leases: Leases, time: Time) -> None:
    old = elector(leases, time, "old")
    old.step()
    one, two = elector(leases, time, "one"), elector(leases, time, "two")
    one.step(), two.step()
    time.now_s += 16
    stale = leases.get("")
    one.step()
    leases.get = lambda *path, **more: stale  # type: ignore[method-assign]
    two.step()
    assert (one.is_leader, two.is_leader) == (True, False)
    assert two.trouble == "", "being too late is no trouble"


def test_a_lease_that_may_not_be_written_is_said_in_one_sentence(leases: Leases, time: Time) -> None:
    leases.fails = NotAllowed("may not update leases")
    one = elector(leases, time, "one")
    one.step()
    assert one.trouble == "may not update leases"


def test_a_missing_namespace_is_said_with_what_to_do(leases: Leases, time: Time) -> None:
    leases.fails = Gone('namespaces "tidemill" not found', code="not-found")
    one = elector(leases, time, "one")
    one.step()
    assert one.trouble.startswith("there is no namespace tidemill: kubectl create namespace tidemill, or")


def test_the_lease_is_given_back_at_the_end(leases: Leases, time: Time) -> None:
    one, two = elector(leases, time, "one"), elector(leases, time, "two")
    one.start()
    while one.left_s() == 0:
        pass
    two.step()
    one.stop()
    assert one.left_s() == 0
    two.step()
    assert two.is_leader, "at once, without waiting for the lease to run out"


def test_without_release_the_lease_runs_out(leases: Leases, time: Time) -> None:
    one, two = elector(leases, time, "one"), elector(leases, time, "two")
    one.step()
    one.stop(release=False)
    two.step()
    assert not two.is_leader
    time.now_s += 15
    two.step()
    assert two.is_leader


def test_a_lease_that_somebody_deletes_has_no_two_holders(leases: Leases, time: Time) -> None:
    one, two = elector(leases, time, "one"), elector(leases, time, "two")
    one.step(), two.step()
    leases.stored = None
    for _ in range(100):
        two.step()
        assert not (one.is_leader and two.is_leader)
        time.now_s += 0.5
    assert two.is_leader, "the holder did not come back, and its time is over"


def test_a_holder_that_finds_another_name_on_the_lease_stops_at_once(leases: Leases, time: Time) -> None:
    story: list[str] = []
    one, two = elector(leases, time, "one", story), elector(leases, time, "two")
    one.step()
    leases.stored = None
    two.step()  # it has never seen the first
    cast(Any, leases.stored)["metadata"]["resourceVersion"] = "7"  # an API server gives no version twice
    time.now_s += 5
    one.step()  # a conflict
    one.step()
    assert (one.is_leader, two.is_leader) == (False, True)
    assert story == ["one leads", "one lost"]
