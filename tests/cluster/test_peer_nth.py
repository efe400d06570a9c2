"""The Node Termination Handler, unmodified and in queue mode, beside a group that our stack made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.cluster.documents import pool
from tests.cluster.objects import GPU, deployment, is_ready, pod, pod_runs, sim
from tests.cluster.peers import start_node_termination_handler
from tests.cluster.stage import Stage
from tidemill.spec import names

Opened = Callable[..., Stage]
P5 = "p5.48xlarge"


@pytest.mark.requirement("GB-5", "SM-7", "SM-8")
def test_the_node_termination_handler_drains_a_scale_in_completes_its_hook_and_heeds_an_interruption(
    stage: Opened, make_namespace: Callable[..., str]
) -> None:
    """The stack is what `tidemill render cloudformation --no-engine` prints: group, schedule, hook, queue and rule."""
    scene = stage(pool(provisioner="asg"), speed=1, start="", boot="fast", admission=False)
    account = scene.account
    given = {"name": "a", "instanceType": P5, "count": 2, "zone": "us-east-1a", "duration": "1d"}
    block = str(account.ask("blocks", {**given, "endsIn": "6h"})["id"])
    group = make_stack(scene, block)
    queue = account.client("sqs").get_queue_url(QueueName=f"{group}-events")["QueueUrl"]
    start_node_termination_handler(scene, queue)
    asg = account.client("autoscaling")
    asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    scene.eventually(lambda: len(ready_nodes(scene)) == 2, "two nodes are there")
    namespace = make_namespace()
    scene.create(namespace, deployment("work", 1, annotations=sim(stops_after="2s")))
    (worker,) = scene.eventually(
        lambda: [one for one in scene.pods(namespace) if is_ready(one)], "the pod runs"
    )
    node = scene.api().get(f"/api/v1/nodes/{worker['spec']['nodeName']}")
    instance = str(node["spec"]["providerID"]).rpartition("/")[2]

    asg.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=True)
    scene.eventually(lambda: account.state_of(instance) == "shutting-down", "the hook was completed")
    assert [one["action"] for one in account.ask("calls") if one["key"] == "as-nth"].count(
        "CompleteLifecycleAction"
    ) == 1
    assert [row["end"] for row in rows(scene, instance)] == ["stopped"]

    def moved() -> bool:
        return [one["spec"]["nodeName"] for one in scene.pods(namespace) if is_ready(one)] not in (
            [],
            [worker["spec"]["nodeName"]],
        )

    scene.eventually(moved, "its successor runs on the other node")

    (spot,) = account.launch(pool="spot", InstanceMarketOptions={"MarketType": "spot"})
    account.joined(spot)
    scene.create(
        namespace, pod("one", gpus=1, selector={names.LABEL_POOL: "spot"}, annotations=sim(stops_after="2s"))
    )
    scene.eventually(lambda: pod_runs(scene.api(), namespace, "one"), "a pod runs on spot")
    assert account.fault("spot-interruption") == spot
    scene.eventually(
        lambda: [row["end"] for row in rows(scene, spot)] == ["stopped"], "it was drained in time"
    )
    assert account.state_of(spot) == "running", "EC2 waits two minutes"
    assert not account.kubelets()["withoutFullGrace"]


def rows(scene: Stage, instance: str) -> list[dict[str, Any]]:
    """What became of the pods there."""
    return [row for row in scene.account.kubelets()["pods"] if row["instance"] == instance]


def ready_nodes(scene: Stage) -> list[Any]:
    return [node for node in scene.nodes() if GPU in node["status"]["allocatable"]]


def make_stack(scene: Stage, block: str) -> str:
    """The name of its group."""
    end = scene.account.end_of(block)
    start = end - timedelta(hours=5)  # when it would scale itself up: nobody waits for that here
    made = scene.tidemill(
        "render", "cloudformation", str(scene.files), "--pool", "gpu", "--reservation", block, "--zone", "us-east-1a",
        "--count", "2", "--start", f"{start:%Y-%m-%dT%H:%M:%SZ}", "--end", f"{end:%Y-%m-%dT%H:%M:%SZ}",
        "--no-engine", "--json",
    )  # fmt: skip
    cfn = scene.account.client("cloudformation")
    vpc = {"ParameterKey": "VpcId", "ParameterValue": scene.account.aws.told["vpc"]}
    cfn.create_stack(StackName="gpu", TemplateBody=made, Parameters=[vpc], Capabilities=["CAPABILITY_IAM"])
    groups = scene.account.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    (name,) = [str(one["AutoScalingGroupName"]) for one in groups]
    return name
