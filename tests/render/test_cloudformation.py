"""CloudFormation stacks for pools: valid for cfn-lint, and the same as what the engine would create."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from cfnlint.api import lint  # type: ignore[import-untyped]
from click.testing import CliRunner

from tests.provision.documents import documents
from tidemill.cli import main, root
from tidemill.model.errors import SpecError
from tidemill.render.cloudformation import resolve_stack_input, stack

BLOCK = {
    "reservation": "cr-0a1b2c3d4e5f60718",
    "start": datetime(2026, 11, 17, 11, 30, tzinfo=UTC),
    "end": datetime(2026, 11, 20, 11, 30, tzinfo=UTC),
    "count": 4,
}
BARE = {"cluster": {"name": "ml"}, "nodeRole": "", "securityGroups": []}
SOURCES = ("block", "odcr", "spot", "on-demand")


def rendered(provisioner="asg", *, source="block", given=BLOCK, instance_type="", **more):
    spec = documents(provisioner=provisioner, sources=[{"type": source}], **more)
    pool = spec.pools["train"]
    asked = resolve_stack_input(spec, pool, zone="us-east-1a", instance_type=instance_type, **given)
    return stack(spec, pool, asked)


def complaints(made):
    return [f"{each.rule.id} {each.message}" for each in lint(json.dumps(made), regions=["us-east-1"])]


@pytest.mark.requirement("SM-8")
@pytest.mark.parametrize("source", SOURCES)
def test_a_self_managed_stack_is_valid(source):
    assert (
        complaints(
            rendered(source=source, given={}, node_class={"efa": True, "instanceStorePolicy": "RAID0"})
        )
        == []
    )


@pytest.mark.requirement("SM-8")
@pytest.mark.requirement("MG-1")
@pytest.mark.parametrize("source", SOURCES)
def test_a_managed_stack_is_valid(source):
    assert complaints(rendered("managed", source=source, given={}, node_class={"efa": True})) == []


@pytest.mark.parametrize("provisioner", ["asg", "managed"])
def test_a_stack_for_admitted_pods_only_is_valid_and_carries_their_taint(provisioner):
    made = rendered(provisioner, given={}, admittedPodsOnly=True)
    assert complaints(made) == []
    assert "tidemill.dev/held" in json.dumps(made)
    assert "tidemill.dev/held" not in json.dumps(rendered(provisioner, given={}))


@pytest.mark.requirement("SM-8")
@pytest.mark.parametrize("provisioner", ["asg", "managed"])
@pytest.mark.parametrize("platform", [{}, BARE], ids=["documents say it", "parameters ask for it"])
def test_a_stack_of_a_known_block_is_valid(provisioner, platform):
    assert complaints(rendered(provisioner, platform=platform)) == []


@pytest.mark.requirement("SM-8")
def test_a_self_managed_stack_has_every_part():
    made = rendered(node_class={"efa": True})
    kinds = {each["Type"] for each in made["Resources"].values()}
    assert kinds == {
        "AWS::EC2::LaunchTemplate", "AWS::AutoScaling::AutoScalingGroup", "AWS::AutoScaling::ScheduledAction",
        "AWS::AutoScaling::LifecycleHook", "AWS::SQS::Queue", "AWS::SQS::QueuePolicy", "AWS::Events::Rule",
        "AWS::EKS::AccessEntry", "AWS::IAM::InstanceProfile", "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress",
    }  # fmt: skip


@pytest.mark.requirement("SM-8")
@pytest.mark.requirement("SM-3")
def test_the_group_starts_at_zero_and_a_stack_update_keeps_its_size():
    group = rendered()["Resources"]["Group"]
    assert group["Properties"]["MinSize"] == "0"
    assert "DesiredCapacity" not in group["Properties"]
    assert group["UpdatePolicy"]["AutoScalingScheduledAction"]["IgnoreUnmodifiedGroupSizeProperties"] is True
    tags = {each["Key"]: each["PropagateAtLaunch"] for each in group["Properties"]["Tags"]}
    assert tags["Name"]
    assert tags["kubernetes.io/cluster/ml"]
    assert group["Properties"]["LaunchTemplate"]["Version"] == {
        "Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]
    }


@pytest.mark.requirement("SM-8")
@pytest.mark.requirement("SM-4")
@pytest.mark.parametrize(("lead", "down"), [(None, "2026-11-20T10:50:00Z"), ("25m", "2026-11-20T10:35:00Z")])
def test_the_group_scales_out_at_the_start_and_in_early_enough_to_drain(lead, down):
    made = rendered(**({"drain": {"lead": lead}} if lead else {}))
    offered = made["Parameters"]
    assert offered["UpAt"]["Default"] == "2026-11-17T11:31:00Z"
    assert offered["DownAt"]["Default"] == down
    assert offered["EndsAt"]["Default"] == "2026-11-20T11:00:00Z"
    waits_s = made["Resources"]["Hook"]["Properties"]["HeartbeatTimeout"]
    end = datetime.fromisoformat("2026-11-20T11:00:00Z")  # EC2 waits for no hook after that
    assert datetime.fromisoformat(down) + timedelta(seconds=waits_s) <= end
    assert made["Resources"]["Up"]["Properties"]["DesiredCapacity"] == {"Ref": "Size"}
    assert made["Resources"]["Down"]["Properties"]["DesiredCapacity"] == 0


@pytest.mark.requirement("CB-15")
def test_an_ultraserver_group_scales_in_half_an_hour_earlier():
    spec = documents(provisioner="asg", requirements={"instanceTypes": ["p6e-gb200.36xlarge"]})
    made = stack(
        spec, spec.pools["train"], resolve_stack_input(spec, spec.pools["train"], zone="us-east-1a", **BLOCK)
    )
    assert made["Parameters"]["EndsAt"]["Default"] == "2026-11-20T10:30:00Z"
    assert made["Parameters"]["DownAt"]["Default"] == "2026-11-20T10:20:00Z"


@pytest.mark.requirement("PE-19")
def test_efa_nodes_get_a_security_group_that_allows_all_traffic_between_them():
    made = rendered(node_class={"efa": True})
    own = {"Fn::GetAtt": ["EfaSecurityGroup", "GroupId"]}
    inbound, outbound = (
        made["Resources"]["EfaIngress"]["Properties"],
        made["Resources"]["EfaEgress"]["Properties"],
    )
    assert (inbound["IpProtocol"], inbound["SourceSecurityGroupId"]) == ("-1", own)
    assert (outbound["IpProtocol"], outbound["DestinationSecurityGroupId"]) == ("-1", own)
    cards = made["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"]["NetworkInterfaces"]
    assert len(cards) == 32
    assert all(card["Groups"] == ["sg-0aa0aa0a", own] for card in cards)


def test_without_efa_there_is_no_efa_security_group():
    assert "EfaSecurityGroup" not in rendered()["Resources"]
    assert "VpcId" not in rendered()["Parameters"]


@pytest.mark.requirement("SM-8")
def test_user_data_is_readable_and_keeps_shell_variables():
    data = rendered()["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"]
    text = data["UserData"]["Fn::Base64"]["Fn::Sub"]
    assert "tidemill.dev/source=${ReservationId}" in text
    assert "echo ${EndsAt} > /etc/tidemill/ends-at" in text
    assert "root=${!TIDEMILL_ROOT:-}" in text
    assert data["ImageId"] == {"Ref": "ImageId"}
    assert data["CapacityReservationSpecification"]["CapacityReservationTarget"] == {
        "CapacityReservationId": {"Ref": "ReservationId"}
    }


def test_the_image_is_looked_up_by_cloudformation():
    offered = rendered()["Parameters"]["ImageId"]
    assert offered["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert offered["Default"].startswith(
        "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/"
    )
    pinned = rendered(node_class={"amiSelectorTerms": [{"id": "ami-0123456789abcdef0"}]})["Parameters"][
        "ImageId"
    ]
    assert pinned == {"Type": "AWS::EC2::Image::Id", "Default": "ami-0123456789abcdef0"}


@pytest.mark.requirement("MG-1")
def test_a_node_group_on_a_block_has_what_eks_requires():
    made = rendered("managed")
    group = made["Resources"]["NodeGroup"]["Properties"]
    assert group["CapacityType"] == "CAPACITY_BLOCK"
    assert group["ScalingConfig"] == {"MinSize": 0, "DesiredSize": 0, "MaxSize": {"Ref": "Size"}}
    assert group["Subnets"] == {"Ref": "SubnetIds"}
    assert "InstanceTypes" not in group
    data = made["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"]
    assert "IamInstanceProfile" not in data
    assert made["Parameters"]["EndsAt"]["Default"] == "2026-11-20T10:50:00Z"
    assert "UpAt" not in made["Parameters"]


@pytest.mark.requirement("MG-1")
def test_without_an_engine_a_schedule_scales_a_node_group_out_when_its_block_starts():
    made = rendered("managed", given={**BLOCK, "engine": False})
    assert complaints(made) == []
    assert made["Parameters"]["UpAt"]["Default"] == "2026-11-17T11:31:00Z"
    target = made["Resources"]["Up"]["Properties"]["Target"]
    assert '"DesiredSize":${Size}' in target["Input"]["Fn::Sub"]
    assert "Up" not in rendered("managed", source="on-demand", given={"engine": False})["Resources"]


@pytest.mark.requirement("SM-6")
def test_nodes_of_the_role_may_join():
    entry = rendered()["Resources"]["AccessEntry"]["Properties"]
    assert entry == {
        "ClusterName": "ml",
        "PrincipalArn": "arn:aws:iam::123456789012:role/ml-node",
        "Type": "EC2_LINUX",
    }


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"provisioner": "karpenter"}, "a stack needs provisioner 'asg' or 'managed'"),
        ({"platform": {"nodeRole": "arn:aws:iam::123456789012:instance-profile/x"}}, "write the nodes' role"),
    ],
)
def test_a_pool_that_cannot_be_a_stack_is_an_error(more, sentence):
    with pytest.raises(SpecError, match=sentence):
        rendered(**more)


def test_a_choice_that_the_documents_leave_open_is_an_error():
    spec = documents(provisioner="asg", requirements={"instanceFamilies": ["p5"]})
    with pytest.raises(SpecError, match="choose one with --zone: the documents allow us-east-1a, us-east-1b"):
        resolve_stack_input(spec, spec.pools["train"], instance_type="p5.48xlarge")
    with pytest.raises(SpecError, match="choose one with --type"):
        resolve_stack_input(spec, spec.pools["train"], zone="us-east-1a")
    with pytest.raises(SpecError, match="the documents allow us-east-1a, us-east-1b"):
        resolve_stack_input(spec, spec.pools["train"], zone="us-east-1c", instance_type="p5.48xlarge")


# --- the command ------------------------------------------------------------------------------------

PLATFORM = """\
apiVersion: tidemill.dev/v1alpha1
kind: Platform
metadata: {name: prod}
spec:
  region: us-east-1
  deployment: tides
  cluster: {name: ml}
  nodeRole: ml-node
  subnets: {us-east-1a: [subnet-0a1a1a1a]}
  karpenter: {version: "1.8.2"}
---
apiVersion: tidemill.dev/v1alpha1
kind: NodeClass
metadata: {name: gpu}
spec:
  amiSelectorTerms: [{alias: al2023@v20260714}]
---
apiVersion: tidemill.dev/v1alpha1
kind: ComputePool
metadata: {name: train}
spec:
  nodeClassName: gpu
  provisioner: PROVISIONER
  sources: [{type: block}]
  requirements: {instanceTypes: [p5.48xlarge]}
  limits: {nodes: 4}
"""


@pytest.fixture
def file(tmp_path):
    def written(provisioner):
        path = tmp_path / "pools.yaml"
        path.write_text(PLATFORM.replace("PROVISIONER", provisioner))
        return str(path)

    return written


@pytest.mark.requirement("SM-8")
def test_the_command_writes_yaml_that_is_the_json(file):
    command = [
        "render",
        "cloudformation",
        file("asg"),
        "--reservation",
        "cr-0a1",
        "--end",
        "2026-11-20T11:30:00Z",
    ]
    as_yaml = CliRunner().invoke(root, command)
    as_json = CliRunner().invoke(root, [*command, "--json"])
    assert (as_yaml.exit_code, as_json.exit_code) == (0, 0)
    assert yaml.safe_load(as_yaml.stdout) == json.loads(as_json.stdout)
    assert "Fn::Sub: |" in as_yaml.stdout
    assert complaints(json.loads(as_json.stdout)) == []


@pytest.mark.requirement("KP-1")
def test_the_command_writes_karpenters_objects(file):
    done = CliRunner().invoke(root, ["render", "karpenter", file("karpenter")])
    assert done.exit_code == 0
    assert [each["kind"] for each in yaml.safe_load_all(done.stdout)] == ["EC2NodeClass", "NodePool"]
    pinned = CliRunner().invoke(
        root, ["render", "karpenter", file("karpenter"), "--reservation", "cr-0a1", "--json"]
    )
    assert json.loads(pinned.stdout)[0]["spec"]["capacityReservationSelectorTerms"] == [{"id": "cr-0a1"}]
    assert "TR-3" in pinned.stderr


@pytest.mark.requirement("SM-8")
@pytest.mark.parametrize(("what", "provisioner"), [("cloudformation", "asg"), ("karpenter", "karpenter")])
def test_the_command_says_that_nodes_wait_for_an_engine_and_how_to_do_without(file, what, provisioner):
    with_engine = CliRunner().invoke(root, ["render", what, file(provisioner)])
    assert "tidemill.dev/starting" in with_engine.stdout
    assert "take no pods until an engine removes it; where none runs, add --no-engine" in with_engine.stderr
    without = CliRunner().invoke(root, ["render", what, file(provisioner), "--no-engine"])
    assert without.exit_code == 0
    assert "tidemill.dev/starting" not in without.stdout
    assert "--no-engine" not in without.stderr


def test_the_command_shows_a_first_boot(file):
    done = CliRunner().invoke(
        root,
        ["render", "user-data", file("native"), "--reservation", "cr-0a1", "--end", "2026-11-20T11:30:00Z"],
    )
    assert done.exit_code == 0
    assert done.stdout.startswith("MIME-Version: 1.0\n")
    assert "echo 2026-11-20T11:00:00Z > /etc/tidemill/ends-at" in done.stdout
    assert "spec.cluster.endpoint is not set; a node would not join the cluster" in done.stderr


@pytest.mark.parametrize(
    ("words", "provisioner", "sentence"),
    [
        (["cloudformation"], "native", "no pool in the documents has provisioner asg or managed"),
        (["karpenter", "--pool", "trai"], "karpenter", "did you mean 'train'?"),
        (["cloudformation", "--end", "soon"], "asg", "is not an instant"),
    ],
)
def test_a_wrong_option_is_a_one_line_error_and_exit_code_2(file, capsys, words, provisioner, sentence):
    assert main(["render", words[0], file(provisioner), *words[1:]]) == 2
    assert sentence in capsys.readouterr().err


# --- where no engine runs -----------------------------------------------------------------------------


def user_data_of(made):
    return json.dumps(made["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"]["UserData"])


@pytest.mark.requirement("SM-8")
@pytest.mark.parametrize("provisioner", ["asg", "managed"])
def test_without_an_engine_nodes_have_no_taint_that_only_an_engine_removes(provisioner):
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    with_engine = rendered(provisioner, taints=taints)
    without = rendered(provisioner, taints=taints, given={**BLOCK, "engine": False})
    assert "tidemill.dev/starting" in user_data_of(with_engine)
    assert "tidemill.dev/" in user_data_of(without)  # its labels stay
    assert "tidemill.dev/starting" not in user_data_of(without)
    assert "key: gpu" in user_data_of(without)


@pytest.mark.requirement("SM-8")
def test_the_stack_says_how_nodes_that_run_learn_of_an_extension():
    told = rendered()["Outputs"]["TellNodes"]["Value"]["Fn::Sub"]
    assert told == (
        "kubectl annotate nodes -l tidemill.dev/source=${ReservationId} tidemill.dev/ends-at=${EndsAt} --overwrite"
    )
    assert "TellNodes" not in rendered(source="spot", given={})["Outputs"]


@pytest.mark.requirement("PE-23")
def test_only_the_rule_of_the_stack_may_write_to_its_queue():
    (statement,) = rendered()["Resources"]["QueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": ["Events", "Arn"]}}}
