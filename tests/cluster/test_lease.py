"""Two processes and one Lease on a real API server: killed, frozen, and never two at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from controlplane.start import ControlPlane
from tidemill.kube.connect import connect
from tidemill.kube.lease import LeaseElector, boot_seconds

LEASE_S = 3
# The candidate looks three times a second; the rest is for two busy cores.
TAKE_OVER_S = LEASE_S + 1.0


class Contest:
    """Holders in processes of their own, and what they said."""

    def __init__(self, kubeconfig: str, namespace: str, folder: Path) -> None:
        self._kubeconfig, self._namespace, self._folder = kubeconfig, namespace, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def enter(self, identity: str) -> None:
        arguments = (self._kubeconfig, self._namespace, identity, str(LEASE_S))
        command = [sys.executable, "-m", "tests.cluster.lease_holder", *arguments]
        with (self._folder / identity).open("ab") as out:
            self._running[identity] = subprocess.Popen(command, stdout=out)

    def signal(self, identity: str, number: signal.Signals) -> float:
        at_s = boot_seconds()
        os.kill(self._running[identity].pid, number)
        return at_s

    def lines(self) -> list[tuple[float, str, str]]:
        files = [file.read_text() for file in self._folder.iterdir()]
        said = [line.split() for text in files for line in text[: text.rfind("\n") + 1].splitlines()]
        return sorted((float(at), who, what) for at, who, what in said)

    def leader_after(self, at_s: float, within_s: float = 20.0) -> tuple[float, str]:
        end_s = boot_seconds() + within_s
        while boot_seconds() < end_s:
            for said_s, who, what in self.lines():
                if said_s > at_s and what == "leads":
                    return said_s, who
            time.sleep(0.05)
        raise AssertionError(f"nobody led within {within_s} s")

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


@pytest.fixture
def kubeconfig(cluster: ControlPlane) -> str:
    return str(cluster.kubeconfig)


@pytest.fixture
def contest(kubeconfig: str, namespace: str, tmp_path: Path) -> Iterator[Contest]:
    contest = Contest(kubeconfig, namespace, tmp_path)
    yield contest
    contest.close()


def assert_never_two_at_once(lines: list[tuple[float, str, str]]) -> None:
    """Whoever wrote last wrote before the next one led."""
    writes = [(at_s, who) for at_s, who, what in lines if what == "writes"]
    turns = [(one, other) for one, other in pairwise(writes) if one[1] != other[1]]
    assert len(turns) == len({who for _, who in writes}) - 1, "one began while another still wrote"


def test_a_killed_leader_is_followed_within_the_lease(contest: Contest) -> None:
    contest.enter("one")
    contest.leader_after(0)
    contest.enter("two")
    time.sleep(2)
    killed_s = contest.signal("one", signal.SIGKILL)
    led_s, who = contest.leader_after(killed_s)
    assert who == "two"
    assert led_s - killed_s < TAKE_OVER_S
    time.sleep(0.5)
    assert_never_two_at_once(contest.lines())


def test_a_leader_frozen_past_its_lease_writes_nothing_when_it_wakes_up(contest: Contest) -> None:
    contest.enter("one")
    contest.leader_after(0)
    contest.enter("two")
    time.sleep(2)
    frozen_s = contest.signal("one", signal.SIGSTOP)
    led_s, who = contest.leader_after(frozen_s)
    assert who == "two"
    assert led_s - frozen_s < TAKE_OVER_S
    time.sleep(0.5)
    woken_s = contest.signal("one", signal.SIGCONT)
    time.sleep(1.5)
    lines = contest.lines()
    told_s = woken_s - 0.01  # lines are rounded to milliseconds, and it may be told within one
    assert [line for line in lines if line[1:] == ("one", "lost") and line[0] > told_s], "it knows"
    assert not [line for line in lines if line[1:] == ("one", "writes") and line[0] > frozen_s + 0.05]
    assert [line for line in lines if line[1:] == ("two", "writes") and line[0] > woken_s]
    assert_never_two_at_once(lines)


def test_a_lease_given_back_is_taken_at_once(contest: Contest, kubeconfig: str, namespace: str) -> None:
    with closing(connect(kubeconfig)) as api:
        elector = LeaseElector(api, namespace=namespace, name="contest", lease_s=LEASE_S)
        elector.start()
        while not elector.is_leader:
            time.sleep(0.01)
        contest.enter("two")
        time.sleep(2)
        stopped_s = boot_seconds()
        elector.stop()
    led_s, _ = contest.leader_after(stopped_s)
    assert led_s - stopped_s < 1.5


def test_a_missing_namespace_is_said_in_one_sentence(kubeconfig: str) -> None:
    with closing(connect(kubeconfig)) as api:
        elector = LeaseElector(api, namespace="nowhere", lease_s=LEASE_S)
        elector.step()
    assert not elector.is_leader
    assert "nowhere" in elector.trouble
