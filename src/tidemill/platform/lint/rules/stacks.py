"""CloudFormation: groups on a block, security groups of EFA, images. References are followed inside a template and
through exports; what comes from a parameter is not known, and nothing is said about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tidemill.platform.lint.finding import Finding
from tidemill.platform.lint.inventory import Inventory
from tidemill.platform.lint.pods import listed
from tidemill.platform.lint.sources import Located
from tidemill.spec import traps
from tidemill.spec.located_yaml import Path
from tidemill.spec.names import EFA
from tidemill.spec.problem import quoted

LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"
DATA = ("Properties", "LaunchTemplateData")


def resources_of(stack: Located, kind: str) -> Iterator[tuple[str, Located]]:
    for name in stack.mapping("Resources"):
        resource = stack.inside("Resources", name)
        if resource is not None and resource.text("Type") == kind:
            yield name, resource


def _referred(value: Any) -> tuple[str, str]:
    """The logical name that a value refers to and the attribute; empty where it refers to none."""
    if isinstance(value, dict) and len(value) == 1:
        ((how, what),) = value.items()
        if how == "Ref" and isinstance(what, str):
            return what, ""
        if how == "Fn::GetAtt":
            parts = what.split(".", 1) if isinstance(what, str) else listed(what)
            if len(parts) == 2 and all(isinstance(part, str) for part in parts):
                return parts[0], parts[1]
        if (
            how == "Fn::Sub"
            and isinstance(what, str)
            and (found := re.fullmatch(r"\$\{([\w:]+)(?:\.(\w+))?\}", what))
        ):
            return found[1], found[2] or ""
    return "", ""


class _Stacks:
    """Every stack of the run, with what the others export."""

    def __init__(self, files: Inventory) -> None:
        self.exports: dict[str, tuple[Located, Any]] = {}
        for stack in files.stacks:
            for output in stack.mapping("Outputs").values():
                export = output.get("Export") if isinstance(output, dict) else None
                if isinstance(export, dict) and "Name" in export:
                    self.exports[_canonical(export["Name"])] = (stack, output.get("Value"))

    def resource(self, stack: Located, value: Any, kind: str) -> tuple[Located, str] | None:
        """The stack and logical name of what a value refers to, if it is a resource of this kind."""
        if isinstance(value, dict) and "Fn::ImportValue" in value:
            found = self.exports.get(_canonical(value["Fn::ImportValue"]))
            if found is None:
                return None
            stack, value = (
                found  # an export that is imported again refers to no resource, and is not followed
            )
        name, _ = _referred(value)
        if stack.get("Resources", name, "Type") == kind:
            return stack, name
        return None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


# --- TR-10 ------------------------------------------------------------------------------------------


def groups_are_in_the_zone_of_their_block(files: Inventory) -> Iterator[Finding]:
    stacks = _Stacks(files)
    for stack in files.stacks:
        for name, path, located in _groups_on_blocks(stacks, stack):
            subnets = located.items(*path)
            zones = {zone for subnet in subnets if (zone := _zone_of(stacks, stack, subnet)) is not None}
            if path[-1] == "AvailabilityZones":
                zones = {_canonical(each) for each in subnets}
            if len(zones) > 1:
                message = (
                    f"{quoted(name)} launches into a Capacity Block, which is in one zone, but its subnets are in"
                    f" {len(zones)}: launches in the others fail"
                )
                yield located.finding("TR-10", path, message)


def _groups_on_blocks(stacks: _Stacks, stack: Located) -> Iterator[tuple[str, Path, Located]]:
    for name, group in resources_of(stack, "AWS::EKS::Nodegroup"):
        if group.text("Properties", "CapacityType") == "CAPACITY_BLOCK":
            yield name, ("Properties", "Subnets"), group
    for name, group in resources_of(stack, "AWS::AutoScaling::AutoScalingGroup"):
        template = group.get("Properties", "LaunchTemplate", "LaunchTemplateId")
        found = stacks.resource(stack, template, LAUNCH_TEMPLATE)
        if found is not None and _is_on_a_block(found[0].get("Resources", found[1])):
            for key in ("VPCZoneIdentifier", "AvailabilityZones"):
                if group.items("Properties", key):
                    yield name, ("Properties", key), group


def _is_on_a_block(template: Any) -> bool:
    properties = template.get("Properties") if isinstance(template, dict) else None
    data = properties.get("LaunchTemplateData") if isinstance(properties, dict) else None
    options = data.get("InstanceMarketOptions") if isinstance(data, dict) else None
    return isinstance(options, dict) and options.get("MarketType") == "capacity-block"


def _zone_of(stacks: _Stacks, stack: Located, subnet: Any) -> str | None:
    found = stacks.resource(stack, subnet, "AWS::EC2::Subnet")
    if found is None:
        return None
    zone = found[0].get("Resources", found[1], "Properties", "AvailabilityZone")
    return None if zone is None else _canonical(zone)


# --- TR-13 ------------------------------------------------------------------------------------------


def efa_groups_allow_themselves(files: Inventory) -> Iterator[Finding]:
    """Of launch templates with EFA interfaces whose groups are all known."""
    stacks = _Stacks(files)
    for stack in files.stacks:
        for name, template in resources_of(stack, LAUNCH_TEMPLATE):
            path: Path = (*DATA, "NetworkInterfaces")
            for index, interface in enumerate(template.items(*path)):
                if not isinstance(interface, dict) or "efa" not in str(interface.get("InterfaceType")):
                    continue
                groups = [
                    stacks.resource(stack, each, SECURITY_GROUP) for each in listed(interface.get("Groups"))
                ]
                known = [each for each in groups if each is not None]
                if (
                    known
                    and len(known) == len(groups)
                    and (missing := _none_allows_itself(files, stacks, known))
                ):
                    message = f"launch template {quoted(name)} has EFA, but {missing}"
                    yield template.finding("TR-13", (*path, index, "Groups"), message)
                    break  # the interfaces of a template share their groups


SECURITY_GROUP = "AWS::EC2::SecurityGroup"


def selected_groups_allow_themselves(files: Inventory) -> Iterator[Finding]:
    """Of groups that an EC2NodeClass selects by tags, where pods ask for EFA and the groups are among the files."""
    stacks = _Stacks(files)
    pods = [pod for pod in files.pods if pod.requested(EFA)]
    for node_class in files.node_classes if pods else ():
        terms = node_class.items("spec", "securityGroupSelectorTerms")
        selected = [_selected(files, term) for term in terms]
        if not selected or not all(selected):
            continue  # a group that is not here may allow it
        groups = [group for each in selected for group in each]
        if missing := _none_allows_itself(files, stacks, groups):
            message = (
                f"pods of {pods[0].owner.kind} {quoted(pods[0].owner.name)} ask for EFA, but {missing}"
                f" (selected by {node_class.kind} {quoted(node_class.name)})"
            )
            where = pods[0].owner.place(*pods[0].path)
            yield node_class.finding(
                "TR-13", ("spec", "securityGroupSelectorTerms"), message, elsewhere=(where,)
            )


def _selected(files: Inventory, term: Any) -> list[tuple[Located, str]]:
    tags = term.get("tags") if isinstance(term, dict) else None
    if not isinstance(tags, dict) or not tags:
        return []
    found = []
    for stack in files.stacks:
        for name, group in resources_of(stack, SECURITY_GROUP):
            own = {
                str(tag.get("Key")): tag.get("Value")
                for tag in group.items("Properties", "Tags")
                if isinstance(tag, dict)
            }
            if all(key in own and value in ("*", own[key]) for key, value in tags.items()):
                found.append((stack, name))
    return found


def _none_allows_itself(files: Inventory, stacks: _Stacks, groups: list[tuple[Located, str]]) -> str:
    """What is missing, where no group allows all traffic with itself both ways; else empty."""
    lacks = []
    for stack, name in groups:
        missing = [
            side
            for side in ("ingress", "egress")
            if not any(
                _is_self_rule(stacks, each, rule, stack, name, side)
                for each, rule in _rules(files, stack, name, side)
            )
        ]
        if not missing:
            return ""
        rules = " and ".join(missing)
        lacks.append(f"security group {quoted(name)} has no {rules} rule for all traffic with itself")
    return "; ".join(lacks)


_SIDES = {
    "ingress": ("SecurityGroupIngress", "SourceSecurityGroupId"),
    "egress": ("SecurityGroupEgress", "DestinationSecurityGroupId"),
}


def _rules(
    files: Inventory, stack: Located, name: str, side: str
) -> Iterator[tuple[Located, dict[str, Any]]]:
    """A group's own rules, and the rules that are resources, in every stack."""
    kind, _ = _SIDES[side]
    for rule in listed(stack.get("Resources", name, "Properties", kind)):
        if isinstance(rule, dict):
            yield stack, {"GroupId": {"Ref": name}, **rule}
    for each in files.stacks:
        for _, resource in resources_of(each, f"AWS::EC2::{kind}"):
            yield each, resource.mapping("Properties")


def _is_self_rule(
    stacks: _Stacks, at: Located, rule: dict[str, Any], stack: Located, name: str, side: str
) -> bool:
    _, other = _SIDES[side]
    own = (stack, name)
    return (
        str(rule.get("IpProtocol")) == "-1"
        and stacks.resource(at, rule.get("GroupId"), SECURITY_GROUP) == own
        and stacks.resource(at, rule.get(other), SECURITY_GROUP) == own
    )


# --- TR-8 and TR-14 ---------------------------------------------------------------------------------

_FLOATING = re.compile(r"/(recommended|latest)(/|$|\})")


def stack_images_are_pinned(files: Inventory) -> Iterator[Finding]:
    """Of launch templates on a block: an image that Systems Manager names changes with every update of the stack."""
    for stack in files.stacks:
        for name, template in resources_of(stack, LAUNCH_TEMPLATE):
            image = template.get(*DATA, "ImageId")
            parameter = stack.mapping("Parameters", _referred(image)[0]) if _referred(image)[0] else {}
            text = str(parameter.get("Default", "")) if "SSM" in str(parameter.get("Type")) else str(image)
            if (
                "ssm" in f"{image} {parameter.get('Type')}".lower()
                and _FLOATING.search(text)
                and _is_on_a_block(template.data)
            ):
                message = (
                    f"the image of launch template {quoted(name)} is what Systems Manager recommends on the day: it"
                    " changes without an edit"
                )
                yield template.finding(
                    "TR-8", (*DATA, "ImageId"), message, fix="write an image id, or a parameter of a version"
                )


def stack_ultraservers_are_drained_in_time(files: Inventory) -> Iterator[Finding]:
    stacks = _Stacks(files)
    for stack in files.stacks:
        for name, group in resources_of(stack, "AWS::EKS::Nodegroup"):
            if group.text("Properties", "CapacityType") != "CAPACITY_BLOCK":
                continue
            found = stacks.resource(stack, group.get("Properties", "LaunchTemplate", "Id"), LAUNCH_TEMPLATE)
            own = found[0].get("Resources", found[1], *DATA, "InstanceType") if found is not None else None
            types = [own, *listed(group.get("Properties", "InstanceTypes"))]
            kinds = [
                files.catalog.types[each]
                for each in types
                if isinstance(each, str) and each in files.catalog.types
            ]
            if message := traps.drained_after_ec2(kinds, "EKS scales a managed node group to 0"):
                yield group.finding("TR-14", ("Properties", "CapacityType"), f"{quoted(name)}: {message}")
