"""Which provisioner fits a pool, and why (MG-6), from the documents alone.

Each provisioner is judged by itself: what rules it out, what it costs, and what is in its favour. The best is the
possible one with the most in its favour; of equals, the one that needs the least from others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, Provisioner, matching_types
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import KARPENTER_CAPACITY_BLOCKS
from tidemill.spec.scenario import JobStream, Scenario

Fit = Literal["best", "fits", "costs something", "no"]
# Of equals the first: it needs the least from others.
_ORDER = (Provisioner.NATIVE, Provisioner.ASG, Provisioner.MANAGED, Provisioner.KARPENTER)


@dataclass(frozen=True, slots=True)
class Judgement:
    provisioner: Provisioner
    fit: Fit
    favours: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    rules_out: tuple[str, ...] = ()

    @property
    def why(self) -> tuple[str, ...]:
        return self.rules_out or (*self.favours, *self.costs)


@dataclass(frozen=True, slots=True)
class PoolAdvice:
    pool: str
    now: Provisioner
    best: Judgement
    judged: tuple[Judgement, ...]  # all four, the best first

    def as_json(self) -> dict[str, Any]:
        return {
            "pool": self.pool,
            "now": self.now.value,
            "advice": self.best.provisioner.value,
            "why": list(self.best.why),
            "provisioners": [
                {
                    "provisioner": each.provisioner.value,
                    "fit": each.fit,
                    "favours": list(each.favours),
                    "costs": list(each.costs),
                    "rulesOut": list(each.rules_out),
                }
                for each in self.judged
            ],
        }


def advise(spec: Spec, scenario: Scenario | None = None) -> tuple[PoolAdvice, ...]:
    return tuple(_advice(_Facts.of(spec, pool, scenario)) for pool in spec.pools.values())


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the judgement is based on."""

    pool: ComputePool
    node_class: NodeClass | None
    types: int
    blocks: bool
    hourly: bool
    capped: bool  # has caps on hourly costs
    ultraservers: bool
    gangs: bool
    karpenter: str  # its name; empty: none
    karpenter_knows_blocks: bool

    @classmethod
    def of(cls, spec: Spec, pool: ComputePool, scenario: Scenario | None) -> _Facts:
        kinds = matching_types(spec.catalog, pool.spec.requirements)
        sources = {source.type for source in pool.spec.sources}
        node_class, own = spec.node_classes.get(pool.spec.node_class_name), spec.platform.spec.karpenter
        jobs = [job for job in (scenario.spec.jobs if scenario is not None else ()) if _may_run(job, pool)]
        name = (
            "" if own is None else ("EKS Auto Mode" if own.auto_mode else f"Karpenter {own.version}".strip())
        )
        return cls(
            pool=pool,
            node_class=node_class,
            types=len(kinds),
            blocks="block" in sources,
            hourly=bool(sources & {"spot", "on-demand"}),
            capped=any(
                source.max_hourly_usd is not None or source.max_monthly_usd is not None
                for source in pool.spec.sources
            ),
            ultraservers="block" in sources and any(kind.ultraserver for kind in kinds),
            gangs=any(job.nodes > 1 for job in jobs) or (node_class is not None and node_class.spec.efa),
            karpenter=name,
            karpenter_knows_blocks=own is not None and own.supports(KARPENTER_CAPACITY_BLOCKS),
        )


def _may_run(job: JobStream, pool: ComputePool) -> bool:
    """Whether the job's node selector matches the labels of the pool."""
    labels = {**pool.spec.labels, names.LABEL_POOL: pool.name}
    return set(job.node_selector.items()) <= set(labels.items())


def _advice(facts: _Facts) -> PoolAdvice:
    judged = [_judge(facts, provisioner) for provisioner in _ORDER]
    possible = [each for each in judged if not each.rules_out]
    best = max(
        possible, key=lambda each: len(each.favours) - len(each.costs)
    )  # max takes the first of equals
    rest = [each for each in judged if each is not best]
    chosen = Judgement(best.provisioner, "best", best.favours, best.costs)
    return PoolAdvice(facts.pool.name, facts.pool.spec.provisioner, chosen, (chosen, *rest))


def _judge(facts: _Facts, provisioner: Provisioner) -> Judgement:
    favours: list[str]
    costs: list[str]
    rules_out: list[str]
    match provisioner:
        case Provisioner.NATIVE:
            favours, costs, rules_out = _native(facts), [], []
        case Provisioner.ASG:
            favours, costs, rules_out = _asg(facts)
        case Provisioner.MANAGED:
            favours, costs, rules_out = _managed(facts)
        case Provisioner.KARPENTER:
            favours, costs, rules_out = _karpenter(facts)
    fit: Fit = "no" if rules_out else "costs something" if costs else "fits"
    return Judgement(provisioner, fit, tuple(favours), tuple(costs), tuple(rules_out))


Arguments = tuple[list[str], list[str], list[str]]  # in favour, costs, rules it out


def _native(facts: _Facts) -> list[str]:
    favours = []
    if facts.blocks:
        favours.append(
            "a block is used until 30 minutes before its end (UltraServers: 60), as long as EC2 allows"
        )
    if facts.gangs:
        favours.append(
            "pods of a gang start together or not at all: nodes are held until all of them are Ready"
        )
    if facts.types > 1:
        favours.append("each launch uses the cheapest type that fits, without a group for each type")
    return favours


def _asg(facts: _Facts) -> Arguments:
    favours, costs = [], []
    if facts.blocks:
        favours.append(
            "a block is used until 40 minutes before its end (UltraServers: 70); its group's hook takes the ten minutes"
            " before EC2 terminates"
        )
    if facts.gangs:
        favours.append("pods of a gang start together or not at all")
    if facts.blocks and facts.pool.spec.warm:
        favours.append("'warm' nodes are launched at the block's start even while the engine is down")
    if facts.node_class is not None and facts.node_class.spec.launch_template is not None:
        favours.append("it can use the existing launch template")
    if facts.hourly and facts.types > 1:
        costs.append(f"spot and on-demand need a group for each of {facts.types} types in each zone")
    return favours, costs, []


def _managed(facts: _Facts) -> Arguments:
    favours, costs, rules_out = [], [], []
    if not facts.blocks and facts.types == 1:
        favours.append(
            "one type of steady capacity: EKS creates the group, lets nodes join and upgrades them"
        )
    if facts.gangs:
        favours.append("pods of a gang start together or not at all")
    if facts.blocks and not facts.ultraservers:
        costs.append("EKS scales to zero 40 minutes before a block's end: ten minutes less than EC2 allows")
    if facts.blocks:
        costs.append("on a block EKS upgrades only an empty group")
    if facts.hourly and facts.types > 1:
        costs.append(f"spot and on-demand need a node group for each of {facts.types} types in each zone")
    own = facts.node_class.spec.role if facts.node_class is not None else ""
    if ":instance-profile/" in own:
        rules_out.append("EKS needs a role, but the node class has an instance profile")
    return favours, costs, rules_out


def _karpenter(facts: _Facts) -> Arguments:
    favours, costs, rules_out = [], [], []
    if not facts.karpenter:
        rules_out.append("the platform has no Karpenter (karpenter.version or karpenter.autoMode)")
    elif facts.blocks and not facts.karpenter_knows_blocks:
        rules_out.append(f"{facts.karpenter} does not support Capacity Blocks; they need 1.6 or later")
    if facts.ultraservers:
        rules_out.append(
            "it drains UltraServers 40 minutes before the end, but EC2 terminates them 60 minutes before it"
        )
    if facts.node_class is not None and facts.node_class.spec.launch_template is not None:
        rules_out.append("it cannot use an existing launch template")
    if facts.hourly and not facts.blocks:
        favours.append(f"{facts.karpenter} launches spot and on-demand even while the engine is down")
        if facts.types > 1:
            favours.append("it chooses among types itself")
    if facts.blocks:
        costs.append("it drains 40 minutes before a block's end: ten minutes less than EC2 allows")
    if facts.gangs:
        costs.append("it launches for single pods: a gang may start in part")
    if facts.capped:
        costs.append("caps on hourly costs become limits on vCPUs, and only the engine keeps a monthly cap")
    return favours, costs, rules_out
