"""Counts what a rehearsal exercised, so that a sweep without a fault means something."""

from __future__ import annotations

from collections import Counter

from tidemill.sim.scenario.rehearsal import Rehearsal


def seen_in(rehearsal: Rehearsal) -> Counter[str]:
    """How often each kind of thing happened, by the simulator's record."""
    seen: Counter[str] = Counter()
    spec = rehearsal.spec
    for done in rehearsal.done:
        seen[f"action {type(done.action).__name__}{' failed' if done.error else ''}"] += 1
    for line in rehearsal.journal.lines:
        if line.kind == "fault":
            seen[f"fault {line.about}"] += 1
        elif line.kind in (
            "verdict",
            "verdict-refused",
            "extension-refused",
            "image-rolled",
            "engine-crashed",
        ):
            seen[f"journal {line.kind}"] += 1
    for purchase in rehearsal.ledger.purchases():
        seen[f"purchase {purchase.state.value}"] += 1
    seen["extension paid"] += sum(extension.paid for extension in rehearsal.cloud.bought_extensions)
    for history in rehearsal.cloud.instance_histories.values():
        if history.now.pool in spec.pools:
            seen[f"node {history.now.source.kind.value}"] += 1
            seen[f"node {spec.pools[history.now.pool].spec.provisioner.value}"] += 1
    for job in rehearsal.cluster.jobs.values():
        seen[f"{'gang' if job.pods > 1 else 'job'} {job.state}"] += 1
    for service in rehearsal.cluster.services.values():
        seen["service promised" if service.promised else "service"] += 1
        seen["service down"] += service.downtime_s(rehearsal.end) > 0
    seen["evicted"] += len(rehearsal.cluster.evictions)
    seen["evicted forced"] += sum(eviction.forced for eviction in rehearsal.cluster.evictions)
    seen["killed"] += len(rehearsal.cluster.kills)
    seen["block"] += len(rehearsal.cloud.all_reservations())
    seen["tick"] += rehearsal.ticks
    return +seen
