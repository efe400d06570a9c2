"""The node's own agent, pure: what is due when, and that it keeps the same rules as the simulator's agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodPhase, PodShape, Terms
from tidemill.model.reasons import DrainReason
from tidemill.node import deadline_agent
from tidemill.node.deadline_agent import CLOSES, SPARE, AgentNode, AgentPod, CloseNode, DeletePod, Due, due
from tidemill.sim.cluster import deadline_agent as simulated
from tidemill.sim.cluster.api_server import ApiServer
from tidemill.sim.timeline import Journal, Timeline

pytestmark = pytest.mark.requirement("CB-16")

END = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
START = END - timedelta(hours=3)


def node(**changes):
    return replace(AgentNode("n", END, draining=False, source="cr-1"), **changes)


def pod(name="p", grace_s=30, **changes):
    return replace(AgentPod(name, "default", name, timedelta(seconds=grace_s)), **changes)


def before(seconds):
    return END - timedelta(seconds=seconds)


def deleted(found: Due):
    return [action.pod.uid for action in found.actions if isinstance(action, DeletePod)]


def closes(found: Due):
    return any(isinstance(action, CloseNode) for action in found.actions)


@pytest.mark.parametrize("grace_s", [0, 30, 600, 7200])
def test_a_pod_is_deleted_when_its_grace_and_the_spare_time_are_left(grace_s):
    just = grace_s + SPARE.total_seconds()
    early = due(node(), [pod(grace_s=grace_s)], before(just + 1))
    assert deleted(early) == []
    assert early.next_at is not None
    assert early.next_at <= before(just)
    assert deleted(due(node(), [pod(grace_s=grace_s)], before(just))) == ["p"]


def test_the_node_closes_five_minutes_before_its_end_or_before_its_longest_grace():
    assert not closes(due(node(), [pod()], END - CLOSES - timedelta(seconds=1)))
    assert closes(due(node(), [pod()], END - CLOSES))
    assert closes(due(node(), [], END - CLOSES))
    assert closes(due(node(), [pod(grace_s=3600)], before(3600 + 45)))
    assert not closes(due(node(draining=True), [pod()], END))


def test_the_longest_grace_goes_first():
    pods = [pod("short", 10), pod("long", 600), pod("middle", 60)]
    assert deleted(due(node(), pods, END)) == ["long", "middle", "short"]


def test_daemons_and_pods_that_leave_are_let_be():
    assert due(node(draining=True), [pod(daemon=True), pod("q", leaving=True)], END) == Due()
    assert not closes(due(node(), [pod(grace_s=9000, daemon=True)], before(1000)))


def test_without_an_end_nothing_is_due():
    assert due(node(ends_at=None), [pod()], END) == Due()


def test_an_end_that_moves_later_is_followed():
    assert deleted(due(node(), [pod()], before(60))) == ["p"]
    moved = due(node(ends_at=END + timedelta(days=1)), [pod()], before(60))
    assert moved.actions == ()
    assert moved.next_at == END + timedelta(days=1) - CLOSES


# --- the simulator's agent ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Happening:
    after_s: int
    kind: str  # bind, daemon, end, leave, drain
    grace_s: int = 0
    moved_s: int = 0


happenings = st.lists(
    st.builds(
        Happening,
        st.integers(0, 4 * 3600),
        st.sampled_from(["bind", "bind", "bind", "daemon", "end", "leave", "drain"]),
        st.sampled_from([0, 1, 30, 255, 256, 600, 3600, 9000]),
        st.integers(-3600, 2 * 3600),
    ),
    max_size=12,
)
Record = list[tuple[datetime, str]]


class SimulatedNode:
    """The simulator's agent on one node; what it does is written down."""

    def __init__(self) -> None:
        self.timeline = Timeline(START)
        self.api = ApiServer(self.timeline, Journal(self.timeline.now), lambda why: None)
        self.record: Record = []
        self.agents = simulated.DeadlineAgents(self.api, self, self.close)  # type: ignore[arg-type]
        self.api.add_node(
            KubeNode("n", "i-1", START, True, (), draining_since=None, drain_reason=None, ends_at=END), ()
        )

    def delete(self, pod: Pod) -> None:
        self.record.append((self.timeline.now(), pod.uid))
        self.api.put_pod(replace(pod, deleting_until=self.timeline.now() + pod.terms.grace))

    def close(self, name: str, reason: DrainReason) -> None:
        self.record.append((self.timeline.now(), "closed"))
        self.api.put_node(replace(self.api.node(name), draining_since=self.timeline.now()))

    def happen(self, number: int, what: Happening) -> None:
        self.timeline.advance(START + timedelta(seconds=what.after_s))
        node = self.api.node("n")
        match what.kind:
            case "bind" | "daemon":
                terms = Terms(grace=timedelta(seconds=what.grace_s))
                self.api.put_pod(
                    Pod(
                        f"u{number:02}", "default", f"p{number}", PodShape(), terms, PodPhase.RUNNING,
                        self.timeline.now(), daemon=what.kind == "daemon", node="n",
                    )
                )  # fmt: skip
            case "end":
                self.api.put_node(replace(node, ends_at=END + timedelta(seconds=what.moved_s)))
            case "drain":
                self.api.put_node(replace(node, draining_since=self.timeline.now()))
            case "leave":
                for pod in self.api.on("n"):
                    if not pod.daemon and pod.deleting_until is None:
                        self.api.put_pod(replace(pod, deleting_until=self.timeline.now()))
                        break
        self.agents.look("n")


class RealNode:
    """Ours on the same node: looked at whenever something happens, and when it asked to be."""

    def __init__(self) -> None:
        self.now = START
        self.record: Record = []
        self.node = node()
        self.pods: dict[str, AgentPod] = {}
        self.next_at: datetime | None = None

    def advance(self, to: datetime) -> None:
        while self.next_at is not None and self.next_at <= to:
            self.now = self.next_at
            self.look()
        self.now = to

    def happen(self, number: int, what: Happening) -> None:
        self.advance(START + timedelta(seconds=what.after_s))
        match what.kind:
            case "bind" | "daemon":
                new = pod(f"u{number:02}", what.grace_s, daemon=what.kind == "daemon")
                self.pods[new.uid] = new
            case "end":
                self.node = replace(self.node, ends_at=END + timedelta(seconds=what.moved_s))
            case "drain":
                self.node = replace(self.node, draining=True)
            case "leave":
                for one in self.pods.values():
                    if not one.daemon and not one.leaving:
                        self.pods[one.uid] = replace(one, leaving=True)
                        break
        self.look()

    def look(self) -> None:
        found = due(self.node, self.pods.values(), self.now)
        for action in found.actions:
            match action:
                case CloseNode():
                    self.node = replace(self.node, draining=True)
                    self.record.append((self.now, "closed"))
                case DeletePod(gone, since):
                    assert since <= self.now
                    self.pods[gone.uid] = replace(gone, leaving=True)
                    self.record.append((self.now, gone.uid))
        assert found.next_at is None or found.next_at > self.now
        self.next_at = found.next_at


@given(happenings)
def test_it_does_what_the_simulated_agent_does_at_the_same_instants(what):
    """The simulator keeps 30 s to spare, as the last resort does; with the same number both act alike."""
    what = sorted(what, key=lambda one: one.after_s)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(simulated, "SPARE", SPARE)
        theirs, ours = SimulatedNode(), RealNode()
        theirs.agents.look("n")
        ours.look()
        for number, one in enumerate(what):
            theirs.happen(number, one)
            ours.happen(number, one)
        last = END + timedelta(hours=3)
        theirs.timeline.advance(last)
        ours.advance(last)
    assert sorted(ours.record) == sorted(theirs.record)


@given(happenings)
def test_every_pod_that_is_bound_in_time_is_gone_by_the_end_with_its_whole_grace(what):
    ours = RealNode()
    ours.look()
    bound: dict[str, datetime] = {}
    for number, one in enumerate(sorted(what, key=lambda one: one.after_s)):
        if one.kind == "end":
            continue
        ours.happen(number, one)
        bound[f"u{number:02}"] = ours.now
    ours.advance(END + timedelta(hours=3))
    for at, uid in ours.record:
        if uid == "closed":
            continue
        latest = END - ours.pods[uid].grace - SPARE
        assert at == max(bound[uid], latest)
    assert all(one.leaving or one.daemon for one in ours.pods.values())


def test_it_comes_after_the_engine_and_before_the_unit_of_the_boot():
    from tidemill.decide.drain import FORCE_MARGIN
    from tidemill.provision.user_data.deadline_agent import SPARE_S

    assert FORCE_MARGIN > deadline_agent.SPARE > timedelta(seconds=SPARE_S)
