"""The two things a launch template needs from AWS: the id of an image, and the data of an existing template.

An alias is a public SSM parameter. Its value is cached for an hour: a new image is used without a restart of the
engine, and a launch does not wait for SSM.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tidemill.aws.session import Aws
from tidemill.model.errors import Gone, NotAllowed, Retryable, SpecError
from tidemill.ports import Clock
from tidemill.provision.images import image_of
from tidemill.spec import Spec
from tidemill.spec.node_class import LaunchTemplateRef, NodeClass

_CACHED_FOR = timedelta(hours=1)


class AwsImages:
    boots = True

    def __init__(self, aws: Aws, clock: Clock, spec: Spec) -> None:
        self._aws, self._clock, self._spec = aws, clock, spec
        self._values: dict[str, tuple[datetime, str]] = {}
        self._existing: dict[LaunchTemplateRef, tuple[datetime, Mapping[str, Any]]] = {}

    def image_id(self, node_class: NodeClass, instance_type: str) -> str:
        kind = self._spec.catalog.types.get(instance_type)
        if kind is None:
            raise SpecError(f"'{instance_type}' is not an instance type of the catalog")
        image = image_of(node_class, kind, self._spec.platform.spec.cluster.version)
        return image.id or self._parameter(image.parameter, node_class)

    def existing(self, reference: LaunchTemplateRef) -> Mapping[str, Any]:
        held, now = self._existing.get(reference), self._clock.now()
        if held is None or now - held[0] >= _CACHED_FOR:
            held = self._existing[reference] = now, self._read(reference)
        return held[1]

    def _parameter(self, name: str, node_class: NodeClass) -> str:
        held, now = self._values.get(name), self._clock.now()
        if held is not None and now - held[0] < _CACHED_FOR:
            return held[1]
        try:
            value = (self._aws.read("ssm", "GetParameter", Name=name).get("Parameter") or {}).get("Value")
        except Gone as none:
            alias = node_class.spec.ami_selector_terms[0].alias
            raise SpecError(
                f"node class {node_class.name}: AWS publishes no image '{alias}' for this cluster ({name})"
            ) from none
        except (Retryable, NotAllowed):
            if held is None:
                raise
            # A pinned alias never changes, another seldom: while AWS does not answer, the last value is good.
            return held[1]
        if not isinstance(value, str) or not value.startswith("ami-"):
            raise Retryable(f"GetParameter: expected an image id in {name}, got {value!r}")
        self._values[name] = now, value
        return value

    def _read(self, reference: LaunchTemplateRef) -> Mapping[str, Any]:
        try:
            answer = self._aws.read(
                "ec2",
                "DescribeLaunchTemplateVersions",
                LaunchTemplateId=reference.id,
                Versions=[reference.version],
            )
        except Gone as none:
            raise SpecError(
                f"launch template {reference.id} has no version {reference.version}: {none}"
            ) from none
        found = answer.get("LaunchTemplateVersions")
        if not found or not isinstance(found[0].get("LaunchTemplateData"), Mapping):
            raise Retryable(f"EC2 shows no version {reference.version} of launch template {reference.id}")
        data: Mapping[str, Any] = found[0]["LaunchTemplateData"]
        return data
