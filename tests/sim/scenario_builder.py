"""Short scenarios for the whole loop: a platform, its pools and a scenario from keyword arguments.

They begin at 07:30 UTC. Blocks end at 11:30 UTC, so a block written as `4h` ends within the scenario:
EC2 takes its nodes at 11:00, EKS and Karpenter act at 10:50, UltraServers go at 10:30.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.catalog import load
from tidemill.decide import decide
from tidemill.engine.loop import Decide
from tidemill.model.plan import Action, Plan
from tidemill.model.world import World
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.timeline import Line
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Scenario
from tidemill.spec.units import parse_duration

START = datetime(2026, 11, 17, 7, 30, tzinfo=UTC)
BLOCK_END = datetime(2026, 11, 17, 11, 30, tzinfo=UTC)
P5 = "p5.48xlarge"
Json = dict[str, Any]


def after(written: str) -> datetime:
    """`3h` is three hours into the scenario."""
    return START + parse_duration(written)


# --- documents ----------------------------------------------------------------------------------------


def platform(**spec: Any) -> Platform:
    defaults = {
        "region": "us-east-1",
        "deployment": "mill",
        "cluster": {"name": "ml"},
        "subnets": {"us-east-1a": ["subnet-0a1"], "us-east-1b": ["subnet-0b1"]},
    }
    return Platform.model_validate({"metadata": {"name": "mill"}, "spec": {**defaults, **spec}})


def pool(name: str = "train", **spec: Any) -> ComputePool:
    defaults: Json = {
        "nodeClassName": "gpu",
        "sources": [{"type": "block"}],
        "requirements": {"instanceTypes": [P5]},
        "labels": {"tier": name},
        "taints": [{"key": "nvidia.com/gpu", "value": "true"}],
        "limits": {"nodes": 8},
    }
    return ComputePool.model_validate({"metadata": {"name": name}, "spec": {**defaults, **spec}})


def plan(name: str = "november", **spec: Any) -> CapacityPlan:
    """Two p5 from tomorrow's grid instant for a day."""
    window = {
        "name": "sprint",
        "from": "2026-11-18T11:30:00Z",
        "to": "2026-11-19T11:00:00Z",
        "instanceType": P5,
        "instances": 2,
    }
    return CapacityPlan.model_validate(
        {"metadata": {"name": name}, "spec": {"pool": "train", "demand": [window], **spec}}
    )


def block(name: str = "a", **fields: Any) -> Json:
    defaults = {"instanceType": P5, "count": 2, "zone": "us-east-1a", "duration": "4h"}
    return {"name": name, **defaults, **fields}


def job(name: str = "fit", *, lasts: str = "30m", at: Iterable[str] = ("0s",), **fields: Any) -> Json:
    """Jobs that fill a p5 each, one at every instant of `at`."""
    defaults: Json = {"gpus": 8, "cpu": "90", "memory": "800Gi", "nodeSelector": {"tier": "train"}}
    return {
        "name": name,
        "arrivals": {"at": list(at)},
        "duration": {"fixed": lasts},
        **defaults,
        **fields,
    }


def service(name: str = "chat", **fields: Any) -> Json:
    defaults: Json = {
        "replicas": 2, "minAvailable": 1, "gpus": 8, "cpu": "90", "memory": "800Gi", "load": "5m",
        "grace": "1m", "nodeSelector": {"tier": "train"},
    }  # fmt: skip
    return {"name": name, **defaults, **fields}


def fault(at: str, kind: str, **fields: Any) -> Json:
    return {"at": at, "fault": kind, **fields}


# --- a scenario ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedScenario:
    spec: Spec
    scenario: Scenario

    def prepare(self, seed: int = 1, **how: Any) -> Rehearsal:
        """Ready to run."""
        return Rehearsal(self.spec, self.scenario, seed, **how)

    def run(self, seed: int = 1, **how: Any) -> Rehearsal:
        """Run to its end, every invariant checked."""
        rehearsal = self.prepare(seed, **how)
        rehearsal.run()
        return rehearsal


def scenario_with(
    *pools: ComputePool,
    on: Platform | None = None,
    plans: Iterable[CapacityPlan] = (),
    duration: str = "4h30m",
    start: datetime = START,
    **scenario: Any,
) -> PreparedScenario:
    node_class = NodeClass.model_validate(
        {"metadata": {"name": "gpu"}, "spec": {"amiSelectorTerms": [{"alias": "al2023@v20261101"}]}}
    )
    spec = Spec(
        platform=on or platform(),
        catalog=load(),
        node_classes={"gpu": node_class},
        pools={each.name: each for each in pools or (pool(),)},
        plans={each.name: each for each in plans},
    )
    body = {"start": start.isoformat().replace("+00:00", "Z"), "duration": duration, **scenario}
    return PreparedScenario(spec, Scenario.model_validate({"metadata": {"name": "test"}, "spec": body}))


# --- looking ------------------------------------------------------------------------------------------


def journal_lines(rehearsal: Rehearsal, kind: str, about: str = "") -> list[Line]:
    return [line for line in rehearsal.journal.lines if line.kind == kind and about in line.about]


def actions_done(rehearsal: Rehearsal, kind: type[Action]) -> list[tuple[datetime, Any]]:
    """Actions of one kind that succeeded, with their instants."""
    return [(one.at, one.action) for one in rehearsal.done if isinstance(one.action, kind) and not one.error]


def last_pod_left_at(rehearsal: Rehearsal, block_name: str) -> datetime | None:
    """When the last pod of the work was told to leave the block's nodes, its grace included."""
    source = rehearsal.cloud.names[block_name]
    nodes = {node.name for node in rehearsal.cluster.nodes.values() if node.source == source}
    rows = [row for row in rehearsal.cluster.evictions if row.node in nodes]
    return max((row.at + timedelta(seconds=row.grace_s) for row in rows), default=None)


# --- engines that are wrong on purpose ----------------------------------------------------------------


def deciding_wrongly(change: Callable[[Spec, World, Plan], Iterable[Action]]) -> Decide:
    """The real decision, with other actions in its plan."""

    def wrong(spec: Spec, world: World) -> Plan:
        plan = decide(spec, world)
        return replace(plan, actions=tuple(change(spec, world, plan)))

    return wrong


def without(*kinds: type[Action]) -> Decide:
    """An engine that never does certain things."""
    return deciding_wrongly(
        lambda spec, world, plan: [action for action in plan.actions if not isinstance(action, kinds)]
    )


def deciding_by(change: Callable[[Spec], Spec]) -> Decide:
    """An engine that decides by other documents than the ones people wrote."""
    wrong: dict[int, Spec] = {}
    return lambda spec, world: decide(wrong.setdefault(id(spec), change(spec)), world)


def with_pool(spec: Spec, **changes: Any) -> Spec:
    """The same documents, with other settings in every pool."""
    pools = {
        name: one.model_copy(update={"spec": one.spec.model_copy(update=changes)})
        for name, one in spec.pools.items()
    }
    return replace(spec, pools=pools)
