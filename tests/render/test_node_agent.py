"""The objects of the deadline agent, as printed. What the API server makes of them is seen in tests/cluster."""

from __future__ import annotations

import json

import pytest
import yaml

from tidemill.cli import main
from tidemill.node.agent import CALLS
from tidemill.render.node_agent import node_agent_objects


def by_kind(objects):
    return {one["kind"]: one for one in objects}


def test_it_may_do_what_it_does_and_nothing_else():
    role = by_kind(node_agent_objects("tidemill:1"))["ClusterRole"]
    given = {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert given == set(CALLS)


def test_policies_name_its_service_account_and_deny():
    objects = node_agent_objects("tidemill:1", namespace="elsewhere")
    policies = [one for one in objects if one["kind"] == "ValidatingAdmissionPolicy"]
    bound = {
        one["spec"]["policyName"] for one in objects if one["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert {one["metadata"]["name"] for one in policies} == bound
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert "'system:serviceaccount:elsewhere:tidemill-node-agent'" in condition["expression"]
        assert policy["spec"]["failurePolicy"] == "Fail"
    account = by_kind(objects)["ServiceAccount"]["metadata"]
    assert (account["namespace"], account["name"]) == ("elsewhere", "tidemill-node-agent")


@pytest.mark.requirement("CB-16")
def test_it_runs_on_every_node_of_ours_whatever_its_taints_and_stays_to_the_end():
    pod = by_kind(node_agent_objects("tidemill:1"))["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["command"] == ["tidemill", "node", "agent"]
    assert container["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert container["volumeMounts"][0]["readOnly"]


def test_without_the_boot_file_nothing_of_the_host_is_mounted(capsys: pytest.CaptureFixture[str]):
    assert main(["render", "node-agent", "--image", "tidemill:1", "--no-boot-file", "--json"]) == 0
    daemon = by_kind(json.loads(capsys.readouterr().out))["DaemonSet"]
    assert "volumes" not in daemon["spec"]["template"]["spec"]
    assert main(["render", "node-agent", "--image", "tidemill:1"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == node_agent_objects("tidemill:1")


def test_an_agent_needs_to_know_its_node_and_its_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path
):
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert main(["node", "agent"]) == 2
    assert "NODE_NAME" in capsys.readouterr().err
    assert main(["node", "agent", "--node", "n", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "there is no kubeconfig" in capsys.readouterr().err
