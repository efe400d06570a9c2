"""TR-17: checkpoints on instance store are lost with the node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.scenario_builder import block, job, scenario_with
from tests.spec.conftest import Reader
from tests.spec.documents import scenario

pytestmark = pytest.mark.requirement("TR-17")
JOB = "{name: fit, gpus: 8, checkpointEvery: 1h, %s arrivals: {at: [0s]}, duration: {fixed: 2h}}"


def test_warns_of_checkpoints_on_instance_store(read: Reader) -> None:
    (problem,) = read(scenario(f"jobs: [{JOB % 'checkpointOn: instance-store,'}]")).problems
    assert (problem.code, problem.severity) == ("TR-17", "warning")
    assert "shared storage" in problem.message


def test_does_not_warn_of_checkpoints_on_shared_storage(read: Reader) -> None:
    assert not read(scenario(f"jobs: [{JOB % ''}]")).problems


def test_a_job_with_checkpoints_on_instance_store_is_not_resumable() -> None:
    """Six hours of work on a block with three and a half: shared, it runs part of it there; else it is held."""
    work: dict[str, Any] = {"at": ("0s",), "lasts": "6h", "checkpointEvery": "30m"}
    shared = scenario_with(reservations=[block()], jobs=[job("fit", **work)]).run()
    local = scenario_with(
        reservations=[block()], jobs=[job("fit", checkpointOn="instance-store", **work)]
    ).run()
    assert shared.cluster.jobs["fit-1"].started is not None
    assert local.cluster.jobs["fit-1"].started is None
