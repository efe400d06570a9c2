"""The checks, step by step. Each asks one thing; what it needs from an earlier one it asks again, so that every line
stands alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from tidemill.model.capacity import SECURED_STATES
from tidemill.model.errors import PortError
from tidemill.platform.checklist.findings import CheckKind, Finding, State, Step
from tidemill.platform.checklist.views import ClusterView, Views, WorkloadFacts
from tidemill.platform.secrets import SecretState, check_secrets, layout_of
from tidemill.platform.secrets.sync import check_sync
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner, matching_types

OLDEST_KUBERNETES = (1, 28)
OLDEST_POSTGRES = 17
# The Lease is renewed every ten seconds; a controller that starts again takes a minute.
_ENGINE_SILENT = timedelta(minutes=2)
# By what their charts call them. Any of a line will do.
_DEVICE_PLUGINS = ("nvidia-device-plugin", "nvidia-device-plugin-daemonset", "neuron-device-plugin")
_LOAD_BALANCER = ("aws-load-balancer-controller",)
_OPERATOR = ("external-secrets",)
_KARPENTER = ("karpenter",)
NO_CLUSTER = "--kube"  # why nothing of the cluster can be told: nobody asked for it

Check = Callable[[], Iterator[Finding]]


def run_checklist(
    spec: Spec, views: Views, wanted_secrets: Sequence[Mapping[str, Any]]
) -> tuple[Finding, ...]:
    """`wanted_secrets`: the External Secrets objects as they are rendered; empty: they cannot be rendered yet."""
    checks: tuple[tuple[Step, CheckKind, Check], ...] = (
        (Step.INFRASTRUCTURE, CheckKind.CLUSTER, partial(_eks, spec, views)),
        (Step.INFRASTRUCTURE, CheckKind.SUBNETS, partial(_subnets, spec, views)),
        (Step.INFRASTRUCTURE, CheckKind.DATABASE, partial(_database, spec, views)),
        (Step.INFRASTRUCTURE, CheckKind.REDIS, partial(_redis, spec, views)),
        (Step.INFRASTRUCTURE, CheckKind.BUCKET, partial(_bucket, spec, views)),
        (Step.DEPENDENCIES, CheckKind.API_SERVER, partial(_dependencies, spec, views)),
        (Step.SECRETS, CheckKind.SECRET, partial(_secrets, spec, views)),
        (Step.SECRETS, CheckKind.SYNCED, partial(_synced, views, wanted_secrets)),
        (Step.CONTROL_PLANE, CheckKind.CONTROL_PLANE, partial(_control_plane, spec, views)),
        (Step.CONTROL_PLANE, CheckKind.LOGIN_PAGE, partial(_login_page, spec, views)),
        (Step.BLOCKS, CheckKind.BLOCK_OF_POOL, partial(_blocks, spec, views)),
        (Step.NODE_POOLS, CheckKind.ENGINE, partial(_engine, views)),
        (Step.NODE_POOLS, CheckKind.POOL_NODES, partial(_pool_nodes, spec, views)),
        (Step.COMPUTE_POOLS, CheckKind.ENGINE_PODS, partial(_engine_pods, spec, views)),
        (Step.GPUS, CheckKind.NODE_GPUS, partial(_node_gpus, spec, views)),
        (Step.GPUS, CheckKind.PODS_ON_GPUS, partial(_pods_on_gpus, spec, views)),
    )
    return tuple(finding for step, kind, check in checks for finding in _looked(step, kind, check))


def _looked(step: Step, kind: CheckKind, check: Check) -> Iterator[Finding]:
    try:
        yield from check()
    except PortError as error:
        yield Finding(step, kind, State.CANNOT_TELL, why=str(error))
    except _NoCluster:
        yield Finding(step, kind, State.CANNOT_TELL, why=NO_CLUSTER)


class _NoCluster(Exception):
    pass


def _in(views: Views) -> ClusterView:
    if views.cluster is None:
        raise _NoCluster
    return views.cluster


def _state(done: bool) -> State:
    return State.DONE if done else State.MISSING


# --- 1 infrastructure -----------------------------------------------------------------------------------


def _eks(spec: Spec, views: Views) -> Iterator[Finding]:
    name = spec.platform.spec.cluster.name
    found = views.account.cluster(name)
    there = found is not None and found.active
    yield Finding(Step.INFRASTRUCTURE, CheckKind.CLUSTER, _state(there), name)
    if found is not None:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        new = _version(found.version)[:2] >= OLDEST_KUBERNETES
        yield Finding(
            Step.INFRASTRUCTURE, CheckKind.CLUSTER_VERSION, _state(new), name, found.version, oldest
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _subnets(spec: Spec, views: Views) -> Iterator[Finding]:
    """Every subnet exists, in the zone that the Platform says."""
    written = spec.platform.spec.subnets
    listed = [subnet for subnets in written.values() for subnet in subnets]
    if not listed:
        yield Finding(Step.INFRASTRUCTURE, CheckKind.SUBNETS, State.MISSING)
        return
    zones = views.account.zones_of(listed)
    for zone, subnets in sorted(written.items()):
        wrong = sorted(subnet for subnet in subnets if zones.get(subnet) != zone)
        yield Finding(
            Step.INFRASTRUCTURE,
            CheckKind.SUBNETS,
            _state(not wrong),
            zone,
            ", ".join(wrong),
            ", ".join(subnets),
        )


def _database(spec: Spec, views: Views) -> Iterator[Finding]:
    instance = layout_of(spec.platform.spec).instance
    found = views.account.database(instance)
    new = found is not None and found.available and _version(found.version)[:1] >= (OLDEST_POSTGRES,)
    version = found.version if found is not None else ""
    yield Finding(
        Step.INFRASTRUCTURE, CheckKind.DATABASE, _state(new), instance, version, str(OLDEST_POSTGRES)
    )
    if found is not None:
        faults = [
            word
            for word, wrong in (
                ("public", found.public),
                ("not encrypted", not found.encrypted),
                ("password not managed by RDS", not found.managed_login),
            )
            if wrong
        ]
        yield Finding(
            Step.INFRASTRUCTURE, CheckKind.DATABASE_SAFE, _state(not faults), instance, ", ".join(faults)
        )


def _redis(spec: Spec, views: Views) -> Iterator[Finding]:
    layout = layout_of(spec.platform.spec)
    found = views.account.redis(layout.replication_group)
    fine = found is not None and found.available and (found.tls or not layout.redis_tls)
    words = "" if found is None else "TLS" if found.tls else "no TLS"
    yield Finding(Step.INFRASTRUCTURE, CheckKind.REDIS, _state(fine), layout.replication_group, words)


def _bucket(spec: Spec, views: Views) -> Iterator[Finding]:
    name = spec.platform.spec.bucket or ""
    yield Finding(
        Step.INFRASTRUCTURE, CheckKind.BUCKET, _state(bool(name) and views.account.has_bucket(name)), name
    )


# --- 2 dependencies -------------------------------------------------------------------------------------


def _dependencies(spec: Spec, views: Views) -> Iterator[Finding]:
    cluster = _in(views)
    yield Finding(Step.DEPENDENCIES, CheckKind.API_SERVER, State.DONE, found=cluster.version())
    workloads = cluster.workloads()
    needed = [
        (CheckKind.DEVICE_PLUGIN, _DEVICE_PLUGINS),
        (CheckKind.LOAD_BALANCER_CONTROLLER, _LOAD_BALANCER),
        (CheckKind.SECRETS_OPERATOR, _OPERATOR),
    ]
    provisioners = {pool.spec.provisioner for pool in spec.pools.values()}
    karpenter = spec.platform.spec.karpenter
    if Provisioner.KARPENTER in provisioners and not (karpenter is not None and karpenter.auto_mode):
        needed.append((CheckKind.KARPENTER, _KARPENTER))
    for kind, names in needed:
        found = [one for one in workloads if one.name in names]
        # A DaemonSet for nodes that are not there yet wants none: it is installed all the same.
        works = any(one.ready >= one.wanted for one in found)
        yield Finding(
            Step.DEPENDENCIES, kind, _state(works), found[0].name if found else names[0], _ready(found)
        )


def _ready(found: Sequence[WorkloadFacts]) -> str:
    return f"{found[0].ready}/{found[0].wanted}" if found else ""


# --- 3 secrets ------------------------------------------------------------------------------------------

_STATES = {
    SecretState.FINE: State.DONE,
    SecretState.MISSING: State.MISSING,
    SecretState.WRONG: State.MISSING,
    SecretState.CANNOT_TELL: State.CANNOT_TELL,
}


def _secrets(spec: Spec, views: Views) -> Iterator[Finding]:
    layout = layout_of(spec.platform.spec)
    for one in check_secrets(layout, views.secrets, views.servers):
        found = ", ".join(fault.kind.value for fault in one.faults)
        yield Finding(
            Step.SECRETS, CheckKind.SECRET, _STATES[one.state], one.kind.value, found, one.name, one.why
        )


def _synced(views: Views, wanted: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    _in(views)
    if not wanted or views.objects is None:
        yield Finding(Step.SECRETS, CheckKind.SYNCED, State.MISSING)
        return
    for one in check_sync(views.objects, wanted, views.wall):
        found = ", ".join(one.missing_keys) or ("late" if one.late else "")
        why = one.message if one.state is SecretState.CANNOT_TELL else ""
        yield Finding(Step.SECRETS, CheckKind.SYNCED, _STATES[one.state], one.name, found, one.kind, why)


# --- 4 control plane ------------------------------------------------------------------------------------


def _control_plane(spec: Spec, views: Views) -> Iterator[Finding]:
    chart = spec.platform.spec.engine_chart
    found = [one for one in _in(views).workloads(chart.namespace) if "control-plane" in one.name]
    works = any(one.wanted and one.ready >= one.wanted for one in found)
    yield Finding(
        Step.CONTROL_PLANE,
        CheckKind.CONTROL_PLANE,
        _state(works),
        chart.namespace,
        _ready(found),
        chart.release,
    )


def _login_page(spec: Spec, views: Views) -> Iterator[Finding]:
    host = spec.platform.spec.hostname
    if not host:
        yield Finding(Step.CONTROL_PLANE, CheckKind.LOGIN_PAGE, State.MISSING)
        return
    status = views.web.status(f"https://{host}/")
    # A redirect to the log-in and a refusal for want of one are answers of a control plane.
    works = status < 400 or status in (401, 403)
    yield Finding(Step.CONTROL_PLANE, CheckKind.LOGIN_PAGE, _state(works), host, str(status))


# --- 5 blocks -------------------------------------------------------------------------------------------


def _block_pools(spec: Spec) -> list[ComputePool]:
    return [pool for pool in spec.pools.values() if any(one.type == "block" for one in pool.spec.sources)]


def _blocks(spec: Spec, views: Views) -> Iterator[Finding]:
    blocks = [block for block in views.account.blocks() if block.state in SECURED_STATES]
    for pool in _block_pools(spec):
        types = {kind.name for kind in matching_types(spec.catalog, pool.spec.requirements)}
        mine = [block for block in blocks if block.pool in ("", pool.name) and block.instance_type in types]
        usable = [block for block in mine if spec.platform.spec.subnets.get(block.zone)]
        words = ", ".join(f"{block.id} {block.state.value}" for block in usable or mine)
        zones = ", ".join(sorted({block.zone for block in mine})) if mine and not usable else ""
        yield Finding(Step.BLOCKS, CheckKind.BLOCK_OF_POOL, _state(bool(usable)), pool.name, words, zones)


# --- 6 node pools ---------------------------------------------------------------------------------------


def _engine(views: Views) -> Iterator[Finding]:
    seen_at = _in(views).engine_seen_at()
    alive = seen_at is not None and views.wall - seen_at < _ENGINE_SILENT
    found = f"{seen_at:%Y-%m-%d %H:%M:%S}" if seen_at is not None else ""
    yield Finding(Step.NODE_POOLS, CheckKind.ENGINE, _state(alive), found=found)


def _pool_nodes(spec: Spec, views: Views) -> Iterator[Finding]:
    nodes = _in(views).nodes()
    for pool in _block_pools(spec):
        mine = [node for node in nodes if node.pool == pool.name]
        ready = sum(node.ready for node in mine)
        yield Finding(
            Step.NODE_POOLS, CheckKind.POOL_NODES, _state(ready > 0), pool.name, f"{ready}/{len(mine)}"
        )


# --- 7 compute pools ------------------------------------------------------------------------------------


def _engine_pods(spec: Spec, views: Views) -> Iterator[Finding]:
    chart = spec.platform.spec.engine_chart
    wanted = sum(pool.replicas * pool.nodes_per_replica for pool in chart.pools)
    pods = [pod for pod in _in(views).pods(chart.namespace) if pod.gpus]
    ready = sum(pod.ready for pod in pods)
    yield Finding(
        Step.COMPUTE_POOLS, CheckKind.ENGINE_PODS, _state(wanted > 0 and ready >= wanted), chart.namespace,
        str(ready), str(wanted),
    )  # fmt: skip


# --- 8 GPUs ---------------------------------------------------------------------------------------------


def _node_gpus(spec: Spec, views: Views) -> Iterator[Finding]:
    """As many as the catalog says that a node of the pool has."""
    nodes = [node for node in _in(views).nodes() if node.ready]
    for pool in _block_pools(spec):
        least = min(
            (kind.gpus for kind in matching_types(spec.catalog, pool.spec.requirements) if kind.gpus),
            default=0,
        )
        mine = [node for node in nodes if node.pool == pool.name]
        short = [node.name for node in mine if node.gpus < least]
        done = bool(mine) and not short
        total = sum(node.gpus for node in mine)
        yield Finding(Step.GPUS, CheckKind.NODE_GPUS, _state(done), pool.name, str(total), ", ".join(short))


def _pods_on_gpus(spec: Spec, views: Views) -> Iterator[Finding]:
    cluster = _in(views)
    blocks = {node.name for node in cluster.nodes() if node.source.startswith("cr-")}
    pods = [pod for pod in cluster.pods(spec.platform.spec.engine_chart.namespace) if pod.gpus and pod.ready]
    there = [pod for pod in pods if pod.node in blocks]
    used = sum(pod.gpus for pod in there)
    yield Finding(
        Step.GPUS, CheckKind.PODS_ON_GPUS, _state(used > 0), found=str(used), wanted=str(len(there))
    )
