"""The roles that `tidemill rbac` prints."""

from __future__ import annotations

import json

import yaml
from click.testing import CliRunner

from tidemill.cli.rbac import rbac
from tidemill.kube.rbac import Role, calls, manifests, rights


def rules(role: Role, kind: str = "ClusterRole") -> dict[str, list[str]]:
    (found,) = [each for each in manifests(role) if each["kind"] == kind]
    return {
        f"{each['resources'][0]}.{each['apiGroups'][0]}".rstrip("."): each["verbs"] for each in found["rules"]
    }


def test_one_rule_holds_all_verbs_of_a_resource() -> None:
    assert rules(Role.CONTROLLER)["pods"] == ["delete", "get", "list", "patch", "watch"]
    assert rules(Role.CONTROLLER)["pods/eviction"] == ["create"]


def test_the_lease_is_written_only_where_tidemill_runs() -> None:
    assert "leases.coordination.k8s.io" not in rules(Role.CONTROLLER)
    assert rules(Role.CONTROLLER, "Role") == {"leases.coordination.k8s.io": ["create", "get", "update"]}


def test_an_observer_changes_nothing() -> None:
    assert {call.verb for call in calls(Role.OBSERVER)} == {"list", "watch", "get"}


def test_nobody_reads_secrets_or_has_a_wildcard() -> None:
    for role in Role:
        for call in calls(role):
            assert call.resource not in ("secrets", "*", "configmaps")
            assert call.verb != "*"


def test_the_node_agent_has_the_calls_it_declares() -> None:
    assert rules(Role.NODE_AGENT)["nodes"] == ["list", "patch", "watch"]
    rows = {right.resource: right for right in rights(Role.NODE_AGENT)}
    assert len(rows) == len(rights(Role.NODE_AGENT)) == 3, "one row for a resource, as of the other roles"
    assert len({row.why for row in rows.values()}) == 3


def test_the_verb_prints_what_kubectl_applies() -> None:
    printed = CliRunner().invoke(rbac, ["controller", "--namespace", "gpu"], catch_exceptions=False)
    objects = list(yaml.safe_load_all(printed.output))
    assert [each["kind"] for each in objects] == [
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    ]  # fmt: skip
    assert objects[0]["metadata"]["namespace"] == "gpu"
    assert objects == manifests(Role.CONTROLLER, "gpu")


def test_without_a_name_it_says_why_each_right_is_needed() -> None:
    printed = CliRunner().invoke(rbac, ["--json"], catch_exceptions=False)
    table = json.loads(printed.output)
    assert set(table) == {
        "controller",
        "documents",
        "karpenter",
        "observer",
        "node-agent",
        "purchaser",
        "release",
        "users",
    }
    assert all(right["why"] for rights in table.values() for right in rights)


def test_karpenters_objects_are_a_role_of_their_own_for_the_controllers_account() -> None:
    """Only where a pool asks for it: most clusters have no such objects, or others that nobody of ours should touch."""
    objects = manifests(Role.KARPENTER, "gpu")
    assert [each["kind"] for each in objects] == ["ClusterRole", "ClusterRoleBinding"]
    assert objects[1]["subjects"] == [
        {"kind": "ServiceAccount", "name": "tidemill-controller", "namespace": "gpu"}
    ]
    assert set(rules(Role.KARPENTER)) == {
        "nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws", "nodeclasses.eks.amazonaws.com",
    }  # fmt: skip
    assert rules(Role.KARPENTER)["nodepools.karpenter.sh"] == ["create", "delete", "list", "patch"]


def test_documents_in_the_cluster_are_read_and_only_their_status_is_written() -> None:
    allowed = rules(Role.DOCUMENTS)
    assert allowed["computepools.tidemill.dev"] == ["list"]
    assert allowed["computepools/status.tidemill.dev"] == ["patch"]
    assert allowed["capacityblocks.tidemill.dev"] == ["create", "delete", "list", "patch"]
    assert manifests(Role.DOCUMENTS, "gpu")[1]["subjects"][0]["name"] == "tidemill-controller"


def test_users_see_the_pools_with_the_accounts_they_have() -> None:
    objects = manifests(Role.USERS)
    assert [each["kind"] for each in objects] == ["ClusterRole", "ClusterRoleBinding"]
    assert [each["name"] for each in objects[1]["subjects"]] == ["system:authenticated"]
    assert rules(Role.USERS) == {
        "computepools.tidemill.dev": ["get", "list"], "priorityclasses.scheduling.k8s.io": ["list"]
    }  # fmt: skip
