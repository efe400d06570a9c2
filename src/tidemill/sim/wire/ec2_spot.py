"""The spot requests behind spot instances: where EC2 itself tells, to whoever reads, that one will be taken back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.nodes import INSTANCE_UP_STATES, EndKind
from tidemill.sim.cloud.instances import InstanceLife
from tidemill.sim.wire import instance_format as words
from tidemill.sim.wire.operations import Asked, Result, operation
from tidemill.sim.wire.paging import Facets, chosen
from tidemill.sim.wire.state import Wire

_NOTICE = timedelta(minutes=2)


@operation("ec2", "DescribeSpotInstanceRequests")
def describe(asked: Asked) -> Result:
    wire = asked.wire
    lives = [wire.body.lives[one.id] for one in wire.body.instances() if one.source.kind is SourceKind.SPOT]
    wanted = asked.get("SpotInstanceRequestIds", [])
    named = [life for life in lives if not wanted or words.spot_request(life) in wanted]
    found = chosen(named, asked.get("Filters", []), _FACETS, lambda life: life.tags)
    asked.stop_if_dry()
    page, token = wire.pages.page(found, lambda life: life.now.id, asked.params, least=5)
    return {"SpotInstanceRequests": [_request(wire, life) for life in page], "NextToken": token}


def is_interrupted(life: InstanceLife) -> bool:
    return life.now.ends_why is not None and life.now.ends_why.kind is EndKind.SPOT_INTERRUPTION


def _request(wire: Wire, life: InstanceLife) -> dict[str, Any]:
    launched = life.now.launched_at
    marked = life.now.ends_at is not None and is_interrupted(life)
    updated = life.now.ends_at - _NOTICE if marked and life.now.ends_at is not None else launched
    return {
        "SpotInstanceRequestId": words.spot_request(life),
        "InstanceId": life.now.id,
        "CreateTime": launched,
        "LaunchedAvailabilityZone": life.now.zone,
        "ProductDescription": "Linux/UNIX",
        "Type": "one-time",
        "State": "active" if life.now.state in INSTANCE_UP_STATES else "closed",
        "Status": {"Code": _code(life), "Message": _code(life).replace("-", " "), "UpdateTime": updated},
        "InstanceInterruptionBehavior": "terminate",
    }


def _code(life: InstanceLife) -> str:
    interrupted = is_interrupted(life)
    if life.now.state in INSTANCE_UP_STATES:
        return "marked-for-termination" if interrupted else "fulfilled"
    return "instance-terminated-no-capacity" if interrupted else "instance-terminated-by-user"


_FACETS: Facets[InstanceLife] = {
    "availability-zone": lambda life: life.now.zone,
    "instance-id": lambda life: life.now.id,
    "launched-availability-zone": lambda life: life.now.zone,
    "spot-instance-request-id": words.spot_request,
    "state": lambda life: "active" if life.now.state in INSTANCE_UP_STATES else "closed",
    "status-code": _code,
    "type": lambda _: "one-time",
}
