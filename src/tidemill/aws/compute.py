"""`ports.Compute` over boto3: launch templates, RunInstances, TerminateInstances; groups in `groups` and `node_groups`.

The token of a launch makes it safe to repeat. The request is a pure function of what is asked for, so that a repetition
is the same request: EC2 refuses a token that comes with other parameters. A template version is recognised by a digest
of its content, which its description carries. Only what has our owner tag is listed, changed or terminated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.aws.errors import LAUNCH_TEMPLATE_CODES, TOKEN_USED, CallKind
from tidemill.aws.fields import Unreadable, id_of, integer, listed, string, tags
from tidemill.aws.instances import has_owner_tag
from tidemill.aws.node_groups import AwsNodeGroups
from tidemill.aws.reservations import tag_list
from tidemill.aws.session import Aws
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import Gone, OutcomeUnknown, Refused, Retryable
from tidemill.ports.compute import LaunchRequest, Template, TemplateVersion
from tidemill.provision.efa import in_subnet
from tidemill.provision.launch_template import market_options
from tidemill.spec import names

_PAGE = 200
_DIGEST_PREFIX = "tidemill:"
_LONGEST_TOKEN = 64
_TAGGED = ("instance", "volume", "network-interface")


class AwsCompute(AwsNodeGroups):
    """Everything one deployment launches with, in one account and region."""

    def __init__(self, aws: Aws, owner: str, cluster: str = "") -> None:
        """`cluster`: the EKS cluster whose node groups are ours; empty: there is none."""
        super().__init__(aws, owner, cluster)
        # Versions never change, so what was found once is remembered.
        self._versions: dict[tuple[str, str], TemplateVersion] = {}  # by name and digest
        self._data: dict[tuple[str, int], Mapping[str, Any]] = {}  # by id and version

    # --- launch templates -----------------------------------------------------------------------------

    def put_template(self, template: Template) -> TemplateVersion:
        digest = template_digest(template.data)
        version = self._versions.get((template.name, digest))
        if version is None:
            existing = self._find_template(template.name)
            if existing is None:
                version = self._create_template(template, digest)
            else:
                version = self._find_or_add_version(template, digest, existing)
            self._versions[template.name, digest] = version
            self._data[version.id, version.version] = template.data
        return version

    def templates(self) -> tuple[TemplateVersion, ...]:
        filters = [{"Name": f"tag:{names.TAG_OWNER}", "Values": [self._owner]}]
        found = self._aws.pages(
            "ec2", "DescribeLaunchTemplates", "LaunchTemplates", MaxResults=_PAGE, Filters=filters
        )
        return tuple(_read_version(record, "LatestVersionNumber") for record in found)

    def delete_template(self, name: str) -> None:
        existing = self._find_template(name)
        if existing is None:
            raise Gone(f"there is no launch template '{name}'")
        self._aws.call(
            "ec2", "DeleteLaunchTemplate", CallKind.CHANGE, LaunchTemplateId=existing["LaunchTemplateId"]
        )
        self._forget_template(existing["LaunchTemplateId"])

    def _data_of(self, version: TemplateVersion) -> Mapping[str, Any]:
        """The content of a version; read from EC2 where another process made it."""
        if (version.id, version.version) not in self._data:
            answer = self._aws.read(
                "ec2",
                "DescribeLaunchTemplateVersions",
                LaunchTemplateId=version.id,
                Versions=[str(version.version)],
            )
            found = listed(answer, "LaunchTemplateVersions")
            if not found or not isinstance(found[0].get("LaunchTemplateData"), Mapping):
                raise Retryable(f"EC2 shows no version {version.version} of launch template {version.name}")
            self._data[version.id, version.version] = found[0]["LaunchTemplateData"]
        return self._data[version.id, version.version]

    def _forget_template(self, template_id: str) -> None:
        """It was deleted: the next launch creates it again."""
        self._versions = {key: known for key, known in self._versions.items() if known.id != template_id}
        self._data = {key: data for key, data in self._data.items() if key[0] != template_id}

    def _find_template(self, name: str) -> Mapping[str, Any] | None:
        try:
            found = self._aws.read("ec2", "DescribeLaunchTemplates", LaunchTemplateNames=[name])
        except Gone:
            return None
        for record in listed(found, "LaunchTemplates"):
            _read_version(record, "LatestVersionNumber")
            try:
                ours = dict(tags(record)).get(names.TAG_OWNER) == self._owner
            except Unreadable:
                ours = False
            if not ours:
                raise Refused(f"launch template '{name}' does not carry the owner tag of {self._owner}")
            return dict(record)
        return None

    def _create_template(self, template: Template, digest: str) -> TemplateVersion:
        own = dict(template.tags) | {names.TAG_OWNER: self._owner}
        answer = self._aws.call(
            "ec2",
            "CreateLaunchTemplate",
            CallKind.CHANGE,
            LaunchTemplateName=template.name,
            VersionDescription=digest,
            LaunchTemplateData=dict(template.data),
            TagSpecifications=[
                {"ResourceType": "launch-template", "Tags": tag_list(tuple(sorted(own.items())))}
            ],
        )
        return _read_version(answer.get("LaunchTemplate"), "LatestVersionNumber")

    def _find_or_add_version(
        self, template: Template, digest: str, existing: Mapping[str, Any]
    ) -> TemplateVersion:
        id_ = existing["LaunchTemplateId"]
        versions = self._aws.pages(
            "ec2",
            "DescribeLaunchTemplateVersions",
            "LaunchTemplateVersions",
            LaunchTemplateId=id_,
            MaxResults=_PAGE,
        )
        for record in versions:
            if isinstance(record, Mapping) and record.get("VersionDescription") == digest:
                return _read_version(record, "VersionNumber")
        answer = self._aws.call(
            "ec2",
            "CreateLaunchTemplateVersion",
            CallKind.CHANGE,
            LaunchTemplateId=id_,
            VersionDescription=digest,
            LaunchTemplateData=dict(template.data),
        )
        return _read_version(answer.get("LaunchTemplateVersion"), "VersionNumber")

    # --- instances ------------------------------------------------------------------------------------

    def run(self, request: LaunchRequest) -> tuple[str, ...]:
        interfaces = listed(self._data_of(request.template), "NetworkInterfaces")
        parameters = run_instances_request(request, interfaces)
        try:
            answer = self._aws.call("ec2", "RunInstances", CallKind.LAUNCH, **parameters)
        except OutcomeUnknown as error:
            if error.code != TOKEN_USED:
                raise
            return self._launched_with(parameters["ClientToken"], error)
        except Retryable as error:
            if error.code.startswith(LAUNCH_TEMPLATE_CODES):
                self._forget_template(request.template.id)
            raise
        ids = _instance_ids(answer.get("Instances"))
        if not ids:  # EC2 starts at least one, or says why not: ask again with the same token
            raise OutcomeUnknown("RunInstances: EC2 named no instance, and gave no reason")
        return ids

    def terminate(self, instance_id: str) -> None:
        found = self._aws.read("ec2", "DescribeInstances", InstanceIds=[instance_id])
        records = [record for group in listed(found, "Reservations") for record in listed(group, "Instances")]
        if not records:
            raise Gone(f"there is no instance {instance_id}")
        if not all(has_owner_tag(record, self._owner) for record in records):
            raise Refused(
                f"{instance_id} does not carry the owner tag of {self._owner}: it is not terminated"
            )
        self._aws.call("ec2", "TerminateInstances", CallKind.CHANGE, InstanceIds=[instance_id])

    def console_output(self, instance_id: str) -> str:
        # Latest: as it is now, on the machines that have it (Nitro), and not as it was after the boot.
        found = self._aws.read("ec2", "GetConsoleOutput", InstanceId=instance_id, Latest=True)
        return str(found.get("Output") or "")

    def _launched_with(self, token: str, error: OutcomeUnknown) -> tuple[str, ...]:
        """The token was used with other parameters, such as an older template: return what that launch gave."""
        filters = [{"Name": "client-token", "Values": [token]}]
        found = self._aws.pages("ec2", "DescribeInstances", "Reservations", Filters=filters)
        ids = tuple(
            id_
            for group in listed(list(found), "Reservations")
            for id_ in _instance_ids(group.get("Instances"))
        )
        if not ids:
            raise error
        return ids


def template_digest(data: Mapping[str, Any]) -> str:
    """The same for the same content, however it is ordered."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return _DIGEST_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:40]


def run_instances_request(request: LaunchRequest, interfaces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters of RunInstances. `interfaces`: those of the template, which then name the subnet themselves."""
    if not request.subnets:
        raise Refused(f"there is no subnet in {request.zone} to launch into")
    token = request.token
    if not token.isascii() or not 0 < len(token) <= _LONGEST_TOKEN:
        token = hashlib.sha256(token.encode()).hexdigest()
    # The token chooses the subnet, so that launches spread and a repetition asks for the same.
    number = int(hashlib.sha256(token.encode()).hexdigest(), 16)
    subnet = sorted(request.subnets)[number % len(request.subnets)]
    return {
        "LaunchTemplate": {"LaunchTemplateId": request.template.id, "Version": str(request.template.version)},
        "MinCount": request.least,
        "MaxCount": request.count,
        "ClientToken": token,
        "InstanceType": request.instance_type,
        **in_subnet({"NetworkInterfaces": interfaces}, subnet),  # replaces the template's own interfaces
        **_market_options(request.source),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list(request.tags)} for kind in _TAGGED],
    }


def _market_options(source: Source) -> dict[str, Any]:
    options = market_options(source)
    if source.kind is SourceKind.SPOT:
        spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        options["InstanceMarketOptions"] |= {"SpotOptions": spot}
    return options


def _read_version(record: Any, version_key: str) -> TemplateVersion:
    """Retryable: the record is incomplete. A template is needed or not; there is nothing to leave out."""
    try:
        if not isinstance(record, Mapping):
            raise Unreadable(f"expected a record, got {record!r}")
        id_ = id_of(record, "LaunchTemplateId", "lt-")
        return TemplateVersion(
            id_, string(record, "LaunchTemplateName"), integer(record, version_key, least=1)
        )
    except Unreadable as error:
        raise Retryable(f"EC2's record of a launch template cannot be read: {error}") from error


def _instance_ids(records: Any) -> tuple[str, ...]:
    """Of a launch that was answered: an answer that cannot be read leaves its outcome open."""
    try:
        return tuple(id_of(record, "InstanceId", "i-") for record in records or ())
    except (Unreadable, AttributeError, TypeError) as error:
        raise OutcomeUnknown(f"RunInstances: the answer cannot be read: {error}") from error
