"""The policies: exactly what the adapter calls, and everything that changes something bound to the owner tag."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

import tidemill.aws
from tests.aws.wired import Wired
from tests.cli.purchaser import Purchaser
from tests.sim.account import ON_DEMAND, SPOT, tags
from tidemill.aws.iam import PERMISSIONS, Guard, PolicyScope, Role, calls, policy, policy_with, scp
from tidemill.cli import main
from tidemill.cli.iam import _WHICH
from tidemill.spec import names

PLACE = PolicyScope("mill", "us-east-1", "123456789012", ("mill-node",))
SERVICES = sorted({one.action.partition(":")[0] for one in PERMISSIONS} - {"iam"})
# Files that name operations without calling them.
NOT_CALLED_IN = ("errors.py", "iam.py", "session.py")


def statements(role: Role) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = policy(role, PLACE)["Statement"]
    return found


def conditions(role: Role, action: str) -> list[dict[str, Any]]:
    return [statement.get("Condition", {}) for statement in statements(role) if action in statement["Action"]]


@pytest.mark.requirement("PE-23")
def test_the_table_has_exactly_the_operations_that_the_adapter_calls():
    known = {
        name: f"{service}:{name}"
        for service in SERVICES
        for name in boto3.client(service, region_name="us-east-1").meta.service_model.operation_names
    }
    written: set[str] = set()
    for file in Path(tidemill.aws.__file__).parent.glob("*.py"):
        if file.name not in NOT_CALLED_IN:
            constants = (
                one for one in ast.walk(ast.parse(file.read_text())) if isinstance(one, ast.Constant)
            )
            written |= {
                constant.value
                for constant in constants
                if isinstance(constant.value, str) and constant.value in known
            }
    assert written == {call.partition(":")[2] for call in calls()}


@pytest.mark.requirement("PE-23")
def test_every_call_of_the_adapter_is_in_the_table(wired: Wired):
    block = wired.account.block(count=2)
    for source in (block.source, ON_DEMAND, SPOT):
        intent = wired.account.intent(source)
        ids = wired.cloud.launch(intent, tags(intent=intent.id))
    wired.account.wait("5m")
    wired.cloud.reservations(), wired.cloud.instances(), wired.cloud.extensions(), wired.cloud.identity()
    wired.cloud.terminate(ids[0])
    offer = wired.cloud.search_offers(wired.account.query())[0]
    wired.cloud.purchase(offer.id, tags(intent="p-1"))
    wired.cloud.tag_reservation(block.id, ((names.TAG_POOL, "train"),))
    wired.cloud.untag_reservation(block.id, ((names.TAG_POOL, "train"),))
    for template in wired.compute.templates():
        wired.compute.delete_template(template.name)
    assert wired.aws.called <= calls()
    assert len(wired.aws.called) >= 14


@pytest.mark.requirement("PE-23")
def test_observers_only_read():
    actions = [action for statement in statements(Role.OBSERVER) for action in statement["Action"]]
    assert "ec2:DescribeInstances" in actions
    for action in actions:
        assert action.partition(":")[2].startswith(("Describe", "Get", "List")), action


@pytest.mark.requirement("PE-23")
def test_only_the_purchaser_can_spend():
    for role in (Role.OBSERVER, Role.PROVISIONER):
        assert "Purchase" not in json.dumps(policy(role, PLACE))
    assert "ec2:PurchaseCapacityBlock" in json.dumps(policy(Role.PURCHASER, PLACE))
    assert "RunInstances" not in json.dumps(policy(Role.PURCHASER, PLACE))


@pytest.mark.requirement("PE-23")
@pytest.mark.parametrize(
    "action", ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate", "ec2:CreateLaunchTemplateVersion"]
)
def test_what_is_changed_or_terminated_must_carry_our_owner_tag(action: str):
    (condition,) = conditions(Role.PROVISIONER, action)
    assert condition["StringEquals"]["aws:ResourceTag/deployment"] == "mill"


@pytest.mark.requirement("PE-23")
def test_only_the_tags_of_an_adoption_are_removed_and_only_from_what_is_ours():
    """A request that names no tag would remove all: a condition on every named tag holds for it."""
    (condition,) = conditions(Role.PURCHASER, "ec2:DeleteTags")
    assert condition["StringEquals"]["aws:ResourceTag/deployment"] == "mill"
    assert condition["ForAllValues:StringEquals"] == {"aws:TagKeys": ["deployment", "tidemill.dev/pool"]}
    assert condition["Null"] == {"aws:TagKeys": "false"}
    for role in (Role.OBSERVER, Role.PROVISIONER):
        assert "DeleteTags" not in json.dumps(policy(role, PLACE))


@pytest.mark.requirement("PE-23")
def test_launches_must_carry_the_owner_tag_and_use_our_templates():
    by_resource = {
        resource.rpartition(":")[2]: statement.get("Condition", {}).get("StringEquals", {})
        for statement in statements(Role.PROVISIONER)
        if "ec2:RunInstances" in statement["Action"]
        for resource in statement["Resource"]
    }
    assert by_resource["instance/*"]["aws:RequestTag/deployment"] == "mill"
    assert by_resource["volume/*"]["aws:RequestTag/deployment"] == "mill"
    assert by_resource["launch-template/*"]["aws:ResourceTag/deployment"] == "mill"


@pytest.mark.requirement("PE-23")
def test_tags_are_written_only_when_something_is_created():
    (condition,) = conditions(Role.PROVISIONER, "ec2:CreateTags")
    assert condition["StringEquals"]["ec2:CreateAction"] == ["CreateLaunchTemplate", "RunInstances"]
    at_purchase, at_adoption = conditions(Role.PURCHASER, "ec2:CreateTags")
    assert at_purchase["StringEquals"]["ec2:CreateAction"] == ["PurchaseCapacityBlock"]
    assert at_adoption["StringEqualsIfExists"] == {"aws:ResourceTag/deployment": "mill"}


@pytest.mark.requirement("PE-23")
def test_only_the_nodes_role_is_passed():
    (one,) = [
        statement for statement in statements(Role.PROVISIONER) if "iam:PassRole" in statement["Action"]
    ]
    assert one["Resource"] == ["arn:aws:iam::123456789012:role/mill-node"]
    assert one["Condition"]["StringEquals"]["iam:PassedToService"] == [
        "ec2.amazonaws.com",
        "eks.amazonaws.com",
    ]


def test_nothing_that_changes_anything_is_allowed_without_a_condition_or_a_resource():
    for role in Role:
        for statement in statements(role):
            assert statement["Resource"] != "*" or statement["Condition"], statement


def test_sids_are_unique_and_letters_only():
    for role in Role:
        sids = [statement["Sid"] for statement in statements(role)]
        assert len(set(sids)) == len(sids) > 0
        assert all(sid.isalnum() for sid in sids)


def test_policies_are_short_enough_for_iam():
    for role in Role:
        assert len(json.dumps(policy(role, PLACE), separators=(",", ":"))) < 6144


def test_other_partitions_have_their_own_arns():
    assert (
        PolicyScope(region="us-gov-west-1")
        .arn("ec2", "instance/*")
        .startswith("arn:aws-us-gov:ec2:us-gov-west-1:")
    )
    assert PolicyScope(region="cn-north-1").arn("ec2", ":image/*") == "arn:aws-cn:ec2:cn-north-1::image/*"
    assert PLACE.arn("ec2", "*:subnet/*") == "arn:aws:ec2:us-east-1:*:subnet/*"


@pytest.mark.requirement("PE-23")
def test_the_service_control_policy_denies_purchases_to_all_others_and_elsewhere():
    by_others, elsewhere = scp(PLACE)["Statement"]
    assert by_others["Condition"]["ArnNotLike"]["aws:PrincipalArn"].endswith("role/tidemill-purchaser")
    assert elsewhere["Condition"]["StringNotEquals"]["aws:RequestedRegion"] == "us-east-1"
    assert all(one["Effect"] == "Deny" for one in (by_others, elsewhere))


def test_every_guard_is_used_and_every_action_has_a_policy():
    assert {one.guard for one in PERMISSIONS} == set(Guard)
    assert all(policy_with(one.action) for one in PERMISSIONS)
    assert policy_with("s3:PutObject") == ""


# --- the command --------------------------------------------------------------------------------------


def test_the_command_prints_the_policy_of_the_documents(tmp_path: Path):
    office = Purchaser(tmp_path)
    office.write(accountId="123456789012", nodeRole="mill-node")
    told = office("iam", "provisioner", "-f", str(office.documents))
    assert told.code == 0, told.err
    assert told.json == policy(
        Role.PROVISIONER, PolicyScope("mill", "us-east-1", "123456789012", ("mill-node",), "ml", ())
    )
    assert told.err == ""


def test_without_documents_it_says_what_to_replace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TIDEMILL_FILES", raising=False)
    assert main(["iam", "purchaser"]) == 0
    told = capsys.readouterr()
    assert "DEPLOYMENT" in json.dumps(json.loads(told.out))
    assert "replace REGION, ACCOUNT, DEPLOYMENT and NODE-ROLE" in told.err
    assert main(["iam", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {*_WHICH}
    assert main(["iam"]) == 0
    assert "ec2:TerminateInstances" in capsys.readouterr().out


@pytest.mark.requirement("PE-23")
def test_iam_takes_the_policies_as_they_are_written(wired: Wired):
    iam = boto3.client("iam")
    for role in Role:
        made = iam.create_policy(PolicyName=role.value, PolicyDocument=json.dumps(policy(role, PLACE)))
        assert made["Policy"]["PolicyName"] == role.value
    broken = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "everything", "Resource": "*"}],
    }
    with pytest.raises(iam.exceptions.MalformedPolicyDocumentException):
        iam.create_policy(PolicyName="broken", PolicyDocument=json.dumps(broken))


@pytest.mark.requirement("PE-23")
def test_only_nodes_of_our_pools_may_be_terminated_and_only_their_role_may_join():
    (ends,) = conditions(Role.PROVISIONER, "ec2:TerminateInstances")
    assert ends["Null"] == {"aws:ResourceTag/tidemill.dev/pool": "false"}
    (joins,) = conditions(Role.PROVISIONER, "eks:CreateAccessEntry")
    assert joins["StringEquals"] == {"eks:accessEntryType": "EC2_LINUX"}
    assert all(":role/" in arn for arn in joins["ArnEquals"]["eks:principalArn"])
    (reads,) = [
        statement for statement in statements(Role.PROVISIONER) if "sqs:ReceiveMessage" in statement["Action"]
    ]
    assert all(resource.endswith(":mill-*") for resource in reads["Resource"])


@pytest.mark.requirement("PE-23")
def test_a_node_group_may_be_created_with_tags_and_nobodys_can_be_claimed_with_one():
    """It carries none yet: a condition on those would forbid to make one at all. So its name must be one of ours."""
    found = [one for one in statements(Role.PROVISIONER) if "eks:TagResource" in one["Action"]]
    unowned = [one for one in found if "aws:ResourceTag/deployment" not in one["Condition"]["StringEquals"]]
    (claims,) = unowned
    assert claims["Condition"]["StringEquals"]["aws:RequestTag/deployment"] == "mill"
    assert claims["Condition"]["StringEqualsIfExists"] == {"aws:ResourceTag/deployment": "mill"}
    assert claims["Resource"] == ["arn:aws:eks:us-east-1:123456789012:nodegroup/CLUSTER/mill-*/*"]


@pytest.mark.requirement("PE-23")
def test_members_of_node_groups_with_other_names_cannot_be_terminated():
    found = conditions(Role.PROVISIONER, "autoscaling:TerminateInstanceInAutoScalingGroup")
    (of_eks,) = [one for one in found if "aws:ResourceTag/deployment" not in one["StringEquals"]]
    assert of_eks["StringLike"] == {"aws:ResourceTag/eks:nodegroup-name": "mill-*"}
    assert of_eks["StringEquals"] == {"aws:ResourceTag/eks:cluster-name": "CLUSTER"}


def test_alerts_and_the_roles_of_services_are_allowed_and_nothing_beside_them():
    with_topics = replace(PLACE, topics=("arn:aws:sns:us-east-1:123456789012:gpu",))
    tells = [
        one for one in policy(Role.PROVISIONER, with_topics)["Statement"] if "sns:Publish" in one["Action"]
    ]
    assert [one["Resource"] for one in tells] == [["arn:aws:sns:us-east-1:123456789012:gpu"]]
    assert "sns:" not in json.dumps(policy(Role.PROVISIONER, replace(PLACE, topics=())))
    (makes,) = [one for one in statements(Role.PROVISIONER) if "iam:CreateServiceLinkedRole" in one["Action"]]
    assert makes["Resource"] == "arn:aws:iam::123456789012:role/aws-service-role/*"
    assert makes["Condition"]["StringEquals"]["iam:AWSServiceName"] == [
        "autoscaling.amazonaws.com",
        "eks-nodegroup.amazonaws.com",
        "spot.amazonaws.com",
    ]


def test_an_instance_profile_is_not_passed_as_a_role(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    document = tmp_path / "platform.yaml"
    document.write_text(
        "kind: Platform\nmetadata: {name: mill}\nspec:\n  region: us-east-1\n  deployment: mill\n"
        "  cluster: {name: ml}\n  nodeRole: arn:aws:iam::123456789012:instance-profile/nodes\n"
    )
    assert main(["iam", "provisioner", "-f", str(document)]) == 2
    assert "is an instance profile, and a policy needs its role" in capsys.readouterr().err
