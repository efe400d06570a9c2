"""What is away at the start is waited for; what is wrong ends the process with one sentence; one drainer only."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from tests.controller.running import ScriptedWakes
from tests.decide.builders import spec
from tests.engine.ports import Outside
from tidemill.controller.startup import TELL_EVERY_S, DrainerWatch, Patience, Stopped, check_synced
from tidemill.model.errors import NotAllowed, Refused, Retryable, SpecError, TidemillError


class Waiting:
    def __init__(self) -> None:
        self.wakes = ScriptedWakes(Outside(spec()))
        self.stops_at_s = float("inf")
        self.beats = 0
        self.patience = Patience(
            self.wakes, lambda: self.wakes.at_s >= self.stops_at_s, beat=self._beat, now_s=self.wakes.now_s
        )

    def _beat(self) -> None:
        self.beats += 1


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_what_is_away_is_tried_again_until_it_answers(waiting: Waiting, caplog: pytest.LogCaptureFixture):
    def answer() -> str:
        if waiting.wakes.at_s < 100:
            raise Retryable("connection refused")
        return "there"

    assert waiting.patience.until("the API server", answer) == "there"
    assert waiting.beats > 10  # healthy meanwhile


def test_a_line_now_and_then_and_not_for_every_try(waiting: Waiting, monkeypatch: pytest.MonkeyPatch):
    lines: list[float] = []
    from tidemill.controller import startup

    monkeypatch.setattr(startup.log, "warning", lambda *given, **fields: lines.append(waiting.wakes.at_s))
    waiting.stops_at_s = 100

    def away() -> None:
        raise Retryable("connection refused")

    with pytest.raises(Stopped):
        waiting.patience.until("the API server", away)
    assert len(lines) == 4
    assert all(later - earlier >= TELL_EVERY_S for earlier, later in itertools.pairwise(lines))
    lines.clear()
    waiting.stops_at_s = 120
    with pytest.raises(Stopped):
        waiting.patience.until("the list", away, quiet_s=30)
    assert lines == []


@pytest.mark.parametrize("error", [NotAllowed("401"), SpecError("no such context"), Refused("no")])
def test_what_is_wrong_is_not_waited_for(waiting: Waiting, error: TidemillError):
    def wrong() -> None:
        raise error

    with pytest.raises(type(error)):
        waiting.patience.until("the API server", wrong)


class Reader:
    def __init__(self, synced: bool = False, **errors: TidemillError) -> None:
        self.synced = synced
        self._errors = errors

    def errors(self) -> dict[str, TidemillError]:
        return self._errors


def test_a_right_that_is_missing_ends_the_wait_for_the_first_list():
    check_synced(Reader(synced=True))
    with pytest.raises(Retryable, match="being listed"):
        check_synced(Reader())
    with pytest.raises(Retryable, match="Pod: away"):
        check_synced(Reader(Pod=Retryable("away")))
    with pytest.raises(NotAllowed, match="list pods"):
        check_synced(Reader(Node=Retryable("away"), Pod=NotAllowed("may not list pods")))


# --- drainers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    kind: str
    name: str
    certain: bool
    pools: tuple[str, ...] = ("p5",)

    def __str__(self) -> str:
        return f"{self.name} is a {self.kind}"


HANDLER = Found("aws-node-termination-handler", "DaemonSet/kube-system/nth", True)
MAYBE = Found("cluster-autoscaler", "Deployment/kube-system/ca", False)


@pytest.mark.requirement("PE-20")
def test_a_second_drainer_is_refused_with_what_to_do():
    with pytest.raises(
        Refused, match=r"DaemonSet/kube-system/nth.*--accept-drainer DaemonSet/kube-system/nth"
    ):
        DrainerWatch(lambda: [MAYBE, HANDLER], ()).refuse()


@pytest.mark.parametrize("accepted", ["DaemonSet/kube-system/nth", "aws-node-termination-handler"])
def test_one_that_is_accepted_by_name_or_kind_is_not(accepted: str):
    looked: list[str] = []

    def drainers() -> list[Found]:
        looked.append("looked")
        return [HANDLER]

    DrainerWatch(drainers, (accepted,)).refuse()
    assert looked, "it was seen, and accepted"


def test_one_that_may_act_is_warned_of_once(monkeypatch: pytest.MonkeyPatch):
    from tidemill.controller import startup

    warned: list[str] = []
    monkeypatch.setattr(startup.log, "warning", lambda event, **fields: warned.append(fields["about"]))
    watch = DrainerWatch(lambda: [MAYBE], ())
    watch.refuse()
    watch.warn()
    assert warned == [str(MAYBE)]


@pytest.mark.requirement("PE-20")
def test_one_that_comes_later_has_its_pools_refused_until_it_goes():
    found: list[Found] = []
    woken: list[str] = []
    watch = DrainerWatch(lambda: found, ["NodePool/accepted"], woken.append)
    watch.refuse()
    assert watch.refused_pools == ()
    found += [
        Found("karpenter", "NodePool/gpu", True, ("train", "serve")),
        Found("karpenter", "NodePool/accepted", True, ("spare",)),
        MAYBE,
    ]
    watch.warn()
    assert watch.refused_pools == (("serve", "NodePool/gpu"), ("train", "NodePool/gpu"))
    found.clear()
    watch.warn()
    assert watch.refused_pools == ()
    assert len(woken) == 2
