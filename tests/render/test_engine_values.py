"""Helm values of the engine: pools on our nodes, 0 means none, secrets by name, two blocks side by side."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.provision.documents import documents
from tidemill.cli import root
from tidemill.model.errors import SpecError
from tidemill.render.engine_values import engine_values
from tidemill.spec import Spec

POOL = {"name": "inference", "computePool": "train", "replicas": 2, "capabilities": "INFERENCE"}
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/0a1b"


def spec(*pools: dict[str, Any], chart: dict[str, Any] | None = None, **more: Any) -> Spec:
    platform = {
        "accountId": "123456789012",
        "hostname": "ml.example.com",
        "bucket": "models",
        "engineChart": {"pools": list(pools), **(chart or {})},
    }
    return documents(platform=platform, **more)


def pools(*wanted: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = engine_values(spec(*wanted), **more)["harmony"]["computePools"]
    return found


@pytest.mark.requirement("AE-6")
@pytest.mark.requirement("PE-14")
def test_a_replica_on_a_whole_p5_gets_180_cpus_and_1700_gib():
    (pool,) = pools(POOL)
    assert pool["gpusPerReplica"] == 8
    assert pool["replicas"] == 2
    assert pool["capabilities"] == "INFERENCE"
    assert pool["resources"]["requests"] == {"cpu": "180", "memory": "1700Gi"}
    assert pool["resources"]["limits"] == pool["resources"]["requests"]
    assert pool["nodeSelector"] == {"tidemill.dev/pool": "train"}
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pool["tolerations"]


@pytest.mark.requirement("AE-6")
def test_a_replica_of_half_a_node_gets_half_of_it():
    (pool,) = pools(POOL | {"gpusPerReplica": 4})
    assert pool["resources"]["requests"] == {"cpu": "90", "memory": "850Gi"}
    with pytest.raises(SpecError, match="3 GPUs a replica, which is no divisor of the 8"):
        pools(POOL | {"gpusPerReplica": 3})


@pytest.mark.requirement("AE-6")
def test_a_replica_of_several_nodes_gets_efa_and_its_image():
    (pool,) = pools(POOL | {"nodesPerReplica": 4})
    assert pool["resources"]["limits"]["vpc.amazonaws.com/efa"] == "32"
    assert pool["image"] == {"tag": "harmony-efa:latest"}
    (single,) = pools(POOL)
    assert "image" not in single


@pytest.mark.requirement("TR-12")
@pytest.mark.requirement("AE-6")
def test_no_replicas_means_no_pool_and_no_pool_means_no_workers():
    """The chart renders one replica where a pool says 0."""
    values = engine_values(spec(POOL | {"replicas": 0}))
    assert values["harmony"]["computePools"] == []
    assert values["harmony"]["enabled"] is False


@pytest.mark.requirement("AE-7")
def test_the_control_plane_comes_first_without_gpus():
    values = engine_values(spec(POOL), control_plane_only=True)
    assert values["harmony"]["enabled"] is False
    assert values["controlPlane"]["rootUrl"] == "https://ml.example.com"


@pytest.mark.requirement("AE-16")
def test_during_a_hand_over_both_blocks_serve_and_no_pool_is_renamed():
    old, new = "cr-0a1b2c3d4e5f60718", "cr-0ffffffffffffff00"
    before = pools(POOL, reservations={"inference": [old]})
    during = pools(POOL, reservations={"inference": [old, new]})
    after = pools(POOL, reservations={"inference": [new]})
    assert during == before + after
    assert [pool["nodeSelector"]["tidemill.dev/source"] for pool in during] == [old, new]
    assert len({pool["name"] for pool in during}) == 2
    with pytest.raises(SpecError, match="no pool 'inferense'"):
        pools(POOL, reservations={"inferense": [old]})


@pytest.mark.requirement("AE-6")
def test_values_name_secrets_and_contain_none():
    values = engine_values(spec(POOL))
    assert values["secrets"] == {
        "existingControlPlaneSecret": "engine-control-plane",
        "existingHarmonySecret": "engine-workers",
        "existingRedisSecret": "engine-redis",
    }
    assert values["containerRegistry"] == "123456789012.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.requirement("AE-17")
def test_the_database_and_redis_of_the_chart_are_off():
    values = engine_values(spec(POOL))
    assert values["installPostgres"] == {"enabled": False}
    assert values["redis"]["install"] == {"enabled": False}


@pytest.mark.requirement("AE-10")
def test_the_load_balancer_has_the_certificate_and_lets_in_whom_the_lists_name():
    chart = {"ingress": {"certificateArn": CERTIFICATE, "prefixLists": ["pl-0a1b2c3d", "pl-11112222"]}}
    ingress = engine_values(spec(POOL, chart=chart))["ingress"]
    assert ingress["className"] == "alb"
    annotations = {key.rpartition("/")[2]: value for key, value in ingress["annotations"].items()}
    assert annotations["certificate-arn"] == CERTIFICATE
    assert annotations["security-group-prefix-lists"] == "pl-0a1b2c3d,pl-11112222"
    assert annotations["listen-ports"] == '[{"HTTPS": 443}]'
    assert engine_values(spec(POOL))["ingress"] == {"enabled": False}


@pytest.mark.requirement("AE-9")
def test_logs_go_to_the_cloudwatch_agent():
    endpoint = "http://cloudwatch-agent.amazon-cloudwatch.svc.cluster.local:4318"
    collector = engine_values(spec(POOL, chart={"otlpEndpoint": endpoint}))["otelCollector"]
    assert yaml.safe_load(collector["exporters"]) == {"otlphttp/cloudwatch": {"endpoint": endpoint}}
    assert yaml.safe_load(collector["pipelines"])["logs"]["exporters"] == ["otlphttp/cloudwatch"]


def test_nodes_of_several_sizes_are_refused():
    several = spec(POOL, requirements={"instanceTypes": ["p5.48xlarge", "p5.4xlarge"]})
    with pytest.raises(SpecError, match="nodes of 1 to 8 GPUs"):
        engine_values(several)


def test_the_command_prints_them(tmp_path: Any):
    file = tmp_path / "documents.yaml"
    file.write_text(
        """
apiVersion: tidemill.dev/v1alpha1
kind: Platform
metadata: {name: ml}
spec:
  region: us-east-1
  accountId: "123456789012"
  deployment: ml
  cluster: {name: ml}
  engineChart: {pools: [{name: serve, computePool: gpu, replicas: 1}]}
---
apiVersion: tidemill.dev/v1alpha1
kind: NodeClass
metadata: {name: gpu}
spec: {amiSelectorTerms: [{alias: al2023@v20261101}]}
---
apiVersion: tidemill.dev/v1alpha1
kind: ComputePool
metadata: {name: gpu}
spec: {nodeClassName: gpu, requirements: {instanceTypes: [p5.48xlarge]}, limits: {nodes: 2}, sources: [{type: block}]}
"""
    )
    pin = ("--reservation", "serve=cr-0a1b2c3d4e5f60718")
    told = CliRunner().invoke(root, ["render", "engine", str(file), *pin, "--json"])
    assert told.exit_code == 0, told.output
    (pool,) = json.loads(told.stdout)["harmony"]["computePools"]
    assert pool["name"] == "serve-0a1b2c3d"
    assert CliRunner().invoke(root, ["render", "engine", str(file), "--reservation", "serve"]).exit_code == 2
