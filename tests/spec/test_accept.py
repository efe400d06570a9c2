"""Which versions of the cluster's objects are used, when some of them are wrong."""

from __future__ import annotations

from typing import Any

from tidemill.spec.accept import Accepted, accept
from tidemill.spec.names import API_VERSION

Objects = dict[str, dict[str, Any]]


def thing(kind: str, name: str, generation: int = 1, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "generation": generation, "uid": f"{kind}-{name}", "managedFields": []}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": {"gpus": "1/1"},
    }


def platform(generation: int = 1, monthly: int = 1000, **more: Any) -> dict[str, Any]:
    budget = {"monthlyUsd": monthly}
    subnets = {"us-east-1a": ["subnet-0a1"]}
    usual = {
        "region": "us-east-1", "deployment": "mill", "cluster": {"name": "mill"}, "budget": budget, "subnets": subnets,
    }  # fmt: skip
    return thing("Platform", "mill", generation, **(usual | more))


def pool(name: str = "train", generation: int = 1, **more: Any) -> dict[str, Any]:
    usual = {
        "nodeClassName": "gpu",
        "requirements": {"instanceTypes": ["p5.48xlarge"]},
        "limits": {"gpus": 8},
    }
    return thing("ComputePool", name, generation, **(usual | more))


NODE_CLASS = thing("NodeClass", "gpu", amiSelectorTerms=[{"alias": "al2023@v20261101"}])
GOOD = (platform(), NODE_CLASS, pool())


def test_what_the_api_server_adds_to_an_object_is_not_part_of_the_document():
    accepted = accept(GOOD, Accepted())
    assert accepted.spec is not None
    assert accepted.problems == ()
    assert all(accepted.verdict(one).accepted for one in GOOD)


def test_a_wrong_version_keeps_the_last_good_one_and_does_not_stop_the_others():
    before = accept(GOOD, Accepted())
    wrong, richer = pool(generation=2, nodeClassName="nope"), platform(2, 2000)
    after = accept((richer, NODE_CLASS, wrong), before)
    assert after.spec is not None
    assert after.spec.platform.spec.budget.monthly_usd == 2000
    assert after.spec.pools["train"].spec.node_class_name == "gpu"
    verdict = after.verdict(wrong)
    assert (verdict.accepted, verdict.reason) == (False, "Invalid")
    assert verdict.message == "no NodeClass is named 'nope'; valid: gpu; the last good version is used"
    assert after.verdict(richer).accepted


def test_a_wrong_object_that_was_never_right_is_left_out():
    wrong = pool("new", nodeClassName="nope")
    accepted = accept((*GOOD, wrong), Accepted())
    assert accepted.spec is not None
    assert list(accepted.spec.pools) == ["train"]
    assert accepted.verdict(wrong).message.endswith("it is not used")


def test_what_a_pool_in_use_needs_is_kept_though_somebody_deleted_it():
    before = accept(GOOD, Accepted())
    richer = platform(2, 2000)
    after = accept((richer, pool()), before)
    assert after.spec is not None
    assert "gpu" in after.spec.node_classes
    assert (
        after.spec.platform.spec.budget.monthly_usd == 1000
    )  # nothing new is taken before it is whole again
    assert after.verdict(richer).reason == "WaitsForOthers"
    assert "ComputePool/train" in after.verdict(richer).message


def test_a_pool_that_is_deleted_is_gone():
    before = accept((*GOOD, pool("other")), Accepted())
    after = accept(GOOD, before)
    assert after.spec is not None
    assert list(after.spec.pools) == ["train"]


def test_without_a_platform_there_is_nothing_to_work_by():
    assert accept((NODE_CLASS, pool()), Accepted()).spec is None
    assert accept((), Accepted()).spec is None
    wrong = platform(region=7)
    assert accept((wrong, NODE_CLASS, pool()), Accepted()).spec is None


def test_a_platform_that_became_wrong_keeps_its_last_good_version():
    before = accept(GOOD, Accepted())
    after = accept((platform(2, monthly=-5), NODE_CLASS, pool()), before)
    assert after.spec is not None
    assert after.spec.platform.spec.budget.monthly_usd == 1000


def test_a_warning_is_told_and_the_object_is_used():
    idle = pool("idle", limits={})
    accepted = accept((*GOOD, idle), Accepted())
    assert accepted.verdict(idle).accepted
    assert "has no limits, so it launches nothing" in accepted.verdict(idle).message
