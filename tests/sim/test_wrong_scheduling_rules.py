"""A wrong scheduling rule in `decide` shows in a rehearsal: the simulated scheduler has rules of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.scenario_builder import Json, block, job, scenario_with
from tidemill.decide import scheduler_rules
from tidemill.model.pods import Pod
from tidemill.sim.scenario.rehearsal import Rehearsal

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OTHER_ZONE = {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["us-east-1a"]}


def rehearse(work: Json) -> tuple[Rehearsal, Pod]:
    """One block in us-east-1a, and a job that may not run on it; its only pod after an hour."""
    rehearsal = scenario_with(reservations=[block()], jobs=[work], duration="1h").run()
    (pod,) = [pod for pod in rehearsal.cluster.pods.values() if pod.workload.startswith("Job/")]
    return rehearsal, pod


def always(*_: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("rule", "work", "message"),
    [
        ("tolerates", job(tolerate=[]), "node(s) had untolerated taint {nvidia.com/gpu: true}"),
        (
            "selects",
            job(
                affinity={
                    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [OTHER_ZONE]}]}}
                }
            ),
            "node(s) didn't match Pod's node affinity/selector",
        ),
    ],
    ids=["taints", "node affinity"],
)
def test_a_pod_that_a_wrong_rule_admits_stays_pending_with_the_schedulers_reason(
    monkeypatch: pytest.MonkeyPatch, rule: str, work: Json, message: str
) -> None:
    _, pod = rehearse(work)
    assert pod.gated, "the right rules keep it behind its gate"

    wrong: Callable[..., bool] = always
    monkeypatch.setattr(scheduler_rules, rule, wrong)
    rehearsal, pod = rehearse(work)
    assert not pod.gated
    assert not pod.node
    assert message in pod.message
    assert rehearsal.cluster.jobs["fit-1"].state == "pending"
