"""Hand-overs before they happen: what a method lacks, which service would be short, which pin must move."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import assert_never

from tidemill.model.warning_reasons import (
    MethodUnavailable,
    MissingRequirement,
    PinMustMove,
    RequirementKind,
    ServiceShort,
    ShortKind,
)
from tidemill.spec import names
from tidemill.spec.units import format_duration, format_instant
from tidemill.wording.templates import Sentence, fill

_PAIRED = f"annotate it {names.HANDOVER}: paired and give it a second set"
_MINUTE = timedelta(minutes=1)

# Each says what is missing and what to change.
REQUIREMENTS: dict[RequirementKind, Sentence[MissingRequirement]] = {
    RequirementKind.ROLLOUT_OF_STATEFULSET: f"a StatefulSet has no surge: {_PAIRED}",
    RequirementKind.SCALE_OF_STATEFULSET: (
        f"a StatefulSet gives back its newest replicas and not those that should leave: {_PAIRED}"
    ),
    RequirementKind.MAX_SURGE: "maxSurge is 0: set it to 1 or more",
    RequirementKind.MAX_UNAVAILABLE: "maxUnavailable comes to {count}: set it to 0",
    RequirementKind.MAY_SCALE: f'nobody says that its replicas may be changed: annotate it {names.MAY_SCALE}: "true"',
    RequirementKind.PAIR_NAMED: f"it names no second set: annotate it {names.HANDOVER_PAIR}: its kind and name",
    RequirementKind.PAIR_DEPLOYED: "there is no {name}: deploy it with 0 replicas, for another pool",
    RequirementKind.PAIR_ON_OTHER_NODES: "{name} selects the same nodes: give it a pool of its own",
}
# By the means that the planner and the forecast name.
REMEDIES = {
    "a-day-more-of-b": "a block that starts a day earlier",
    "a-days-extension-of-a": "an extension of {block} by a day",
    "a-start-now-block": "a start-now block",
    "an-on-demand-bridge": "a bridge on demand",
}


def inherited_pin_sentence(ids: tuple[str, ...], inherited_by: tuple[str, ...]) -> str:
    """A pool's pin, and the blocks bought for the pool that it moves on to."""
    return f"it is pinned to {', '.join(ids)}; the pin moves on to {', '.join(inherited_by)}, bought for it"


def requirement_sentence(missing: MissingRequirement) -> str:
    return fill(REQUIREMENTS[missing.kind], missing)


def handover_sentence(reason: MethodUnavailable | ServiceShort | PinMustMove) -> str:
    match reason:
        case MethodUnavailable():
            missing = "; ".join(requirement_sentence(one) for one in reason.missing)
            return (
                f"it asks for {reason.method}, and {missing}. Until then its replicas are evicted within their budget,"
                " and nothing is promised"
            )
        case ServiceShort():
            return f"{_short(reason)}. {_remedies(reason)}"
        case PinMustMove():
            return _pin(reason)


def _short(reason: ServiceShort) -> str:
    since, empty_by = (
        format_instant(reason.since),
        f"{reason.block} must be empty by {format_instant(reason.deadline)}",
    )
    if reason.lasts is None:
        return (
            f"it will have fewer than {reason.minimum} ready from {since} on: {empty_by}, and nothing that lasts takes"
            " over"
        )
    lasts = format_duration(ceil(reason.lasts / _MINUTE) * _MINUTE)
    short = f"it will have fewer than {reason.minimum} ready for {lasts} from {since}"
    match reason.kind:
        case ShortKind.MINIMUM_IS_ALL:
            return (
                f"{short}: its minimum is all it has, so each of its {reason.leaving} replicas is missed"
                " while it moves; ask for one less, or hand over by rollout or scale"
            )
        case ShortKind.BRIDGE_IN_WAVES:
            return (
                f"{short}: {empty_by}; nodes by the hour are launched for it, but {reason.method} asks for them wave"
                " after wave"
            )
        case ShortKind.SUCCESSOR_LATE | ShortKind.NO_SUCCESSOR:
            ready = (
                format_instant(reason.ready_from.replace(microsecond=0))
                if reason.ready_from is not None
                else "later"
            )
            return f"{short}: {empty_by}, and {reason.successor or 'what follows'} takes pods from {ready}"
    assert_never(reason.kind)


def _remedies(reason: ServiceShort) -> str:
    """In a few words: `tidemill handover` has all of them."""
    priced = [
        f"{REMEDIES[means].format(block=reason.block)} (about ${usd:,.0f})" for means, usd in reason.remedies
    ]
    return f"What would help: {', '.join(priced)}" if priced else "Nothing that is known of would help"


def _pin(reason: PinMustMove) -> str:
    unused = f"{reason.block} is this pool's, was not bought for it, and stays unused until the pin names it"
    ids = f"write ids: [{', '.join(reason.ids)}]"
    if not reason.last:
        return f"no reservation it is pinned to is left; {unused}: {ids}"
    by = format_instant(reason.ends) if reason.ends is not None else "its end"
    return f"it is pinned to {reason.last}, which must be empty by {by}; {unused} too: {ids}"
