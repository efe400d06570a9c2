"""Aliases as AWS publishes them, and what is known of an image before it is booted."""

from __future__ import annotations

from dataclasses import replace

import boto3
import pytest

from tests.provision.documents import documents
from tidemill.catalog import load
from tidemill.catalog.image_drivers import OLDEST_DRIVER, driver_of, too_old
from tidemill.model.errors import SpecError
from tidemill.provision.images import ami_type, image_of
from tidemill.provision.user_data import Family

TYPES = load().types
AL2023 = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023"


def image(instance_type, **term):
    spec = documents(node_class={"amiSelectorTerms": [term]})
    return image_of(spec.node_classes["gpu"], TYPES[instance_type], "1.33")


@pytest.mark.requirement("PE-1")
@pytest.mark.parametrize(
    ("instance_type", "alias", "parameter"),
    [
        (
            "p5.48xlarge",
            "al2023@v20260714",
            f"{AL2023}/x86_64/nvidia/amazon-eks-node-al2023-x86_64-nvidia-1.33-v20260714/image_id",
        ),
        (
            "trn2.48xlarge",
            "al2023@latest",
            f"{AL2023}/x86_64/neuron/recommended/image_id",
        ),
        (
            "p6e-gb200.36xlarge",
            "al2023@v20260714",
            f"{AL2023}/arm64/nvidia/amazon-eks-node-al2023-arm64-nvidia-1.33-v20260714/image_id",
        ),
        (
            "p5.48xlarge",
            "bottlerocket@v1.52.0",
            "/aws/service/bottlerocket/aws-k8s-1.33-nvidia/x86_64/1.52.0/image_id",
        ),
        (
            "trn1.32xlarge",
            "bottlerocket@1.52.0",
            "/aws/service/bottlerocket/aws-k8s-1.33/x86_64/1.52.0/image_id",
        ),
        (
            "g6.xlarge",
            "bottlerocket@latest",
            "/aws/service/bottlerocket/aws-k8s-1.33-nvidia/x86_64/latest/image_id",
        ),
    ],
)
def test_an_alias_is_a_public_parameter_for_the_types_architecture_and_accelerator(
    instance_type, alias, parameter
):
    found = image(instance_type, alias=alias)
    assert found.parameter == parameter
    assert found.pinned == (not alias.endswith("latest"))


@pytest.mark.requirement("PE-1")
def test_an_image_may_be_named_by_its_id():
    found = image("p5.48xlarge", id="ami-0abc")
    assert (found.id, found.parameter, found.pinned) == ("ami-0abc", "", True)


def test_an_image_that_is_not_published_is_an_error():
    neuron_on_arm = replace(TYPES["trn1.32xlarge"], arch="arm64")
    with pytest.raises(SpecError, match="no AL2023 image with Neuron"):
        image_of(documents().node_classes["gpu"], neuron_on_arm, "1.33")


def test_every_ami_type_is_one_that_eks_has():
    client = boto3.client("eks", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    known = client.meta.service_model.shape_for("AMITypes").enum
    for kind in TYPES.values():
        for family in Family:
            assert ami_type(family, kind) in known
    assert ami_type(Family.AL2023, TYPES["p5.48xlarge"]) == "AL2023_x86_64_NVIDIA"
    assert ami_type(Family.BOTTLEROCKET, TYPES["trn1.32xlarge"]) == "BOTTLEROCKET_x86_64"


@pytest.mark.requirement("AE-12")
def test_a_driver_is_known_only_for_a_pinned_release():
    assert driver_of("al2023@v20260714", "1.33") == "580.159.03"
    assert driver_of("al2023@v20251023", "1.34") != driver_of("al2023@v20251023", "1.28")
    assert driver_of("al2023@latest", "1.33") is None
    assert driver_of("al2023@v20991231", "1.33") is None
    assert driver_of("bottlerocket@v1.52.0", "1.33") is None
    assert image("p5.48xlarge", alias="al2023@v20260714").driver == "580.159.03"
    assert image("trn2.48xlarge", alias="al2023@v20260714").driver == ""


@pytest.mark.requirement("AE-12")
def test_drivers_are_compared_as_numbers():
    assert not too_old(OLDEST_DRIVER)
    assert too_old("570.158.01")
    assert too_old("570.86.15")
    assert not too_old("580.65.06")
    assert not too_old("1000.1")
