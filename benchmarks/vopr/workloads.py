"""Draws what runs: services, jobs and gangs, most of which fit their pool and some of which never will."""

from __future__ import annotations

from benchmarks.vopr.draw import Draw, Json, length, offset
from benchmarks.vopr.site import DrawnPool, Site
from tidemill.spec.names import NEURON

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
TEAMS = ("", "", "research", "foundation")
JOBS_IN_A_MONTH = 36  # of one stream; more of them make a document slow, and show little more


def drawn_jobs(site: Site) -> list[Json]:
    draw = site.draw
    return [
        _job(site, pool, f"{pool.name}-j{number + 1}")
        for pool in site.pools
        for number in range(draw.of((0, 1.5), (1, 5), (2, 4), (3, 1)))
    ]


def drawn_services(site: Site) -> list[Json]:
    draw = site.draw
    return [
        _service(site, pool, f"{pool.name}-s{number + 1}")
        for pool in site.pools
        for number in range(draw.of((0, 5), (1, 5), (2, 1)))
    ]


# --- what a pod asks for ------------------------------------------------------------------------------


def _pod(site: Site, pool: DrawnPool, *, whole: bool) -> Json:
    draw = site.draw
    kind = draw.choice(pool.types)
    sizes = [kind.gpus] if whole else [each for each in (1, 2, 4, 8, 16) if each <= kind.gpus] or [1]
    gpus = draw.choice(sizes) if draw.chance(0.97) else kind.gpus + 1
    share = min(1.0, gpus / max(1, kind.gpus)) * draw.choice([0.2, 0.5, 0.8, 0.85])
    neuron = kind.accelerator is not None and kind.accelerator.resource == NEURON
    row: Json = {
        "neuron" if neuron else "gpus": gpus,
        "cpu": max(1, int(kind.vcpus * share)),
        "memory": f"{max(1, int(kind.memory_mib / 1024 * share * 0.9))}Gi",
    }
    if draw.chance(0.05):
        del row["neuron" if neuron else "gpus"]
    if kind.efa and whole and draw.chance(0.3):
        row["efa"] = kind.efa
    if draw.chance(0.92):
        row["nodeSelector"] = dict(pool.labels)
    if pool.tolerate and draw.chance(0.95):
        row["tolerate"] = ["nvidia.com/gpu", *pool.tolerate]
    if draw.chance(0.5):
        row["grace"] = length(seconds=draw.choice([1, 30, 120, 600, 1800, 3600]))
    if draw.chance(0.2):
        row["priority"] = draw.choice([1, 10, 100])
    if draw.chance(0.35) and {"spot", "on-demand"} & set(pool.sources) and pool.blocks:
        row["overflow"] = True
    if draw.chance(0.1):
        row["doNotDisrupt"] = draw.choice([True, "1h"])
    return row


def _placement(site: Site, row: Json, name: str) -> None:
    """Rules between pods, in Kubernetes' own fields."""
    draw = site.draw
    row["labels"] = {"app": name}
    selector = {"labelSelector": {"matchLabels": {"app": name}}}
    rule = draw.of(("spread", 4), ("apart", 3), ("near", 1), ("ports", 1), ("zone", 2))
    key = draw.choice([ZONE, HOST])
    if rule == "spread":
        when = draw.choice(["DoNotSchedule", "ScheduleAnyway"])
        row["topologySpreadConstraints"] = [
            {"maxSkew": draw.randint(1, 2), "topologyKey": key, "whenUnsatisfiable": when, **selector}
        ]
    elif rule in ("apart", "near"):
        field = "podAntiAffinity" if rule == "apart" else "podAffinity"
        term = {"topologyKey": key, **selector}
        row["affinity"] = {
            field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            if draw.chance(0.6)
            else {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": term}]
            }
        }
    elif rule == "ports":
        row["hostPorts"] = [{"hostPort": 8080}]
    else:
        zones = draw.some(site.zones)
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}]
        row["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }


# --- jobs ---------------------------------------------------------------------------------------------


def _job(site: Site, pool: DrawnPool, name: str) -> Json:
    draw = site.draw
    gang = draw.chance(0.3)
    row: Json = {"name": name, "arrivals": _arrivals(site), "duration": _duration(draw)}
    if gang:
        largest = max(2, min(pool.most_nodes, 36 if site.crowded else 9))
        row["nodes"] = draw.of(
            (2, 4), (min(3, largest), 2), (largest, 2), (max(2, largest // 2), 2), (largest + 1, 0.5)
        )
    row |= _pod(site, pool, whole=gang or draw.chance(0.4))
    if draw.chance(0.5):
        row["checkpointEvery"] = length(minutes=draw.choice([1, 10, 30, 120, 600]))
        row["checkpointTime"] = length(minutes=draw.choice([0.1, 1, 5, 20]))
        if draw.chance(0.1):
            row["checkpointOn"] = "instance-store"
        if draw.chance(0.15):
            row["acknowledges"] = False
    if draw.chance(0.15):
        row["load"] = length(minutes=draw.choice([1, 10, 40]))
    word = draw.of(("right", 6), ("wrong", 2), ("nothing", 2))
    if word == "wrong":
        row["expected"] = length(hours=draw.scaled(0.05, 60))
    elif word == "nothing":
        row["saysNothing"] = True
    if draw.chance(0.2):
        row["deadline"] = length(hours=draw.scaled(1, 100))
    if draw.chance(0.1):
        row["backoffLimit"] = draw.choice([0, 1, 3])
    team = draw.choice(pool.namespaces) if pool.namespaces and draw.chance(0.8) else draw.choice(TEAMS)
    if team and team != "training":
        row["team"] = team
    if draw.chance(0.15):
        _placement(site, row, name)
    return row


def _arrivals(site: Site) -> Json:
    draw = site.draw
    most = JOBS_IN_A_MONTH * (6 if site.crowded else 1)
    kind = draw.of(("every", 4), ("perHour", 4), ("at", 2), ("burst", 1))
    if kind == "at":
        return {
            "at": [
                offset(hours)
                for hours in sorted(draw.uniform(0, site.hours) for _ in range(draw.randint(1, 8)))
            ]
        }
    if kind == "burst":
        begins = draw.uniform(0, site.hours * 0.8)
        return {
            "every": draw.choice(["1s", "1m"]),
            "from": offset(begins),
            "count": draw.choice([3, 8, 80 if site.crowded else 15]),
        }
    count = draw.scaled(3, most)
    rule: Json = (
        {"every": length(hours=site.hours / count)}
        if kind == "every"
        else {"perHour": round(count / site.hours, 4)}
    )
    if draw.chance(0.4):
        begins = draw.uniform(0, site.hours * 0.5)
        rule["from"] = offset(begins)
        if draw.chance(0.4):
            rule["until"] = offset(begins + draw.uniform(2, site.hours * 0.5))
    return rule


def _duration(draw: Draw) -> Json:
    median = draw.scaled(0.1, 40)
    kind = draw.choice(["fixed", "uniform", "lognormal"])
    if kind == "fixed":
        return {"fixed": length(hours=median)}
    if kind == "uniform":
        return {"uniform": [length(hours=median / 3), length(hours=median * 2)]}
    shape: Json = {"median": length(hours=median), "sigma": draw.choice([0.3, 0.7, 1.2])}
    if draw.chance(0.5):
        shape["max"] = length(hours=median * 6)
    return {"lognormal": shape}


# --- services -----------------------------------------------------------------------------------------


def _service(site: Site, pool: DrawnPool, name: str) -> Json:
    draw = site.draw
    replicas = draw.of((1, 2), (2, 4), (3, 3), (4, 2), (8, 1))
    row: Json = {"name": name, "replicas": replicas, **_pod(site, pool, whole=draw.chance(0.3))}
    if draw.chance(0.75):
        row["minAvailable"] = draw.randint(1, replicas)
        if draw.chance(0.65):
            row["zeroDowntime"] = True
    if draw.chance(0.7):
        row["load"] = length(minutes=draw.choice([0.5, 3, 8, 25]))
    if draw.chance(0.1):
        row["declaredLoad"] = length(minutes=draw.choice([0.5, 8, 60]))
    if draw.chance(0.3):
        begins = draw.uniform(0, site.hours * 0.6)
        row["from"] = offset(begins)
    if draw.chance(0.2):
        row["until"] = offset(draw.uniform(site.hours * 0.7, site.hours * 1.1))
    if draw.chance(0.55):
        row["handover"] = _handover(site, pool, replicas)
    if draw.chance(0.25):
        _placement(site, row, name)
    return row


def _handover(site: Site, pool: DrawnPool, replicas: int) -> Json:
    draw = site.draw
    method = draw.choice(["rollout", "scale", "paired", "evict"])
    row: Json = {"method": method}
    if draw.chance(0.25):
        row["kind"] = "StatefulSet"
    if method == "rollout" and draw.chance(0.8):
        row |= {"maxSurge": draw.choice([1, 2, "50%"]), "maxUnavailable": draw.choice([0, 0, 0, 1])}
    if method in ("scale", "paired") and draw.chance(0.8):
        row["mayScale"] = True
    others = [other for other in site.pools if other.labels != pool.labels]
    if method == "paired" and others and draw.chance(0.8):
        row["pairNodeSelector"] = dict(draw.choice(others).labels)
    if draw.chance(0.1):
        row["minAvailable"] = draw.randint(1, replicas)
    return row
