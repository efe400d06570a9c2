"""The whole loop through boto3: every kind of source, trouble, and the examples, action for action as in process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenario_builder import PreparedScenario, after, block, fault, job, pool, scenario_with
from tests.wire.rehearsing import on_the_wire
from tidemill.cli.loading import load_spec
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.wire.faults import WireFault

EXAMPLES = Path(__file__).parents[2] / "examples"


def same(rehearsal: PreparedScenario, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> Rehearsal:
    """Played on both faces: the same actions at the same instants with the same outcomes, and the same instances."""
    inside = rehearsal.run(seed)
    with on_the_wire(rehearsal, monkeypatch, seed) as outside:
        outside.run()
        assert [(one.at, one.action, one.error) for one in outside.done] == [
            (one.at, one.action, one.error) for one in inside.done
        ]
        assert {id_: history.now for id_, history in outside.cloud.instance_histories.items()} == {
            id_: history.now for id_, history in inside.cloud.instance_histories.items()
        }
        return outside


@pytest.mark.requirement("CB-4")
def test_lost_answers_throttling_crashes_and_failing_nodes_leave_no_orphans_and_no_doubles(
    monkeypatch: pytest.MonkeyPatch,
):
    troubled = scenario_with(
        reservations=[block(count=4)],
        jobs=[job(at=("5m", "6m"), lasts="50m")],
        faults=[
            fault("0s", "lost-answer"),
            fault("20m", "throttle", duration="2m"),
            fault("30m", "engine-crash"),
            fault("35m", "retirement", duration="1h"),
            fault("40m", "node-dies"),
        ],
    )
    with on_the_wire(troubled, monkeypatch) as outside:
        outside.run()
        launched = [id_ for intent in outside.ledger.launches() for id_ in intent.instance_ids]
        assert len(launched) == len(set(launched))
        assert (
            5 <= len(outside.cloud.instance_histories) <= 6
        )  # four, and those that replaced the retired and the dead one
        assert {history.ended_by for history in outside.cloud.instance_histories.values()} == {
            "engine",
            "hardware",
        }


def sees_aws(rehearsal: Rehearsal) -> bool:
    assert rehearsal.world is not None
    return rehearsal.world.cloud_ok


@pytest.mark.requirement("CB-10")
def test_credentials_that_expire_for_a_while_stop_launches_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    rehearsal = scenario_with(reservations=[block(count=2)], jobs=[job(at=("5m", "1h"), lasts="30m")])
    with on_the_wire(rehearsal, monkeypatch) as outside:
        outside.run_until(after("20m"))
        served = outside._through.__self__.server.wire  # type: ignore[union-attr]
        served.faults.arm(
            WireFault(
                "error", left=None, until=after("50m"), code="ExpiredToken", message="expired", status=403
            )
        )
        outside.run_until(after("40m"))
        assert sees_aws(outside) is False
        outside.run()
        assert sees_aws(outside) is True
        assert {history.ended_by for history in outside.cloud.instance_histories.values()} == {"engine"}


@pytest.mark.requirement("CB-14")
def test_pools_of_blocks_reservations_spot_and_on_demand_work_side_by_side(monkeypatch: pytest.MonkeyPatch):
    kinds = {"train": "block", "kept": "odcr", "cheap": "spot", "dear": "on-demand"}
    pools = [pool(name, sources=[{"type": kind}]) for name, kind in kinds.items()]
    jobs = [job(f"{name}-job", nodeSelector={"tier": name}, at=("1m",)) for name in kinds]
    held = [block(count=1, pool="train"), block("o", type="odcr", count=1, pool="kept", duration="1d")]
    outside = same(scenario_with(*pools, reservations=held, jobs=jobs, duration="2h"), monkeypatch)
    used = {
        history.now.pool: history.now.source.kind.value
        for history in outside.cloud.instance_histories.values()
    }
    assert used == kinds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-block", "two-blocks", "mixed-sources", "handover"])
def test_the_examples_play_alike(name: str, monkeypatch: pytest.MonkeyPatch):
    spec, scenario = load_spec([str(EXAMPLES / f"{name}.yaml")])
    assert scenario is not None
    same(PreparedScenario(spec, scenario), monkeypatch)
