"""The aws-auth ConfigMap for clusters without access entries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tidemill.cli import main


def documents(folder: Path, **platform: str) -> str:
    spec = {"region": "us-east-1", "deployment": "mill", "cluster": {"name": "ml"}, **platform}
    file = folder / "platform.yaml"
    file.write_text(yaml.safe_dump({"kind": "Platform", "metadata": {"name": "mill"}, "spec": spec}))
    return str(file)


@pytest.mark.requirement("SM-6")
@pytest.mark.parametrize("role", ["nodes", "arn:aws:iam::123456789012:role/nodes"])
def test_the_nodes_role_is_mapped_to_the_kubelet_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], role: str
):
    file = documents(tmp_path, nodeRole=role, accountId="123456789012")
    assert main(["render", "aws-auth", file, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = told[0] if isinstance(told, list) else told
    (entry,) = yaml.safe_load(found["data"]["mapRoles"])
    assert entry == {
        "rolearn": "arn:aws:iam::123456789012:role/nodes",
        "username": "system:node:{{EC2PrivateDNSName}}",
        "groups": ["system:bootstrappers", "system:nodes"],
    }
    assert (found["kind"], found["metadata"]["name"]) == ("ConfigMap", "aws-auth")


@pytest.mark.parametrize(
    ("platform", "says"),
    [
        ({}, "set spec.nodeRole"),
        ({"nodeRole": "nodes"}, "set spec.accountId"),
        ({"nodeRole": "arn:aws:iam::123456789012:instance-profile/nodes"}, "is an instance profile"),
    ],
)
def test_a_role_without_a_known_arn_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], platform: dict[str, str], says: str
):
    assert main(["render", "aws-auth", documents(tmp_path, **platform)]) == 2
    assert says in capsys.readouterr().err
