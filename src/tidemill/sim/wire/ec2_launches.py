"""RunInstances: EC2's checks, then the body's admission. A ClientToken makes a repetition give the same instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.model.errors import OutcomeUnknown, TidemillError
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.wire.instance_format import as_reservation
from tidemill.sim.wire.launch_request import LaunchRequest, launch_request
from tidemill.sim.wire.operations import Asked, Result, operation
from tidemill.sim.wire.refusals import AwsError
from tidemill.sim.wire.state import Wire
from tidemill.spec import names


@operation("ec2", "RunInstances")
def run(asked: Asked) -> Result:
    wire = asked.wire
    least, most = asked.need("MinCount"), asked.need("MaxCount")
    if not 1 <= least <= most:
        raise AwsError("InvalidParameterValue", f"MinCount {least} and MaxCount {most} do not go together")
    request = launch_request(wire, asked.params)
    asked.stop_if_dry()
    token = asked.get("ClientToken") or wire.new_token("run-instances")
    ids = launch(wire, token, request, least, most)
    return as_reservation(wire, [wire.body.instance_histories[id_] for id_ in ids])


def launch(wire: Wire, token: str, request: LaunchRequest, least: int, most: int) -> tuple[str, ...]:
    """Admission is the body's. What was asked is written down first: an answer that is lost leaves instances behind."""
    known = wire.launches.get(token)
    if known is not None and _differs(known.asked, request.record.asked):
        raise AwsError(
            "IdempotentParameterMismatch", "The client token was used before, with other parameters"
        )
    tag = dict(request.tags)
    intent = LaunchIntent(
        id=token,
        pool=tag.get(names.TAG_POOL, ""),
        source=request.source,
        instance_type=request.instance_type,
        zone=request.zone,
        count=most,
        provisioner=tag.get(names.TAG_PROVISIONER, ""),
        written_at=wire.clock.now(),
    )
    wire.launches[token] = request.record
    try:
        return wire.body.launch(intent, request.tags, least)
    except OutcomeUnknown:
        raise
    except TidemillError:
        if known is None:
            del wire.launches[token]
        raise


def _differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return {name: str(value) for name, value in one.items()} != {
        name: str(value) for name, value in other.items()
    }
