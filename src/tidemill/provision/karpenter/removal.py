"""NodePools that no document asks for any more: when one may be removed, and how it is closed until then. Pure.

Karpenter terminates every node of a NodePool that is removed, whatever runs there. So a NodePool is removed only when
its block is over, or when it is closed, has no nodes, and no document asks for it: a block that AWS does not list, or
that cannot be read, is neither. A closed NodePool launches nothing and replaces nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from tidemill.decide.read_models import deadline_of
from tidemill.model.capacity import OVER_STATES, SECURED_STATES, Reservation, SourceKind
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Node
from tidemill.model.world import World
from tidemill.provision.removal_reasons import Evidence
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Provisioner

# With a terminationGracePeriod Karpenter replaces drifted nodes even if a pod says do-not-disrupt; a budget stops it.
NEVER_FOR_DRIFT: Mapping[str, Any] = {"nodes": "0", "reasons": ["Drifted"]}
# Karpenter's default where a NodePool has no budgets. Any budget that is set replaces it.
DEFAULT_BUDGET: Mapping[str, Any] = {"nodes": "10%"}
_NODE_POOL_LABEL = "karpenter.sh/nodepool"
_OWNED = (names.TAG_OWNER, names.TAG_POOL, names.TAG_PROVISIONER)
# Sources of NodePools that follow from the documents alone.
_NO_RESERVATION = ("", SourceKind.SPOT.value, SourceKind.ON_DEMAND.value)
Object = Mapping[str, Any]


def is_over(reservation: Reservation, now: datetime) -> bool:
    """Its deadline has passed: nothing is launched on the block any more, and Karpenter deletes its nodes there."""
    deadline = (
        deadline_of(reservation, Provisioner.KARPENTER)
        if reservation.kind is SourceKind.BLOCK
        else reservation.end
    )
    return reservation.state in OVER_STATES or (deadline is not None and now >= deadline)


def may_be_removed(node_pool: Object, world: World, evidence: Evidence) -> bool:
    """It must be closed first, even if it shows no node: a launch may be under way."""
    own = _reservation(node_pool, world)
    if own is not None and is_over(own, world.now):
        return True
    if not is_closed(node_pool) or any(runs_in(node, node_pool) for node in world.nodes):
        return False
    source = source_of(node_pool)
    if source in _NO_RESERVATION:  # the documents alone say that nobody wants it
        return True
    return evidence.not_wanted(pool_of(node_pool), Provisioner.KARPENTER, source) is not None


def runs_in(node: Node, node_pool: Object) -> bool:
    """By Karpenter's label, else by pool and source. Errs on the side of yes."""
    instance, kube = node.instance, node.kube
    if instance is not None and instance.state in INSTANCE_ENDED_STATES:
        return False
    labels = dict(kube.labels) if kube is not None else {}
    if _NODE_POOL_LABEL in labels:
        return bool(labels[_NODE_POOL_LABEL] == node_pool["metadata"]["name"])
    if instance is None:
        pool, source = labels.get(names.LABEL_POOL, ""), labels.get(names.LABEL_SOURCE, "")
    elif instance.provisioner in ("", Provisioner.KARPENTER.value):
        pool, source = instance.pool, instance.source.label
    else:
        return False
    return pool == pool_of(node_pool) and source_of(node_pool) in ("", source)


# --- closed -----------------------------------------------------------------------------------------


def closed(node_pool: Object) -> Object:
    """The same NodePool, but it launches nothing more. Its template does not change: any change would be drift."""
    spec = node_pool["spec"]
    disruption = spec.get("disruption", {})
    # With replicas Karpenter accepts no other limit. Fewer replicas would terminate nodes, so they stay.
    limit = "nodes" if "replicas" in spec else "cpu"
    more = {
        "limits": {limit: "0"},
        "disruption": {**disruption, "budgets": without_drift(disruption.get("budgets", ()))},
    }
    labels = node_pool["metadata"]["labels"]
    return {
        "apiVersion": node_pool.get("apiVersion", "karpenter.sh/v1"),
        "kind": node_pool["kind"],
        "metadata": {
            "name": node_pool["metadata"]["name"],
            "labels": {key: labels[key] for key in _OWNED if key in labels},
        },
        "spec": {**spec, **more},
    }


def is_closed(node_pool: Object) -> bool:
    return bool(closed(node_pool)["spec"] == node_pool["spec"])


def without_drift(budgets: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The budgets, or Karpenter's default, and one that forbids replacing drifted nodes: the strictest counts."""
    found = list(budgets) or [dict(DEFAULT_BUDGET)]
    return found if NEVER_FOR_DRIFT in found else [*found, dict(NEVER_FOR_DRIFT)]


# --- why it waits -----------------------------------------------------------------------------------


def waiting_sentence(node_pool: Object, spec: Spec, world: World) -> str:
    return (
        f"NodePool {node_pool['metadata']['name']}: {_why(node_pool, spec, world)}. Removing it would terminate its"
        " nodes, so it stays, launches nothing more, and is removed when they are gone"
    )


def _why(node_pool: Object, spec: Spec, world: World) -> str:
    name, source = pool_of(node_pool), source_of(node_pool)
    pool = spec.pools.get(name)
    if pool is None:
        return f"no document defines its pool '{name}' any more"
    if pool.spec.provisioner is not Provisioner.KARPENTER:
        return f"pool {name} no longer uses Karpenter; drain its nodes when their work may move"
    own = _reservation(node_pool, world)
    if own is not None and own.state not in SECURED_STATES:
        return f"{own.id} is {own.state.value}, not active"
    if own is not None and own.owner != spec.platform.spec.deployment:
        return f"{own.id} is not known as ours by its tag and the ledger; adopt it if it is"
    if own is None and source not in _NO_RESERVATION:
        return f"{source} is not among the reservations that AWS lists"
    return f"the documents of pool {name} do not ask for it any more"


def pool_of(manifest: Object) -> str:
    return str(manifest["metadata"].get("labels", {}).get(names.TAG_POOL, ""))


def source_of(node_pool: Object) -> str:
    """Empty: it was written without knowing the reservations."""
    labels = node_pool["spec"].get("template", {}).get("metadata", {}).get("labels", {})
    return str(labels.get(names.LABEL_SOURCE, ""))


def _reservation(node_pool: Object, world: World) -> Reservation | None:
    source = source_of(node_pool)
    return next((reservation for reservation in world.reservations if reservation.id == source), None)
