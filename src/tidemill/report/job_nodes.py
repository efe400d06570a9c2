"""Which nodes a training job would get: the pool, its instance types, and what each pod of the job requests.

It answers before anything is created, so that a job that no pool could ever run is refused with what to write instead.
Whether there is capacity now, and where the job really starts, is the engine's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from tidemill.catalog import Catalog, InstanceType
from tidemill.catalog.sizing import GIB, whole_node_request
from tidemill.model.ec2_facts import MAX_INSTANCES_PER_BLOCK
from tidemill.model.errors import SpecError
from tidemill.model.resources import CPU, MEMORY, Amounts
from tidemill.spec import names
from tidemill.spec.compute_pool import Allowance, ComputePool, TaintSpec, matching_types
from tidemill.spec.problem import quoted, suggestion


@dataclass(frozen=True, slots=True)
class WantedNodes:
    """`gpus` are those of each node. `pool` and `instance_type` are empty where the user leaves the choice open."""

    gpus: int
    nodes: int = 1
    pool: str = ""
    instance_type: str = ""
    namespace: str = ""  # empty: not known yet


@dataclass(frozen=True, slots=True)
class JobNodes:
    """Every one of `types` holds `requests`, as the scheduler counts: with EFA where the job has several nodes."""

    types: tuple[InstanceType, ...]
    gpus: int  # of each pod
    requests: Amounts
    pool: str = ""  # empty: no pool is known, only a type
    taints: tuple[TaintSpec, ...] = ()
    default_duration: timedelta | None = None  # of the pool: how long a job counts that does not say
    efa_differs: bool = False  # the types have different numbers of EFA interfaces: the least is requested

    @property
    def whole(self) -> bool:
        """A pod uses all accelerators of its node."""
        return all(kind.gpus == self.gpus for kind in self.types)


def nodes_of_a_type(catalog: Catalog, wanted: WantedNodes) -> JobNodes:
    """For a user who can read no pools."""
    kind = catalog.types.get(wanted.instance_type)
    if kind is None:
        raise SpecError(f"unknown instance type {_close(wanted.instance_type, catalog.types)}")
    if kind.gpus < wanted.gpus:
        raise SpecError(_too_many_gpus(wanted, kind.gpus, kind.name))
    taint = TaintSpec(key=kind.accelerator.resource) if kind.accelerator else None
    return _sized((kind,), wanted, "", (taint,) if taint else ())


def choose_nodes(pools: Mapping[str, ComputePool], catalog: Catalog, wanted: WantedNodes) -> JobNodes:
    """SpecError: no pool could ever run it, or several could and it is not said which."""
    if wanted.instance_type and wanted.instance_type not in catalog.types:
        raise SpecError(f"unknown instance type {_close(wanted.instance_type, catalog.types)}")
    if wanted.pool and wanted.pool not in pools:
        raise SpecError(f"there is no pool {_close(wanted.pool, pools, what='pools')}")
    asked = [pools[wanted.pool]] if wanted.pool else list(pools.values())
    fits: dict[str, tuple[InstanceType, ...]] = {}
    reasons: dict[str, str] = {}
    for pool in asked:
        found = _types_that_fit(pool, catalog, wanted)
        if isinstance(found, str):
            reasons[pool.name] = found
        else:
            fits[pool.name] = found
    if not fits:
        raise SpecError(_nowhere(reasons, wanted))
    name = _preferred(fits, pools)
    spec = pools[name].spec
    return replace(_sized(fits[name], wanted, name, spec.taints), default_duration=spec.default_duration)


def _preferred(fits: Iterable[str], pools: Mapping[str, ComputePool]) -> str:
    """The one with the highest weight. Pools of one weight are for the user to choose from: GPUs are not all alike."""
    ordered = sorted(fits, key=lambda name: (-pools[name].spec.weight, name))
    best = [name for name in ordered if pools[name].spec.weight == pools[ordered[0]].spec.weight]
    if len(best) > 1:
        raise SpecError(f"several pools could run it; add --pool, one of: {', '.join(best)}")
    return best[0]


def _types_that_fit(
    pool: ComputePool, catalog: Catalog, wanted: WantedNodes
) -> tuple[InstanceType, ...] | str:
    """The types of the pool that could hold it, or why there are none."""
    spec = pool.spec
    if wanted.namespace and not spec.serves(wanted.namespace):
        allowed = ", ".join(spec.allowed_namespaces)
        return f"it does not serve namespace {wanted.namespace}; add --namespace with one of: {allowed}"
    offered = [kind for kind in matching_types(catalog, spec.requirements) if kind.gpus]
    if not offered:
        return "its nodes have no accelerators"
    named = [kind for kind in offered if wanted.instance_type in ("", kind.name)]
    if not named:
        types = ", ".join(sorted(kind.name for kind in offered)[:8])
        return f"it has no {wanted.instance_type}; its types: {types}"
    large = [kind for kind in named if kind.gpus >= wanted.gpus]
    if not large:
        most = max(named, key=lambda kind: kind.gpus)
        return _too_many_gpus(wanted, most.gpus, most.name)
    if spec.limits is None:
        return "it has no limits, and without limits it launches nothing; set spec.limits"
    allowance = Allowance.of(spec.limits)
    within = tuple(kind for kind in large if allowance.allows(kind, _node_count(kind, wanted)))
    if not within:
        return _over_limits(allowance, large, wanted)
    if all(source.type == "block" for source in spec.sources):
        fewest = min(_node_count(kind, wanted) for kind in within)
        if fewest > MAX_INSTANCES_PER_BLOCK:
            return (
                f"it has blocks only, which have at most {MAX_INSTANCES_PER_BLOCK} instances, and a gang of {fewest} "
                "nodes runs on one block"
            )
    return within


def _node_count(kind: InstanceType, wanted: WantedNodes) -> int:
    """Pods that use a part of a node share it."""
    return -(-wanted.nodes // (kind.gpus // wanted.gpus))


def _over_limits(allowance: Allowance, large: Iterable[InstanceType], wanted: WantedNodes) -> str:
    kind = max(large, key=allowance.most)
    most = int(allowance.most(kind))
    held = most * (kind.gpus // wanted.gpus)
    instead = f"ask for --nodes {held} or fewer, or raise them" if held else "raise them"
    return (
        f"its limits allow {most} {kind.name} at once, and {_node_count(kind, wanted)} are needed; {instead}"
    )


def _too_many_gpus(wanted: WantedNodes, has: int, kind: str) -> str:
    total = wanted.gpus * wanted.nodes
    split = f"; --gpus counts those of one node: write --gpus {has} --nodes {-(-total // has)}"
    return f"a node has at most {has} GPUs ({kind}), not {wanted.gpus}{split}"


def _nowhere(reasons: Mapping[str, str], wanted: WantedNodes) -> str:
    if not reasons:
        return "there is no compute pool; create a ComputePool first, or name the documents with -f"
    if wanted.pool:
        return f"pool {wanted.pool} could never run it: {reasons[wanted.pool]}"
    listed = "".join(f"\n  {name}: {reason}" for name, reason in sorted(reasons.items()))
    return f"no pool could ever run it:{listed}"


def _sized(
    kinds: tuple[InstanceType, ...], wanted: WantedNodes, pool: str, taints: tuple[TaintSpec, ...]
) -> JobNodes:
    devices = {kind.accelerator.resource for kind in kinds if kind.accelerator}
    if len(devices) > 1:
        raise SpecError(
            f"pool {pool} has nodes with {' and '.join(sorted(devices))}; choose with --instance-type, one of: "
            + ", ".join(kind.name for kind in kinds)
        )
    shares = [_share(kind, wanted) for kind in kinds]
    least = {name: min(share.get(name, 0) for share in shares) for name in shares[0]}
    return JobNodes(
        kinds,
        wanted.gpus,
        tuple(sorted((name, value) for name, value in least.items() if value)),
        pool,
        taints,
        efa_differs=wanted.nodes > 1 and len({share[names.EFA] for share in shares}) > 1,
    )


def _share(kind: InstanceType, wanted: WantedNodes) -> dict[str, int]:
    """A whole node's request, or the part of it that belongs to so many of its accelerators."""
    whole = dict(whole_node_request(kind))
    assert kind.accelerator is not None
    return {
        CPU: whole[CPU] * wanted.gpus // kind.gpus // 100 * 100,
        MEMORY: whole[MEMORY] * wanted.gpus // kind.gpus // GIB * GIB,
        kind.accelerator.resource: wanted.gpus,
        names.EFA: kind.efa * wanted.gpus // kind.gpus if wanted.nodes > 1 else 0,
    }


def _close(word: str, valid: Iterable[str], *, what: str = "valid") -> str:
    return f"{quoted(word)}; {suggestion(word, valid, what=what)}"
