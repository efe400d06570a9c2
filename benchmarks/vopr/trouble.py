"""Draws what goes wrong and what people do by hand: faults, extensions, new images, a market that sells out."""

from __future__ import annotations

from benchmarks.vopr.draw import Json, length, offset
from benchmarks.vopr.pools import IMAGES
from benchmarks.vopr.site import Site
from tidemill.sim.scenario.script import CRASH_STEPS
from tidemill.spec.check.scenario import ENGINE_CALLS
from tidemill.spec.faults import FaultKind


def drawn_trouble(site: Site, reservations: list[Json]) -> Json:
    draw = site.draw
    more: Json = {}
    blocks = [row for row in reservations if row.get("type", "block") == "block"]
    extensions = [_extension(site, row) for row in blocks if draw.chance(0.12)]
    if extensions:
        more["extensions"] = extensions
    if draw.chance(0.08):
        ami = {"alias": draw.choice([*IMAGES, "al2023@v20261201"])}
        row = {
            "at": offset(draw.uniform(1, site.hours)),
            "nodeClass": draw.choice(site.node_classes),
            "ami": ami,
        }
        more["rolls"] = [row]
    if draw.chance(0.15):
        more["deadlineAgent"] = True
    market = _market(site)
    if market:
        more["market"] = market
    calm = draw.chance(0.3)
    if not calm and draw.chance(0.6):
        more["faults"] = [_fault(site, blocks) for _ in range(draw.of((1, 3), (3, 3), (6, 2), (12, 1)))]
    if not calm and draw.chance(0.45):
        kinds = draw.sample([str(kind) for kind in FaultKind], draw.randint(1, 12))
        more["randomFaults"] = {"count": draw.randint(1, 16), "kinds": kinds}
    return more


def _extension(site: Site, block: Json) -> Json:
    draw = site.draw
    row: Json = {
        "at": offset(draw.uniform(0, site.hours * 0.8)),
        "block": block["name"],
        "by": length(days=draw.choice([1, 2, 7, 14])),
    }
    if draw.chance(0.3):
        row |= {"payment": "fails", "settlesAfter": draw.choice(["1m", "2h"])}
    return row


def _market(site: Site) -> Json:
    draw = site.draw
    market: Json = {}
    offers = draw.of(("plenty", 6), ("scarce", 3), ("none", 0.7))
    if offers != "plenty":
        market["offers"] = offers
    names = sorted({kind.name for pool in site.pools for kind in pool.types})
    for field in ("onDemand", "spot"):
        if draw.chance(0.25):
            market[field] = {name: draw.randint(0, 4) for name in draw.some(names, 3)}
    return market


def _fault(site: Site, blocks: list[Json]) -> Json:
    draw = site.draw
    kind = draw.choice(list(FaultKind))
    row: Json = {"at": offset(draw.uniform(0, site.hours)), "fault": str(kind)}
    if "count" in kind.parameters and draw.chance(0.5):
        row["count"] = draw.choice([1, 2, 5, 20])
    if "duration" in kind.parameters and draw.chance(0.8):
        row["duration"] = length(minutes=draw.choice([0.5, 5, 30, 120, 600]))
    if "target" in kind.parameters and draw.chance(0.5):
        names = [pool.name for pool in site.pools] + [block["name"] for block in blocks]
        names += [pool.types[0].name for pool in site.pools]
        row["target"] = draw.choice(names)
    if "call" in kind.parameters:
        row["call"] = draw.choice(["launch", "purchase", "extension"])
    if "step" in kind.parameters:
        step = (
            draw.choice(CRASH_STEPS)
            if draw.chance(0.6)
            else f"{draw.choice(['before', 'after'])}:{draw.choice(ENGINE_CALLS)}"
        )
        if step:
            row["step"] = step
    return row
