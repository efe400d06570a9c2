"""Draws what is reserved and what is planned: blocks that exist, CapacityPlans with windows and calendars."""

from __future__ import annotations

from datetime import timedelta

from benchmarks.vopr.draw import Draw, Json, instant, length, offset
from benchmarks.vopr.pools import sold_count
from benchmarks.vopr.site import DrawnPool, Site
from tidemill.catalog import InstanceType
from tidemill.model import ec2_facts
from tidemill.spec.units import parse_instant

API_VERSION = "tidemill.dev/v1alpha1"
MOST_ON_A_DATE = ec2_facts.MAX_INSTANCES_ON_A_DATE


# --- what exists already ------------------------------------------------------------------------------


def drawn_reservations(site: Site) -> list[Json]:
    draw, rows = site.draw, []
    left = MOST_ON_A_DATE
    for pool in site.pools:
        if pool.blocks and draw.chance(0.65):
            for row in _blocks_of(site, pool):
                if row["count"] <= left:  # all of them might exist at once
                    left -= row["count"]
                    rows.append(row)
        if "odcr" in pool.sources and draw.chance(0.8):
            kind = draw.choice(pool.types)
            rows.append(
                _reservation(
                    site, pool, kind, f"{pool.name}-odcr", {"type": "odcr", "count": draw.randint(1, 4)}
                )
            )
    if draw.chance(0.1) and rows:
        foreign = {key: value for key, value in rows[0].items() if key not in ("id", "pool")}
        rows.append({**foreign, "name": "elsewhere", "owned": False})
    return rows


def _blocks_of(site: Site, pool: DrawnPool) -> list[Json]:
    draw, rows = site.draw, []
    several = draw.randint(12, 40) if site.crowded else draw.of((1, 5), (2, 5), (3, 2), (4, 1))
    begins = draw.choice([0.0, 0.0, 0.0, 3.5, 23.5, 60.0])
    for number in range(several):
        kind = draw.choice(pool.block_types or pool.types)
        days = draw.choice([each for each in (1, 1, 2, 3, 4, 7, 10, 14, 21) if each <= site.days])
        count = draw.randint(1, 6) if site.crowded else sold_count(draw, kind, pool.most_nodes)
        if kind.ultraserver:
            count = draw.choice([9, 18])
        row: Json = {"count": count, "duration": length(days=days)}
        if begins:
            row["from"] = offset(begins)
        if draw.chance(0.06):
            row["delivered"] = draw.randint(0, count)
        rows.append(_reservation(site, pool, kind, f"{pool.name}-{number + 1}", row))
        # The next one overlaps, follows at once, or leaves a gap; or it stands beside this one.
        begins += draw.of(
            (days * 24 - 24, 5), (days * 24, 3), (days * 24 + 24, 1), (0, 2), (days * 24 - 1, 1)
        )
        begins = min(max(0.0, begins), site.hours * 1.2)
    return rows


def _reservation(site: Site, pool: DrawnPool, kind: InstanceType, name: str, more: Json) -> Json:
    draw = site.draw
    row: Json = {"name": name, "instanceType": kind.name, "zone": draw.choice(pool.zones), **more}
    if draw.chance(0.8):
        row["pool"] = pool.name
    wanted = more.get("type", "block")
    pinned = [source for source in pool.document["spec"]["sources"] if source["type"] == wanted]
    if draw.chance(0.12):
        row["id"] = f"cr-{draw.getrandbits(68):017x}"
        if draw.chance(0.7):
            source = draw.choice(pinned)
            source["ids"] = [*source.get("ids", []), row["id"]]
            source.pop("tags", None)
    return row


# --- what is planned ----------------------------------------------------------------------------------


def drawn_plans(site: Site) -> list[Json]:
    draw, documents = site.draw, []
    for pool in site.pools:
        if not (pool.blocks and pool.block_types) or draw.chance(0.3):
            continue
        if draw.chance(0.18):
            documents.append(_plan(pool, pool.name, {"calendar": _calendar(site, pool)}, draw))
            continue
        windows = _windows(site, pool)
        documents.append(_plan(pool, pool.name, {"demand": windows}, draw))
        if draw.chance(0.2):  # another plan for the same pool, at about the same time
            again = [_shifted(draw, window) for window in draw.some(windows)]
            site.windows += [(window["name"], 0.0) for window in again]
            documents.append(_plan(pool, f"{pool.name}-too", {"demand": again}, draw))
    return documents


def _shifted(draw: Draw, window: Json) -> Json:
    """The same again, mostly not for exactly the same time: two plans for one window are an error."""
    hours = timedelta(hours=0 if draw.chance(0.1) else draw.choice([1, 6, 48]))
    moved = {key: instant(parse_instant(window[key]) + hours) for key in ("from", "to")}
    return {**window, **moved, "name": f"{window['name']}-too"}


def make_room(site: Site, plans: list[Json]) -> None:
    """Most pools can use what is planned for them; the others are refused for it."""
    for pool in site.pools:
        planned = sum(
            _most_instances(plan["spec"], pool) for plan in plans if plan["spec"]["pool"] == pool.name
        )
        spec = pool.document["spec"]
        if not planned or site.draw.chance(0.06):
            continue
        owned = spec.get("limits", {}).get("nodes", 0)
        spec["limits"] = {"nodes": max(owned, planned + site.draw.choice([0, 0, 4]))}
        for source in spec["sources"]:
            tags = {"deployment": "mill", **site.tags}
            if not set(source.get("tags", {}).items()) <= set(tags.items()):
                del source["tags"]


def _most_instances(plan: Json, pool: DrawnPool) -> int:
    """All of it at once, at most."""
    if "demand" in plan:
        return sum(int(window["instances"]) for window in plan["demand"])
    smallest = min(kind.gpus for kind in pool.block_types)
    total = 0
    for entry in plan["calendar"]["entries"]:
        (amount,) = (value for key, value in entry.items() if key != "name")
        total += amount.get("instances") or amount.get("mostInstances") or -(-amount["gpus"] // smallest)
    return total


def _plan(pool: DrawnPool, name: str, demand: Json, draw: Draw) -> Json:
    spec: Json = {"pool": pool.name, **demand}
    if "demand" in demand and draw.chance(0.4):
        spec["proposeBefore"] = length(days=draw.choice([0.02, 1, 3, 10, 30]))
    if draw.chance(0.25):
        spec["extend"] = {"policy": draw.choice(["prefer", "never"])}
        if draw.chance(0.3):
            spec["extend"]["minUtilisation"] = draw.choice([0.1, 0.5, 0.9])
    if draw.chance(0.25):
        spec["overlap"] = length(hours=draw.choice([0.5, 1, 6, 24]))
    if draw.chance(0.12):
        spec["budget"] = {
            "perPurchaseUsd": draw.choice([100, 5000, 100000]),
            "monthlyUsd": draw.choice([0, 5000, 400000]),
        }
    return {
        "apiVersion": API_VERSION,
        "kind": "CapacityPlan",
        "metadata": {"name": f"plan-{name}"},
        "spec": spec,
    }


def _windows(site: Site, pool: DrawnPool) -> list[Json]:
    draw, windows = site.draw, []
    begins = draw.choice([-24.0, 0.0, 1.0, 12.0, 30.0, site.hours * 0.2, site.hours * 0.4])
    if draw.chance(0.4):  # as blocks do
        begins = (ec2_facts.nearest_on_grid(site.at(begins)) - site.start) / timedelta(hours=1)
    kind = draw.choice(pool.block_types)
    several = draw.randint(8, 20) if site.crowded else draw.of((1, 5), (2, 4), (3, 3), (5, 1))
    for number in range(several):
        kind = draw.choice(pool.block_types) if draw.chance(0.2) else kind
        hours = draw.choice([3.0, 23.5, 24.0, 36.0, 47.5, 72.0, site.hours * 0.25, site.hours * 0.4])
        count = sold_count(draw, kind, pool.most_nodes)
        name = f"{pool.name}-w{number + 1}"
        window: Json = {
            "name": name,
            "from": instant(site.at(begins)),
            "to": instant(site.at(begins) + timedelta(hours=hours)),
            "instanceType": kind.name,
            "instances": count,
        }
        if draw.chance(0.15):
            window["zones"] = draw.some(site.zones)
        if draw.chance(0.12):
            window["maxFeeUsd"] = max(1, round(_fee(kind, count, hours) * draw.choice([0.5, 0.95, 1.3, 3])))
        site.fees_usd.append(_fee(kind, count, hours))
        site.windows.append((name, max(0.0, begins)))
        windows.append(window)
        begins += draw.of((hours, 4), (hours - 12, 2), (hours + 12, 1), (0, 1), (hours + 96, 1))
    return windows


def _fee(kind: InstanceType, count: int, hours: float) -> float:
    days = max(1, -(-hours // 24))
    return (kind.block_usd_h or 50.0) * count * days * 24


def _calendar(site: Site, pool: DrawnPool) -> Json:
    draw = site.draw
    types = draw.some(pool.block_types)
    per_node = types[0].gpus
    same = len({kind.gpus for kind in types}) == 1
    entries = []
    for number in range(draw.of((1, 4), (2, 4), (3, 2))):
        count = (
            9 * draw.randint(1, 2)
            if types[0].ultraserver
            else draw.randint(1, max(1, min(6, pool.most_nodes)))
        )
        amount = {"instances": count} if same and draw.chance(0.7) else {"gpus": count * per_node}
        entries.append({"name": f"need-{number + 1}", **_entry(site, draw, amount, count)})
        site.fees_usd.append(_fee(types[0], count, 24 * 7))
    calendar: Json = {"instanceTypes": [kind.name for kind in types], "entries": entries}
    if any(kind.on_demand_usd_h is None for kind in types) or draw.chance(0.5):
        calendar["penaltyUsdPerGpuHour"] = draw.choice([0, 1, 4, 12, 60])
    if draw.chance(0.15):
        calendar["zones"] = draw.some(site.zones)
    if draw.chance(0.2):
        calendar["oneZone"] = True
    if "on-demand" in pool.sources and draw.chance(0.5):
        calendar["onDemand"] = "allowed"
    if draw.chance(0.85):  # planning further ahead takes seconds each time
        calendar["horizon"] = length(days=draw.choice([2, 5, 10]))
    if draw.chance(0.3):
        calendar["buyAhead"] = length(days=draw.choice([0.5, 2, 14]))
    calendar["replanEvery"] = length(hours=draw.choice([6, 12, 24, 24, 48]))
    if draw.chance(0.2):
        calendar["warmUp"] = length(minutes=draw.choice([1, 30, 180]))
    return calendar


def _entry(site: Site, draw: Draw, amount: Json, count: int) -> Json:
    kind = draw.of(("constant", 3), ("weekly", 4), ("window", 2), ("learned", 1.5))
    if kind == "learned":
        return {"learned": {"mostInstances": count, "waitingFor": draw.choice(["10m", "1h", "6h"])}}
    if kind == "weekly":
        days = draw.some(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
        times: Json = {
            "from": draw.choice(["00:00", "07:00", "11:30", "22:00"]),
            "to": draw.choice(["19:00", "24:00", "06:00"]),
        }
        return {"weekly": {"days": days, **(times if draw.chance(0.7) else {}), **amount}}
    begins = draw.choice([0.0, 24.0, 100.0])
    window = {
        "from": instant(site.at(begins)),
        "to": instant(site.at(begins + draw.choice([5.0, 48.0, 300.0]))),
    }
    if kind == "window":
        return {"window": {**window, **amount}}
    return {"constant": {**(window if draw.chance(0.3) else {}), **amount}}
