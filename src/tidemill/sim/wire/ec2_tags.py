"""Tags on reservations and instances are the account's; on everything else moto's. One call may name both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.model.labels import Pairs
from tidemill.sim.wire.ec2_reservations import by_id, tags_of
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered
from tidemill.sim.wire.state import Wire
from tidemill.sim.wire.tag_format import from_tags


@operation("ec2", "CreateTags")
def create(call: ApiCall) -> Result:
    wire = call.wire
    ours, theirs = _split_by_owner(call.require("Resources"))
    tags = from_tags(call.require("Tags"))
    for id_ in ours:
        _tags(wire, id_)  # all of them are there, or none is tagged
    call.stop_dry_run()
    if theirs:
        wire.moto("ec2").do_resources_exist(theirs)
        wire.moto("ec2").create_tags(theirs, dict(tags))
    for id_ in ours:
        if id_.startswith("cr-"):
            wire.cloud.tag_reservation(id_, tags)
        else:
            wire.cloud.tag_instance(id_, tuple((dict(_tags(wire, id_)) | dict(tags)).items()))
    return {}


@operation("ec2", "DeleteTags")
def delete(call: ApiCall) -> Result:
    """A tag with a value goes only if it has that value; without tags named, all of them go."""
    wire = call.wire
    ours, theirs = _split_by_owner(call.require("Resources"))
    given = {str(tag.get("Key")): tag.get("Value") for tag in call.get("Tags", [])}
    for id_ in ours:
        _tags(wire, id_)
    call.stop_dry_run()
    if theirs:
        wire.moto("ec2").delete_tags(theirs, given)
    for id_ in ours:
        there = dict(_tags(wire, id_))
        going = {
            key for key, value in there.items() if not given or (key in given and given[key] in (None, value))
        }
        if id_.startswith("cr-"):
            wire.cloud.untag_reservation(id_, tuple((key, there[key]) for key in sorted(going)))
        else:
            wire.cloud.tag_instance(
                id_, tuple((key, value) for key, value in there.items() if key not in going)
            )
    return {}


@operation("ec2", "DescribeTags")
def describe(call: ApiCall) -> Result:
    wire = call.wire
    theirs = [
        (tag["resource_id"], tag["resource_type"], tag["key"], tag["value"])
        for tag in wire.moto("ec2").describe_tags()
    ]
    matching = filtered(
        [*_ours(wire), *theirs], call.get("Filters", []), _FILTER_FIELDS, lambda tag: ((tag[2], tag[3]),)
    )
    call.stop_dry_run()
    page, token = wire.pages.page(matching, lambda tag: f"{tag[0]} {tag[2]}", call.params, least=5)
    return {
        "Tags": [
            {"ResourceId": id_, "ResourceType": kind, "Key": key, "Value": value}
            for id_, kind, key, value in page
        ],
        "NextToken": token,
    }


_FILTER_FIELDS: FilterFields[tuple[str, str, str, str]] = {
    "resource-id": lambda tag: tag[0],
    "resource-type": lambda tag: tag[1],
    "key": lambda tag: tag[2],
    "value": lambda tag: tag[3],
}


def _split_by_owner(ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """The account's, and moto's."""
    ours = [id_ for id_ in ids if id_.startswith(("cr-", "i-"))]
    return ours, [id_ for id_ in ids if id_ not in ours]


def _tags(wire: Wire, id_: str) -> Pairs:
    """What users put there. AwsError: there is no such thing, or not any more."""
    if id_.startswith("cr-"):
        return by_id(wire.cloud.reservations(), id_).tags
    if id_ not in {instance.id for instance in wire.cloud.instances()}:
        raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{id_}' does not exist")
    return wire.cloud.instance_histories[id_].tags


def _ours(wire: Wire) -> Iterator[tuple[str, str, str, str]]:
    for reservation in wire.cloud.reservations():
        for key, value in tags_of(wire, reservation):
            yield reservation.id, "capacity-reservation", key, value
    for instance in wire.cloud.instances():
        for key, value in wire.cloud.instance_histories[instance.id].tags:
            yield instance.id, "instance", key, value
