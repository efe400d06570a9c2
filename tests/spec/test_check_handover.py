"""TR-11: windows of a plan with less overlap than booting and loading take."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import scenario
from tidemill.spec.problem import Problem

pytestmark = pytest.mark.requirement("TR-11")

POOL = """
apiVersion: tidemill.dev/v1alpha1
kind: ComputePool
metadata: {name: serve}
spec:
  nodeClassName: gpu
  sources: [{type: block}]
  requirements: {instanceTypes: [p5.48xlarge]}
  limits: {nodes: 8}
"""
PLAN = """
apiVersion: tidemill.dev/v1alpha1
kind: CapacityPlan
metadata: {name: november}
spec:
  pool: serve
  extend: {policy: %(policy)s}
  overlap: %(overlap)s
  demand:
    - {name: first, from: "2026-11-18T11:30:00Z", to: "2026-11-20T11:00:00Z", instanceType: p5.48xlarge, instances: 2}
    - {name: second, from: "%(start)s", to: "2026-11-25T11:00:00Z", instanceType: p5.48xlarge, instances: 2}
"""


def trapped(
    read: Reader, *more: str, policy: str = "never", overlap: str = "0s", start: str = "2026-11-20T11:30:00Z"
) -> list[Problem]:
    plan = PLAN % {"policy": policy, "overlap": overlap, "start": start}
    return [problem for problem in read(POOL, plan, *more).problems if problem.code == "TR-11"]


def test_warns_of_back_to_back_windows_and_says_which_overlap_to_set(read: Reader) -> None:
    (problem,) = trapped(read)
    assert problem.severity == "warning"
    assert "'first' and 'second' can both run pods for only 0s" in problem.message
    assert "set 'overlap' to 47m or more" in problem.message


def test_an_overlap_of_a_day_gives_no_warning(read: Reader) -> None:
    assert not trapped(read, overlap="47m")


def test_no_warning_where_blocks_are_extended(read: Reader) -> None:
    assert not trapped(read, policy="prefer")


def test_no_warning_where_windows_are_a_day_or_more_apart(read: Reader) -> None:
    assert not trapped(read, start="2026-11-22T11:30:00Z")


def test_no_warning_where_windows_overlap_by_a_day(read: Reader) -> None:
    assert not trapped(read, start="2026-11-19T11:30:00Z")


def test_the_load_time_of_the_scenarios_services_counts(read: Reader) -> None:
    served = scenario("services: [{name: chat, replicas: 2, gpus: 4, load: 25m}]")
    (problem,) = trapped(read, served)
    assert "takes about 32m" in problem.message
