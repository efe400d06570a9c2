"""What two controllers did, judged from outside: by AWS, by the ledger's lines, and by the kubelets' records."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from controlplane.api import eventually
from tests.cluster.leader_scene import AUTO_MAX_FEE_USD, NAMES, STEADY, LeaderScene, wall_now
from tidemill.spec import names

SETTLED_S = 90.0  # a purchase whose answer was lost with its caller is looked up by its tag
ENDING_S = 30.0
_CONFIRMED = "SELECT * FROM purchases WHERE state = 'confirmed'"


@dataclass(slots=True)
class Judgement:
    launches: int = 0  # intents
    instances: int = 0
    jobs: int = 0
    blocks: int = 0
    extensions: int = 0
    approved: int = 0  # of them by a person
    in_doubt: list[str] = field(default_factory=list)  # purchases that were interrupted, and never made
    drained: int = 0  # pods that were stopped on block a
    retired: int = 0  # instances under the steady service
    epochs: int = 0
    faults: list[str] = field(default_factory=list)


def judge(scene: LeaderScene) -> Judgement:
    """At the end, with both controllers still there."""
    told = Judgement(jobs=scene.jobs)
    told.faults += scene.trouble
    _wait_settled(scene, told)
    _launches(scene, told)
    _purchases(scene, told)
    _extensions(scene, told)
    _drains(scene, told)
    (row,) = scene.rows("SELECT count(*) AS n FROM audit WHERE what = 'ledger' AND subject = 'leader'")
    told.epochs = row["n"]
    for name in NAMES:
        began = wall_now()
        if scene.processes.alive(name) and (code := scene.processes.stop(name, ending_s=ENDING_S)):
            took_s = (wall_now() - began).total_seconds()
            told.faults.append(f"{name} ended with {code} {took_s:.0f} s after SIGTERM")
    return told


def _wait_settled(scene: LeaderScene, told: Judgement) -> None:
    """What EC2 sold is found by its tag. What was interrupted before EC2 heard of it stays in doubt: a person looks."""
    query = "SELECT id FROM purchases WHERE state IN ('submitted', 'unknown') ORDER BY id"
    until_s = time.monotonic() + SETTLED_S
    while True:
        told.in_doubt = [row["id"] for row in scene.rows(query)]
        sold = [intent for intent in _listed(scene).values() if intent in told.in_doubt]
        offers = {one["CapacityBlockExtensionOfferingId"] for one in _extended(scene)}
        query_offers = "SELECT id, offer_id FROM purchases WHERE state IN ('submitted', 'unknown')"
        sold += [row["id"] for row in scene.rows(query_offers) if row["offer_id"] in offers]
        young = scene.rows("SELECT id FROM purchases WHERE state = 'submitted'")
        if not sold and not young:
            return
        if time.monotonic() > until_s:
            told.faults.append(f"nobody finds out what was bought: {sold or young}")
            return
        time.sleep(0.5)


# --- launches -----------------------------------------------------------------------------------------


def _launches(scene: LeaderScene, told: Judgement) -> None:
    """Each intent made what it asked for at most, and no Job was worth two nodes."""
    intents = {row["id"]: row for row in scene.rows("SELECT id, pool, count, source_id FROM launches")}
    made: dict[str, list[str]] = defaultdict(list)
    instances = scene.account.instances()
    for instance in instances:
        made[_tags(instance).get(names.TAG_INTENT, "")].append(instance["InstanceId"])
    for intent, ids in made.items():
        if intent not in intents:
            told.faults.append(f"instances of no intent: {intent} {ids}")
        elif len(ids) > intents[intent]["count"]:
            told.faults.append(f"{intent} asked for {intents[intent]['count']} and launched {ids}")
    pools = Counter(_tags(instance).get(names.TAG_POOL, "") for instance in instances)
    if pools["burst"] > scene.jobs:
        told.faults.append(f"{pools['burst']} nodes were launched for {scene.jobs} Jobs")
    if pools["steady"] > STEADY + len(scene.retired):
        told.faults.append(
            f"{pools['steady']} nodes for {STEADY} replicas, of which {len(scene.retired)} moved"
        )
    for block in (scene.block_a, scene.block_b):
        if (count := len(scene.account.instances_on(block))) > 2:
            told.faults.append(f"{count} instances were launched on block {block} of 2")
    told.launches, told.instances = len(intents), len(instances)


# --- purchases ----------------------------------------------------------------------------------------


def _purchases(scene: LeaderScene, told: Judgement) -> None:
    """What EC2 sold is what the ledger confirms, one block for each window, each allowed before it was submitted."""
    sold = [line["about"] for line in scene.account.journal() if line["kind"] == "block-purchased"]
    ours = set(sold) - {scene.block_a, scene.block_b}
    bought = {row["id"]: row for row in scene.rows(_CONFIRMED) if not row["extends"]}
    confirmed = Counter(id_ for row in bought.values() for id_ in row["reservation_ids"])
    if set(confirmed) != ours or any(count > 1 for count in confirmed.values()):
        told.faults.append(f"EC2 sold {sorted(ours)}, the ledger confirms {sorted(confirmed.elements())}")
    eventually(lambda: ours <= set(_listed(scene)), timeout_s=60, what="all blocks are listed")
    listed: dict[str, list[str]] = defaultdict(list)
    for block, intent in _listed(scene).items():
        if block in ours:
            listed[intent].append(block)
    for intent, ids in listed.items():
        if len(ids) > 1 or intent not in bought:
            told.faults.append(f"intent {intent} bought {ids}")
    for window, count in Counter(row["window"] for row in bought.values()).items():
        if count > 1:
            told.faults.append(f"{count} blocks were bought for window {window}")
    for intent, row in bought.items():
        told.approved += _check_allowed(scene, told, intent, row)
    told.blocks = len(ours)


def _extensions(scene: LeaderScene, told: Judgement) -> None:
    """EC2 sold each extension that the ledger confirms once, and no other; one for each window."""
    bought = {row["id"]: row for row in scene.rows(_CONFIRMED) if row["extends"]}
    sold = Counter(one["CapacityBlockExtensionOfferingId"] for one in _extended(scene))
    confirmed = Counter(row["offer_id"] for row in bought.values())
    if sold != confirmed:
        told.faults.append(f"EC2 extended by {dict(sold)}, the ledger confirms {dict(confirmed)}")
    for window, count in Counter(row["window"] for row in bought.values()).items():
        if count > 1:
            told.faults.append(f"block b was extended {count} times for window {window}")
    for intent, row in bought.items():
        told.approved += _check_allowed(scene, told, intent, row)
    told.extensions = len(bought)


def _extended(scene: LeaderScene) -> list[dict[str, Any]]:
    """What EC2 sold, the newest included: it lists an extension within two minutes."""
    found: list[dict[str, Any]] = scene.account.ec2.describe_capacity_block_extension_history()[
        "CapacityBlockExtensions"
    ]
    return found


def _listed(scene: LeaderScene) -> dict[str, str]:
    """The intent on the tag of each block that EC2 lists."""
    blocks = scene.account.ec2.describe_capacity_reservations()["CapacityReservations"]
    return {one["CapacityReservationId"]: _tags(one).get(names.TAG_INTENT, "") for one in blocks}


def _check_allowed(scene: LeaderScene, told: Judgement, intent: str, row: dict[str, Any]) -> bool:
    """Whether a person approved it. One of the two must be: that, or a fee that needs nobody."""
    lines = scene.rows(
        "SELECT what, after FROM audit WHERE subject = %s AND what = 'purchase' ORDER BY seq", intent
    )
    states = [line["after"]["state"] for line in lines]
    if "approved" not in states[: states.index("submitted")]:
        told.faults.append(f"{intent} was submitted without an approval: {states}")
    people = scene.rows("SELECT who FROM verdicts WHERE purchase_id = %s AND approved", intent)
    if row["max_fee_usd"] > AUTO_MAX_FEE_USD and not people:
        told.faults.append(f"{intent} cost {row['fee_usd']} USD and nobody approved it")
    return bool(people)


# --- drains -------------------------------------------------------------------------------------------


def _drains(scene: LeaderScene, told: Judgement) -> None:
    seen = scene.account.kubelets()
    for what in ("diedWithInstance", "withoutFullGrace"):
        told.faults += [f"{what}: {row}" for row in seen[what]]
    of_a = {one["InstanceId"] for one in scene.account.instances_on(scene.block_a)}
    on_a = {node["node"] for node in seen["nodes"] if node["instance"] in of_a}
    rows = [row for row in seen["pods"] if not row["daemon"] and row["node"] in on_a]
    told.drained = sum(row["end"] == "stopped" for row in rows)
    if not told.drained:
        told.faults.append("nothing was drained")
    left = scene.account.instances_on(scene.block_a, "pending", "running")
    if left:
        told.faults.append(f"instances of block a after its end: {[one['InstanceId'] for one in left]}")
    told.retired = len(scene.retired)


def _tags(described: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in described.get("Tags") or ()}
