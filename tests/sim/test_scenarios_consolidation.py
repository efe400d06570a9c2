"""Under-used nodes in a rehearsal: it costs less, finishes the same work, and keeps services up (PE-7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.sim.scenario.outcome import Outcome
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally
from tidemill.spec.read import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "consolidation.yaml"
pytestmark = pytest.mark.requirement("PE-7")


def run_example(policy: str, folder: Path, seed: int) -> Outcome:
    written = EXAMPLE.read_text(encoding="utf-8")
    assert "consolidationPolicy: WhenEmptyOrUnderutilized" in written
    file = folder / f"{policy}.yaml"
    file.write_text(
        written.replace("duration: 3d", "duration: 36h").replace(
            "Policy: WhenEmptyOrUnderutilized", f"Policy: {policy}"
        ),
        encoding="utf-8",
    )
    loaded = load([file])
    assert loaded.spec is not None
    assert loaded.scenario is not None
    rehearsal = Rehearsal(loaded.spec, loaded.scenario, seed)
    rehearsal.run()
    return tally(rehearsal, scenario=policy, wall_s=0.0)


def test_the_example_costs_less_and_no_job_is_worse_off(tmp_path: Path) -> None:
    plain = run_example("WhenEmpty", tmp_path, 1)
    tight = run_example("WhenEmptyOrUnderutilized", tmp_path, 1)
    assert tight.cost_usd["total"] < plain.cost_usd["total"]
    assert tight.gpu_hours["idle"] < plain.gpu_hours["idle"]
    assert tight.evictions  # something did move
    assert not any(eviction.forced for eviction in tight.evictions)
    assert [job.state for job in tight.jobs] == [job.state for job in plain.jobs]
    (service,) = tight.services
    assert service.downtime_s == 0
    assert service.lowest_ready >= service.min_available


def test_no_pod_moves_back_and_forth(tmp_path: Path) -> None:
    """Every node that consolidation empties is gone for good, and no job is moved again and again."""
    tight = run_example("WhenEmptyOrUnderutilized", tmp_path, 2)
    assert tight.evictions
    assert max(job.restarts for job in tight.jobs) <= 3
