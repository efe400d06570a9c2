"""The platform's stacks: valid for cfn-lint, nothing public, everything encrypted, and roles that can do no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cfnlint.api import lint  # type: ignore[import-untyped]
from cfnlint.decode.cfn_yaml import loads  # type: ignore[import-untyped]
from click.testing import CliRunner

from tests.provision.documents import documents
from tidemill.aws.event_queue import _KINDS
from tidemill.cli import root
from tidemill.cli.loading import load_spec
from tidemill.model.errors import SpecError
from tidemill.render import infrastructure
from tidemill.render.infrastructure import REPLICA, STACKS, stack_of, zones_of
from tidemill.render.infrastructure.access import BUCKET_ACTIONS, OBJECT_ACTIONS

ISSUER = "https://oidc.eks.us-east-1.amazonaws.com/id/0123456789ABCDEF"


def spec(**platform: Any):
    return documents(platform={"bucket": "ml-models", **platform})


def template(part: str, **options: Any) -> dict[str, Any]:
    """With the short forms of functions written out."""
    text = stack_of(spec(), part, **options).template
    read: dict[str, Any] = json.loads(json.dumps(loads(text)))
    return read


def of_type(made: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one["Properties"] for one in made["Resources"].values() if one["Type"] == kind]


@pytest.mark.requirement("AE-1")
@pytest.mark.parametrize("part", [*STACKS, REPLICA])
def test_every_stack_is_valid(part: str):
    made = stack_of(spec(), part)
    assert [f"{one.rule.id} {one.message}" for one in lint(made.template, regions=["us-east-1"])] == []
    assert len(made.template.encode()) < 51_200  # what CloudFormation takes without a bucket


@pytest.mark.requirement("AE-17")
def test_roles_bound_by_the_clusters_issuer_are_valid_and_bound_to_their_accounts():
    made = stack_of(spec(), "access", issuer=ISSUER)
    assert [one.message for one in lint(made.template, regions=["us-east-1"])] == []
    trust = template("access", issuer=ISSUER)["Resources"]["ControllerRole"]["Properties"][
        "AssumeRolePolicyDocument"
    ]
    (subjects,) = [
        value
        for key, value in trust["Statement"][0]["Condition"]["StringEquals"].items()
        if key.endswith(":sub")
    ]
    assert subjects == ["system:serviceaccount:tidemill-system:tidemill-controller"]
    assert "PodIdentityAssociation" not in made.template
    with pytest.raises(SpecError, match="not the address of an OIDC issuer"):
        stack_of(spec(), "access", issuer="oidc.eks")


@pytest.mark.requirement("AE-1")
def test_the_database_is_as_it_should_be():
    (database,) = of_type(template("data"), "AWS::RDS::DBInstance")
    defaults = {name: one.get("Default") for name, one in template("data")["Parameters"].items()}
    assert database["PubliclyAccessible"] is False
    assert database["StorageEncrypted"] is True
    assert database["StorageType"] == "gp3"
    assert database["ManageMasterUserPassword"] is True
    assert "MasterUserPassword" not in database
    assert defaults["DatabaseClass"] == "db.m8g.2xlarge"
    assert defaults["DatabaseVersion"].startswith("17")
    assert defaults["BackupDays"] == 30
    assert defaults["MultiZone"] == "true"


@pytest.mark.requirement("AE-1")
def test_redis_has_tls_and_a_token_that_nobody_typed():
    (redis,) = of_type(template("data"), "AWS::ElastiCache::ReplicationGroup")
    assert redis["TransitEncryptionEnabled"] is True
    assert redis["AtRestEncryptionEnabled"] is True
    assert redis["EngineVersion"].startswith("7")
    assert "resolve:secretsmanager" in json.dumps(redis["AuthToken"])
    assert template("data")["Parameters"]["RedisClass"]["Default"] == "cache.r7g.large"


@pytest.mark.requirement("AE-1")
def test_everything_that_keeps_data_is_encrypted_and_outlives_its_stack():
    made = template("data")
    kinds = ("AWS::RDS::DBInstance", "AWS::S3::Bucket", "AWS::ECR::Repository", "AWS::Logs::LogGroup",
             "AWS::ElastiCache::ReplicationGroup", "AWS::KMS::Key")  # fmt: skip
    for name, one in made["Resources"].items():
        if one["Type"] in kinds:
            assert one["DeletionPolicy"] in ("Retain", "Snapshot"), name
            assert "Key" in json.dumps(one["Properties"]), name
    (bucket,) = of_type(made, "AWS::S3::Bucket")
    assert all(bucket["PublicAccessBlockConfiguration"].values())


@pytest.mark.requirement("PE-19")
def test_nodes_may_send_each_other_everything_and_name_their_group_for_it():
    made = template("network")
    for kind, other in (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId")):
        (rule,) = of_type(made, f"AWS::EC2::SecurityGroup{kind}")
        assert rule["IpProtocol"] == "-1"
        assert rule["GroupId"] == rule[other] == {"Ref": "NodeSecurityGroup"}


@pytest.mark.requirement("AE-1")
def test_the_network_has_the_zones_of_the_blocks():
    asked = documents(platform={"subnets": {}}, sources=[{"type": "block", "zones": ["us-east-1f"]}])
    assert zones_of(asked) == ("us-east-1a", "us-east-1b", "us-east-1f")
    assert stack_of(asked, "network").parameters["Zones"] == "us-east-1a,us-east-1b,us-east-1f"
    four = {f"us-east-1{letter}": ["subnet-1"] for letter in "abcd"}
    with pytest.raises(SpecError, match="the network has 3 zones, and the documents name 4"):
        stack_of(documents(platform={"subnets": four}), "network")


@pytest.mark.requirement("AE-8")
def test_both_accounts_of_the_engine_may_use_the_bucket_and_nothing_else_of_s3():
    made = template("access")
    role = made["Resources"]["EngineRole"]["Properties"]
    actions = [
        action
        for one in role["Policies"]
        for statement in one["PolicyDocument"]["Statement"]
        for action in statement["Action"]
    ]
    assert [one for one in actions if one.startswith("s3:")] == [*BUCKET_ACTIONS, *OBJECT_ACTIONS]
    assert "s3:AbortMultipartUpload" in actions
    bound = [one for one in of_type(made, "AWS::EKS::PodIdentityAssociation") if one["Namespace"] == "engine"]
    assert {one["ServiceAccount"] for one in bound} == {"control-plane", "workers"}


@pytest.mark.requirement("AE-17")
def test_nodes_may_pull_images_and_only_pull():
    (role,) = [one for one in of_type(template("cluster"), "AWS::IAM::Role") if "RoleName" in one]
    assert "AmazonEC2ContainerRegistryPullOnly" in json.dumps(role["ManagedPolicyArns"])


@pytest.mark.requirement("AE-9")
def test_logs_are_kept_as_long_as_the_parameter_says():
    made = template("data")
    (group,) = of_type(made, "AWS::Logs::LogGroup")
    assert group["RetentionInDays"] == {"Ref": "LogDays"}
    assert made["Parameters"]["LogDays"]["Default"] == 400


def test_the_queue_gets_every_event_that_the_engine_knows():
    (rule,) = of_type(template("events"), "AWS::Events::Rule")
    assert set(rule["EventPattern"]["detail-type"]) == {detail_type for _, detail_type in _KINDS}
    assert set(rule["EventPattern"]["source"]) == {source for source, _ in _KINDS}


@pytest.mark.parametrize("part", STACKS)
def test_stacks_import_only_what_an_earlier_one_exports(part: str):
    exported = {
        one["Export"]["Name"]["Fn::Sub"]
        for earlier in STACKS[: STACKS.index(part)]
        for one in template(earlier)["Outputs"].values()
        if "Export" in one
    }

    def imported(value: Any) -> set[str]:
        if isinstance(value, dict):
            here = {value["Fn::ImportValue"]["Fn::Sub"]} if "Fn::ImportValue" in value else set()
            return here.union(*map(imported, value.values())) if value else here
        return set().union(*map(imported, value)) if isinstance(value, list) else set()

    assert imported(template(part)) <= exported


def test_parameters_come_from_the_documents_and_what_they_do_not_say_is_named():
    made = stack_of(spec(), "cluster")
    assert made.parameters["ClusterName"] == "ml"
    assert made.missing == ("AdminRoleArn",)
    given = stack_of(spec(), "cluster", given={"AdminRoleArn": "arn:aws:iam::1:role/a"})
    assert given.missing == ()
    with pytest.raises(SpecError, match="has no parameter 'Nonsense'"):
        stack_of(spec(), "cluster", given={"Nonsense": "1"})
    assert yaml.safe_load(stack_of(spec(), "access").template)["Parameters"]


@pytest.mark.requirement("AE-1")
def test_the_command_writes_templates_and_the_parameters_of_the_documents(tmp_path: Path):
    file = tmp_path / "platform.yaml"
    file.write_text(
        "apiVersion: tidemill.dev/v1alpha1\nkind: Platform\nmetadata: {name: ml}\n"
        "spec: {region: us-east-1, deployment: ml, cluster: {name: ml}, nodeRole: ml-node, bucket: ml-models}\n"
    )
    told = CliRunner().invoke(root, ["render", "infra", "all", str(file), "--out", str(tmp_path / "stacks")])
    assert told.exit_code == 0, told.output
    assert "AdminRoleArn" in told.stderr
    for part in STACKS:
        assert (tmp_path / "stacks" / f"{part}.yaml").read_text() == stack_of(
            load_spec([str(file)])[0], part
        ).template
    given = json.loads((tmp_path / "stacks" / "data.parameters.json").read_text())
    assert {"ParameterKey": "BucketName", "ParameterValue": "ml-models"} in given
    assert CliRunner().invoke(root, ["render", "infra", "all", str(file)]).exit_code == 2


def test_templates_are_in_the_package():
    """They are data files: a wheel without them would render nothing."""
    folder = Path(infrastructure.__file__).parent
    assert {one.stem for one in folder.glob("*.yaml")} == {*STACKS, REPLICA} - {"access"}
