"""Templates, launches and ends through boto3, on the wire."""

from __future__ import annotations

from datetime import timedelta

import boto3
import pytest

from tests.aws.wired import Wired, spec
from tests.sim.account import ON_DEMAND, OWNER, P5, ZONES, tags
from tidemill.aws.compute import AwsCompute
from tidemill.model.errors import Gone, Refused, Retryable
from tidemill.ports.compute import LaunchRequest, Template
from tidemill.provision.launch_template import launch_template
from tidemill.spec import names

LAG = timedelta(seconds=90)


def template(**data: str) -> Template:
    return Template("mill-train", {"InstanceType": P5, **data}, ((names.TAG_POOL, "train"),))


def test_a_template_is_created_once_and_found_by_its_content(wired: Wired):
    first = wired.compute.put_template(template(ImageId="ami-1"))
    second = wired.compute.put_template(template(ImageId="ami-2"))
    assert (first.id, first.version, second.id, second.version) == (first.id, 1, first.id, 2)
    another_process = AwsCompute(wired.aws, OWNER)
    assert another_process.put_template(template(ImageId="ami-1")) == first
    assert another_process.templates() == (second,)


def test_a_template_that_was_put_before_costs_no_call(wired: Wired):
    wired.compute.put_template(template())
    before = wired.aws.rate_limits.calls.total()
    wired.compute.put_template(template())
    assert wired.aws.rate_limits.calls.total() == before


@pytest.mark.requirement("PE-23")
def test_a_template_of_others_is_neither_listed_nor_changed_nor_deleted(wired: Wired):
    ec2 = boto3.client("ec2")
    ec2.create_launch_template(LaunchTemplateName="mill-train", LaunchTemplateData={"InstanceType": P5})
    assert wired.compute.templates() == ()
    with pytest.raises(Refused, match="does not carry the owner tag"):
        wired.compute.put_template(template())
    with pytest.raises(Refused, match="does not carry the owner tag"):
        wired.compute.delete_template("mill-train")
    assert (
        len(ec2.describe_launch_template_versions(LaunchTemplateName="mill-train")["LaunchTemplateVersions"])
        == 1
    )


def test_a_deleted_template_is_gone_and_is_created_again_when_it_is_needed(wired: Wired):
    wired.compute.put_template(template())
    wired.compute.delete_template("mill-train")
    with pytest.raises(Gone):
        wired.compute.delete_template("mill-train")
    assert wired.compute.put_template(template()).version == 1


def test_a_template_that_somebody_deleted_fails_one_launch_and_not_the_next(wired: Wired):
    block = wired.account.block(count=2)
    intent = wired.account.intent(block.source)
    wired.cloud.launch(intent, tags(intent=intent.id))
    for template in wired.compute.templates():
        boto3.client("ec2").delete_launch_template(LaunchTemplateId=template.id)
    intent = wired.account.intent(block.source)
    with pytest.raises(Retryable):
        wired.cloud.launch(intent, tags(intent=intent.id))
    assert len(wired.cloud.launch(intent, tags(intent=intent.id))) == 1


@pytest.mark.requirement("SM-1")
def test_a_launch_with_efa_has_a_card_per_interface_in_one_subnet(wired: Wired):
    with_efa = spec(wired.server.wire.network, efa=True)
    made = launch_template(
        with_efa, with_efa.pools["train"], P5, ON_DEMAND, ZONES[0], wired.server.wire.network.images["x86_64"]
    )
    subnets = tuple(with_efa.platform.spec.subnets[ZONES[0]])
    version = wired.compute.put_template(made)
    # Another process, which did not write the template and reads it.
    order = LaunchRequest("l-efa", version, ON_DEMAND, P5, ZONES[0], subnets, 1, tags(intent="l-efa"))
    (id_,) = AwsCompute(wired.aws, OWNER).run(order)
    wired.let_pass(LAG)
    found = boto3.client("ec2").describe_instances(InstanceIds=[id_])["Reservations"][0]["Instances"][0]
    assert found["SubnetId"] == subnets[0]
    assert len(made.data["NetworkInterfaces"]) > 1


@pytest.mark.requirement("PE-23")
def test_an_instance_without_our_owner_tag_is_not_terminated(wired: Wired):
    block = wired.account.block(count=4)
    (stranger,) = wired.account.cloud.add_foreign_instance(block.id)
    wired.let_pass(LAG)
    with pytest.raises(Refused, match="owner tag"):
        wired.cloud.terminate(stranger)
    assert wired.aws.rate_limits.calls["TerminateInstances"] == 0


def test_a_launched_instance_has_the_tags_and_the_source_of_the_request(wired: Wired):
    block = wired.account.block(count=2)
    intent = wired.account.intent(block.source)
    (id_,) = wired.cloud.launch(intent, tags(intent=intent.id))
    history = wired.account.cloud.instance_histories[id_]
    assert (history.now.owner, history.now.pool, history.now.intent_id, history.now.provisioner) == (
        OWNER,
        "train",
        intent.id,
        "native",
    )
    assert history.now.source == block.source
    assert dict(history.tags)["kubernetes.io/cluster/mill"] == "owned"
