"""The stock eksctl on the simulated AWS: as far as it gets, and where it stops. `make peers-eksctl` runs it.

It is built for ten minutes of CPU, so it is no part of `make test-cluster` nor of CI.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.documents import NAME, pool
from tests.cluster.peers import binaries_of
from tests.cluster.stage import Stage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TIDEMILL_EKSCTL") != "1",
        reason="eksctl is built for minutes: `make peers-eksctl` runs it",
    ),
]
ROLE = "arn:aws:iam::123456789012:role/real-node"


def eksctl(scene: Stage, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (str(binaries_of("eksctl") / "eksctl"), *arguments)
    return subprocess.run(
        command, env=scene.environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.requirement("GB-5")
def test_eksctl_lists_node_groups_and_stops_where_it_needs_a_token_of_eks(
    stage: Callable[..., Stage], tmp_path: Path
) -> None:
    scene = stage(pool(provisioner="managed"), speed=1, start="", boot="fast", admission=False)
    network = make_node_group(scene)
    listed = eksctl(scene, "get", "nodegroup", "--cluster", NAME, "--output", "json")
    assert listed.returncode == 0, listed.stderr
    (group,) = json.loads(listed.stdout)
    assert (group["Name"], group["Cluster"], group["DesiredCapacity"]) == ("ours", NAME, 1)
    assert group["ImageID"] == scene.account.aws.told["images"]["x86_64"]

    file = tmp_path / "cluster.yaml"
    config = {"apiVersion": "eksctl.io/v1alpha5", "kind": "ClusterConfig"}
    more = {"name": "more", "instanceType": "g6.xlarge", "desiredCapacity": 1, "privateNetworking": True}
    named = {"metadata": {"name": NAME, "region": "us-east-1"}, "vpc": network, "managedNodeGroups": [more]}
    file.write_text(json.dumps(config | named))
    stopped = eksctl(scene, "create", "nodegroup", "-f", str(file))
    assert stopped.returncode == 1
    assert "the server has asked for the client to provide credentials" in stopped.stderr + stopped.stdout


def make_node_group(scene: Stage) -> dict[str, Any]:
    """And the network of the cluster, as eksctl wants it named."""
    ec2, eks = scene.account.ec2, scene.account.client("eks")
    data = {"InstanceType": "g6.xlarge", "ImageId": scene.account.aws.told["images"]["x86_64"]}
    made = ec2.create_launch_template(LaunchTemplateName="ours", LaunchTemplateData=data)["LaunchTemplate"]
    vpc = eks.describe_cluster(name=NAME)["cluster"]["resourcesVpcConfig"]
    eks.create_nodegroup(
        clusterName=NAME, nodegroupName="ours", nodeRole=ROLE, subnets=vpc["subnetIds"][:1],
        launchTemplate={"id": made["LaunchTemplateId"], "version": "1"},
        scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 2},
    )  # fmt: skip
    subnets = ec2.describe_subnets(SubnetIds=vpc["subnetIds"])["Subnets"]
    private = {one["AvailabilityZone"]: {"id": one["SubnetId"]} for one in subnets}
    group = vpc["clusterSecurityGroupId"]
    return {"id": vpc["vpcId"], "securityGroup": group, "subnets": {"private": private}}
