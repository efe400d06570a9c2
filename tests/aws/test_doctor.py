"""`tidemill doctor` against the simulated AWS: from nothing, and with throttled, denied and failing calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.aws.wired import Wired
from tidemill.cli import main

REGION = "us-east-1"


@pytest.fixture
def file(wired: Wired, tmp_path: Path) -> Path:
    subnets = {subnet.zone: [subnet.id] for subnet in wired.server.wire.network.subnets}
    path = tmp_path / "documents.yaml"
    path.write_text(
        f"""
apiVersion: tidemill.dev/v1alpha1
kind: Platform
metadata: {{name: mill}}
spec:
  region: {REGION}
  deployment: mill
  cluster: {{name: checklist}}
  bucket: mill-models
  subnets: {json.dumps(subnets)}
---
apiVersion: tidemill.dev/v1alpha1
kind: NodeClass
metadata: {{name: gpu}}
spec: {{amiSelectorTerms: [{{alias: al2023@v20261101}}]}}
---
apiVersion: tidemill.dev/v1alpha1
kind: ComputePool
metadata: {{name: train}}
spec:
  nodeClassName: gpu
  requirements: {{instanceTypes: [p5.48xlarge]}}
  limits: {{nodes: 4}}
  sources: [{{type: block}}]
"""
    )
    return path


def looked(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, list[str]], Any]:
    code = main(["doctor", "-f", str(file), "--aws", "--json"])
    document = json.loads(capsys.readouterr().out)
    states: dict[str, list[str]] = {}
    for one in document["checks"]:
        states.setdefault(one["check"], []).append(one["state"])
    return code, states, document


@pytest.mark.requirement("AE-13")
def test_what_the_account_lacks_and_then_has(wired: Wired, file: Path, capsys: pytest.CaptureFixture[str]):
    code, states, _ = looked(file, capsys)
    assert code == 1
    for check in ("cluster", "database", "redis", "bucket", "secret", "block-of-pool"):
        assert set(states[check]) == {"missing"}, check
    assert set(states["subnets"]) == {"done"}

    client = lambda service: boto3.client(service, region_name=REGION)  # noqa: E731
    client("eks").create_cluster(
        name="checklist", version="1.33", roleArn="arn:aws:iam::123456789012:role/eks",
        resourcesVpcConfig={"subnetIds": [wired.server.wire.network.subnets[0].id]},
    )  # fmt: skip
    client("rds").create_db_instance(
        DBInstanceIdentifier="mill", Engine="postgres", EngineVersion="17.6", DBInstanceClass="db.m8g.2xlarge",
        AllocatedStorage=100, MasterUsername="engine", ManageMasterUserPassword=True, StorageEncrypted=True,
        PubliclyAccessible=False,
    )  # fmt: skip
    client("elasticache").create_replication_group(
        ReplicationGroupId="mill", ReplicationGroupDescription="r", TransitEncryptionEnabled=True, AuthToken="x" * 32,
    )  # fmt: skip
    client("s3").create_bucket(Bucket="mill-models")
    wired.account.block(count=4)
    code, states, document = looked(file, capsys)
    assert code == 1  # the secrets, and what only the cluster shows
    for check in ("cluster", "cluster-version", "database", "database-safe", "redis", "bucket", "subnets"):
        assert set(states[check]) == {"done"}, document
    assert states["block-of-pool"] == ["done"]
    assert states["api-server"] == ["cannot-tell"]


@pytest.mark.requirement("AE-13")
@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException", "InternalError"])
@pytest.mark.parametrize(
    ("action", "check"),
    [
        ("DescribeCluster", "cluster"),
        ("DescribeDBInstances", "database"),
        ("DescribeReplicationGroups", "redis"),
        ("GetBucketLocation", "bucket"),
        ("DescribeSubnets", "subnets"),
        ("DescribeCapacityReservations", "block-of-pool"),
        ("DescribeSecret", "secret"),
    ],
)
def test_a_failed_look_is_cannot_tell(
    wired: Wired, file: Path, capsys: pytest.CaptureFixture[str], action: str, check: str, code: str
):
    status = 500 if code == "InternalError" else 400
    wired.fault("error", action=action, code=code, message="no", status=status, count=100)
    _, states, document = looked(file, capsys)
    assert "cannot-tell" in states[check], document
    assert "missing" not in states[check] or check == "secret"
