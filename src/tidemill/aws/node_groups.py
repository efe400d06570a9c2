"""EKS managed node groups over boto3. EKS makes one change at a time: the rest is changed at the next reconciliation.

Ours are those with our owner tag. EKS's own scheduled action on the group behind one is read with that group, and never
changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from tidemill.aws.errors import CallKind
from tidemill.aws.fields import Unreadable, integer, nested_record, pairs, records, string, strings, tags
from tidemill.aws.group_records import EKS_GROUP, version_of
from tidemill.aws.groups import AwsGroups
from tidemill.aws.session import MOST_PAGES, Aws
from tidemill.model.errors import Gone, Refused, Retryable
from tidemill.ports.compute import HealthIssue, NodeGroup, NodeGroupShape, TemplateVersion
from tidemill.spec import names

CapacityType = Literal["CAPACITY_BLOCK", "ON_DEMAND", "SPOT"]
_CAPACITY_TYPES = ("CAPACITY_BLOCK", "ON_DEMAND", "SPOT")
_EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}
_KUBERNETES_EFFECTS = {eks: kubernetes for kubernetes, eks in _EFFECTS.items()}
_SERVICE = "eks"


class AwsNodeGroups(AwsGroups):
    """The part of `ports.Compute` about node groups, and about how nodes join."""

    def __init__(self, aws: Aws, owner: str, cluster: str = "") -> None:
        super().__init__(aws, owner, cluster)
        self._is_ours: dict[str, bool] = {}  # by name, as last described

    def node_groups(self) -> tuple[NodeGroup, ...]:
        if not self._cluster:
            return ()
        found = []
        for name in self._names():
            try:
                record = self._describe(name)
            except Gone:
                continue  # deleted since it was listed
            if self._remember_owner(name, record):
                found += self._reader.each("the node group", [record], read_node_group)
        return tuple(found)

    def put_node_group(self, shape: NodeGroupShape) -> None:
        try:
            record = self._describe(shape.name)
        except Gone:
            self._eks("CreateNodegroup", **self._named(shape.name), **self._request(shape))
            self._is_ours[shape.name] = True
            return
        self._must_be_our_node_group(shape.name, record)
        self._update(shape, record)

    def resize_node_group(self, name: str, desired: int) -> None:
        self._must_be_our_node_group(name, self._describe(name))
        self._eks("UpdateNodegroupConfig", **self._named(name), scalingConfig={"desiredSize": desired})

    def delete_node_group(self, name: str) -> None:
        self._must_be_our_node_group(name, self._describe(name))
        self._eks("DeleteNodegroup", **self._named(name))

    def let_nodes_join(self, role_arn: str) -> None:
        entry = {"clusterName": self._cluster, "principalArn": self._role(role_arn)}
        try:
            self._aws.read(_SERVICE, "DescribeAccessEntry", **entry)
        except Gone:
            self._eks("CreateAccessEntry", **entry, type="EC2_LINUX")

    # --- changing -------------------------------------------------------------------------------------

    def _update(self, shape: NodeGroupShape, record: Mapping[str, Any]) -> None:
        try:
            has = read_node_group(record).shape
        except Unreadable as why:
            raise Retryable(f"the node group {shape.name} cannot be read: {why}") from why
        fixed = ("its capacity type", has.capacity_type != shape.capacity_type), (
            "its subnets", set(has.subnets) != set(shape.subnets)), (
            "its launch template", has.template.id != shape.template.id)  # fmt: skip
        if changed := [what for what, differs in fixed if differs]:
            raise Refused(
                f"node group {shape.name}: EKS cannot change {' and '.join(changed)}; create another one"
            )
        if config := _config(shape, has):
            self._eks("UpdateNodegroupConfig", **self._named(shape.name), **config)
            if has.template.version != shape.template.version:
                return  # EKS is busy with it now: the version comes next
        if has.template.version != shape.template.version:
            self._eks(
                "UpdateNodegroupVersion", **self._named(shape.name), launchTemplate=_launch_template(shape)
            )
        if set(shape.tags) - set(has.tags):
            self._eks("TagResource", resourceArn=string(record, "nodegroupArn"), tags=dict(shape.tags))

    def _request(self, shape: NodeGroupShape) -> dict[str, Any]:
        given: dict[str, Any] = {
            "scalingConfig": {"minSize": 0, "desiredSize": 0, "maxSize": max(1, shape.maximum)},
            "subnets": list(shape.subnets),
            "nodeRole": self._role(shape.role),
            "labels": dict(shape.labels),
            "taints": _taints(shape.taints),
            "tags": dict(shape.tags) | {names.TAG_OWNER: self._owner},
            "launchTemplate": _launch_template(shape),
            "capacityType": shape.capacity_type,
            "nodeRepairConfig": {"enabled": shape.repair},
        }
        if shape.instance_types:
            given["instanceTypes"] = list(shape.instance_types)
        if shape.ami_type:
            given["amiType"] = shape.ami_type
        # The SDK makes a token for each call and its retries. A token made from the shape would be that of a node group
        # that failed and was deleted, and EKS might answer with that one.
        return given

    # --- reading --------------------------------------------------------------------------------------

    def _names(self) -> Iterator[str]:
        token: str | None = None
        for _ in range(MOST_PAGES):
            more = {"nextToken": token} if token else {}
            answer = self._aws.read(
                _SERVICE, "ListNodegroups", clusterName=self._cluster, maxResults=100, **more
            )
            try:
                yield from strings(answer, "nodegroups")
            except Unreadable as why:
                raise Retryable(f"ListNodegroups: the answer cannot be read: {why}") from why
            token = answer.get("nextToken") or None
            if token is None:
                return
        raise Retryable("ListNodegroups: AWS's list does not end")

    def _describe(self, name: str) -> Mapping[str, Any]:
        record = self._aws.read(_SERVICE, "DescribeNodegroup", **self._named(name)).get("nodegroup")
        if not isinstance(record, Mapping):
            raise Retryable(f"DescribeNodegroup: AWS answered without the node group {name}")
        return record

    def _is_behind_ours(self, record: Mapping[str, Any]) -> bool:
        try:
            name = dict(tags(record)).get(EKS_GROUP, "")
        except Unreadable:
            return False
        if not name or not self._cluster:
            return False
        if name not in self._is_ours:
            try:
                self._remember_owner(name, self._describe(name))
            except Gone:
                return False
        return self._is_ours[name]

    def _remember_owner(self, name: str, record: Mapping[str, Any]) -> bool:
        own = record.get("tags")
        ours = isinstance(own, Mapping) and own.get(names.TAG_OWNER) == self._owner
        self._is_ours[name] = ours
        return ours

    def _must_be_our_node_group(self, name: str, record: Mapping[str, Any]) -> None:
        if not self._remember_owner(name, record):
            raise Refused(f"the node group {name} does not carry the owner tag of {self._owner}")

    # --- requests -------------------------------------------------------------------------------------

    def _named(self, name: str) -> dict[str, str]:
        return {"clusterName": self._cluster, "nodegroupName": name}

    def _eks(self, operation: str, **given: Any) -> None:
        self._aws.call(_SERVICE, operation, CallKind.CHANGE, **given)

    def _role(self, written: str) -> str:
        """EKS needs an ARN; the documents may name the role."""
        if written.startswith("arn:"):
            return written
        caller = self._aws.read("sts", "GetCallerIdentity")
        partition = str(caller.get("Arn", "")).split(":")[1:2] or ["aws"]
        return f"arn:{partition[0]}:iam::{caller['Account']}:role/{written}"


def read_node_group(record: Mapping[str, Any]) -> NodeGroup:
    """Raises Unreadable."""
    kind, status = record.get("capacityType"), string(record, "status")
    if kind not in _CAPACITY_TYPES:
        raise Unreadable(f"field capacityType: expected a known capacity type, got {kind!r}")
    sizes, template = nested_record(record, "scalingConfig"), nested_record(record, "launchTemplate")
    ami_type, repair = record.get("amiType"), nested_record(record, "nodeRepairConfig").get("enabled", False)
    if not isinstance(repair, bool):
        raise Unreadable(f"field nodeRepairConfig: expected true or false, got {repair!r}")
    shape = NodeGroupShape(
        name=string(record, "nodegroupName"),
        capacity_type=cast(CapacityType, kind),
        template=TemplateVersion(
            string(template, "id"), string(template, "name"), version_of(template.get("version"))
        ),
        subnets=strings(record, "subnets"),
        role=str(record.get("nodeRole") or ""),
        maximum=integer(sizes, "maxSize"),
        instance_types=strings(record, "instanceTypes"),
        ami_type="" if ami_type in (None, "CUSTOM") else string(record, "amiType"),
        labels=pairs(record, "labels"),
        taints=tuple(_taint(taint) for taint in records(record, "taints")),
        tags=pairs(record, "tags"),
        repair=repair,
    )
    groups = records(nested_record(record, "resources"), "autoScalingGroups")
    behind = next((string(group, "name") for group in groups), "")
    issues = tuple(
        HealthIssue(str(issue.get("code")), str(issue.get("message")))
        for issue in records(nested_record(record, "health"), "issues")
    )
    return NodeGroup(shape, status, integer(sizes, "desiredSize"), behind, issues)


def _config(shape: NodeGroupShape, has: NodeGroupShape) -> dict[str, Any]:
    """The parameters of UpdateNodegroupConfig; empty: nothing changed."""
    config: dict[str, Any] = {}
    if set(shape.labels) != set(has.labels):
        gone = sorted(set(dict(has.labels)) - set(dict(shape.labels)))
        config["labels"] = {"addOrUpdateLabels": dict(shape.labels), "removeLabels": gone}
    if set(shape.taints) != set(has.taints):
        new = [taint for taint in shape.taints if taint not in has.taints]
        replaced = {(key, effect) for key, _, effect in new}
        old = [
            taint
            for taint in has.taints
            if taint not in shape.taints and (taint[0], taint[2]) not in replaced
        ]
        config["taints"] = {"addOrUpdateTaints": _taints(tuple(new)), "removeTaints": _taints(tuple(old))}
    if shape.maximum != has.maximum:
        config["scalingConfig"] = {"maxSize": max(1, shape.maximum)}
    if shape.repair != has.repair:
        config["nodeRepairConfig"] = {"enabled": shape.repair}
    return config


def _launch_template(shape: NodeGroupShape) -> dict[str, str]:
    return {"id": shape.template.id, "version": str(shape.template.version)}


def _taints(taints: tuple[tuple[str, str, str], ...]) -> list[dict[str, str]]:
    return [{"key": key, "value": value, "effect": _EFFECTS[effect]} for key, value, effect in taints]


def _taint(record: Mapping[str, Any]) -> tuple[str, str, str]:
    effect, value = record.get("effect"), record.get("value") or ""
    if not isinstance(effect, str) or effect not in _KUBERNETES_EFFECTS or not isinstance(value, str):
        raise Unreadable(f"field taints: expected key, value and effect, got {record!r}")
    return string(record, "key"), value, _KUBERNETES_EFFECTS[effect]
