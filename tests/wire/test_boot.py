"""Instances that boot become nodes of an API server, with the labels and taints of their user data."""

from __future__ import annotations

import logging
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.sim.account import P5
from tests.wire.kube_stand_in import StandIn, eventually
from tests.wire.server_builder import SimulatedAws, on_block
from tidemill.sim.wire import WireServer
from tidemill.sim.wire.data_plane.api_client import KubeApi
from tidemill.sim.wire.data_plane.user_data import read_user_data
from tidemill.spec.units import parse_instant

ARCHIVE = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      maxPods: 60
      registerWithTaints:
        - {key: tidemill.dev/starting, effect: NoSchedule}
        - {key: example.com/agent-not-ready, effect: NoSchedule}
    flags: ["--node-labels=tidemill.dev/pool=train,team=vision"]

--//--
"""


@pytest.fixture
def api() -> Iterator[StandIn]:
    made = StandIn()
    yield made
    made.close()


@pytest.fixture
def aws(api: StandIn) -> Iterator[SimulatedAws]:
    made = SimulatedAws(kube=KubeApi(api.url, token="secret"))
    yield made
    made.stop()


def boot(aws: SimulatedAws, user_data: str = ARCHIVE) -> str:
    (one,) = aws.run(**on_block(aws.block().id), UserData=user_data)["Instances"]
    return str(one["InstanceId"])


def condition(node: dict[str, Any], kind: str) -> str | None:
    found = [each["status"] for each in node["status"]["conditions"] if each["type"] == kind]
    return found[0] if found else None


def test_a_node_joins_minutes_after_launch_and_its_gpus_a_minute_later(aws: SimulatedAws, api: StandIn):
    instance = boot(aws)
    aws.wait("2m")
    assert api.nodes == {}
    aws.wait("3m")
    (node,) = api.nodes.values()
    labels = node["metadata"]["labels"]
    assert (labels["tidemill.dev/pool"], labels["team"]) == ("train", "vision")
    assert labels["node.kubernetes.io/instance-type"] == "p5.48xlarge"
    assert node["spec"]["providerID"].endswith(f"/{instance}")
    assert {taint["key"] for taint in node["spec"]["taints"]} >= {"tidemill.dev/starting"}
    assert condition(node, "Ready") == "True"
    aws.wait("90s")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert api.tokens == {"Bearer secret"}


def test_a_node_is_named_as_ec2_names_its_instance(aws: SimulatedAws, api: StandIn):
    boot(aws)
    aws.wait("6m")
    (instance,) = aws.instances()
    (node,) = api.nodes.values()
    assert node["metadata"]["name"] == instance["PrivateDnsName"]
    addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
    assert addresses["InternalIP"] == instance["PrivateIpAddress"]
    assert addresses["InternalDNS"] == addresses["Hostname"] == instance["PrivateDnsName"]


def test_the_kubelet_keeps_a_part_of_the_machine(aws: SimulatedAws, api: StandIn):
    boot(aws)
    aws.wait("6m")
    (node,) = api.nodes.values()
    has, gives = node["status"]["capacity"], node["status"]["allocatable"]
    assert (has["cpu"], gives["cpu"]) == ("192", "191450m")
    assert int(has["memory"].removesuffix("Ki")) > int(gives["memory"].removesuffix("Ki"))
    assert int(has["ephemeral-storage"]) > int(gives["ephemeral-storage"]) > 0
    assert gives["pods"] == "60"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.1"
    assert [condition(node, kind) for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")] == [
        "False"
    ] * 3


def test_the_node_check_passes_and_others_take_their_startup_taints_off(aws: SimulatedAws, api: StandIn):
    boot(aws)
    while not api.nodes:
        aws.wait("30s")
    (node,) = api.nodes.values()
    assert condition(node, "tidemill.dev/GPUsVerified") is None
    assert len(node["spec"]["taints"]) == 2
    aws.wait("3m")
    assert condition(node, "tidemill.dev/GPUsVerified") == "True"
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["tidemill.dev/starting"]


def test_heartbeats_are_in_wall_time_while_the_clock_stands(aws: SimulatedAws, api: StandIn):
    boot(aws)
    aws.wait("6m")
    (name,) = api.nodes
    lease = eventually(lambda: api.leases.get(name))
    assert lease["metadata"]["ownerReferences"][0]["uid"] == f"uid-{name}"
    renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
    assert abs(renewed - datetime.now(UTC)) < timedelta(seconds=10)
    heartbeat = api.nodes[name]["status"]["conditions"][0]["lastHeartbeatTime"]
    assert abs(parse_instant(heartbeat) - datetime.now(UTC)) < timedelta(seconds=10)


def test_a_node_whose_instance_is_gone_turns_silent_and_is_forgotten(aws: SimulatedAws, api: StandIn):
    instance = boot(aws)
    aws.wait("10m")
    aws.ec2.terminate_instances(InstanceIds=[instance])
    (node,) = api.nodes.values()
    assert condition(node, "Ready") == "True"  # a machine that is gone says nothing
    aws.wait("1m")
    assert condition(node, "Ready") == "Unknown"
    aws.wait("5m")
    assert api.nodes == {}


def test_user_data_of_a_launch_template_is_read(aws: SimulatedAws, api: StandIn):
    data = {
        "ImageId": aws.network.images["x86_64"], "InstanceType": P5,
        "UserData": b64encode(ARCHIVE.encode()).decode(), **on_block(aws.block().id),
    }  # fmt: skip
    aws.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data)
    aws.ec2.run_instances(LaunchTemplate={"LaunchTemplateName": "gpu"}, MinCount=1, MaxCount=1)
    aws.wait("6m")
    (node,) = api.nodes.values()
    assert node["metadata"]["labels"]["tidemill.dev/pool"] == "train"
    assert node["spec"]["taints"][0]["key"] == "tidemill.dev/starting"


def test_nodes_of_a_managed_group_have_its_labels_and_taints(aws: SimulatedAws, api: StandIn):
    subnet = aws.network.subnets[0]
    data = {"ImageId": aws.network.images["x86_64"], "InstanceType": "g6.xlarge"}
    aws.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data)
    eks = aws.client("eks")
    eks.create_cluster(
        name="demo",
        roleArn="arn:aws:iam::123456789012:role/eks",
        resourcesVpcConfig={"subnetIds": [subnet.id]},
    )
    eks.create_nodegroup(
        clusterName="demo", nodegroupName="workers", subnets=[subnet.id],
        nodeRole="arn:aws:iam::123456789012:role/node", launchTemplate={"name": "gpu"},
        scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 1}, labels={"team": "vision"},
        taints=[{"key": "gpu", "value": "yes", "effect": "NO_SCHEDULE"}],
    )  # fmt: skip
    aws.wait("15m")
    (node,) = api.nodes.values()
    labels = node["metadata"]["labels"]
    assert (labels["team"], labels["eks.amazonaws.com/nodegroup"]) == ("vision", "workers")
    assert {"key": "gpu", "value": "yes", "effect": "NoSchedule"} in node["spec"]["taints"]


def test_an_api_server_that_is_slow_never_holds_up_the_account(aws: SimulatedAws, api: StandIn):
    api.slow_s = 1.0
    boot(aws)
    began = time.monotonic()
    with aws.server.turn():
        aws.server.clock.advance(by=timedelta(minutes=10))
    aws.instances()
    assert time.monotonic() - began < 0.9
    eventually(lambda: api.nodes)


def test_errors_of_the_api_server_stop_nothing(
    aws: SimulatedAws, api: StandIn, caplog: pytest.LogCaptureFixture
):
    api.refuses = 403
    with caplog.at_level(logging.WARNING):
        boot(aws, "")
        aws.wait("10m")
    assert "403" in caplog.text
    assert aws.instances()[0]["State"]["Name"] == "running"


def test_what_failed_is_sent_again_when_the_api_server_is_back(aws: SimulatedAws, api: StandIn):
    api.refuses = 503
    boot(aws)
    aws.server.clock.advance(by=timedelta(minutes=10))
    time.sleep(0.3)
    assert api.nodes == {}
    api.refuses = 0
    eventually(lambda: api.nodes)


def test_connections_are_kept(aws: SimulatedAws, api: StandIn):
    for _ in range(10):
        boot(aws)
    for _ in range(20):
        aws.wait("30s")
    assert len(api.nodes) == 10
    assert len(api.calls) >= 40
    assert (
        api.connections <= 26
    )  # one a thread: sixteen that write, eight for heartbeats, the list and the watch


def test_booting_fast_takes_seconds(api: StandIn):
    aws = SimulatedAws(kube=KubeApi(api.url), boot_fast=True)
    boot(aws)
    aws.wait("10s")
    (node,) = api.nodes.values()
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert condition(node, "tidemill.dev/GPUsVerified") == "True"
    aws.stop()


# --- faults -------------------------------------------------------------------------------------------


def test_a_node_can_stay_away_or_come_late(aws: SimulatedAws, api: StandIn):
    assert aws.admin("faults", {"fault": "never-joins", "count": 1}) == {"fault": "never-joins"}
    aws.admin("faults", {"fault": "late-join", "count": 1, "duration": "20m"})
    boot(aws), boot(aws)
    aws.wait("15m")
    assert api.nodes == {}
    aws.wait("15m")
    assert len(api.nodes) == 1


def test_gpus_can_stay_away(aws: SimulatedAws, api: StandIn):
    aws.admin("faults", {"fault": "gpus-never-register"})
    boot(aws)
    aws.wait("1h")
    (node,) = api.nodes.values()
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]
    assert condition(node, "tidemill.dev/GPUsVerified") is None


def test_a_gpu_that_breaks_fails_the_check(aws: SimulatedAws, api: StandIn):
    boot(aws)
    aws.wait("10m")
    (name,) = api.nodes
    assert aws.admin("faults", {"fault": "gpu-fails"}) == {"fault": "gpu-fails", "struck": name}
    aws.wait("1s")
    status = api.nodes[name]["status"]
    assert status["allocatable"]["nvidia.com/gpu"] == "7"
    assert condition(api.nodes[name], "tidemill.dev/GPUsVerified") == "False"


def test_faults_of_the_cluster_need_one():
    aws = SimulatedAws()
    assert "--kubeconfig" in aws.admin("faults", {"fault": "never-joins"})["error"]
    assert "--kubeconfig" in aws.admin("kubelets")["error"]
    aws.stop()


# --- user data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "#!/bin/bash\necho", "[settings", "[x]\ny=1", ARCHIVE.replace("kind", "kin")]
)
def test_unreadable_user_data_gives_no_labels_and_taints(text: str):
    assert (dict(read_user_data(text).labels), read_user_data(text).taints) == ({}, ())


def test_quoted_labels_lose_their_quotes():
    quoted = ARCHIVE.replace('["--node-labels=', "['--node-labels=\"").replace('vision"]', "vision\"']")
    assert quoted != ARCHIVE
    assert read_user_data(quoted).labels == {"tidemill.dev/pool": "train", "team": "vision"}


def test_labels_and_taints_are_read_from_bottlerocket_user_data():
    text = """[settings.kubernetes]
max-pods = 40
[settings.kubernetes.node-labels]
"tidemill.dev/pool" = "train"
[settings.kubernetes.node-taints]
"tidemill.dev/starting" = ["true:NoSchedule"]
"""
    told = read_user_data(text)
    assert told.labels == {"tidemill.dev/pool": "train"}
    assert told.taints == (("tidemill.dev/starting", "true", "NoSchedule"),)
    assert told.max_pods == 40


def test_without_an_api_server_no_instance_becomes_a_node():
    aws = SimulatedAws()
    assert isinstance(aws.server, WireServer)
    aws.ids(block=aws.block().id)
    aws.wait("10m")
    aws.stop()
