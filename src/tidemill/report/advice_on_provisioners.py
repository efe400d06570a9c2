"""Which provisioner fits a pool, and why (MG-6): from what the documents say, and nothing else.

Each is judged by itself: what makes it impossible, what it costs, what speaks for it. The best is the possible one with
most in its favour; of equals, the one that needs least of others.
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
# Of equals the first: it needs nobody else.
_ORDER = (Provisioner.NATIVE, Provisioner.ASG, Provisioner.MANAGED, Provisioner.KARPENTER)


@dataclass(frozen=True, slots=True)
class Judged:
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
    best: Judged
    judged: tuple[Judged, ...]  # all four, the best first

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
    """What the judgement goes by."""

    pool: ComputePool
    node_class: NodeClass | None
    types: int
    blocks: bool
    hourly: bool
    capped: bool  # money by the hour beside reserved capacity
    ultraservers: bool
    gangs: bool
    karpenter: str  # "", or what it is called
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
                one.max_hourly_usd is not None or one.max_monthly_usd is not None for one in pool.spec.sources
            ),
            ultraservers="block" in sources and any(kind.ultraserver for kind in kinds),
            gangs=any(job.nodes > 1 for job in jobs) or (node_class is not None and node_class.spec.efa),
            karpenter=name,
            karpenter_knows_blocks=own is not None and own.supports(KARPENTER_CAPACITY_BLOCKS),
        )


def _may_run(job: JobStream, pool: ComputePool) -> bool:
    """By what it asks of a node's labels; the rest is the scheduler's business."""
    labels = {**pool.spec.labels, names.LABEL_POOL: pool.name}
    return set(job.node_selector.items()) <= set(labels.items())


def _advice(facts: _Facts) -> PoolAdvice:
    judged = [_judge(facts, one) for one in _ORDER]
    possible = [each for each in judged if not each.rules_out]
    best = max(
        possible, key=lambda each: len(each.favours) - len(each.costs)
    )  # max takes the first of equals
    rest = [each for each in judged if each is not best]
    chosen = Judged(best.provisioner, "best", best.favours, best.costs)
    return PoolAdvice(facts.pool.name, facts.pool.spec.provisioner, chosen, (chosen, *rest))


def _judge(facts: _Facts, provisioner: Provisioner) -> Judged:
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
    return Judged(provisioner, fit, tuple(favours), tuple(costs), tuple(rules_out))


Sides = tuple[list[str], list[str], list[str]]  # in favour, costs, rules it out


def _native(facts: _Facts) -> list[str]:
    found = []
    if facts.blocks:
        found.append(
            "a block is used until 30 minutes before its end (UltraServers: 60), as long as EC2 allows"
        )
    if facts.gangs:
        found.append(
            "pods of a gang start together or not at all: nodes are held for them until all are there"
        )
    if facts.types > 1:
        found.append("each launch is the cheapest type that fits, with no group for each type")
    return found


def _asg(facts: _Facts) -> Sides:
    favours, costs = [], []
    if facts.blocks:
        favours.append(
            "a block is used until 30 minutes before its end (UltraServers: 60), as long as EC2 allows"
        )
    if facts.gangs:
        favours.append("pods of a gang start together or not at all")
    if facts.blocks and facts.pool.spec.warm:
        favours.append("'warm' nodes come up on schedule at the block's start even while the engine is away")
    if facts.node_class is not None and facts.node_class.spec.launch_template is not None:
        favours.append("an existing launch template and Auto Scaling groups fit the tools around them")
    if facts.hourly and facts.types > 1:
        costs.append(f"by the hour there is a group for each of {facts.types} types and zone")
    return favours, costs, []


def _managed(facts: _Facts) -> Sides:
    favours, costs, rules_out = [], [], []
    if not facts.blocks and facts.types == 1:
        favours.append("one type of steady capacity: EKS makes the group, lets nodes join and upgrades them")
    if facts.gangs:
        favours.append("pods of a gang start together or not at all")
    if facts.blocks and not facts.ultraservers:
        costs.append("EKS scales to zero 40 minutes before a block's end: ten minutes less of every block")
    if facts.blocks:
        costs.append("on a block EKS upgrades an empty group only")
    if facts.hourly and facts.types > 1:
        costs.append(f"by the hour there is a node group for each of {facts.types} types and zone")
    own = facts.node_class.spec.role if facts.node_class is not None else ""
    if ":instance-profile/" in own:
        rules_out.append("EKS takes a role, and the node class names an instance profile")
    return favours, costs, rules_out


def _karpenter(facts: _Facts) -> Sides:
    favours, costs, rules_out = [], [], []
    if not facts.karpenter:
        rules_out.append("the platform names no Karpenter (karpenter.version or karpenter.autoMode)")
    elif facts.blocks and not facts.karpenter_knows_blocks:
        rules_out.append(f"{facts.karpenter} knows no Capacity Blocks: 1.6 is the oldest that does")
    if facts.ultraservers:
        rules_out.append(
            "it drains UltraServers 40 minutes before the end, and EC2 takes them 60 minutes before it"
        )
    if facts.node_class is not None and facts.node_class.spec.launch_template is not None:
        rules_out.append("it takes no existing launch template")
    if facts.hourly and not facts.blocks:
        favours.append(f"{facts.karpenter} is there and launches by the hour whether the engine runs or not")
        if facts.types > 1:
            favours.append("it chooses among types by itself")
    if facts.blocks:
        costs.append("it drains 40 minutes before a block's end: ten minutes less of every block")
    if facts.gangs:
        costs.append("it launches pod by pod: a gang is not promised whole")
    if facts.capped:
        costs.append(
            "caps on money by the hour become limits on vCPUs; a month's cap is kept by the engine alone"
        )
    return favours, costs, rules_out
