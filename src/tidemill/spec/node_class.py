"""The NodeClass document: how nodes are made."""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidemill.spec.document import Document, Model
from tidemill.spec.units import Count, MemoryBytes


class AmiTerm(Model):
    alias: str | None = None
    """Such as `bottlerocket@v1.52.0` or `al2023@v20261101`. Pin the version."""
    id: Annotated[str, Field(pattern=r"^ami-[0-9a-f]+$")] | None = None
    """Id of an image, instead of an alias."""

    @model_validator(mode="after")
    def _one_way_to_name_it(self) -> AmiTerm:
        if (self.alias is None) == (self.id is None):
            raise ValueError("give either 'alias' or 'id'")
        return self


class Ebs(Model):
    volume_size: MemoryBytes = Field(gt=0)
    """Such as `2000Gi`."""
    volume_type: Literal["gp3", "gp2", "io1", "io2", "st1", "sc1", "standard"] = "gp3"
    """EBS volume type."""
    encrypted: bool = True
    iops: Count | None = Field(default=None, ge=100)
    """Not given: the default of the volume type."""
    throughput: Count | None = Field(default=None, ge=125)
    """In MiB/s. Not given: the default of the volume type."""
    kms_key_id: str | None = Field(default=None, alias="kmsKeyID")
    """Not given: the account's default key."""
    delete_on_termination: bool = True
    """Delete the volume with the instance."""


class BlockDevice(Model):
    device_name: str
    """Such as `/dev/xvda`."""
    ebs: Ebs
    """The EBS volume."""


class LaunchTemplateRef(Model):
    """An existing launch template that Tidemill's templates start from."""

    id: Annotated[str, Field(pattern=r"^lt-[0-9a-f]+$")]
    """Such as `lt-0abc1234`."""
    version: str = "$Default"
    """Pin a number if nodes must not change when the template does."""


class NodeClassSpec(Model):
    """How nodes are made. Only real launches use it; a rehearsal checks it and does not need it."""

    ami_selector_terms: tuple[AmiTerm, ...] = Field(min_length=1)
    """The image that nodes boot."""
    ami_family: Literal["AL2023", "Bottlerocket"] = "AL2023"
    """The family of an image given by id, which decides the format of its user data. An alias implies its family."""
    block_device_mappings: tuple[BlockDevice, ...] = ()
    """EBS volumes."""
    instance_store_policy: Literal["RAID0"] | None = None
    """RAID0 joins the local NVMe disks into one volume. Its data is lost with the node."""
    launch_template: LaunchTemplateRef | None = None
    """An existing launch template to start from."""
    user_data: str = ""
    """Extra user data, merged into Tidemill's own. AL2023: a script, a NodeConfig or a MIME archive of them.
    Bottlerocket: TOML settings."""
    kernel: dict[str, str] = {}
    """sysctl settings."""
    container_runtime: dict[str, str] = {}
    """AL2023: settings of containerd's TOML file, such as
    `plugins.'io.containerd.cri.v1.images'.max_concurrent_downloads: "20"`; Bottlerocket: keys of `settings.container-
    runtime`."""
    max_pods: Count | None = Field(default=None, gt=0)
    """The most pods on a node. Not given: what the network interfaces of the type allow."""
    efa: bool = False
    """Attach all EFA interfaces of the type."""
    role: str = ""
    """IAM role of these nodes, or the ARN of an instance profile. Empty: the platform's `nodeRole`."""


class NodeClass(Document):
    kind: Literal["NodeClass"] = "NodeClass"
    spec: NodeClassSpec

    @property
    def image_ids(self) -> tuple[str, ...]:
        """Of the images that are named by id."""
        return tuple(term.id for term in self.spec.ami_selector_terms if term.id is not None)


def fingerprint(node_class: NodeClass) -> str:
    """Eight characters for what a node is made from. A node with another fingerprint has drifted.

    Only fields that somebody wrote count. A field that a later version adds with a default changes no fingerprint, so
    an upgrade never replaces nodes by itself.
    """
    written = node_class.spec.model_dump_json(by_alias=True, exclude_defaults=True)
    return blake2b(written.encode(), digest_size=4).hexdigest()
