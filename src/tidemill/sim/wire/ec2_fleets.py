"""CreateFleet of type instant: a target, and launch options to try in order until it is met.

One call is for one kind of market, and for one block at most: EC2 mixes neither. A fleet on a block has no fallback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.errors import NoCapacity
from tidemill.sim.cloud.launches import spot_usd_h
from tidemill.sim.timeline import seeded_id
from tidemill.sim.wire.ec2_launches import LaunchRequest, launch, launch_request
from tidemill.sim.wire.errors import AwsError, as_aws_error
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.state import Wire

Params = Mapping[str, Any]
_KINDS = {
    "capacity-block": (SourceKind.BLOCK,),
    "spot": (SourceKind.SPOT,),
    "on-demand": (SourceKind.ON_DEMAND, SourceKind.ODCR),
}
_OPTIONS = {"spot": "SpotOptions", "on-demand": "OnDemandOptions"}


@dataclass(frozen=True, slots=True)
class LaunchOption:
    """One override of one template: what is tried as one launch."""

    given: Params  # LaunchTemplateAndOverrides, as it is told back
    request: LaunchRequest
    rank: float


@operation("ec2", "CreateFleet")
def create(call: ApiCall) -> Result:
    wire = call.wire
    if call.get("Type", "maintain") != "instant":
        raise AwsError("UnsupportedOperation", "the simulated AWS knows fleets of type instant only")
    target = call.require("TargetCapacitySpecification")
    market, wanted = _market(target), int(target["TotalTargetCapacity"])
    launch_options = sorted(_launch_options(call, market), key=lambda option: option.rank)
    sources = {option.request.source for option in launch_options}
    if sum(source.kind is SourceKind.BLOCK for source in sources) > 1:
        raise AwsError("InvalidParameterCombination", "one Capacity Block a fleet: several were targeted")
    call.stop_dry_run()
    token = call.get("ClientToken") or wire.new_token("create-fleet")
    options = call.get(_OPTIONS.get(market, "OnDemandOptions"), {})
    least = int(options.get("MinTargetCapacity") or 1)
    instances, errors = _fill(wire, token, launch_options, wanted, least)
    return {
        "FleetId": _fleet_id(wire, token),
        "Instances": [{**item, "Lifecycle": market} for item in instances],
        "Errors": [{**item, "Lifecycle": market} for item in errors],
    }


def _fill(
    wire: Wire, token: str, launch_options: list[LaunchOption], wanted: int, least: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Option by option until there are enough; the errors are returned with the instances."""
    instances: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    got = 0
    for index, option in enumerate(launch_options):
        if got >= wanted:
            break
        try:
            # Each launch has a token of its own under the fleet's; the first has it as it is.
            sub_token = f"{token}/{index}" if index else token
            ids = launch(wire, sub_token, option.request, max(1, least - got), wanted - got)
        except NoCapacity as refused:
            said = as_aws_error(refused)
            assert isinstance(said, AwsError)
            told = {"ErrorCode": said.code, "ErrorMessage": said.message}
            errors.append({"LaunchTemplateAndOverrides": option.given, **told})
            continue
        got += len(ids)
        instances.append(
            {
                "LaunchTemplateAndOverrides": option.given,
                "InstanceIds": list(ids),
                "InstanceType": option.request.instance_type,
            }
        )
    return instances, errors


def _market(target: Params) -> str:
    counts = {"spot": target.get("SpotTargetCapacity"), "on-demand": target.get("OnDemandTargetCapacity")}
    named = [name for name, count in counts.items() if count]
    market = target.get("DefaultTargetCapacityType") or (named[0] if named else "on-demand")
    if len(named) > 1 or (named and named[0] != market):
        raise AwsError("UnsupportedOperation", "the simulated AWS launches one kind of market a fleet")
    if market not in _KINDS:
        raise AwsError("InvalidParameterValue", f"'{market}' is not a DefaultTargetCapacityType")
    return str(market)


def _launch_options(call: ApiCall, market: str) -> Iterator[LaunchOption]:
    for config in call.require("LaunchTemplateConfigs"):
        template = config.get("LaunchTemplateSpecification")
        if not template:
            raise AwsError(
                "MissingParameter", "each of LaunchTemplateConfigs needs a LaunchTemplateSpecification"
            )
        for override in config.get("Overrides") or [{}]:
            yield _launch_option(call, market, template, override)


def _launch_option(call: ApiCall, market: str, template: Params, override: Params) -> LaunchOption:
    params: dict[str, Any] = {
        "LaunchTemplate": template,
        "TagSpecifications": call.get("TagSpecifications", []),
    }
    params |= {name: override[name] for name in ("InstanceType", "ImageId", "Placement") if name in override}
    if override.get("AvailabilityZone"):
        params["Placement"] = {"AvailabilityZone": override["AvailabilityZone"]}
    if market == "spot":
        params["InstanceMarketOptions"] = {"MarketType": "spot"}
    request = launch_request(call.wire, params, in_subnet=override.get("SubnetId") or "")
    if request.source.kind not in _KINDS[market]:
        raise AwsError(
            "InvalidParameterCombination",
            f"DefaultTargetCapacityType {market} does not go with a template for {request.source.kind.value}",
        )
    given = {"LaunchTemplateSpecification": template, "Overrides": override}
    return LaunchOption(given, request, _rank(call, market, request, override))


def _rank(call: ApiCall, market: str, request: LaunchRequest, override: Params) -> float:
    """Lowest price first, unless the caller said in which order."""
    if override.get("Priority") is not None:
        return float(override["Priority"])
    kind = call.wire.cloud.catalog.types.get(request.instance_type)
    if kind is None:
        return float("inf")
    return (spot_usd_h(kind) if market == "spot" else kind.on_demand_usd_h) or 0.0


def _fleet_id(wire: Wire, token: str) -> str:
    drawn = seeded_id("fleet", wire.cloud.seed, token).removeprefix("fleet-")
    return f"fleet-{drawn[:8]}-{drawn[8:12]}-4{drawn[12:15]}-8{drawn[15:17]}0-{drawn[:12]}"
