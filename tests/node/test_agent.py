"""The deadline agent against an API server in memory, which comes and goes."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.node.api_of_one_node import OneNodeApi, SetClock, wait_until
from tidemill import __version__
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.node.agent import Agent, read_boot_end
from tidemill.spec import names
from tidemill.spec.units import format_instant

pytestmark = pytest.mark.requirement("CB-16")
END = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)


def before(seconds):
    return END - timedelta(seconds=seconds)


class Running:
    def __init__(self, api, at, boot_end=None):
        self.api, self.clock, self.said = api, SetClock(at), []
        self.stop = threading.Event()
        self.agent = Agent(api, "n", self.clock, boot_end=lambda: boot_end, say=self.said.append)
        self.thread = threading.Thread(target=self.agent.run, args=(self.stop,))
        self.thread.start()

    def move_to(self, at):
        self.clock.at = at
        self.agent.wake()

    def end(self):
        self.stop.set()
        self.agent.wake()
        self.thread.join(5)
        assert not self.thread.is_alive()


@pytest.fixture
def run():
    started = []

    def start(*given, **more):
        started.append(Running(*given, **more))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_each_pod_is_told_as_late_as_its_own_grace_allows(run):
    api = OneNodeApi(END)
    api.add_pod("short", 30)
    api.add_pod("long", 600)
    api.add_pod("daemon", 600, owner="DaemonSet")
    api.add_pod("static", 600, owner="Node")
    api.add_pod("done", 600, phase="Succeeded")
    running = run(api, before(7200))
    wait_until(lambda: names.DEADLINE_AGENT in api.node["metadata"]["annotations"])
    running.move_to(before(646))
    time.sleep(0.1)
    assert api.stopped_pods == []
    running.move_to(before(645))
    wait_until(lambda: api.stopped_pods == ["long"])
    running.move_to(before(75))
    wait_until(lambda: api.stopped_pods == ["long", "short"])
    running.move_to(END)
    time.sleep(0.1)
    assert api.stopped_pods == ["long", "short"]


def test_the_condition_comes_before_the_delete_and_both_name_the_pods_uid(run):
    api = OneNodeApi(END)
    api.add_pod("a", None)  # Kubernetes' default of 30 s
    run(api, before(75))
    wait_until(lambda: api.stopped_pods == ["a"])
    (_, first, condition), (_, second, options) = [write for write in api.writes if "/pods/" in write[1]]
    assert first == f"{second}/status"
    assert condition["metadata"] == {"uid": "uid-pods/default/a"}
    assert condition["status"]["conditions"][0]["type"] == "DisruptionTarget"
    assert options["preconditions"] == {"uid": "uid-pods/default/a"}
    assert "gracePeriodSeconds" not in options  # its whole grace


def test_the_node_closes_with_the_reason_an_engine_would_give(run):
    api = OneNodeApi(END)
    other = {"key": "gpu", "effect": "NoSchedule"}
    api.node["spec"]["taints"] = [other]
    running = run(api, before(301))
    wait_until(lambda: names.DEADLINE_AGENT in api.node["metadata"]["annotations"])
    assert api.node["spec"]["taints"] == [other]
    running.move_to(before(300))
    wait_until(lambda: len(api.node["spec"]["taints"]) == 2)
    taint = api.node["spec"]["taints"][1]
    assert (taint["key"], taint["effect"]) == (names.TAINT_DRAINING, "NoSchedule")
    annotations = api.node["metadata"]["annotations"]
    assert annotations[names.DRAINING_SINCE] == format_instant(before(300))
    facts = {
        key.removeprefix(names.DRAIN_REASON): value
        for key, value in annotations.items()
        if key.startswith(names.DRAIN_REASON)
    }
    assert DrainReason.from_annotations(taint["value"], facts) == DrainReason(
        DrainKind.SOURCE_ENDS, at=END, name="cr-1"
    )


def test_it_says_that_it_is_there_and_by_when_it_empties_the_node(run):
    api = OneNodeApi()
    run(api, before(7200), boot_end=END)
    annotations = lambda: api.node["metadata"]["annotations"]  # noqa: E731
    wait_until(lambda: annotations().get(names.AGENT_ENDS_AT) == format_instant(END))
    assert annotations()[names.DEADLINE_AGENT] == __version__
    assert names.ENDS_AT not in annotations()  # the engine's to write
    later = format_instant(END + timedelta(days=1))
    api.annotate(names.ENDS_AT, later)
    wait_until(lambda: annotations().get(names.AGENT_ENDS_AT) == later)


def test_an_end_that_moved_is_followed(run):
    api = OneNodeApi(END)
    api.add_pod("a")
    running = run(api, before(600))
    wait_until(lambda: names.AGENT_ENDS_AT in api.node["metadata"]["annotations"])
    api.annotate(names.ENDS_AT, format_instant(END + timedelta(hours=1)))
    wait_until(lambda: api.node["metadata"]["annotations"][names.AGENT_ENDS_AT].startswith("2026-11-20T12"))
    running.move_to(END)
    time.sleep(0.1)
    assert api.stopped_pods == []
    api.annotate(names.ENDS_AT, format_instant(END + timedelta(seconds=60)))
    wait_until(lambda: api.stopped_pods == ["a"])


def test_a_pod_that_is_bound_too_late_is_deleted_at_once(run):
    api = OneNodeApi(END)
    run(api, before(100))
    wait_until(lambda: "taints" in api.node["spec"])
    api.add_pod("late", 600)
    wait_until(lambda: bool(api.stopped_pods))
    assert api.stopped_pods == ["late"]


def test_while_the_api_server_is_away_it_keeps_what_it_knew_and_tries_on(run):
    api = OneNodeApi(END)
    api.add_pod("a", 60)
    running = run(api, before(7200))
    wait_until(lambda: names.DEADLINE_AGENT in api.node["metadata"]["annotations"])
    api.gone_away()
    running.move_to(before(105))
    wait_until(lambda: any("cannot delete default/a" in line for line in running.said))
    assert api.stopped_pods == []
    api.away = False
    wait_until(lambda: api.stopped_pods == ["a"])
    assert sum("cannot delete" in line for line in running.said) == 1  # said once, tried often


def test_a_conflict_on_the_taints_is_tried_again_with_the_new_ones(run):
    api = OneNodeApi(END)
    api.failing.add("nodes/n")
    running = run(api, before(200))
    wait_until(lambda: any("cannot close the node" in line for line in running.said))
    changed = {**api.node, "spec": {"taints": [{"key": "new", "effect": "NoSchedule"}]}}
    api.put("nodes/n", changed)
    api.failing.clear()
    wait_until(lambda: len(api.node["spec"]["taints"]) == 2)
    assert [taint["key"] for taint in api.node["spec"]["taints"]] == ["new", names.TAINT_DRAINING]


@pytest.mark.parametrize("kind", ["forbidden", "failing"])
def test_the_grace_counts_more_than_the_condition(run, kind):
    """A status that cannot be written for ten seconds does not keep the pod from its grace."""
    api = OneNodeApi(END)
    api.add_pod("a", 60)
    getattr(api, kind).add("/status")
    running = run(api, before(105))
    if kind == "failing":
        wait_until(lambda: any("cannot delete" in line for line in running.said))
        assert api.stopped_pods == []
        running.move_to(before(94))
    wait_until(lambda: api.stopped_pods == ["a"])


@pytest.mark.parametrize("text", ["", "soon", "2026-11-20T11:00:00", "x" * 5000])
def test_a_file_that_says_no_instant_gives_no_end(tmp_path, text):
    path = tmp_path / "ends-at"
    path.write_text(text)
    assert read_boot_end(str(path))() is None
    assert read_boot_end(str(tmp_path / "none"))() is None
    path.write_text("2026-11-20T11:00:00Z\n")
    assert read_boot_end(str(path))() == END


def test_an_annotation_that_says_no_instant_leaves_the_end_of_the_boot(run):
    api = OneNodeApi()
    api.node["metadata"]["annotations"][names.ENDS_AT] = "whenever"
    run(api, before(7200), boot_end=END)
    wait_until(lambda: names.AGENT_ENDS_AT in api.node["metadata"]["annotations"])
    assert api.node["metadata"]["annotations"][names.AGENT_ENDS_AT] == format_instant(END)


def test_a_grace_beyond_all_bounds_costs_no_other_pod_its_own(run):
    """Whoever may create a pod may write any number there."""
    api = OneNodeApi(END)
    api.add_pod("absurd", 2**63 - 1)
    api.add_pod("short", 30)
    running = run(api, before(75))
    wait_until(lambda: set(api.stopped_pods) == {"absurd", "short"})
    assert running.thread.is_alive()


def test_an_answer_of_no_known_form_does_not_end_the_watching(run):
    api = OneNodeApi(END)
    api.add_pod("short", 30)
    real, odd = api.get, [b'{"items": [{}]}', b"[]", b'{"metadata": null}']
    api.get = lambda *given, **more: odd.pop() if odd else real(*given, **more)
    running = run(api, before(75))
    wait_until(lambda: api.stopped_pods == ["short"], 20)
    assert running.thread.is_alive()
