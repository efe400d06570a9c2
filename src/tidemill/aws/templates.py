"""Launch templates over boto3. A version is known by a digest of its content, which its description carries.

Versions never change, so what was found once is remembered. Only templates with our owner tag are listed or changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tidemill.aws.errors import CallKind
from tidemill.aws.fields import Unreadable, id_of, listed, tags, whole, word
from tidemill.aws.reservations import tag_list
from tidemill.aws.session import Aws
from tidemill.model.errors import Gone, Refused, Retryable
from tidemill.ports.compute import Template, TemplateVersion
from tidemill.spec import names

_PAGE = 200
_PREFIX = "tidemill:"


def template_digest(data: Mapping[str, Any]) -> str:
    """The same for the same content, however it is ordered."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return _PREFIX + hashlib.sha256(text.encode()).hexdigest()[:40]


class AwsTemplates:
    """The part of `ports.Compute` that is about templates."""

    def __init__(self, aws: Aws, owner: str) -> None:
        self._aws, self._owner = aws, owner
        self._known: dict[tuple[str, str], TemplateVersion] = {}  # by name and content
        self._data: dict[tuple[str, int], Mapping[str, Any]] = {}  # by id and version

    def put_template(self, template: Template) -> TemplateVersion:
        content = template_digest(template.data)
        known = self._known.get((template.name, content))
        if known is None:
            there = self._there(template.name)
            known = (
                self._made(template, content) if there is None else self._version(template, content, there)
            )
            self._known[template.name, content] = known
            self._data[known.id, known.version] = template.data
        return known

    def templates(self) -> tuple[TemplateVersion, ...]:
        filters = [{"Name": f"tag:{names.TAG_OWNER}", "Values": [self._owner]}]
        found = self._aws.pages(
            "ec2", "DescribeLaunchTemplates", "LaunchTemplates", MaxResults=_PAGE, Filters=filters
        )
        return tuple(_read(one, "LatestVersionNumber") for one in found)

    def delete_template(self, name: str) -> None:
        there = self._there(name)
        if there is None:
            raise Gone(f"there is no launch template '{name}'")
        self._aws.call(
            "ec2", "DeleteLaunchTemplate", CallKind.CHANGE, LaunchTemplateId=there["LaunchTemplateId"]
        )
        self._forget(there["LaunchTemplateId"])

    def _data_of(self, version: TemplateVersion) -> Mapping[str, Any]:
        """What a version says; read from EC2 where another process made it."""
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

    def _forget(self, template_id: str) -> None:
        """Somebody deleted it: the next launch makes it again."""
        self._known = {key: one for key, one in self._known.items() if one.id != template_id}
        self._data = {key: data for key, data in self._data.items() if key[0] != template_id}

    # --- finding and making ---------------------------------------------------------------------------

    def _there(self, name: str) -> Mapping[str, Any] | None:
        try:
            found = self._aws.read("ec2", "DescribeLaunchTemplates", LaunchTemplateNames=[name])
        except Gone:
            return None
        for one in listed(found, "LaunchTemplates"):
            _read(one, "LatestVersionNumber")
            if not self._carries_our_tag(one):
                raise Refused(f"launch template '{name}' is not {self._owner}'s: it lacks our owner tag")
            return dict(one)
        return None

    def _carries_our_tag(self, record: Mapping[str, Any]) -> bool:
        try:
            return dict(tags(record)).get(names.TAG_OWNER) == self._owner
        except Unreadable:
            return False

    def _made(self, template: Template, content: str) -> TemplateVersion:
        marks = dict(template.tags) | {names.TAG_OWNER: self._owner}
        answer = self._aws.call(
            "ec2",
            "CreateLaunchTemplate",
            CallKind.CHANGE,
            LaunchTemplateName=template.name,
            VersionDescription=content,
            LaunchTemplateData=dict(template.data),
            TagSpecifications=[
                {"ResourceType": "launch-template", "Tags": tag_list(tuple(sorted(marks.items())))}
            ],
        )
        return _read(answer.get("LaunchTemplate"), "LatestVersionNumber")

    def _version(self, template: Template, content: str, there: Mapping[str, Any]) -> TemplateVersion:
        id_ = there["LaunchTemplateId"]
        versions = self._aws.pages(
            "ec2",
            "DescribeLaunchTemplateVersions",
            "LaunchTemplateVersions",
            LaunchTemplateId=id_,
            MaxResults=_PAGE,
        )
        for one in versions:
            if isinstance(one, Mapping) and one.get("VersionDescription") == content:
                return _read(one, "VersionNumber")
        answer = self._aws.call(
            "ec2",
            "CreateLaunchTemplateVersion",
            CallKind.CHANGE,
            LaunchTemplateId=id_,
            VersionDescription=content,
            LaunchTemplateData=dict(template.data),
        )
        return _read(answer.get("LaunchTemplateVersion"), "VersionNumber")


def _read(record: Any, version_key: str) -> TemplateVersion:
    """Retryable: it is not whole. A template is needed, or it is not; there is nothing to leave out."""
    try:
        if not isinstance(record, Mapping):
            raise Unreadable(f"it is {record!r}")
        id_ = id_of(record, "LaunchTemplateId", "lt-")
        return TemplateVersion(id_, word(record, "LaunchTemplateName"), whole(record, version_key, least=1))
    except Unreadable as error:
        raise Retryable(f"what EC2 says of a launch template cannot be understood: {error}") from error
