"""Words for worlds: blocks, nodes, pods and documents with the defaults a test does not care about.

Durations are written as people write them and count from NOW: `block(ends_in="39m")`, `node(joined="8m")`
(ago), `pod(grace="5m")`. A block's slots are all taken unless `free` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from tidemill.catalog import load
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.labels import Taint, Toleration
from tidemill.model.nodes import Instance, InstanceState, KubeNode, Node
from tidemill.model.offers import ExtensionSearch, OfferSearch
from tidemill.model.plan import Action, Plan, Unmet
from tidemill.model.pods import DisruptionBudget, Gang, Pod, PodPhase, PodShape, Terms, Workload
from tidemill.model.purchases import LaunchIntent, LaunchState, PurchaseIntent, Spending
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.model.world import World
from tidemill.spec import Spec, names
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform
from tidemill.spec.units import parse_cpu, parse_duration, parse_memory

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
OWNER = "tides"
ZONE = "us-west-2a"
BLOCK = Source(SourceKind.BLOCK, "cr-1")
ON_DEMAND = Source(SourceKind.ON_DEMAND)
SPOT = Source(SourceKind.SPOT)
DURATIONS = ("grace", "expected", "checkpoint_time", "checkpoint_every", "load")
A = TypeVar("A", bound=Action)


def ahead(duration: str) -> datetime:
    return NOW + parse_duration(duration)


def ago(duration: str) -> datetime:
    return NOW - parse_duration(duration)


# --- documents ----------------------------------------------------------------------------------------


def pool(name: str = "p5", **fields: Any) -> ComputePool:
    """p5.48xlarge on blocks, up to 64 nodes."""
    defaults: dict[str, Any] = {
        "nodeClassName": "gpu",
        "sources": [{"type": "block"}],
        "requirements": {"instanceTypes": ["p5.48xlarge"]},
        "limits": {"nodes": 64},
    }
    return ComputePool.model_validate({"metadata": {"name": name}, "spec": {**defaults, **fields}})


def hourly_pool(name: str = "g6", *types: str, **fields: Any) -> ComputePool:
    """On-demand only, so nothing in it is overflow."""
    wanted = {"instanceTypes": list(types)} if types else {"instanceFamilies": ["g6"]}
    return pool(name, **{"sources": [{"type": "on-demand"}], "requirements": wanted, **fields})


def plan(name: str = "november", **fields: Any) -> CapacityPlan:
    window: dict[str, Any] = {
        "name": "week", "from": ahead("2d"), "to": ahead("9d"), "instanceType": "p5.48xlarge", "instances": 4,
        **{key: fields.pop(key) for key in ("zones", "maxFeeUsd", "instances") if key in fields},
    }  # fmt: skip
    spec: dict[str, Any] = {"pool": "p5", "demand": [window], **fields}
    return CapacityPlan.model_validate({"metadata": {"name": name}, "spec": spec})


def spec(*documents: ComputePool | CapacityPlan, **platform: Any) -> Spec:
    """With one default pool when none is given; two zones, no budget, propose-only."""
    fields = {
        "region": "us-west-2",
        "deployment": OWNER,
        "cluster": {"name": "tides"},
        "subnets": {ZONE: ["subnet-a"], "us-west-2b": ["subnet-b"]},
        **platform,
    }
    pools = [document for document in documents if isinstance(document, ComputePool)] or [pool()]
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "tides"}, "spec": fields}),
        catalog=load(),
        pools={one.name: one for one in pools},
        plans={document.name: document for document in documents if isinstance(document, CapacityPlan)},
    )


# --- capacity -----------------------------------------------------------------------------------------


def block(
    id: str = "cr-1",
    *,
    ends_in: str | None = "24h",
    starts_in: str | None = None,
    count: int = 4,
    free: int = 0,
    kind: Literal["block", "odcr"] = "block",
    instance_type: str = "p5.48xlarge",
    owner: str = OWNER,
    **fields: Any,
) -> Reservation:
    """Active since an hour ago, or scheduled if `starts_in` is given."""
    state = ReservationState.SCHEDULED if starts_in else ReservationState.ACTIVE
    return Reservation(
        id,
        SourceKind.BLOCK if kind == "block" else SourceKind.ODCR,
        instance_type,
        fields.pop("zone", ZONE),
        count,
        free,
        fields.pop("state", state),
        start=ahead(starts_in) if starts_in else ago("1h"),
        end=ahead(ends_in) if ends_in else None,
        owner=owner,
        **fields,
    )


PHASES = ("launched", "joined", "registering", "verifying", "ready", "draining")

DRAINED = DrainReason(DrainKind.SOURCE_ENDS, name="cr-1")  # by which instant does not matter


def node(
    id: str = "i-1",
    phase: str = "ready",
    *,
    source: Source = BLOCK,
    instance_type: str = "p5.48xlarge",
    pool: str = "p5",
    owner: str = OWNER,
    launched: str = "1h",
    joined: str = "55m",
    state: InstanceState = InstanceState.RUNNING,
    provisioner: str = "native",
    ends_in: str | None = None,
    intent_id: str = "",
    zone: str = ZONE,
    **kube: Any,
) -> Node:
    """A node in a phase, told by the facts that make it so; `kube` overrides those of the Kubernetes side."""
    instance = Instance(
        id, instance_type, zone, source, state, ago(launched), owner=owner, pool=pool,
        intent_id=intent_id, provisioner=provisioner, ends_at=ahead(ends_in) if ends_in else None,
    )  # fmt: skip
    reached = PHASES.index(phase)
    if reached == 0:
        return Node(instance, None)
    registered = ago(joined) + timedelta(seconds=75) if reached >= PHASES.index("verifying") else None
    catalogued = load().types[instance_type]
    offered = tuple(
        pair for pair in catalogued.allocatable if registered is not None or pair[0] not in names.ACCELERATORS
    )
    labels = {
        names.LABEL_POOL: pool,
        names.LABEL_SOURCE: source.label,
        names.LABEL_TYPE: instance_type,
        names.LABEL_ARCH: catalogued.arch,
        names.LABEL_ZONE: zone,
        **kube.pop("labels", {}),
    }
    facts: dict[str, Any] = {
        "ready": reached >= PHASES.index("registering"),
        "allocatable": offered,
        "labels": tuple(sorted(labels.items())),
        "taints": (Taint(names.TAINT_STARTUP),) if phase in ("registering", "verifying") else (),
        "accelerators_registered_at": registered,
        "check": "running" if phase in ("registering", "verifying") else "",
        "draining_since": ago("1m") if phase == "draining" else None,
        "drain_reason": DRAINED if phase == "draining" else None,
    }
    return Node(instance, KubeNode(f"node-{id}", id, ago(joined), **{**facts, **kube}))


def launch_intent(
    id: str = "ti-1", *, state: LaunchState = LaunchState.WRITTEN, **fields: Any
) -> LaunchIntent:
    defaults: dict[str, Any] = {
        "pool": "p5", "source": BLOCK, "instance_type": "p5.48xlarge", "zone": ZONE, "count": 1,
        "provisioner": "native", "written_at": ago("5s"),
    }  # fmt: skip
    return LaunchIntent(id, state=state, **{**defaults, **fields})


def failed_launch(id: str = "ti-f", *, at: datetime = NOW, **fields: Any) -> LaunchIntent:
    fields = {"written_at": at, "state_at": at, "failure": "no-capacity", **fields}
    return launch_intent(id, state=LaunchState.FAILED, **fields)


# --- drains -------------------------------------------------------------------------------------------

DRIFTED = DrainReason(DrainKind.DRIFTED_NODE_CLASS, name="gpu")
CHECK_FAILED = DrainReason(DrainKind.NODE_CHECK_FAILED, detail="GPU 5")


def block_ends(at: datetime, id: str = "cr-1") -> DrainReason:
    return DrainReason(DrainKind.SOURCE_ENDS, at=at, name=id)


# --- work ---------------------------------------------------------------------------------------------


def pod(
    name: str = "train-1",
    *,
    gpus: int = 0,
    neurons: int = 0,
    cpu: str = "1",
    memory: str = "1Gi",
    on: Node | None = None,
    selector: dict[str, str] | None = None,
    tolerates: Iterable[str] = (),
    **fields: Any,
) -> Pod:
    """A gated pod of a Job, waiting for a minute; `on` a node: admitted, bound and running there.

    Whatever `Terms` knows (grace, expected, overflow, …) can be given by name.
    """
    wanted = {"cpu": parse_cpu(cpu), "memory": parse_memory(memory)}
    wanted |= {names.NVIDIA_GPU: gpus} if gpus else {}
    wanted |= {names.NEURON: neurons} if neurons else {}
    terms: dict[str, Any] = {key: fields.pop(key) for key in Terms.__slots__ if key in fields}
    terms |= {key: parse_duration(terms[key]) for key in DURATIONS if key in terms}
    defaults: dict[str, Any] = {
        "uid": f"uid-{name}", "namespace": "ml", "phase": PodPhase.PENDING, "created_at": ago("1m"),
        "workload": f"Job/{name}", "gated": True,
    }  # fmt: skip
    if on is not None:
        assert on.instance is not None
        defaults |= {
            "phase": PodPhase.RUNNING, "gated": False, "node": on.name, "started_at": ago("30m"),
            "ready": True, "pinned_to": on.instance.source.label,
        }  # fmt: skip
    shape = PodShape(
        tuple(sorted(wanted.items())),
        tuple(sorted((selector or {}).items())),
        tuple(Toleration(key, "Exists") for key in tolerates),
    )
    return Pod(name=name, shape=shape, terms=Terms(**terms), **{**defaults, **fields})


def replica(name: str = "chat-1", on: Node | None = None, **fields: Any) -> Pod:
    """A pod of a service: never gated, never pinned, without an end of its own."""
    return pod(name, on=on, **{"workload": "Deployment/chat", "gated": False, "pinned_to": "", **fields})


def daemon(name: str, on: Node, **fields: Any) -> Pod:
    return pod(name, on=on, daemon=True, workload="DaemonSet/agent", pinned_to="", **fields)


def gang(name: str = "g", size: int = 2, **fields: Any) -> list[Pod]:
    fields = {"gpus": 8, "workload": f"Job/{name}", **fields}
    return [pod(f"{name}-{place}", gang=Gang(name, size), **fields) for place in range(size)]


# --- the snapshot -------------------------------------------------------------------------------------

FIELD_OF: dict[type, str] = {
    Reservation: "reservations", Node: "nodes", Pod: "pods", DisruptionBudget: "budgets",
    LaunchIntent: "launches", PurchaseIntent: "purchases", OfferSearch: "searches", Workload: "workloads",
    ExtensionSearch: "extension_searches",
}  # fmt: skip


def world(*things: Any, **fields: Any) -> World:
    """A snapshot of these things at NOW; lists are laid out flat."""
    sorted_out: dict[str, list[Any]] = {}
    for thing in (one for each in things for one in (each if isinstance(each, list) else [each])):
        if isinstance(thing, Spending):
            fields["spending"] = thing
        else:
            sorted_out.setdefault(FIELD_OF[type(thing)], []).append(thing)
    index: dict[str, list[Pod]] = {}
    for one in sorted_out.get("pods", []):
        if one.node:
            index.setdefault(one.node, []).append(one)
    facts: dict[str, Any] = {key: tuple(value) for key, value in sorted_out.items()}
    by_node = {key: tuple(pods) for key, pods in index.items()}
    return World(pods_by_node=by_node, **{"now": NOW, **facts, **fields})


# --- reading a plan -----------------------------------------------------------------------------------


def of(plan: Plan, kind: type[A]) -> list[A]:
    return [action for action in plan.actions if isinstance(action, kind)]


def why(plan: Plan, one: Pod) -> Unmet:
    """The one reason this pod waits."""
    reasons = [unmet for unmet in plan.unmet if unmet.pod == one.uid]
    assert len(reasons) == 1, f"{one.full_name} has {len(reasons)} reasons: {reasons}"
    return reasons[0]
