"""A rehearsal gives the same bytes each time, and ticking every second changes no action."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks import rehearsal as month
from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, scenario_with
from tidemill.decide.placement import problem_builder
from tidemill.engine.cost_metering import _InUse
from tidemill.sim.scenario.rehearsal import Done, Rehearsal
from tidemill.spec.read import load

ROOT = Path(__file__).parents[2]
TWO_BLOCKS = ROOT / "examples" / "two-blocks.yaml"
MIXED_SOURCES = ROOT / "examples" / "mixed-sources.yaml"

BUSY = scenario_with(
    given.pool(
        sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 60, "maxMonthlyUsd": 500}],
        disruption={"consolidateAfter": "5m"},
    ),
    on=given.platform(budget={"monthlyUsd": 1000}),
    reservations=[
        given.block("a", count=3),
        given.block("b", count=3, zone="us-east-1b", **{"from": "1h"}, duration="28h"),
    ],
    services=[given.service(zeroDowntime=True)],
    jobs=[
        given.job(at=("5m", "1h30m", "2h50m"), lasts="35m", grace="2m"),
        given.job("tune", at=("40m",), lasts="5h", checkpointEvery="20m", checkpointTime="2m", grace="90s"),
        given.job("pretrain", at=("10m",), nodes=2, efa=32, lasts="70m", checkpointEvery="15m", grace="2m"),
        given.job("urgent", at=("12m",), lasts="20m", overflow=True, priority=5),
    ],
    faults=[given.fault("0s", "launch-fails"), given.fault("1h1m", "late-join", duration="8m")],
)
BUYING = scenario_with(
    on=given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval={"mode": "one"}),
    plans=[given.plan()],
    start=datetime(2026, 11, 18, 8, 0, tzinfo=UTC),  # three and a half hours before the window opens
    duration="6h",
    decisions=[{"at": "90m", "window": "sprint", "verdict": "approve", "by": "finance"}],
    jobs=[given.job(at=("3h",))],
)
TROUBLED = scenario_with(
    given.pool(sources=[{"type": "spot"}, {"type": "on-demand"}], disruption={"consolidateAfter": "3m"}),
    jobs=[
        given.job(at=("0s", "20m", "50m"), lasts="25m"),
        given.job("pair", at=("5m",), nodes=2, lasts="30m"),
    ],
    faults=[
        given.fault("3m", "lost-answer"),
        given.fault("25m", "spot-interruption"),
        given.fault("40m", "gpu-fails"),
        given.fault("45m", "node-dies"),
    ],
    duration="3h",
)

ROLLED = scenario_with(
    reservations=[given.block(count=3, duration="28h")],
    services=[given.service(gpus=4, cpu="40", memory="300Gi")],
    jobs=[
        given.job("pair", at=("10m",), nodes=2, lasts="2h", checkpointEvery="20m"),
        given.job("whole", at=("0s", "2h"), lasts="70m"),
        given.job("small", at=("0s", "1h", "2h", "3h"), gpus=2, cpu="20", memory="100Gi", lasts="40m"),
    ],
    rolls=[{"at": "1h", "nodeClass": "gpu", "ami": {"alias": "al2023@v20261201"}}],
    duration="7h",
)
ALONE = scenario_with(
    reservations=[given.block(count=3)],
    services=[given.service(gpus=4, cpu="40", memory="300Gi")],
    jobs=[given.job("tune", lasts="9h", checkpointEvery="20m", grace="4m")],
    extensions=[{"at": "2h30m", "block": "a", "by": "1d"}],
    faults=[given.fault("2h", "engine-absent", duration="90m")],
    deadlineAgent=True,
    duration="5h",
)


def story(rehearsal: Rehearsal) -> list[str]:
    return [f"{one.at:%d %H:%M:%S} {one.action} {one.error}" for one in rehearsal.done]


@pytest.mark.parametrize(
    "rehearsal",
    [BUSY, BUYING, TROUBLED, ROLLED, ALONE],
    ids=["busy", "buying", "troubled", "rolled", "alone"],
)
def test_ticking_every_second_gives_the_same_actions_as_waking_on_changes(
    rehearsal: PreparedScenario,
) -> None:
    """Throttled calls are left out on purpose: how soon a failed call is repeated is the engine's pace."""
    asleep, awake = rehearsal.run(), rehearsal.run(every_second=True)
    assert story(awake) == story(asleep)
    assert awake.ticks > 5 * asleep.ticks


def test_the_same_scenario_and_seed_give_the_same_bytes() -> None:
    first, second = BUSY.run(seed=3), BUSY.run(seed=3)
    assert first.journal.lines == second.journal.lines
    assert first.done == second.done


def test_another_seed_gives_another_journal() -> None:
    first, second = BUSY.run(seed=3), BUSY.run(seed=4)
    assert first.journal.lines != second.journal.lines


def test_stepping_to_an_instant_and_on_is_the_same_as_running_through() -> None:
    stepped = BUSY.prepare()
    for hour in range(1, 5):
        stepped.run_until(stepped.start.replace(hour=stepped.start.hour + hour, second=17))
    stepped.run()
    assert story(stepped) == story(BUSY.run())


_DIGEST = """
import sys
from hashlib import sha256
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.read import load
loaded = load([sys.argv[1]])
rehearsal = Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), 5)
rehearsal.run()
print(sha256(repr((rehearsal.journal.lines, rehearsal.done)).encode()).hexdigest())
"""


@pytest.mark.parametrize(
    "example", [TWO_BLOCKS, pytest.param(MIXED_SOURCES, marks=pytest.mark.slow)], ids=lambda path: path.stem
)
def test_the_journal_does_not_depend_on_the_interpreters_hash_seed(example: Path) -> None:
    """Sets of strings have another order in each process: nothing may follow it."""
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-c", _DIGEST, str(example)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        digests.add(ran.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["first-block", "two-blocks", "mixed-sources"])
def test_every_example_runs_to_its_end_without_a_violation(name: str) -> None:
    loaded = load([ROOT / "examples" / f"{name}.yaml"])
    rehearsal = Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), 7)
    rehearsal.run()
    assert rehearsal.timeline.now() == rehearsal.end
    assert rehearsal.done


def test_the_packer_shown_all_equal_nodes_places_as_when_shown_enough_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def done() -> list[Done]:
        rehearsal = Rehearsal(month.spec(40), month.scenario(1, 40, 80), 1)
        rehearsal.run()
        return rehearsal.done

    enough = done()
    monkeypatch.setattr(problem_builder, "_enough_of_each", lambda candidates, pods: (candidates, {}))
    assert done() == enough


def test_accelerators_in_use_are_counted_as_by_counting_all_nodes_anew() -> None:
    rehearsal, counted = Rehearsal(month.spec(12), month.scenario(2, 12, 60), 1), set[tuple[object, ...]]()
    kept = _InUse()
    while rehearsal.step():
        assert rehearsal.world is not None
        kept.look(rehearsal.world)
        anew = _InUse()
        anew.look(rehearsal.world)
        assert +kept.total == +anew.total
        counted.add(tuple(sorted(anew.total.items())))
    assert len(counted) > 10
