"""EKS clusters: moto's records, completed with what EKS makes and says of one.

A cluster that documents name is there from the start. With an API server behind the simulator it is that one: its
address and its certificate authority.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tidemill.sim.timeline import seeded_id
from tidemill.sim.wire.data_plane.api_client import KubeApi
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.network import no_ids_drawn
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.state import Wire
from tidemill.spec.platform import ClusterRef

# Versions that EKS offers, the newest last; which of them is the default changes with each.
VERSIONS = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36")
DEFAULT_VERSION = "1.33"
_MOST = 100
_VALID = timedelta(days=3650)


def make_cluster(wire: Wire, wanted: ClusterRef, kube: KubeApi | None) -> None:
    """As a document names it."""
    role = f"arn:aws:iam::{wire.account}:role/{wanted.name}-cluster"
    made = _make(
        wire, name=wanted.name, role_arn=role, version=wanted.version,
        resources_vpc_config={"subnetIds": [subnet.id for subnet in wire.network.subnets]},
        kubernetes_network_config={"serviceIpv4Cidr": wanted.service_cidr} if wanted.service_cidr else None,
    )  # fmt: skip
    ca = _authority(kube) or wanted.certificate_authority
    made.endpoint = (kube.url if kube is not None else wanted.endpoint) or made.endpoint
    made.certificate_authority = {"data": ca} if ca else made.certificate_authority


@operation("eks", "CreateCluster")
def create(call: ApiCall) -> Result:
    network = call.get("kubernetesNetworkConfig", {})
    if network.get("ipFamily") == "ipv6":
        raise AwsError("InvalidParameterException", "the simulated EKS makes IPv4 clusters only")
    made = _make(
        call.wire, name=call.require("name"), role_arn=call.require("roleArn"),
        version=call.get("version") or DEFAULT_VERSION, tags=call.get("tags"),
        resources_vpc_config=dict(call.require("resourcesVpcConfig")), logging=call.get("logging"),
        kubernetes_network_config=dict(network) or None, encryption_config=call.get("encryptionConfig"),
    )  # fmt: skip
    return {"cluster": made}


@operation("eks", "DescribeClusterVersions")
def versions(call: ApiCall) -> Result:
    named = call.get("clusterVersions", [])
    listed = [
        {
            "clusterVersion": version,
            "clusterType": "eks",
            "defaultVersion": version == DEFAULT_VERSION,
            "status": "standard-support",
            "versionStatus": "STANDARD_SUPPORT",
        }
        for version in reversed(VERSIONS)
        if (not named or version in named)
        and (version == DEFAULT_VERSION or not call.get("defaultOnly"))
        and call.get("clusterType", "eks") == "eks"
        and call.get("versionStatus", "STANDARD_SUPPORT") == "STANDARD_SUPPORT"
        and call.get("status", "standard-support") == "standard-support"
    ]
    params = {"MaxResults": call.get("maxResults", _MOST), "NextToken": call.get("nextToken")}
    page, token = call.wire.pages.page(listed, lambda each: str(each["clusterVersion"]), params, most=_MOST)
    return {"clusterVersions": page, "nextToken": token}


# --- what EKS adds ------------------------------------------------------------------------------------


def _make(wire: Wire, **given: Any) -> Any:
    """moto's record. Its address and certificate are made up."""
    with no_ids_drawn():
        made = wire.moto("eks").create_cluster(**given)
    name = str(made.name)
    made.endpoint = f"https://{_digest(wire, name)[:32].upper()}.gr7.{wire.region}.eks.amazonaws.com"
    made.certificate_authority = {"data": b64encode(_certificate(wire.clock.now())).decode()}
    made.created_at = wire.clock.now()
    made.resources_vpc_config = {
        "endpointPublicAccess": True,
        "endpointPrivateAccess": False,
        "publicAccessCidrs": ["0.0.0.0/0"],
        **made.resources_vpc_config,
        "vpcId": wire.network.vpc,
        "clusterSecurityGroupId": _security_group(wire, name),
    }
    return made


def _security_group(wire: Wire, cluster: str) -> str:
    """EKS makes one for each cluster, tags it, and lets everything through between its members."""
    ec2, vpc = wire.moto("ec2"), wire.network.vpc
    id_ = seeded_id("sg", wire.cloud.seed, "cluster", cluster)
    name = f"eks-cluster-sg-{cluster}-{int(_digest(wire, cluster)[:8], 16)}"
    tags = {"Name": name, f"kubernetes.io/cluster/{cluster}": "owned", "aws:eks:cluster-name": cluster}
    with no_ids_drawn():
        made = ec2.create_security_group(name, "EKS created security group", vpc_id=vpc, tags=tags)
        ec2.groups[vpc][id_] = ec2.groups[vpc].pop(made.id)
        made.id = made.group_id = id_
        made.add_tags(tags)
        ec2.authorize_security_group_ingress(id_, "-1", None, None, [], source_groups=[{"GroupId": id_}])
    return id_


def _certificate(now: datetime) -> bytes:
    """Of nobody, but one that clients can read: PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - _VALID, now + _VALID
    ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _authority(kube: KubeApi | None) -> str:
    if kube is None or not kube.ca:
        return ""
    pem = kube.ca if kube.ca.startswith("-----BEGIN") else Path(kube.ca).read_text(encoding="ascii")
    return b64encode(pem.encode()).decode()


def _digest(wire: Wire, *what: str) -> str:
    return sha256(" ".join((wire.account, wire.region, *what)).encode()).hexdigest()
