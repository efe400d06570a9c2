"""The whole loop through boto3: what the engine does on the wire is what it does in process, action for action."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aws.rehearsed import on_the_wire
from tests.sim.scene import Scene, after, block, done, fault, job, plan, platform, pool, scene, service
from tidemill.cli.loading import documents_in, load_spec
from tidemill.plan import Launch, SubmitPurchase, Terminate
from tidemill.sim.rehearsal import Rehearsal

EXAMPLES = Path(__file__).parents[2] / "examples"
BUYER = platform(
    budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval={"mode": "auto", "autoMaxFeeUsd": 9000}
)


def same(played: Scene, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> Rehearsal:
    """Played on both faces: the same actions at the same instants with the same outcomes, and the same instances."""
    inside = played.played(seed)
    with on_the_wire(played, monkeypatch, seed) as outside:
        assert [(one.at, one.action, one.error) for one in outside.done] == [
            (one.at, one.action, one.error) for one in inside.done
        ]
        assert {id_: life.now for id_, life in outside.cloud.lives.items()} == {
            id_: life.now for id_, life in inside.cloud.lives.items()
        }
        return outside


@pytest.mark.requirement("CB-10")
@pytest.mark.requirement("CB-11")
def test_a_block_gets_its_nodes_runs_its_jobs_and_is_empty_when_ec2_takes_it(monkeypatch: pytest.MonkeyPatch):
    outside = same(scene(reservations=[block()], jobs=[job(at=("0s", "1h"), lasts="50m")]), monkeypatch)
    assert done(outside, Launch)
    assert {life.ended_by for life in outside.cloud.lives.values()} == {"engine"}


@pytest.mark.requirement("CB-4")
def test_lost_answers_throttling_crashes_and_dying_nodes_leave_neither_orphans_nor_doubles(
    monkeypatch: pytest.MonkeyPatch,
):
    troubled = scene(
        reservations=[block(count=4)],
        jobs=[job(at=("5m", "6m"), lasts="50m")],
        faults=[
            fault("0s", "timeout-after-commit", target="launch"),
            fault("20m", "throttle", duration="2m"),
            fault("30m", "engine-crash"),
            fault("35m", "retirement", duration="1h"),
            fault("40m", "node-dies"),
        ],
    )
    with on_the_wire(troubled, monkeypatch) as outside:
        launched = [id_ for one in outside.ledger.launches() for id_ in one.instance_ids]
        assert len(launched) == len(set(launched))
        assert (
            5 <= len(outside.cloud.lives) <= 6
        )  # four, and those that replaced the retired and the dead one
        assert {life.ended_by for life in outside.cloud.lives.values()} == {"engine", "hardware"}


@pytest.mark.requirement("CB-9")
def test_a_service_is_handed_from_one_block_to_the_next(monkeypatch: pytest.MonkeyPatch):
    two = scene(
        reservations=[block("a"), block("b", start="2h", duration="1d")],
        services=[service(handover={"method": "rollout", "maxSurge": 1, "maxUnavailable": 0})],
        duration="4h30m",
    )
    outside = same(two, monkeypatch)
    assert done(outside, Terminate)


@pytest.mark.requirement("CB-8")
def test_a_block_is_found_and_bought_with_its_tags(monkeypatch: pytest.MonkeyPatch):
    outside = same(scene(on=BUYER, plans=[plan()], duration="6h"), monkeypatch)
    ((at, _),) = done(outside, SubmitPurchase)
    assert at < after("6h")
    (bought,) = outside.cloud.purchases
    assert bought.intent_id == outside.ledger.purchases()[0].id


@pytest.mark.requirement("CB-14")
def test_pools_of_blocks_reservations_spot_and_on_demand_work_side_by_side(monkeypatch: pytest.MonkeyPatch):
    kinds = {"train": "block", "kept": "odcr", "cheap": "spot", "dear": "on-demand"}
    pools = [pool(name, sources=[{"type": kind}]) for name, kind in kinds.items()]
    jobs = [job(f"{name}-job", nodeSelector={"tier": name}, at=("1m",)) for name in kinds]
    held = [block(count=1, pool="train"), block("o", type="odcr", count=1, pool="kept", duration="1d")]
    outside = same(scene(*pools, reservations=held, jobs=jobs, duration="2h"), monkeypatch)
    used = {life.now.pool: life.now.source.kind.value for life in outside.cloud.lives.values()}
    assert used == kinds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-block", "two-blocks", "mixed-sources", "handover"])
def test_the_examples_play_alike(name: str, monkeypatch: pytest.MonkeyPatch):
    spec, scenario = load_spec(documents_in([str(EXAMPLES / f"{name}.yaml")]))
    assert scenario is not None
    same(Scene(spec, scenario), monkeypatch)
