"""Room that moves from one NodePool to another: first it is taken, and only later given. Pure.

Karpenter may have begun a launch within the old limit when a lower one is written. So a NodePool is raised only when it
has shown what the lowering of another one led to.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tidemill.provision.karpenter.removal import Object, closed, is_closed
from tidemill.provision.karpenter.room import quantities

# Karpenter gathers pods for at most 10 s, then EC2 answers within seconds; the rest is until both lists show it.
SETTLES_WITHIN = timedelta(minutes=1)


def is_lowered(new: Object | None, old: Object) -> bool:
    """Whether it may launch less from now on. None: no document asks for it, and it is closed."""
    if new is None:
        return not is_closed(old)
    given, had = quantities(new["spec"].get("limits", {})), quantities(old["spec"].get("limits", {}))
    fewer = new["spec"].get("replicas", 0) < old["spec"].get("replicas", 0)
    return fewer or any(amount < had.get(key, amount + 1) for key, amount in given.items())


def not_raised(node_pool: Object, old: Object | None) -> Object:
    """As it should be, but it may launch no more than now."""
    if old is None:
        shut = closed(node_pool)["spec"]
        return {
            **node_pool,
            "spec": {**node_pool["spec"], "limits": shut["limits"], **_replicas(node_pool, 0)},
        }
    new, has = node_pool["spec"].get("limits", {}), old["spec"].get("limits", {})
    given, had = quantities(new), quantities(has)
    limits = {
        key: new[key] if key not in has or given.get(key, 0) <= had.get(key, 0) else has[key]
        for key in {**has, **new}
        if key in new or key in had
    }
    most = old["spec"].get("replicas")
    return {**node_pool, "spec": {**node_pool["spec"], "limits": limits, **_replicas(node_pool, most)}}


def _replicas(node_pool: Object, most: int | None) -> Mapping[str, Any]:
    own = node_pool["spec"].get("replicas")
    return {} if own is None or most is None else {"replicas": min(own, most)}
