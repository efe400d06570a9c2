"""Why a pod waits: one sentence for every kind of hold."""

from __future__ import annotations

from tidemill.model.reasons import HoldKind, HoldReason
from tidemill.wording.templates import Sentence, amounts, fill

HOLDS: dict[HoldKind, Sentence[HoldReason]] = {
    HoldKind.NO_POOL: "there is no compute pool",
    HoldKind.NAMESPACE_NOT_ALLOWED: "pool {pool} does not serve namespace {name}",
    HoldKind.ADMITTED_PODS_ONLY: (
        "pool {pool} takes only pods that Tidemill admits; label its namespace or its workload"
        " tidemill.dev/managed: true and create it again"
    ),
    HoldKind.TAINT_NOT_TOLERATED: "it does not tolerate the taint {name} of pool {pool}",
    HoldKind.NO_NODE_WITH_LABELS: lambda reason: (
        f"no pool has nodes with the labels it selects ({_pairs(reason, '=')})"
    ),
    HoldKind.TOO_LARGE: lambda reason: (
        f"it asks for {amounts(reason.requests)}, more than any node of pool {reason.pool} has"
    ),
    HoldKind.TOO_LARGE_WITH_DAEMONS: lambda reason: (
        f"it asks for {amounts(reason.requests)}, more than a node of pool {reason.pool} has"
        f" beside its daemon pods, which take {amounts(reason.daemons)}"
    ),
    HoldKind.POOL_WITHOUT_LIMITS: "pool {pool} has no limits, and without limits it launches nothing",
    HoldKind.LIMITS_REACHED: lambda reason: (
        f"pool {reason.pool} has reached its limits ({_pairs(reason, ' ')})"
    ),
    HoldKind.NOT_OPTED_IN: "pool {pool} has only overflow capacity now, and it did not opt in",
    HoldKind.OVERFLOW_SPENT: "the overflow caps or the budget of pool {pool} are used up",
    HoldKind.OVERFLOW_TOO_SHORT: (
        "the money for overflow of pool {pool} would not last until it and what runs there are done"
    ),
    HoldKind.MONTH_SPENT: "this month's budget of the platform is used up, so pool {pool} launches nothing",
    HoldKind.MONTH_TOO_SHORT: (
        "this month's budget of the platform would not last until it and what runs in pool {pool} are done"
    ),
    HoldKind.UNREACHABLE: "AWS or the ledger cannot be reached, so nothing is launched",
    HoldKind.POOL_REFUSED: (
        "{name} acts on the nodes of pool {pool} too, so nothing is launched there:"
        " remove it, or keep it off these nodes"
    ),
    HoldKind.PAUSED: lambda reason: (
        fill("Tidemill is paused since {since} by {name}, so nothing is admitted or launched", reason)
        + (f": {reason.detail}" if reason.detail else "")
    ),
    HoldKind.NAMESPACE_LIMIT_REACHED: (
        "namespace {name} uses {count} of the {of} GPUs that namespaceLimits of the platform allow it,"
        " and it needs more than is left"
    ),
    HoldKind.OVER_NAMESPACE_LIMIT: (
        "it asks for {count} GPUs at once, and namespaceLimits of the platform allow namespace {name} {of}"
    ),
    HoldKind.NO_ACTIVE_CAPACITY: "pool {pool} has no active capacity",
    HoldKind.BLOCK_NOT_FILLED: (
        "{name} is paid for and has free slots, but since {since} EC2 launches nothing there; next try {at}"
    ),
    HoldKind.NO_EC2_CAPACITY: ("EC2 had no capacity at the last launch for pool {pool}; next try {at}"),
    HoldKind.NODES_NEVER_READY: lambda reason: fill(
        "the last {count:node} that pool {pool} launched of {name} never became Ready, so "
        + ("one is tried alone, {at}" if reason.at is not None else "one is being tried alone"),
        reason,
    ),
    HoldKind.LAUNCH_FAILED: lambda reason: fill(
        "the last launch for pool {pool} was refused, and the log says why; next try {at}, or when the documents change"
        if reason.name == "refused"
        else "the last launch for pool {pool} failed ({name}; the log says more); next try {at}",
        reason,
    ),
    HoldKind.LAUNCHING_AGAIN: lambda reason: (
        f"the last launch of {_launched(reason)} failed, and it is being tried again"
    ),
    HoldKind.NODES_TAKEN: "every node pool {pool} can have is taken",
    HoldKind.NODES_TAKEN_OR_TOO_SHORT: (
        "it needs {need}; what is free in pool {pool} ends sooner, and what lasts that long is taken"
    ),
    HoldKind.NOTHING_LASTS: "it needs {need} and nothing in pool {pool} lasts that long",
    HoldKind.KEPT_FOR_LARGER: "the free nodes of pool {pool} are kept from {at} for a larger job that came before",
    HoldKind.KEPT_FOR_IT: "nodes of {name} are kept for it; the last of them is free about {at}",
    HoldKind.BLOCK_NEEDS_LIMITS: (
        "{name} is paid for and has room for it about {at}; on a node by the hour it would keep nodes of that block"
        " out, because the limits of its pool do not hold both"
    ),
    HoldKind.ROOM_COMES: "{name} has room for it about {at}; that is waited for before a node by the hour is launched",
    HoldKind.PREEMPTING: (
        "{count:pod} of lower priority must save and leave {name} for it; it could start about {at}"
    ),
    HoldKind.POD_RULES: "its rules about other pods (affinity, spread, ports) leave no node for it in pool {pool}",
    HoldKind.GANG_OVER_POOL_LIMIT: (
        "its gang needs {count:node} at once; the limits of pool {pool} allow {of}"
    ),
    HoldKind.GANG_OVER_SOURCE_SIZE: (
        "its gang needs {count:node} at once; the largest source of pool {pool} has {of}"
    ),
    HoldKind.GANG_OVER_LIMITS_LEFT: lambda reason: fill(
        f"its gang needs {{count:node}} at once, more than the limits of pool {{pool}} leave ({_pairs(reason, ' ')})",
        reason,
    ),
    HoldKind.GANG_WITHOUT_SOURCE: "no source of pool {pool} has the {count:node} its gang needs at once",
    HoldKind.GANG_TOO_LARGE: (
        "gang {name} has {of} pods, and no more than {count} are started together: make it of fewer, larger pods"
    ),
    HoldKind.GANG_INCOMPLETE: "gang {name} has {count} of its {of} pods",
    HoldKind.GANG_STOPS: "gang {name} is being stopped, to start again whole",
    HoldKind.GANG_KEEPS_APART: (
        "gang {name} runs in one zone, and a podAntiAffinity of its pods keeps them out of each other's zone"
    ),
    HoldKind.GANG_LOST_POD: "gang {name} lost a pod; the others are being stopped",
    HoldKind.GANG_WAITS_FOR_REST: "room on {name} is held for it until the rest of its gang has room",
    HoldKind.LAUNCHING: lambda reason: f"{_launched(reason)} is being launched for it",
    HoldKind.KARPENTER_LAUNCHES: lambda reason: f"Karpenter launches {_launched(reason)} for it",
    HoldKind.SLOT_IS_CLEANED: "a node of {name} is gone, and EC2 is cleaning its slot",
    HoldKind.NODE_JOINS: "its node {name} is joining the cluster",
    HoldKind.NODE_NOT_READY: "its node {name} is not Ready yet",
    HoldKind.NODE_REGISTERS: (
        "its node {name} is registering its accelerators, usually 60-90 s;"
        " until then the pod status OutOfnvidia.com/gpu is expected"
    ),
    HoldKind.NODE_IS_CHECKED: "its node {name} is being checked",
    HoldKind.NO_ROOM_LEFT: "it was admitted to {name}, which has no room for it any more",
    HoldKind.NO_ROOM_LEFT_FOR_GOOD: (
        "it was admitted to {name}, which has no room for it any more, and nothing would create it again"
    ),
    HoldKind.TAKEN_BACK_OFTEN: (
        "it was admitted {count:time} and kube-scheduler found no node for all of it; it is admitted again {at}"
    ),
}


def hold_sentence(reason: HoldReason) -> str:
    later = fill("; block {next_block} starts {next_start}", reason) if reason.next_block else ""
    return f"{fill(HOLDS[reason.kind], reason)}{later}"


def _launched(reason: HoldReason) -> str:
    return f"a {reason.name} on {reason.source}" if reason.name else "a node"


def _pairs(reason: HoldReason, between: str) -> str:
    return ", ".join(f"{key}{between}{value}" for key, value in reason.pairs)
