"""Images by alias, and launch templates that are built upon."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest

from tests.aws.wired import Wired, spec
from tests.sim.account import OWNER, P5, tags
from tidemill.aws.account_survey import ReadOnlyAws, survey_account
from tidemill.aws.images import AwsImages
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import Refused, SpecError
from tidemill.model.world import World
from tidemill.provision import ProvisionedCloud
from tidemill.report.inspection import inspection
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.store.memory import MemoryLedger
from tidemill.wording import sentence

ALIAS = "al2023@v20261101"


def node_class(**given: Any) -> NodeClass:
    return NodeClass.model_validate(
        {"metadata": {"name": "gpu"}, "spec": {"amiSelectorTerms": [{"alias": ALIAS}], **given}}
    )


class Answering:
    """An SSM that has one image, and counts how often it is asked."""

    def __init__(self, value: Any) -> None:
        self.value, self.asked = value, 0

    def read(self, service: str, operation: str, **given: Any) -> dict[str, Any]:
        assert (service, operation) == ("ssm", "GetParameter")
        assert given["Name"].startswith(
            "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/"
        )
        self.asked += 1
        return {"Parameter": {"Value": self.value}}


@pytest.mark.requirement("PE-1")
def test_an_alias_is_looked_up_once_an_hour(wired: Wired):
    ssm: Any = Answering("ami-0123456789abcdef0")
    images = AwsImages(ssm, wired, wired.spec)
    for _ in range(3):
        assert images.image_id(node_class(), P5) == "ami-0123456789abcdef0"
    assert ssm.asked == 1
    wired.let_pass(timedelta(hours=1))
    images.image_id(node_class(), P5)
    assert ssm.asked == 2


@pytest.mark.requirement("PE-1")
def test_a_node_boots_the_image_its_alias_names(wired: Wired):
    by_alias = replace(wired.spec, node_classes={"gpu": node_class()})
    images = AwsImages(wired.aws, wired, by_alias)
    cloud = ProvisionedCloud(wired.direct, wired.compute, by_alias, None, wired, images=images)
    intent = wired.account.intent(Source(SourceKind.ON_DEMAND))
    (id_,) = cloud.launch(intent, tags(intent=intent.id))
    wired.let_pass(timedelta(seconds=90))
    found = boto3.client("ec2").describe_instances(InstanceIds=[id_])["Reservations"][0]["Instances"][0]
    assert found["ImageId"] == images.image_id(node_class(), P5)


@pytest.mark.requirement("PE-1")
def test_an_alias_that_aws_does_not_publish_is_reported_and_launches_nothing(wired: Wired):
    never = node_class(amiSelectorTerms=[{"alias": "al2023@v19990101"}])
    wired.fault("error", action="GetParameter", code="ParameterNotFound", message="no", status=400, times=9)
    with pytest.raises(SpecError, match="AWS publishes no image 'al2023@v19990101'"):
        AwsImages(wired.aws, wired, wired.spec).image_id(never, P5)
    unpublished = replace(wired.spec, node_classes={"gpu": never})
    images = AwsImages(wired.aws, wired, unpublished)
    cloud = ProvisionedCloud(wired.direct, wired.compute, unpublished, None, wired, images=images)
    intent = wired.account.intent(Source(SourceKind.ON_DEMAND))
    with pytest.raises(Refused, match="publishes no image"):
        cloud.launch(intent, tags(intent=intent.id))


@pytest.mark.requirement("PE-1")
def test_an_existing_template_is_merged_into_ours(wired: Wired):
    boto3.client("ec2").create_key_pair(KeyName="ops")
    theirs = boto3.client("ec2").create_launch_template(
        LaunchTemplateName="people",
        LaunchTemplateData={"KeyName": "ops", "Monitoring": {"Enabled": True}},
    )["LaunchTemplate"]["LaunchTemplateId"]
    network = wired.server.wire.network
    built = node_class(
        amiSelectorTerms=[{"id": network.images["x86_64"]}], launchTemplate={"id": theirs, "version": "1"}
    )
    based = replace(spec(network), node_classes={"gpu": built})
    cloud = ProvisionedCloud(
        wired.direct, wired.compute, based, None, wired, images=AwsImages(wired.aws, wired, based)
    )
    intent = wired.account.intent(Source(SourceKind.ON_DEMAND))
    cloud.launch(intent, tags(intent=intent.id))
    (made,) = wired.compute.templates()
    versions = boto3.client("ec2").describe_launch_template_versions(LaunchTemplateId=made.id)
    data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    assert (data["KeyName"], data["Monitoring"]) == ("ops", {"Enabled": True})
    assert data["InstanceType"] == P5


def test_a_missing_existing_template_is_a_spec_error(wired: Wired):
    reference = node_class(launchTemplate={"id": "lt-0123456789abcdef0"}).spec.launch_template
    assert reference is not None
    with pytest.raises(SpecError, match="lt-0123456789abcdef0 has no version"):
        AwsImages(wired.aws, wired, wired.spec).existing(reference)


# --- a look-up that fails -----------------------------------------------------------------------------

FAILURES = {
    "throttled": {"code": "ThrottlingException", "status": 400},
    "denied": {"code": "AccessDeniedException", "status": 400},
    "failed": {"code": "InternalServerError", "status": 500},
    "gone": {"code": "ParameterNotFound", "status": 400},
}


def of(spec: Spec, provisioner: str, **platform: Any) -> Spec:
    """The same documents with an alias and this provisioner."""
    pool = spec.pools["train"].model_dump(by_alias=True, exclude_unset=True)
    pool["spec"] |= {"provisioner": provisioner, "sources": [{"type": "block"}]}
    on = spec.platform.model_dump(by_alias=True, exclude_unset=True)
    on["spec"] |= {"nodeRole": "arn:aws:iam::123456789012:role/mill-node", **platform}
    return replace(
        spec,
        platform=Platform.model_validate(on),
        node_classes={"gpu": node_class()},
        pools={"train": ComputePool.model_validate(pool)},
    )


class Engine:
    """What a new engine does to groups at each look; it remembers nothing of the one before."""

    def __init__(self, wired: Wired, spec: Spec) -> None:
        self.wired = wired
        images = AwsImages(wired.aws, wired, spec)
        self.cloud = ProvisionedCloud(
            wired.direct, wired.compute, spec, MemoryLedger(wired, OWNER), wired, images=images
        )

    def look(self) -> tuple[str, ...]:
        world = World(now=self.wired.now(), reservations=tuple(self.cloud.reservations()))
        told = self.cloud.reconciler.reconcile(world)
        return tuple(sentence(warning.reason) for warning in told)


def names_of(wired: Wired) -> set[str]:
    """Groups, node groups and templates, as AWS's own client lists them."""
    groups = boto3.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    templates = boto3.client("ec2").describe_launch_templates()["LaunchTemplates"]
    return {
        *(group["AutoScalingGroupName"] for group in groups),
        *boto3.client("eks").list_nodegroups(clusterName="mill")["nodegroups"],
        *(template["LaunchTemplateName"] for template in templates),
    }


@pytest.mark.requirement("PE-23")
@pytest.mark.parametrize("provisioner", ["asg", "managed"])
@pytest.mark.parametrize("failure", FAILURES)
def test_groups_of_a_paid_block_stay_when_the_image_cannot_be_looked_up(
    wired: Wired, provisioner: str, failure: str
):
    boto3.client("eks").create_cluster(
        name="mill", roleArn="arn:aws:iam::123456789012:role/c", resourcesVpcConfig={"subnetIds": []}
    )
    spec = of(wired.spec, provisioner)
    wired.account.block(start="2d")
    Engine(wired, spec).look()
    wired.let_pass(timedelta(minutes=10))
    before = names_of(wired)
    assert len(before) >= 2
    wired.fault("error", action="GetParameter", message="no", count=99, **FAILURES[failure])
    engine = Engine(wired, spec)
    for _ in range(3):
        told = engine.look()
        wired.let_pass(timedelta(minutes=10))
    assert told
    assert names_of(wired) == before


@pytest.mark.requirement("PE-23")
@pytest.mark.parametrize("provisioner", ["asg", "managed"])
def test_groups_of_a_paid_block_stay_when_a_document_lacks_a_field(wired: Wired, provisioner: str):
    boto3.client("eks").create_cluster(
        name="mill", roleArn="arn:aws:iam::123456789012:role/c", resourcesVpcConfig={"subnetIds": []}
    )
    wired.account.block(start="2d")
    Engine(wired, of(wired.spec, provisioner)).look()
    wired.let_pass(timedelta(minutes=10))
    before = names_of(wired)
    lacking = Engine(wired, of(wired.spec, provisioner, nodeRole=""))
    for _ in range(3):
        (told,) = lacking.look()
        wired.let_pass(timedelta(minutes=10))
    assert "spec.nodeRole is not set" in told
    assert names_of(wired) == before


def test_a_known_image_is_used_while_ssm_does_not_answer(wired: Wired):
    images = AwsImages(wired.aws, wired, wired.spec)
    first = images.image_id(node_class(), P5)
    wired.let_pass(timedelta(hours=2))
    wired.fault(
        "error", action="GetParameter", code="AccessDeniedException", message="no", status=400, count=99
    )
    assert images.image_id(node_class(), P5) == first


@pytest.mark.requirement("SM-4")
@pytest.mark.requirement("PE-22")
def test_inspect_finds_no_hook_trap_in_the_groups_that_the_engine_makes(wired: Wired):
    boto3.client("eks").create_cluster(
        name="mill", roleArn="arn:aws:iam::123456789012:role/c", resourcesVpcConfig={"subnetIds": []}
    )
    spec = of(wired.spec, "asg")
    wired.account.block(duration="2d")
    Engine(wired, spec).look()
    (name,) = {name for name in names_of(wired) if "-p5" not in name}
    boto3.client("autoscaling").set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    wired.let_pass(timedelta(minutes=10))
    survey = survey_account(ReadOnlyAws("us-east-1"), wired, spec.catalog)
    assert [group.desired for group in survey.groups] == [2]
    assert {trap.code for trap in inspection(survey, spec.catalog, spec).traps} == set()
