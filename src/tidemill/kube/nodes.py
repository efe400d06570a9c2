"""A node of an API server -> `model.KubeNode`: pure, with what only the reader can know handed in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from tidemill.engine.clock import MappedClock
from tidemill.kube.objects import Condition, NodeObject, NodeTaint
from tidemill.kube.pods import at, condition, noted_instant
from tidemill.kube.quantities import amount_of, as_amounts
from tidemill.model.labels import Taint
from tidemill.model.nodes import KubeNode
from tidemill.model.reasons import DrainReason
from tidemill.model.resources import Amounts
from tidemill.spec import names

_INSTANCE = re.compile(r"aws:///[^/]*/(i-[0-9a-f]+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class NodeMemory:
    """What no object says: when the reader saw things happen. After a restart later than the truth, never earlier."""

    accelerators_registered_at: datetime | None = None
    last_pod_event_at: datetime | None = None
    draining_since: datetime | None = None  # of a taint that somebody put there without a note


def node_of(one: NodeObject, clock: MappedClock, memory: NodeMemory, faults: list[str]) -> KubeNode:
    """`faults`: what of it could not be read."""
    meta, notes = one.metadata, one.metadata.annotations or {}
    ready = condition(one.status.conditions, "Ready")
    check, check_message = _check(one)
    drain = next((taint for taint in one.spec.taints or () if taint.key == names.TAINT_DRAINING), None)
    return KubeNode(
        name=meta.name,
        instance_id=instance_id_in(one.spec.provider_id),
        joined_at=at(meta.creation_timestamp, clock) or _EPOCH,
        ready=ready is not None and ready.status == "True",
        allocatable=allocatable(one, faults),
        labels=tuple(sorted((meta.labels or {}).items())),
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in one.spec.taints or ()),
        unschedulable=one.spec.unschedulable,
        ready_changed_at=at(ready.last_transition_time, clock) if ready is not None else None,
        accelerators_registered_at=memory.accelerators_registered_at,
        check=check,
        check_message=check_message,
        draining_since=_draining_since(drain, notes, clock, memory),
        drain_reason=_drain_reason(drain, notes, clock),
        ends_at=noted_instant(notes, names.ENDS_AT, clock)
        or noted_instant(notes, names.AGENT_ENDS_AT, clock),
        deadline_agent=names.DEADLINE_AGENT in notes,
        opened_at=noted_instant(notes, names.OPENED_AT, clock),
        last_pod_event_at=memory.last_pod_event_at,
    )


def instance_id_in(provider_id: str) -> str:
    match = _INSTANCE.fullmatch(provider_id)
    return match[1] if match else ""


def allocatable(one: NodeObject, faults: list[str]) -> Amounts:
    """Without what is 0: a device plugin that went away leaves its resource behind. What cannot be read is 0."""
    counted = {}
    for name, text in (one.status.allocatable or {}).items():
        try:
            counted[name] = amount_of(name, text)
        except ValueError as error:
            faults.append(f"allocatable {name}: {error}")
    return as_amounts(counted)


def _check(one: NodeObject) -> tuple[Literal["", "passed", "failed"], str]:
    """Without a node check on the node (the condition, or a label that announces one) joining it is enough."""
    verdict: Condition | None = condition(one.status.conditions, names.CONDITION_GPUS_VERIFIED)
    if verdict is None:
        return ("" if (one.metadata.labels or {}).get(names.NODE_CHECK) == "required" else "passed"), ""
    if verdict.status == "True":
        return "passed", ""
    if verdict.status == "False":
        return "failed", (verdict.message or verdict.reason or "")[:500]
    return "", ""


def _draining_since(
    drain: NodeTaint | None, notes: Mapping[str, str], clock: MappedClock, memory: NodeMemory
) -> datetime | None:
    if drain is None:
        memory.draining_since = None
        return None
    noted = noted_instant(dict(notes), names.DRAINING_SINCE, clock) or at(drain.time_added, clock)
    if noted is None and memory.draining_since is None:
        memory.draining_since = clock.now()
    return noted or memory.draining_since


def _drain_reason(
    drain: NodeTaint | None, notes: Mapping[str, str], clock: MappedClock
) -> DrainReason | None:
    """Instants in annotations are wall time."""
    if drain is None:
        return None
    prefix = names.DRAIN_REASON
    written = {key.removeprefix(prefix): value for key, value in notes.items() if key.startswith(prefix)}
    reason = DrainReason.from_annotations(drain.value, written)
    if reason is None or reason.at is None:
        return reason
    return replace(reason, at=clock.from_wall(reason.at))
