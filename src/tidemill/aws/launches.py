"""RunInstances and TerminateInstances. A launch is repeated safely by its token; only what is ours is ended.

The request is a pure function of the order, so that a repetition is the same request: EC2 refuses a token that comes
with other parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.aws.errors import LAUNCH_TEMPLATE_CODES, TOKEN_USED, CallKind
from tidemill.aws.fields import Unreadable, id_of, listed
from tidemill.aws.instances import has_owner_tag
from tidemill.aws.reservations import tag_list
from tidemill.aws.templates import AwsTemplates
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import Gone, OutcomeUnknown, Refused, Retryable
from tidemill.ports.compute import LaunchRequest
from tidemill.provision.efa import in_subnet

_LONGEST_TOKEN = 64
_TAGGED = ("instance", "volume", "network-interface")


def run_instances_request(order: LaunchRequest, interfaces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters of RunInstances. `interfaces`: those of the template, which then name the subnet themselves."""
    if not order.subnets:
        raise Refused(f"there is no subnet in {order.zone} to launch into")
    token = _token(order.token)
    # One subnet by the token, so that launches spread and a repetition asks for the same.
    subnet = sorted(order.subnets)[int(hashlib.sha256(token.encode()).hexdigest(), 16) % len(order.subnets)]
    return {
        "LaunchTemplate": {"LaunchTemplateId": order.template.id, "Version": str(order.template.version)},
        "MinCount": 1,
        "MaxCount": order.count,
        "ClientToken": token,
        "InstanceType": order.instance_type,
        **in_subnet(
            {"NetworkInterfaces": interfaces}, subnet
        ),  # what it says of them replaces the template's
        **_market(order.source),
        "TagSpecifications": [{"ResourceType": each, "Tags": tag_list(order.tags)} for each in _TAGGED],
    }


def _token(written: str) -> str:
    if written.isascii() and 0 < len(written) <= _LONGEST_TOKEN:
        return written
    return hashlib.sha256(written.encode()).hexdigest()


def _market(source: Source) -> dict[str, Any]:
    target = {"CapacityReservationTarget": {"CapacityReservationId": source.id}}
    match source.kind:
        case SourceKind.BLOCK:
            market = {"MarketType": "capacity-block"}
            return {"InstanceMarketOptions": market, "CapacityReservationSpecification": target}
        case SourceKind.ODCR:
            return {"CapacityReservationSpecification": target}
        case SourceKind.SPOT:
            options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": options}}
        case SourceKind.ON_DEMAND:  # never by chance into an open reservation that others count on
            return {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}}


class AwsLaunches(AwsTemplates):
    """The part of `ports.Compute` that launches and ends instances."""

    def run(self, order: LaunchRequest) -> tuple[str, ...]:
        interfaces = listed(self._data_of(order.template), "NetworkInterfaces")
        given = run_instances_request(order, interfaces)
        try:
            answer = self._aws.call("ec2", "RunInstances", CallKind.LAUNCH, **given)
        except OutcomeUnknown as error:
            if error.code != TOKEN_USED:
                raise
            return self._launched_with(given["ClientToken"], error)
        except Retryable as error:
            if error.code.startswith(LAUNCH_TEMPLATE_CODES):
                self._forget(order.template.id)
            raise
        ids = _ids(answer.get("Instances"))
        if not ids:  # EC2 starts at least one, or says why not: ask again with the same token
            raise OutcomeUnknown("RunInstances: EC2 named no instance, and gave no reason")
        return ids

    def terminate(self, instance_id: str) -> None:
        found = self._aws.read("ec2", "DescribeInstances", InstanceIds=[instance_id])
        records = [one for group in listed(found, "Reservations") for one in listed(group, "Instances")]
        if not records:
            raise Gone(f"there is no instance {instance_id}")
        if not all(has_owner_tag(one, self._owner) for one in records):
            raise Refused(f"{instance_id} does not carry {self._owner}'s owner tag: it is not ended")
        self._aws.call("ec2", "TerminateInstances", CallKind.CHANGE, InstanceIds=[instance_id])

    def _launched_with(self, token: str, error: OutcomeUnknown) -> tuple[str, ...]:
        """The token was used with other parameters, say a template that changed since: what it gave is the answer."""
        filters = [{"Name": "client-token", "Values": [token]}]
        found = self._aws.pages("ec2", "DescribeInstances", "Reservations", Filters=filters)
        ids = tuple(
            id_ for group in listed(list(found), "Reservations") for id_ in _ids(group.get("Instances"))
        )
        if not ids:
            raise error
        return ids


def _ids(records: Any) -> tuple[str, ...]:
    """Of a launch that was answered: an answer that makes no sense leaves its outcome open."""
    try:
        return tuple(id_of(one, "InstanceId", "i-") for one in records or ())
    except (Unreadable, AttributeError, TypeError) as error:
        raise OutcomeUnknown(f"RunInstances: the answer makes no sense: {error}") from error
