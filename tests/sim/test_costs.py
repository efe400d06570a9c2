"""What a rehearsal cost, by pool, team and job: it reconciles with AWS's bill, whatever ran and whatever went wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, scenario_with, without
from tidemill.model.capacity import ReservationState, SourceKind
from tidemill.model.plan import Evict, ForceDelete, StartDrain, Terminate
from tidemill.sim.scenario.costs import rehearsal_costs
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally
from tidemill.spec import names
from tidemill.spec.read import load as read

EXAMPLES = Path(__file__).parents[2] / "examples"
HOURLY = given.pool(sources=[{"type": "on-demand"}], disruption={"consolidateAfter": "20m"})
PLAIN = given.pool(
    "plain", sources=[{"type": "on-demand"}], requirements={"instanceTypes": ["m7i.4xlarge"]}, taints=[],
    labels={},
)  # fmt: skip
ODCR = {"name": "r", "type": "odcr", "instanceType": "p5.48xlarge", "count": 2, "zone": "us-east-1a"}
TEAMS = [
    given.job("a", lasts="50m", at=("0s", "1h"), team="vision"),
    given.job("b", lasts="90m", at=("20m",), gpus=2, cpu="9", team="speech"),
]


def example(name: str) -> PreparedScenario:
    loaded = read([EXAMPLES / name])
    assert loaded.spec is not None
    assert loaded.scenario is not None
    return PreparedScenario(loaded.spec, loaded.scenario)


def unreconciled(rehearsal: Rehearsal) -> dict[str, tuple[float, float]]:
    """What is told and what should be, where they differ."""
    told = rehearsal_costs(rehearsal, rehearsal.timeline.now())
    hours = rehearsal.recorder.hours_until(rehearsal.end)
    used_h = sum(one.gpu_hours_used for one in told.pools)
    idle_h = sum(one.gpu_hours_idle for one in told.pools)
    pairs = {
        "bill": (told.total_usd, bill_usd(rehearsal)),
        "teams": (sum(team.usd for team in told.teams), told.used_usd),
        "jobs": (sum(one.usd for one in told.jobs), told.used_usd),
        "hours used": (used_h, hours["used"]),
        "hours paid": (used_h + idle_h, hours["paid"]),
        "idle": (min(min(one.idle_usd, one.gpu_hours_idle, 0.0) for one in told.pools), 0.0),
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pytest.approx(pair[1], abs=1e-4)}


def bill_usd(rehearsal: Rehearsal) -> float:
    """What AWS charges: the fees of our reservations that were paid, and what ran by the hour."""
    owner = rehearsal.spec.platform.spec.deployment
    fees_usd = sum(
        reservation.fee_usd
        for reservation in rehearsal.cloud.all_reservations()
        if reservation.owner == owner
        and reservation.state not in (ReservationState.PAYMENT_PENDING, ReservationState.PAYMENT_FAILED)
    )
    return fees_usd + sum(rehearsal.cloud.hourly_usd().values())


@pytest.mark.requirement("PE-16")
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "rehearsal",
    [
        scenario_with(reservations=[given.block()], jobs=TEAMS, services=[given.service(replicas=1)]),
        scenario_with(reservations=[given.block()], jobs=TEAMS, duration="2h"),
        scenario_with(
            reservations=[given.block(), given.block("b", duration="28h")], services=[given.service()], duration="8h"
        ),
        scenario_with(reservations=[given.block(delivered=1)], jobs=TEAMS),
        scenario_with(HOURLY, jobs=TEAMS),
        scenario_with(given.pool(sources=[{"type": "odcr"}]), reservations=[ODCR], jobs=TEAMS),
        scenario_with(
            given.pool(sources=[{"type": "spot"}]), jobs=TEAMS, faults=[given.fault("40m", "spot-interruption")]
        ),
        scenario_with(
            reservations=[given.block()],
            jobs=TEAMS,
            faults=[given.fault("30m", "node-dies"), given.fault("1h", "gpu-fails")],
        ),
        example("first-block.yaml"),
        example("two-blocks.yaml"),
    ],
    ids=[
        "a block", "half a block", "a hand-over", "a short delivery", "on demand", "a reservation", "spot",
        "losses", "first-block", "two-blocks",
    ],
)  # fmt: skip
def test_costs_reconcile_with_the_bill(rehearsal: PreparedScenario, seed: int):
    ran = rehearsal.run(seed)
    assert bill_usd(ran) > 0
    assert unreconciled(ran) == {}


@pytest.mark.requirement("PE-16")
def test_every_kind_of_source_at_once_reconciles():
    ran = example("mixed-sources.yaml").run()
    kinds = {history.now.source.kind for history in ran.cloud.instance_histories.values()}
    assert kinds == set(SourceKind)
    assert unreconciled(ran) == {}


def without_gpus(rehearsal: PreparedScenario) -> PreparedScenario:
    """The same, with a type of sixteen vCPUs and no accelerator in the catalog."""
    catalog = rehearsal.spec.catalog
    like = catalog.types["g6.4xlarge"]
    allocatable = tuple(pair for pair in like.allocatable if pair[0] not in names.ACCELERATORS)
    plain = replace(like, name="m7i.4xlarge", accelerator=None, allocatable=allocatable)
    types = {**catalog.types, plain.name: plain}
    return replace(rehearsal, spec=replace(rehearsal.spec, catalog=replace(catalog, types=types)))


@pytest.mark.requirement("PE-16")
def test_an_instance_without_gpus_is_shared_by_its_vcpus():
    build = given.job("build", lasts="1h", gpus=0, cpu="4", memory="8Gi", nodeSelector={}, team="tools")
    rehearsal = without_gpus(scenario_with(PLAIN, jobs=[build], duration="2h")).run()
    assert unreconciled(rehearsal) == {}
    (row,) = rehearsal_costs(rehearsal, rehearsal.timeline.now()).jobs
    assert (row.workload, row.team, row.gpu_hours) == ("Job/build-1", "tools", 0)
    (history,) = rehearsal.cloud.instance_histories.values()
    assert row.usd == pytest.approx(history.usd_h * 4 / 16, rel=0.02)


@pytest.mark.requirement("PE-16")
def test_a_pod_without_gpus_costs_nothing_on_a_gpu_node():
    notebook = given.job("notebook", lasts="1h", gpus=0, cpu="4", memory="8Gi")
    rehearsal = scenario_with(reservations=[given.block()], jobs=[notebook], duration="2h").run()
    assert rehearsal.cluster.jobs["notebook-1"].state == "finished"
    told = rehearsal_costs(rehearsal, rehearsal.timeline.now())
    assert (told.jobs, told.teams, told.used_usd) == ((), (), 0)


@pytest.mark.requirement("PE-16")
def test_an_instance_that_outlives_its_reservation_is_paid_by_the_hour_from_then_on():
    held = {**ODCR, "count": 1, "duration": "2h"}
    stays = without(StartDrain, Evict, ForceDelete, Terminate)
    on_odcr = given.pool(sources=[{"type": "odcr"}])
    rehearsal = scenario_with(on_odcr, reservations=[held], services=[given.service(replicas=1)]).run(
        decide=stays
    )
    assert unreconciled(rehearsal) == {}
    assert rehearsal.cloud.hourly_usd()[SourceKind.ON_DEMAND] > 0


@pytest.mark.requirement("PE-16")
def test_the_outcome_has_costs_by_pool_team_and_job():
    rehearsal = scenario_with(reservations=[given.block()], jobs=TEAMS).run()
    body = tally(rehearsal, scenario="test", wall_s=0.0).as_json()
    told = body["costs"]
    assert [one["pool"] for one in told["pools"]] == ["train"]
    assert {one["team"] for one in told["teams"]} == {"vision", "speech"}
    assert {one["workload"] for one in told["jobs"]} == {"Job/a-1", "Job/a-2", "Job/b-1"}
    assert sum(one["idle_usd"] for one in told["pools"]) == pytest.approx(body["cost_usd"]["idle"], abs=0.01)
    assert told["teams"][0]["saving_usd"] > 0


def test_a_block_without_a_pool_is_charged_to_the_only_pool_that_could_use_it():
    rehearsal = scenario_with(reservations=[given.block()], duration="1h").run()
    assert [one.pool for one in rehearsal_costs(rehearsal, rehearsal.timeline.now()).pools] == ["train"]
    shared = scenario_with(
        given.pool(), given.pool("other"), reservations=[given.block()], duration="1h"
    ).run()
    assert [one.pool for one in rehearsal_costs(shared, shared.timeline.now()).pools] == [""]


def test_reservations_of_others_are_not_in_our_costs():
    theirs = given.block("theirs", owned=False)
    rehearsal = scenario_with(reservations=[given.block(), theirs], jobs=TEAMS).run()
    assert unreconciled(rehearsal) == {}
    assert rehearsal.recorder.hours_until(rehearsal.end)["paid"] == pytest.approx(2 * 8 * 4, rel=0.03)
