"""Draws the Platform: budgets from far too small to ample, approval rules, and who decides in the scenario."""

from __future__ import annotations

from benchmarks.vopr.draw import Draw, Json, length, offset
from benchmarks.vopr.site import Site

# The namespaces of the jobs and services.
NAMESPACES = ("training", "serving", "research", "foundation")
PEOPLE = ("finance", "alice", "bob", "mallory")


def drawn_platform(site: Site) -> Json:
    draw = site.draw
    spec: Json = {
        "region": site.region,
        "deployment": "mill",
        "cluster": {"name": "ml"},
        "subnets": {zone: [f"subnet-0{zone[-1]}1"] for zone in site.zones},
    }
    # A stream of its own, so that what is drawn of all else stays the same for a seed.
    if Draw(f"subnets {site.zones} {site.fees_usd} {len(site.pools)}").chance(0.03):
        spec["subnets"] = {}  # people rehearse before they have a network
    if site.tags:
        spec["tags"] = site.tags
    provisioners = {pool.document["spec"].get("provisioner") for pool in site.pools}
    if provisioners - {None} or draw.chance(0.1):
        spec["nodeRole"] = "arn:aws:iam::123456789012:role/ml-node"
    if "karpenter" in provisioners:
        version = draw.of(("1.11.0", 6), ("1.8.2", 2), ("1.7.0", 1), ("1.6.3", 1), ("", 1))
        karpenter: Json = {"version": version} if version else {"autoMode": True}
        if draw.chance(0.5) and version not in ("1.7.0", "1.6.3"):
            karpenter["staticCapacity"] = True
        spec["karpenter"] = karpenter
    if site.fees_usd or draw.chance(0.2):
        spec["budget"] = _budget(draw, site.fees_usd or [10_000.0])
        spec["approval"] = _approval(draw, max(site.fees_usd, default=10_000.0))
    if draw.chance(0.1):
        spec["alerts"] = {"extensionLead": length(hours=draw.choice([2, 24, 100]))}
    if limits := _namespace_limits(Draw(f"namespaces {spec}")):
        spec["namespaceLimits"] = limits
    return {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Platform",
        "metadata": {"name": "mill"},
        "spec": spec,
    }


def _namespace_limits(draw: Draw) -> list[Json]:
    """From a stream of its own: the other choices of a seed stay what they are."""
    if not draw.chance(0.15):
        return []
    return [
        {"namespaces": draw.some(NAMESPACES, 2), "gpus": draw.choice([0, 4, 8, 16, 32, 64, 256])}
        for _ in range(draw.randint(1, 3))
    ]


def _budget(draw: Draw, fees_usd: list[float]) -> Json:
    largest, total = max(fees_usd), sum(fees_usd)
    each = draw.of((0, 1), (0.3, 2), (0.9, 2), (1.0, 2), (1.2, 6), (5, 8))
    month = draw.of((0, 0.5), (0.1, 1), (0.5, 3), (0.9, 2), (1.1, 4), (10, 8))
    return {"perPurchaseUsd": round(largest * each), "monthlyUsd": round(total * month)}


def _approval(draw: Draw, fee_usd: float) -> Json:
    mode = draw.of(("one", 8), ("two", 3), ("auto", 8), ("propose", 1))
    approval: Json = {"mode": mode}
    if draw.chance(0.35):
        approval["approvers"] = draw.some(PEOPLE[:3])
    if mode == "auto":
        approval["autoMaxFeeUsd"] = round(fee_usd * draw.choice([0.5, 1.2, 3, 3]))
        if draw.chance(0.2):
            approval["autoMonthlyUsd"] = round(fee_usd * draw.choice([1, 3, 20]))
    if draw.chance(0.2):
        approval["twoAboveUsd"] = round(fee_usd * draw.choice([0.1, 0.8, 2]))
    if draw.chance(0.3):
        approval["expiresAfter"] = length(hours=draw.choice([1, 6, 72, 240]))
    return approval


def drawn_decisions(site: Site) -> list[Json]:
    """Several for each window, by the right people and others; most say yes."""
    draw, rows = site.draw, []
    for window, begins in site.windows:
        for _ in range(draw.of((0, 1), (2, 4), (4, 4), (8, 2))):
            at = draw.uniform(0, begins) if draw.chance(0.5) and begins else draw.uniform(0, site.hours * 0.9)
            row: Json = {
                "at": offset(draw.choice([at, 0.5, 2.0, 26.0])),
                "window": window,
                "verdict": "approve" if draw.chance(0.93) else "refuse",
                "by": draw.choice(PEOPLE),
            }
            if draw.chance(0.05):
                row["note"] = "wait: is this needed? 'yes' — \U0001f4b8 <b>"
            rows.append(row)
    rows.sort(key=lambda row: str(row["window"]))
    return rows
