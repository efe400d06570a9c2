"""`/tidemill/…`: what only the simulator has: its clock, its faults, its journal. JSON in, JSON out.

GET  /tidemill           account, region, network, clock        GET  /tidemill/journal   what happened
GET  /tidemill/clock     now, speed, when the next thing is due POST /tidemill/advance   {"to": …} or {"by": "10m"}
POST /tidemill/faults    see `fault_kinds`                      POST /tidemill/speed     {"speed": 60}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidemill.model.errors import SpecError, TidemillError
from tidemill.sim.wire import operations
from tidemill.sim.wire.fault_kinds import arm
from tidemill.sim.wire.state import Wire
from tidemill.spec.units import format_instant, parse_instant, parse_length

_LINE = 200  # what is longer is written over several, for people
Reply = tuple[int, dict[str, str], bytes]


def answer(wire: Wire, environ: dict[str, Any]) -> Reply:
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix("/tidemill").strip("/")
    try:
        if method == "GET":
            return _json(200, _read(wire, path))
        if method == "POST":
            return _json(200, _write(wire, path, _given(environ)))
        return _json(405, {"error": f"{method} is not known here"})
    except KeyError:
        return _json(404, {"error": f"there is no {method} /tidemill/{path}"})
    except (TidemillError, ValueError, TypeError) as error:
        return _json(400, {"error": str(error)})


def _read(wire: Wire, path: str) -> Any:
    return {"": _about, "clock": _clock, "journal": _journal}[path](wire)


def _write(wire: Wire, path: str, given: Mapping[str, Any]) -> Any:
    return {"advance": _advance, "speed": _speed, "faults": arm}[path](wire, given)


def _about(wire: Wire) -> Any:
    about = {"account": wire.account, "region": wire.region, "identity": wire.body.identity()}
    return {**about, **wire.network.as_json(), "clock": _clock(wire), "operations": operations.known()}


def _clock(wire: Wire) -> Any:
    with wire.clock.turn() as now:
        due = wire.clock.next_at()
        return {
            "now": format_instant(now),
            "speed": wire.clock.speed,
            "nextAt": None if due is None else format_instant(due),
        }


def _journal(wire: Wire) -> Any:
    with wire.clock.turn():
        return [
            {"at": format_instant(line.at), "kind": line.kind, "about": line.about, "sentence": line.sentence}
            for line in wire.body.journal.lines
        ]


def _advance(wire: Wire, given: Mapping[str, Any]) -> Any:
    if set(given) not in ({"to"}, {"by"}):
        raise SpecError('say {"to": "2026-11-17T11:30:00Z"} or {"by": "10m"}')
    if "to" in given:
        wire.clock.advance(to=parse_instant(str(given["to"])))
    else:
        wire.clock.advance(by=parse_length(str(given["by"])))
    return _clock(wire)


def _speed(wire: Wire, given: Mapping[str, Any]) -> Any:
    if set(given) != {"speed"}:
        raise SpecError('say {"speed": 60}: virtual seconds a second; 0: time stands still')
    wire.clock.set_speed(float(given["speed"]))
    return _clock(wire)


def _given(environ: dict[str, Any]) -> Mapping[str, Any]:
    # A web page can make a browser post plain text here unasked, but not JSON.
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
