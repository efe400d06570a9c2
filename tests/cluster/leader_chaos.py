"""Kills and freezes whoever leads, mostly inside drains, at moments drawn by a seed; notes how long nobody led."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from controlplane.api import eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.controller import LEADS
from tests.cluster.leader_judge import Judgement, judge
from tests.cluster.leader_moments import Activity, Aim, under_way, wait_for
from tests.cluster.leader_scene import DRAINS_FROM, LEASE_S, NAMES, OVER, LeaderScene, at, wall_now
from tidemill.spec import names

# For two controllers, a control plane, a database and an account on a machine that does other things too.
ALLOWANCE_S = 10.0
WATCHED_S = 5.0  # a leader that woke up


@dataclass(frozen=True, slots=True)
class Kill:
    leader: str
    amid: tuple[Activity, ...]  # what was under way
    takeover_s: float  # from the kill to the end of the next leader's first tick
    led_s: float  # ... and to the moment when it led


@dataclass(frozen=True, slots=True)
class Freeze:
    leader: str
    frozen_s: float
    takeover_s: float
    wrote: tuple[str, ...]  # after it woke up
    other_wrote: int  # meanwhile, by the same records
    ended: bool  # with code 5, because the ledger refused it


@dataclass(slots=True)
class Outcome:
    seed: int
    kills: list[Kill] = field(default_factory=list)
    freezes: list[Freeze] = field(default_factory=list)
    judgement: Judgement = field(default_factory=Judgement)

    @property
    def faults(self) -> list[str]:
        found = list(self.judgement.faults)
        gaps = [(one.leader, one.takeover_s) for one in self.kills]
        gaps += [(one.leader, one.takeover_s) for one in self.freezes]
        found += [
            f"nobody led for {gap_s:.1f} s after {leader} was gone"
            for leader, gap_s in gaps
            if gap_s > LEASE_S + ALLOWANCE_S
        ]
        for freeze in self.freezes:
            found += [f"{freeze.leader} wrote after it woke up: {what}" for what in freeze.wrote]
            if not freeze.other_wrote:
                found.append("the records show no writes of the leader either")
        return found


class Chaos:
    def __init__(self, scene: LeaderScene) -> None:
        self._scene, self._chance = scene, scene.chance
        self._started: dict[str, datetime] = dict.fromkeys(NAMES, wall_now() - timedelta(minutes=10))

    def kill(self, aim: Aim) -> Kill:
        scene, leader = self._scene, self._ready_leader()
        wait_for(scene, aim)
        scene.processes.pause(leader)  # for the moment that it takes to look
        try:
            amid = under_way(scene)
        finally:
            scene.processes.kill(leader)
        killed = wall_now()
        led_s, takeover_s = self._takeover(leader, killed)
        time.sleep(self._chance.uniform(0.0, 3.0))
        self._started[leader] = wall_now()
        scene.start(leader)
        return Kill(leader, amid, takeover_s, led_s)

    def freeze(self, aim: Aim) -> Freeze:
        """SIGSTOP until somebody else leads, and some more; then SIGCONT."""
        scene, leader = self._scene, self._ready_leader()
        wait_for(scene, aim)
        scene.processes.pause(leader)
        frozen = wall_now()
        try:
            _, takeover_s = self._takeover(leader, frozen)
            time.sleep(self._chance.uniform(0.5, 3.0))
            known = _last_line(scene, "")
        finally:
            woke = wall_now()
            scene.processes.resume(leader)
        time.sleep(WATCHED_S)
        other = next(name for name in NAMES if name != leader)
        wrote, others = self._written(leader, woke, known), self._written(other, woke, known)
        ended = not scene.processes.alive(leader)
        return Freeze(leader, (woke - frozen).total_seconds(), takeover_s, wrote, len(others), ended)

    def _written(self, leader: str, woke: datetime, known: int) -> tuple[str, ...]:
        """By the records of the API server, of AWS, and of the ledger."""
        scene, until = self._scene, wall_now()
        found = [
            f"{event['verb']} {event['requestURI']} ({event['responseStatus']['code']})"
            for event in scene.api_writes(leader, since=woke, until=until)
            if event["responseStatus"]["code"] < 300
        ]
        found += [
            f"AWS {call['action']}"
            for call in scene.calls()
            if call["key"] == f"as-{leader}" and datetime.fromisoformat(call["wall"]) >= woke
        ]
        lines = scene.rows(
            "SELECT seq, what, subject FROM audit WHERE seq > %s AND who LIKE %s", known, f"%/{leader}"
        )
        return (*found, *(f"ledger {line['what']} {line['subject']}" for line in lines))

    def _ready_leader(self) -> str:
        """Once both are there: what is measured is a take-over, not the start of a process."""
        scene = self._scene
        for name in NAMES:
            ready = partial(scene.is_ready, name, since=self._started[name])
            eventually(ready, timeout_s=120, what=f"{name} is ready", every_s=0.3)
        return scene.leader()

    def _takeover(self, gone: str, since: datetime) -> tuple[float, float]:
        """Seconds until the other led, and until its first tick was done."""
        other = next(name for name in NAMES if name != gone)
        log = self._scene.logs[other]

        def ticked() -> tuple[float, float] | None:
            led = log.events(LEADS, since=since)
            if not led:
                return None
            ticks = [line for line in log.lines if line.get("event") == "ticked" and at(line) >= at(led[0])]
            if not ticks:
                return None
            return (at(led[0]) - since).total_seconds(), (at(ticks[0]) - since).total_seconds()

        took = eventually(ticked, timeout_s=90, what=f"{other} takes over", every_s=0.1)
        assert took is not None
        return took


def _last_line(scene: LeaderScene, who: str) -> int:
    """The number of the ledger's last line: of all, or of one."""
    (row,) = scene.rows("SELECT coalesce(max(seq), 0) AS seq FROM audit WHERE who LIKE %s", f"%{who}")
    return int(row["seq"])


def make_namespaces(plane: ControlPlane, name: str) -> tuple[str, str]:
    """One whose workloads are held, and one that is nobody's; both take pods."""
    api = plane.admin()
    labels: dict[str, dict[str, str]] = {f"{name}-held": {names.MANAGED: "true"}, f"{name}-serving": {}}
    for one, given in labels.items():
        api.create("/api/v1/namespaces", {"metadata": {"name": one, "labels": given}})
    for one in labels:
        account = partial(api.get, f"/api/v1/namespaces/{one}/serviceaccounts/default")
        eventually(account, timeout_s=120, what=f"{one} has a ServiceAccount")
    held, serving = labels
    return held, serving


def aims(kills: int) -> list[Aim]:
    """Most kills fall into a drain, one in six into a launch and one in six into a purchase."""
    return [Aim.LAUNCH if n % 6 == 0 else Aim.PURCHASE if n % 6 == 3 else Aim.DRAIN for n in range(kills)]


def play(
    plane: ControlPlane, folder: Path, ledger: str, namespaces: tuple[str, str], seed: int, *, kills: int,
    freezes: int = 1, tell: Callable[[str], None] = lambda line: None,
) -> Outcome:  # fmt: skip
    """One scene from beginning to end: kills and freezes spread over it, the last one while block a is drained."""
    outcome = Outcome(seed)
    with contextlib.closing(Processes(folder / "log")) as processes:
        scene = LeaderScene(plane, processes, folder, ledger, namespaces, seed)
        chaos = Chaos(scene)
        turns = [("kill", aim) for aim in aims(kills)] + [("freeze", Aim.DRAIN)] * freezes
        scene.chance.shuffle(turns)
        turns[-1] = (turns[-1][0], Aim.DRAIN)
        with scene.running():
            for number, (turn, aim) in enumerate(turns, 1):
                if number == len(turns):
                    scene.wait_until(DRAINS_FROM)
                if turn == "kill":
                    outcome.kills.append(killed := chaos.kill(aim))
                    tell(f"{scene.account.now():%H:%M} {aim}: {killed}")
                else:
                    outcome.freezes.append(frozen := chaos.freeze(aim))
                    tell(f"{scene.account.now():%H:%M} {aim}: {frozen}")
            scene.wait_until(OVER)
        outcome.judgement = judge(scene)
    return outcome
