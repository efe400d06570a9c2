"""The figures are those of the ticks, and their labels stay few."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.controller.running import Running
from tests.decide.builders import NOW, ago, ahead, block, hourly_pool, node, pod, pool, spec, world
from tidemill.controller.loop import TickReport
from tidemill.controller.metrics import MOST_BLOCKS, RENEW_EVERY_S, Metrics
from tidemill.controller.reference import markdown
from tidemill.engine.loop import Tick, TickTimes
from tidemill.model import reasons
from tidemill.model.errors import NoCapacity, Retryable, Throttled
from tidemill.model.plan import MarkReady, Outcome, Plan, Unmet
from tidemill.model.purchases import BlockHours

HELD = reasons.HoldReason(next(iter(reasons.HoldKind)))
PASSED = reasons.StepReason(reasons.StepKind.NODE_CHECK_PASSED)


class Clock:
    at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(now_s=clock)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tidemill_{name}", labels)


def told(metrics: Metrics, seen=None, plan=None, outcomes=(), of=None, error=None) -> None:
    seen = seen or world()
    tick = Tick(seen, plan or Plan(), tuple(outcomes), seen.now, times=TickTimes(0.1, 0.2, 0.3))
    metrics.report(TickReport(1, of or spec(pool()), (), None if error else tick, 0.7, error))


@pytest.mark.requirement("PE-10")
def test_the_queue_its_oldest_pod_and_the_times_of_a_tick_are_shown(metrics: Metrics):
    old, young = pod(name="old", created_at=ago("9m")), pod(name="young", created_at=ago("1m"))
    unmet = tuple(Unmet(one.uid, one.full_name, "no-capacity", HELD) for one in (old, young))
    told(metrics, world(old, young), Plan(unmet=unmet))
    assert value(metrics, "pods_waiting", reason="no-capacity") == 2
    assert value(metrics, "pods_waiting", reason="held") == 0
    assert value(metrics, "pods_waiting_oldest_seconds") == 540
    for part, took_s in (("tick", 0.7), ("observe", 0.1), ("decide", 0.2), ("act", 0.3)):
        assert value(metrics, f"{part}_seconds_sum") == pytest.approx(took_s)
    told(metrics)
    assert value(metrics, "pods_waiting_oldest_seconds") == 0


def test_errors_are_counted_by_class_and_a_bug_by_one_name(metrics: Metrics):
    told(
        metrics,
        outcomes=[Outcome(MarkReady("n", PASSED), "retryable", "away"), Outcome(MarkReady("m", PASSED))],
    )
    for error in (Throttled("slow"), NoCapacity("none"), ZeroDivisionError("bug"), KeyError("bug")):
        told(metrics, error=error)
    assert value(metrics, "errors_total", **{"class": "retryable"}) == 2
    assert value(metrics, "errors_total", **{"class": "no-capacity"}) == 1
    assert value(metrics, "errors_total", **{"class": "bug"}) == 2
    assert value(metrics, "actions_total", kind="MarkReady", error="retryable") == 1
    assert value(metrics, "actions_total", kind="MarkReady", error="") == 1
    assert value(metrics, "ticks_total", result="failed") == 4


def test_from_a_pods_creation_to_its_launch(metrics: Metrics):
    running = Running(spec(hourly_pool("g6", "g6.xlarge")), metrics)
    running.outside.cluster.pods = [pod(gpus=1, created_at=NOW - timedelta(seconds=7))]
    running.run_for(30)
    assert value(metrics, "pending_to_launch_seconds_count", pool="g6") == 1
    assert value(metrics, "pending_to_launch_seconds_sum", pool="g6") == 7


@pytest.mark.requirement("PE-10")
def test_nodes_by_phase_and_how_long_a_phase_took(metrics: Metrics, clock: Clock):
    paid = block(ends_in="5h")
    ready = node("i-1")
    joining = node("i-2", "launched")
    told(metrics, world(paid, ready, joining))
    assert value(metrics, "nodes", pool="p5", phase="ready") == 1
    assert value(metrics, "nodes", pool="p5", phase="launched") == 1
    # It was launched before the first look: how long that took is not known.
    clock.at_s += RENEW_EVERY_S
    second = node("i-3", "launched")
    told(metrics, world(paid, ready, node("i-2"), second))
    assert value(metrics, "node_phase_seconds_count", phase="launched") is None
    clock.at_s += RENEW_EVERY_S
    later = replace(world(paid, ready, node("i-2"), node("i-3")), now=ahead("4m"))
    told(metrics, later)
    assert value(metrics, "node_phase_seconds_sum", phase="launched") == 240
    assert value(metrics, "nodes", pool="p5", phase="launched") is None


def test_a_blocks_countdown_and_its_end(metrics: Metrics, clock: Clock):
    paid = block(ends_in="5h", pool="p5")
    told(metrics, world(paid, node()))
    assert value(metrics, "block_seconds_to_end", block=paid.id, pool="p5") == 5 * 3600
    assert value(metrics, "block_seconds_to_deadline", block=paid.id, pool="p5") == 4.5 * 3600
    clock.at_s += RENEW_EVERY_S
    told(metrics, world())
    assert value(metrics, "block_seconds_to_end", block=paid.id, pool="p5") is None


def test_labels_are_bounded(metrics: Metrics, clock: Clock):
    blocks = [block(id=f"cr-{number}", ends_in="5h") for number in range(2 * MOST_BLOCKS)]
    told(metrics, world(*blocks))
    shown = [
        sample
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "tidemill_block_seconds_to_end"
    ]
    assert len(shown) == MOST_BLOCKS


def test_gpu_hours_used_and_idle_come_from_the_ledger(clock: Clock):
    class Book:
        def block_hours(self) -> tuple[BlockHours, ...]:
            return BlockHours("cr-1", "p5", "", 0.0, 80.0), BlockHours("cr-1", "p5", "ml", 30.0, 0.0)

    metrics = Metrics(Book(), now_s=clock)
    told(metrics)
    assert value(metrics, "block_gpu_hours", pool="p5", state="used") == 30
    assert value(metrics, "block_gpu_hours", pool="p5", state="idle") == 50


def test_a_ledger_that_is_away_does_not_stop_the_figures(clock: Clock):
    class Away:
        def block_hours(self) -> tuple[BlockHours, ...]:
            raise Retryable("no connection")

    metrics = Metrics(Away(), now_s=clock)
    told(metrics, outcomes=[Outcome(MarkReady("n", PASSED))])
    assert value(metrics, "actions_total", kind="MarkReady", error="") == 1
    assert value(metrics, "block_gpu_hours", pool="p5", state="used") is None


def test_a_dry_run_counts_no_errors(clock: Clock):
    metrics = Metrics(dry_run=True, now_s=clock)
    told(metrics, outcomes=[Outcome(MarkReady("n", PASSED), "refused", "dry run")])
    assert value(metrics, "actions_total", kind="MarkReady", error="dry-run") == 1
    assert value(metrics, "errors_total", **{"class": "refused"}) is None


def test_the_committed_reference_is_up_to_date():
    committed = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
    assert committed.read_text() == markdown(), (
        "run: python -m tidemill.controller.reference > docs/reference/metrics.md"
    )
    served = {family.name for family in Metrics().registry.collect()}
    assert served == {metric.name for metric in Metrics().defined()}
