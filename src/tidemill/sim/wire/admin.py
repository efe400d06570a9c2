"""`/tidemill/…`: what only the simulator has: its clock, its faults, its journal. JSON in, JSON out.

GET  /tidemill           account, region, network, clock        GET  /tidemill/journal   what happened
GET  /tidemill/clock     now, speed, wall, next thing due        POST /tidemill/advance   {"to": …} or {"by": "10m"}
POST /tidemill/faults    {"fault": NAME, …}                     POST /tidemill/speed     {"speed": 60}
POST /tidemill/blocks    a reservation of a Scenario: somebody else bought it; with "shared", in another account;
                         with "endsIn", off EC2's grid: for clients whose clock nobody can move
GET  /tidemill/kubelets  nodes that booted, and what happened to every pod on them
GET  /tidemill/calls     calls that may have changed something, and the access key of each

Faults are those of `spec.faults`, with the parameters that the table there gives each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from tidemill.model.errors import SpecError, TidemillError
from tidemill.sim.cloud.account_faults import strike_account
from tidemill.sim.cloud.account_file import SHARING_ACCOUNT
from tidemill.sim.wire import operations
from tidemill.sim.wire.faults import Kind, WireFault
from tidemill.sim.wire.state import Wire
from tidemill.spec.faults import ACCOUNT_FAULTS, CALL_FAULTS, CLUSTER_FAULTS, Call, CallFault, FaultKind
from tidemill.spec.problem import suggestion
from tidemill.spec.scenario import OwnedReservation
from tidemill.spec.units import format_instant, parse_instant, parse_length

if TYPE_CHECKING:
    from tidemill.sim.wire.data_plane.plane import DataPlane

_TOLD_WITHIN_S = 5.0  # how long an advance waits for the API server to have been told
_LINE = 200  # what is longer is written over several, for people
Reply = tuple[int, dict[str, str], bytes]
Given = Mapping[str, Any]
_OLD_PARAMETERS = {"times": "count", "for": "duration"}
_STRIKES_AT_ONCE = (
    FaultKind.NODE_DIES,
    FaultKind.SPOT_INTERRUPTION,
    FaultKind.RETIREMENT,
    FaultKind.GPU_FAILS,
)
# How a fault of calls is answered: the kind, and the error where it is always the same.
_CALL_FAULTS: dict[FaultKind | CallFault, tuple[Kind, dict[str, Any]]] = {
    FaultKind.THROTTLE: (
        "error",
        {"code": "RequestLimitExceeded", "message": "Request limit exceeded.", "status": 503},
    ),
    FaultKind.LOST_ANSWER: ("lost-answer", {}),
    FaultKind.LOST_REQUEST: ("lost-request", {}),
    CallFault.UNAVAILABLE: (
        "error",
        {
            "code": "Unavailable",
            "message": "The server is overloaded and can't handle the request.",
            "status": 503,
        },
    ),
    CallFault.INTERNAL_ERROR: ("error", {}),
    CallFault.ERROR: ("error", {}),
    CallFault.ERROR_AFTER: ("error-after", {}),
}


def answer(wire: Wire, environ: dict[str, Any]) -> Reply:
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix("/tidemill").strip("/")
    try:
        if method == "GET":
            read = {"": _about, "clock": _clock, "journal": _journal, "calls": _calls, "kubelets": _kubelets}[
                path
            ]
            return _json(200, read(wire))
        if method == "POST":
            write = {"advance": _advance, "speed": _speed, "faults": arm_fault, "blocks": _buy_elsewhere}[
                path
            ]
            return _json(200, write(wire, _given(environ)))
        return _json(405, {"error": f"{method} is not known here"})
    except KeyError:
        return _json(404, {"error": f"there is no {method} /tidemill/{path}"})
    except (TidemillError, ValueError, TypeError) as error:
        return _json(400, {"error": str(error)})


def _about(wire: Wire) -> Any:
    about = {"account": wire.account, "region": wire.region, "identity": wire.cloud.identity()}
    return {**about, **wire.network.as_json(), "clock": _clock(wire), "operations": operations.known()}


def _clock(wire: Wire) -> Any:
    """With the wall time of the same moment, for those who map one to the other."""
    with wire.clock.turn():
        exactly, wall = wire.clock.exactly()
        return {**_moved(wire), "exactly": format_instant(exactly), "wall": format_instant(wall)}


def _moved(wire: Wire) -> dict[str, Any]:
    """What a person who moved the clock wants to see."""
    with wire.clock.turn() as now:
        due = wire.clock.next_at()
        next_at = None if due is None else format_instant(due)
        return {"now": format_instant(now), "speed": wire.clock.speed, "nextAt": next_at}


def _buy_elsewhere(wire: Wire, given: Given) -> Any:
    """As `tidemill sim buy-elsewhere` does to an account in a file."""
    beside = ("shared", "endsIn")
    owned = OwnedReservation.model_validate({key: value for key, value in given.items() if key not in beside})
    with wire.clock.turn() as now:
        shared_by = SHARING_ACCOUNT if given.get("shared") else ""
        ends_at = now + parse_length(str(given["endsIn"])) if "endsIn" in given else None
        id_ = wire.cloud.add_reservation(owned, owner="", shared_by=shared_by, ends_at=ends_at)
        return {"id": id_, "endsAt": None if ends_at is None else format_instant(ends_at)}


def _journal(wire: Wire) -> Any:
    with wire.clock.turn():
        return [
            {"at": format_instant(line.at), "kind": line.kind, "about": line.about, "sentence": line.sentence}
            for line in wire.cloud.journal.lines
        ]


def _calls(wire: Wire) -> Any:
    with wire.clock.turn():
        return [
            {"at": format_instant(one.at), "wall": one.wall.isoformat(), "key": one.key, "action": one.action}
            for one in wire.calls
        ]


def _kubelets(wire: Wire) -> Any:
    with wire.clock.turn():
        return _data_plane(wire).as_json() | {"clock": _clock(wire)}


def _data_plane(wire: Wire) -> DataPlane:
    if wire.data_plane is None:
        raise SpecError("there are no kubelets: start the simulator with --kubeconfig or --kube-api")
    return wire.data_plane


def _advance(wire: Wire, given: Given) -> Any:
    if set(given) not in ({"to"}, {"by"}):
        raise SpecError('say {"to": "2026-11-17T11:30:00Z"} or {"by": "10m"}')
    if "to" in given:
        wire.clock.advance(to=parse_instant(str(given["to"])))
    else:
        wire.clock.advance(by=parse_length(str(given["by"])))
    if wire.data_plane is not None:  # outside of the turn: nobody else waits
        wire.data_plane.flush(_TOLD_WITHIN_S)
    return _moved(wire)


def _speed(wire: Wire, given: Given) -> Any:
    if set(given) != {"speed"}:
        raise SpecError('say {"speed": 60}: virtual seconds a second; 0: time stands still')
    wire.clock.set_speed(float(given["speed"]))
    return _moved(wire)


# --- faults -------------------------------------------------------------------------------------------


def arm_fault(wire: Wire, given: Given) -> Any:
    """What was armed; and of a fault that strikes at once, which instances it struck."""
    name = str(given.get("fault", ""))
    kind = _fault_kind(name)
    aims_at_calls = kind in CALL_FAULTS
    takes = (*kind.parameters, *(("action", "count", "duration") if aims_at_calls else ()))
    written = {_OLD_PARAMETERS.get(key, key): value for key, value in given.items() if key != "fault"}
    strange = sorted(set(written) - set(takes))
    if strange:
        known = ", ".join(dict.fromkeys(takes)) or "nothing"
        raise SpecError(f"'{name}' takes {known}, not {', '.join(strange)}")
    if name == "time-out-after-commit":  # the old name of a lost answer was always the account's
        written.setdefault("call", "purchase")
    with wire.clock.turn():
        if isinstance(kind, CallFault) or (aims_at_calls and "call" not in written):
            _arm_call_fault(wire, kind, written)
            return {"fault": str(kind)}
        struck = _arm_account_fault(wire, kind, written)
    at_once = {"struck": ", ".join(struck) or None} if kind in _STRIKES_AT_ONCE else {}
    return {"fault": str(kind), **at_once}


def _fault_kind(name: str) -> FaultKind | CallFault:
    kinds: tuple[FaultKind | CallFault, ...] = (*ACCOUNT_FAULTS, *CLUSTER_FAULTS, *CallFault)
    for kind in kinds:
        if name == kind or name in kind.old_names:
            return kind
    raise SpecError(f"there is no fault '{name}'; {suggestion(name, [*map(str, kinds)], what='known')}")


def _arm_call_fault(wire: Wire, kind: FaultKind | CallFault, given: Given) -> None:
    """At one API action, or at whatever is called first: once, `count` times, or for a while."""
    if kind is CallFault.CLEAR:
        wire.faults.clear()
        return
    how, usual = _CALL_FAULTS[kind]
    until = wire.clock.now() + _duration(given) if "duration" in given else None
    left = int(given["count"]) if "count" in given else None if until else 1
    error = {name: given[name] for name in ("code", "message", "status") if name in given}
    wire.faults.arm(WireFault(how, str(given.get("action", "")), left, until, **{**usual, **error}))


def _arm_account_fault(wire: Wire, kind: FaultKind, given: Given) -> tuple[str, ...]:
    count, target = int(given.get("count", 1)), str(given.get("target", ""))
    duration = timedelta(0)
    if "duration" in kind.parameters:
        usual = {FaultKind.RETIREMENT: timedelta(hours=24), FaultKind.EVENT_LATE: timedelta(minutes=10)}
        duration = usual[kind] if kind in usual and "duration" not in given else _duration(given)
    if kind in CLUSTER_FAULTS:
        return _data_plane(wire).arm(kind, count, target, duration)
    # On the wire these faults strike the events on their way to queues, not the wakes of an engine in process.
    events = wire.bus.transport if wire.bus is not None else None
    match kind:
        case FaultKind.EVENT_LOST if events is not None:
            events.lose(count)
        case FaultKind.EVENT_DOUBLED if events is not None:
            events.double(count)
        case FaultKind.EVENT_LATE if events is not None:
            events.delay(count, duration)
        case _:
            return strike_account(wire.cloud, kind, count, duration, target, _call(given))
    return ()


def _duration(given: Given) -> timedelta:
    if "duration" not in given:
        raise SpecError('say for how long: "duration": "10m"')
    return parse_length(str(given["duration"]))


def _call(given: Given) -> Call:
    call = given.get("call", "purchase")
    if call not in ("launch", "purchase", "extension"):
        raise SpecError(f"call is launch, purchase or extension, not '{call}'")
    return cast(Call, call)


# --- JSON in, JSON out --------------------------------------------------------------------------------


def _given(environ: dict[str, Any]) -> Given:
    # A web page can make a browser post plain text here, but not JSON.
    if "json" not in environ.get("CONTENT_TYPE", ""):
        raise SpecError("send JSON, and say so: Content-Type: application/json")
    given = json.loads(environ["wsgi.input"].read() or b"{}")
    if not isinstance(given, dict):
        raise SpecError("send a JSON object")
    return given


def _json(status: int, said: Any) -> Reply:
    written = json.dumps(said)
    if len(written) > _LINE:
        written = json.dumps(said, indent=1)
    return status, {"Content-Type": "application/json"}, f"{written}\n".encode()
