"""The faults a person can arm over the admin endpoint: those of the wire, and those of the account behind it.

Each is `{"fault": NAME, …}`; `times` and `for` say how often or how long, `action` aims at a call, `target` at a pool,
a block, a type, a zone or a kind of source, as in a scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

from tidemill.model.errors import SpecError
from tidemill.sim.cloud.faults import Call
from tidemill.sim.wakes import Wakes
from tidemill.sim.wire.faults import Kind, WireFault
from tidemill.sim.wire.state import Wire
from tidemill.spec.problem import suggestion
from tidemill.spec.units import parse_length

Given = Mapping[str, Any]

_THROTTLED = {"code": "RequestLimitExceeded", "message": "Request limit exceeded.", "status": 503}
_UNAVAILABLE = {
    "code": "Unavailable",
    "message": "The server is overloaded and can't handle the request.",
    "status": 503,
}


def arm(wire: Wire, given: Given) -> Any:
    """What was armed, or what came of it where it strikes at once."""
    name = str(given.get("fault", ""))
    fault = _FAULTS.get(name)
    if fault is None:
        raise SpecError(f"there is no fault '{name}'; {suggestion(name, list(_FAULTS), what='known')}")
    allowed, strike = fault
    strange = set(given) - {"fault"} - set(allowed.split())
    if strange:
        raise SpecError(f"'{name}' takes {allowed or 'nothing'}, not {', '.join(sorted(strange))}")
    with wire.clock.turn():
        struck = strike(wire, given)
    return {"fault": name, "struck": struck} if name in _AT_ONCE else {"fault": name}


def _on_the_wire(kind: Kind, **usual: Any) -> Callable[[Wire, Given], None]:
    def strike(wire: Wire, given: Given) -> None:
        until = wire.clock.now() + _length(given) if "for" in given else None
        left = int(given["times"]) if "times" in given else None if until else 1
        said = {name: given[name] for name in ("code", "message", "status") if name in given}
        wire.faults.arm(WireFault(kind, str(given.get("action", "")), left, until, **{**usual, **said}))

    return strike


def _clear(wire: Wire, given: Given) -> None:
    wire.faults.clear()


def _no_capacity(wire: Wire, given: Given) -> None:
    wire.body.no_capacity_for(_length(given), _target(given))


def _launches_fail(wire: Wire, given: Given) -> None:
    wire.body.fail_next_launches(_times(given), "retryable", _target(given))


def _payment_fails(wire: Wire, given: Given) -> None:
    wire.body.fail_next_payment(_times(given))


def _short_delivery(wire: Wire, given: Given) -> None:
    wire.body.short_delivery(int(given.get("count", 1)), _target(given))


def _shown_late(wire: Wire, given: Given) -> None:
    wire.body.show_purchases_late(_length(given))


def _time_out(wire: Wire, given: Given) -> None:
    wire.body.timeout_after_commit(_times(given), _call(given))


def _instance_dies(wire: Wire, given: Given) -> str | None:
    return wire.body.kill_instance(_target(given))


def _spot_interrupted(wire: Wire, given: Given) -> str | None:
    return wire.body.interrupt_spot(_target(given))


def _retired(wire: Wire, given: Given) -> str | None:
    return wire.body.retire(_target(given), _length(given) if "for" in given else timedelta(hours=24))


def _events_lost(wire: Wire, given: Given) -> None:
    _road(wire).lose(_times(given))


def _events_doubled(wire: Wire, given: Given) -> None:
    _road(wire).double(_times(given))


def _events_late(wire: Wire, given: Given) -> None:
    _road(wire).delay(_times(given), _length(given) if "for" in given else timedelta(minutes=10))


_FAULTS: dict[str, tuple[str, Callable[[Wire, Given], Any]]] = {
    "throttle": ("action times for", _on_the_wire("error", **_THROTTLED)),
    "unavailable": ("action times for", _on_the_wire("error", **_UNAVAILABLE)),
    "internal-error": ("action times for", _on_the_wire("error")),
    "error": ("action times for code message status", _on_the_wire("error")),
    "error-after": ("action times for code message status", _on_the_wire("error-after")),
    "lost-request": ("action times for", _on_the_wire("lost-request")),
    "lost-answer": ("action times for", _on_the_wire("lost-answer")),
    "clear": ("", _clear),
    "time-out-after-commit": ("call times", _time_out),
    "no-capacity": ("for target", _no_capacity),
    "launches-fail": ("times target", _launches_fail),
    "payment-fails": ("times", _payment_fails),
    "short-delivery": ("count target", _short_delivery),
    "shown-late": ("for", _shown_late),
    "instance-dies": ("target", _instance_dies),
    "spot-interrupted": ("target", _spot_interrupted),
    "retired": ("target for", _retired),
    "events-lost": ("times", _events_lost),
    "events-doubled": ("times", _events_doubled),
    "events-late": ("times for", _events_late),
}
NAMES = tuple(_FAULTS)
_AT_ONCE = ("instance-dies", "spot-interrupted", "retired")  # the instance they struck; none: there was none


def _road(wire: Wire) -> Wakes:
    """What carries events to queues; what wakes an engine in process is another matter."""
    assert wire.bus is not None
    return wire.bus.road


def _times(given: Given) -> int:
    return int(given.get("times", 1))


def _target(given: Given) -> str:
    return str(given.get("target", ""))


def _length(given: Given) -> timedelta:
    if "for" not in given:
        raise SpecError('say for how long: "for": "10m"')
    return parse_length(str(given["for"]))


def _call(given: Given) -> Call:
    call = given.get("call", "purchase")
    if call not in ("launch", "purchase", "extension"):
        raise SpecError(f"call is launch, purchase or extension, not '{call}'")
    return cast(Call, call)
