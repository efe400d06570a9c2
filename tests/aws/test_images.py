"""Images by alias, and launch templates that are built upon."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest

from tests.aws.wired import Wired, spec
from tests.sim.account import P5, tags
from tidemill.aws.images import AwsImages
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import NoCapacity, SpecError
from tidemill.provision import ProvisionedCloud
from tidemill.spec.node_class import NodeClass

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
    with pytest.raises(NoCapacity, match="publishes no image"):
        cloud.launch(intent, tags(intent=intent.id))


@pytest.mark.requirement("PE-1")
def test_an_existing_template_is_merged_into_ours(wired: Wired):
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
