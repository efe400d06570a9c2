"""The spot requests behind spot instances: where EC2 itself tells, to whoever reads, that one will be taken back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.nodes import INSTANCE_UP_STATES, EndKind
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.wire import instance_format as words
from tidemill.sim.wire.operations import Asked, Result, operation
from tidemill.sim.wire.paging import Facets, chosen
from tidemill.sim.wire.state import Wire

_NOTICE = timedelta(minutes=2)


@operation("ec2", "DescribeSpotInstanceRequests")
def describe(asked: Asked) -> Result:
    wire = asked.wire
    histories = [
        wire.body.instance_histories[one.id]
        for one in wire.body.instances()
        if one.source.kind is SourceKind.SPOT
    ]
    wanted = asked.get("SpotInstanceRequestIds", [])
    named = [history for history in histories if not wanted or words.spot_request(history) in wanted]
    found = chosen(named, asked.get("Filters", []), _FACETS, lambda history: history.tags)
    asked.stop_if_dry()
    page, token = wire.pages.page(found, lambda history: history.now.id, asked.params, least=5)
    return {"SpotInstanceRequests": [_request(wire, history) for history in page], "NextToken": token}


def is_interrupted(history: InstanceHistory) -> bool:
    return history.now.ends_why is not None and history.now.ends_why.kind is EndKind.SPOT_INTERRUPTION


def _request(wire: Wire, history: InstanceHistory) -> dict[str, Any]:
    launched = history.now.launched_at
    marked = history.now.ends_at is not None and is_interrupted(history)
    updated = history.now.ends_at - _NOTICE if marked and history.now.ends_at is not None else launched
    return {
        "SpotInstanceRequestId": words.spot_request(history),
        "InstanceId": history.now.id,
        "CreateTime": launched,
        "LaunchedAvailabilityZone": history.now.zone,
        "ProductDescription": "Linux/UNIX",
        "Type": "one-time",
        "State": "active" if history.now.state in INSTANCE_UP_STATES else "closed",
        "Status": {
            "Code": _code(history),
            "Message": _code(history).replace("-", " "),
            "UpdateTime": updated,
        },
        "InstanceInterruptionBehavior": "terminate",
    }


def _code(history: InstanceHistory) -> str:
    interrupted = is_interrupted(history)
    if history.now.state in INSTANCE_UP_STATES:
        return "marked-for-termination" if interrupted else "fulfilled"
    return "instance-terminated-no-capacity" if interrupted else "instance-terminated-by-user"


_FACETS: Facets[InstanceHistory] = {
    "availability-zone": lambda history: history.now.zone,
    "instance-id": lambda history: history.now.id,
    "launched-availability-zone": lambda history: history.now.zone,
    "spot-instance-request-id": words.spot_request,
    "state": lambda history: "active" if history.now.state in INSTANCE_UP_STATES else "closed",
    "status-code": _code,
    "type": lambda _: "one-time",
}
