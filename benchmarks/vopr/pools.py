"""Draws ComputePools and NodeClasses: every provisioner, source list, limit and rule a pool can have."""

from __future__ import annotations

from benchmarks.vopr.draw import Draw, Json, length
from benchmarks.vopr.site import DrawnPool, Site
from tidemill.catalog import InstanceType, load
from tidemill.model import ec2_facts
from tidemill.spec.names import NEURON

IMAGES = ("al2023@v20261101", "al2023@v20260714", "bottlerocket@v1.52.0")
BLOCK_TYPES = (
    ("p5.48xlarge", 28), ("p4d.24xlarge", 14), ("p5en.48xlarge", 6), ("p5.4xlarge", 10), ("p6-b200.48xlarge", 6),
    ("p6-b300.48xlarge", 3), ("p4de.24xlarge", 3), ("p5e.48xlarge", 3), ("p6e-gb200.36xlarge", 9),
    ("trn1.32xlarge", 6), ("trn2.48xlarge", 6), ("trn2.3xlarge", 4),
)  # fmt: skip
HOURLY_FAMILIES = (("g6", 6), ("g5", 3), ("g6e", 3), ("trn1", 1))
SOURCE_LISTS = (
    (("block",), 40), (("block", "on-demand"), 14), (("block", "odcr", "on-demand"), 6), (("block", "odcr"), 4),
    (("block", "spot", "on-demand"), 4), (("on-demand", "block"), 2), (("block", "block"), 2), (("odcr",), 3),
    (("odcr", "on-demand"), 3), (("spot", "on-demand"), 10), (("on-demand",), 9), (("spot",), 3),
)  # fmt: skip
PROVISIONERS = (("native", 45), ("asg", 20), ("managed", 18), ("karpenter", 17))
TAINTS = ("nvidia.com/gpu", "aws.amazon.com/neuron", "team", "dedicated")


def drawn_node_classes(site: Site) -> list[Json]:
    draw, documents = site.draw, []
    for name in ["gpu", "other"][: draw.of((1, 4), (2, 1))]:
        spec: Json = {"amiSelectorTerms": [{"alias": draw.choice(IMAGES)}]}
        if draw.chance(0.2):
            spec["instanceStorePolicy"] = "RAID0"
        if draw.chance(0.2):
            spec["efa"] = True
        if draw.chance(0.08):
            spec["maxPods"] = draw.choice([4, 8, 20, 110])
        site.node_classes.append(name)
        documents.append(_document("NodeClass", name, spec))
    return documents


def drawn_pools(site: Site) -> list[Json]:
    count = site.draw.of((1, 40), (2, 35), (3, 14), (4, 5), (5, 3), (6, 3))
    names = ["train", "serve", "small", "batch", "lab", "eval"][:count]
    for name in names:
        site.pools.append(_drawn_pool(site, name))
    return [pool.document for pool in site.pools]


def _drawn_pool(site: Site, name: str) -> DrawnPool:
    draw = site.draw
    sources = list(draw.of(*SOURCE_LISTS))
    types = _types(draw, prepaid="block" in sources or draw.chance(0.3))
    zones = draw.some(site.zones) if draw.chance(0.15) else list(site.zones)
    labels = {"workload-type": name}
    if site.pools and draw.chance(0.12):
        labels = dict(site.pools[-1].labels)  # two pools for the same pods
    spec: Json = {"nodeClassName": draw.choice(site.node_classes)}
    provisioner = draw.of(*PROVISIONERS)
    if provisioner != "native":
        spec["provisioner"] = provisioner
    spec["sources"] = [_source(site, kind, sources) for kind in sources]
    spec["requirements"] = _requirements(draw, types)
    if zones != site.zones:
        spec["requirements"]["zones"] = zones
    spec["labels"] = labels
    most = draw.of((1, 1), (2, 3), (4, 6), (8, 6), (16, 2), (64, 0.7)) if not site.crowded else 96
    limits = _limits(draw, types, most)
    if limits is not None:
        spec["limits"] = limits
    tolerate = _taints(draw, spec, types)
    _rules(site, spec, sources)
    pool = DrawnPool(
        name, types, labels, zones, tolerate, _document("ComputePool", name, spec), sources, most
    )
    pool.namespaces = spec.get("allowedNamespaces", [])
    return pool


def _types(draw: Draw, *, prepaid: bool) -> list[InstanceType]:
    types = load().types
    if prepaid:
        first = types[draw.of(*BLOCK_TYPES)]
        second = types[draw.of(*BLOCK_TYPES)]
        both = draw.chance(0.12) and second.name != first.name and _same_accelerator(first, second)
        return [first, second] if both else [first]
    family = draw.of(*HOURLY_FAMILIES)
    members = [kind for kind in types.values() if kind.family == family]
    return members if draw.chance(0.5) else draw.some(members, 3)


def _same_accelerator(first: InstanceType, second: InstanceType) -> bool:
    return (
        first.accelerator is not None
        and second.accelerator is not None
        and first.accelerator.resource == second.accelerator.resource
    )


def _requirements(draw: Draw, types: list[InstanceType]) -> Json:
    families = sorted({kind.family for kind in types})
    members = [kind for kind in load().types.values() if kind.family in families]
    if len(members) == len(types) and draw.chance(0.6):
        return {"instanceFamilies": families}
    requirements: Json = {"instanceTypes": [kind.name for kind in types]}
    if draw.chance(0.08):
        requirements["arch"] = types[0].arch
    if draw.chance(0.06):
        requirements["minGeneration"] = min(kind.generation for kind in types)
    if draw.chance(0.04):
        requirements["hypervisor"] = "nitro"
    return requirements


def _source(site: Site, kind: str, sources: list[str]) -> Json:
    draw, source = site.draw, {"type": kind}
    made: Json = dict(source)
    reserved = {"block", "odcr"} & set(sources)
    if kind in ("block", "odcr"):
        if draw.chance(0.12):
            made["tags"] = draw.of(
                ({"cost-centre": "ml"}, 2), ({"deployment": "mill"}, 2), ({"team": "x"}, 1)
            )
    elif reserved or draw.chance(0.15):
        made["maxHourlyUsd"] = draw.choice([5, 30, 60, 120, 400, 2000])
        made["maxMonthlyUsd"] = draw.choice([50, 500, 4000, 20000, 200000])
    if draw.chance(0.1):
        made["zones"] = draw.some(site.zones)
    return made


def _limits(draw: Draw, types: list[InstanceType], most: int) -> Json | None:
    kind = draw.of(
        ("nodes", 60), ("gpus", 18), ("cpu", 6), ("memory", 4), ("two", 6), ("none", 3), ("zero", 1)
    )
    largest = max(types, key=lambda each: each.gpus)
    limits: dict[str, Json] = {
        "nodes": {"nodes": most},
        "gpus": {"gpus": most * largest.gpus},
        "cpu": {"cpu": most * largest.vcpus + draw.choice([0, 0, 7])},
        "memory": {"memory": f"{most * largest.memory_mib // 1024}Gi"},
        "two": {"nodes": most, "gpus": max(1, most * largest.gpus // 2)},
        "zero": {"nodes": 0},
        "none": {},
    }
    return limits[kind] or None


def _taints(draw: Draw, spec: Json, types: list[InstanceType]) -> list[str]:
    """The taint keys that its pods must tolerate."""
    neuron = any(kind.accelerator and kind.accelerator.resource == NEURON for kind in types)
    keys = [TAINTS[1] if neuron else TAINTS[0]] if draw.chance(0.7) else []
    keys += [draw.choice(TAINTS[2:])] if draw.chance(0.15) else []
    if keys:
        effects = {key: draw.of(("NoSchedule", 8), ("NoExecute", 1), ("PreferNoSchedule", 1)) for key in keys}
        spec["taints"] = [
            {"key": key, "value": "true"} | ({} if effect == "NoSchedule" else {"effect": effect})
            for key, effect in effects.items()
        ]
    return [key for key in keys if key != TAINTS[0]]


def _rules(site: Site, spec: Json, sources: list[str]) -> None:
    draw = site.draw
    consolidates = False
    if draw.chance(0.45):
        disruption: Json = {
            "consolidationPolicy": draw.choice(["WhenEmpty", "WhenEmptyOrUnderutilized", "Never"]),
            "consolidateAfter": draw.choice(["0s", "1m", "5m", "30m", "2h"]),
        }
        if draw.chance(0.12) and "block" in sources:
            consolidates = disruption["consolidateBlocks"] = True
        if draw.chance(0.3):
            disruption["budgets"] = [_budget(draw) for _ in range(draw.randint(1, 2))]
        spec["disruption"] = disruption
    if "block" in sources and draw.chance(0.25):
        spec["warm"] = draw.choice([False, 1, 2] if consolidates else [True, False, 1, 2])
    if draw.chance(0.2):
        spec["drain"] = {
            "lead": length(minutes=draw.choice([1, 10, 45, 120, 600])),
            "checkpoint": draw.chance(0.7),
        }
    if draw.chance(0.2):
        spec["weight"] = draw.randint(0, 100)
    if draw.chance(0.15):
        spec["defaultDuration"] = length(hours=draw.choice([0.5, 2, 12, 72]))
    if draw.chance(0.12):
        spec["maxExpectedDuration"] = length(hours=draw.choice([1, 24, 72, 240]))
    if draw.chance(0.06):
        spec["nodeCheck"] = "required"
    if spec.get("provisioner") != "karpenter" and draw.chance(0.12):
        spec["admittedPodsOnly"] = True
    if draw.chance(0.1):
        spec["allowedNamespaces"] = draw.some(["training", "serving", "research", "foundation"])


def _budget(draw: Draw) -> Json:
    budget: Json = {"nodes": draw.choice(["0", "1", "10%", "50%", "100%"])}
    if draw.chance(0.5):
        budget["schedule"] = draw.choice(["0 8 * * 1-5", "*/30 * * * *", "0 0 29 2 *", "0 0 1 * *"])
        budget["duration"] = length(hours=draw.choice([0.5, 10, 24]))
    if draw.chance(0.3):
        budget["reasons"] = draw.some(["Empty", "Underutilized", "Drifted"])
    return budget


def _document(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "tidemill.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def sold_count(draw: Draw, kind: InstanceType, most: int) -> int:
    """A number of instances that EC2 sells of this type at once, near what the pool may have."""
    if kind.ultraserver:
        return draw.choice([9, 9, 18, 18, 36])
    count = draw.of((most, 4), (max(1, most // 2), 4), (1, 3), (2, 3), (most + 1, 1), (64, 0.5))
    return min(count, ec2_facts.MAX_INSTANCES_PER_BLOCK)
