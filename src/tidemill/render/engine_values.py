"""Helm values for the engine's chart: its pools on our nodes, its secrets by name, ingress and logs.

The shape is that of the public Adaptive Engine chart (`harmony.computePools`, `secrets.existing…Secret`), which others
can be mapped from. Charts of this kind render one replica where a pool says 0, so a pool without replicas is left out,
and without any pool the workers are off. No value is a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.catalog import InstanceType
from tidemill.catalog.sizing import whole_node_request
from tidemill.model.errors import SpecError
from tidemill.model.resources import amount
from tidemill.render.external_secrets import secret_names
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, matching_types
from tidemill.spec.platform_services import EnginePool
from tidemill.spec.problem import suggestion

_GIB = 2**30
# Long enough for a pool's name that a reservation is added to.
_RESERVATION_CHARACTERS = 8


def engine_values(
    spec: Spec, *, control_plane_only: bool = False, reservations: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """`reservations`: by pool of the engine, the blocks that its replicas are pinned to, one pool of values for each.
    Two of them serve side by side during a hand-over."""
    platform = spec.platform.spec
    pools = [] if control_plane_only else _pools(spec, reservations or {})
    return {
        "containerRegistry": _registry(spec),
        "secrets": _secrets(spec),
        "controlPlane": _control_plane(spec),
        "harmony": {
            "enabled": bool(pools),
            "serviceAccount": {"create": True, "name": platform.engine_chart.service_accounts.workers},
            "image": {
                "repository": platform.engine_chart.images.repository,
                "tag": platform.engine_chart.images.worker,
            },
            "computePools": pools,
        },
        # RDS and ElastiCache have them.
        "installPostgres": {"enabled": False},
        "redis": {"install": {"enabled": False}},
        **_ingress(spec),
        **_logs(spec),
    }


def _registry(spec: Spec) -> str:
    platform = spec.platform.spec
    if platform.engine_chart.images.registry:
        return platform.engine_chart.images.registry
    if platform.account_id is None:
        raise SpecError(
            "where the engine's images are is not known: write accountId, or engineChart.images.registry"
        )
    return f"{platform.account_id}.dkr.ecr.{platform.region}.amazonaws.com"


def _secrets(spec: Spec) -> dict[str, str]:
    """The Kubernetes secrets that External Secrets makes: `tidemill render secrets`."""
    made = secret_names(spec.platform.spec)
    return {
        "existingControlPlaneSecret": made["control-plane"],
        "existingHarmonySecret": made["workers"],
        "existingRedisSecret": made["redis"],
    }


def _control_plane(spec: Spec) -> dict[str, Any]:
    platform, chart = spec.platform.spec, spec.platform.spec.engine_chart
    return {
        "image": {"repository": chart.images.repository, "tag": chart.images.control_plane},
        "serviceAccount": {"create": True, "name": chart.service_accounts.control_plane},
        **({"rootUrl": f"https://{platform.hostname}"} if platform.hostname else {}),
    }


# --- pools ----------------------------------------------------------------------------------------------


def _pools(spec: Spec, reservations: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    wanted = spec.platform.spec.engine_chart.pools
    for name in reservations:
        if name not in {pool.name for pool in wanted}:
            known = [pool.name for pool in wanted]
            raise SpecError(f"the engine has no pool '{name}'; {suggestion(name, known)}")
    return [
        _pool(spec, pool, reservation)
        for pool in wanted
        if pool.replicas
        for reservation in reservations.get(pool.name) or ("",)
    ]


def _pool(spec: Spec, wanted: EnginePool, reservation: str) -> dict[str, Any]:
    if wanted.compute_pool not in spec.pools:
        raise SpecError(
            f"engineChart.pools: there is no ComputePool '{wanted.compute_pool}';"
            f" {suggestion(wanted.compute_pool, spec.pools)}"
        )
    pool = spec.pools[wanted.compute_pool]
    kind = _instance_type(spec, pool)
    gpus = wanted.gpus_per_replica or kind.gpus
    if not gpus or kind.gpus % gpus:
        raise SpecError(
            f"engineChart.pools: '{wanted.name}' asks for {gpus} GPUs a replica, which is no divisor of the {kind.gpus}"
            f" of a {kind.name}"
        )
    several = wanted.nodes_per_replica > 1
    # A pool that is pinned has the block in its name: at a hand-over one is added and one removed, none renamed.
    name = (
        f"{wanted.name}-{reservation.removeprefix('cr-')[:_RESERVATION_CHARACTERS]}"
        if reservation
        else wanted.name
    )
    amounts = _amounts(kind, gpus, efa=several)
    images = spec.platform.spec.engine_chart.images
    return {
        "name": name,
        "replicas": wanted.replicas,
        "gpusPerReplica": gpus,
        **({"capabilities": wanted.capabilities} if wanted.capabilities else {}),
        **({"image": {"tag": images.efa_worker}} if several else {}),
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "nodeSelector": {
            names.LABEL_POOL: pool.name,
            **({names.LABEL_SOURCE: reservation} if reservation else {}),
        },
        "tolerations": _tolerations(pool),
        # The engine's replicas are services: held until there is room, and handed over before a block ends.
        "podLabels": {names.MANAGED: "true"},
    }


def _instance_type(spec: Spec, pool: ComputePool) -> InstanceType:
    types = [kind for kind in matching_types(spec.catalog, pool.spec.requirements) if kind.gpus]
    if not types:
        raise SpecError(f"pool {pool.name} has no instance type with GPUs, and the engine needs some")
    smallest = min(types, key=lambda kind: (kind.gpus, kind.vcpus, kind.memory_mib, kind.name))
    if len({kind.gpus for kind in types}) > 1:
        raise SpecError(
            f"pool {pool.name} may launch nodes of {smallest.gpus} to {max(kind.gpus for kind in types)} GPUs, and the"
            " replicas of the engine need one size: narrow requirements.instanceTypes"
        )
    return smallest


def _amounts(kind: InstanceType, gpus: int, *, efa: bool) -> dict[str, str]:
    """A replica's share of a node, as large as the part of its GPUs. The chart adds the GPUs themselves."""
    whole, per_node = whole_node_request(kind), kind.gpus // gpus
    cpu_milli = amount(whole, "cpu") // per_node
    cpu = f"{cpu_milli // 1000}" if cpu_milli % 1000 == 0 else f"{cpu_milli}m"
    amounts = {"cpu": cpu, "memory": f"{amount(whole, 'memory') // per_node // _GIB}Gi"}
    if efa and kind.efa:
        amounts[names.EFA] = str(kind.efa // per_node or 1)
    return amounts


def _tolerations(pool: ComputePool) -> list[dict[str, str]]:
    taints = [(taint.key, taint.value, taint.effect) for taint in pool.spec.taints]
    if not any(key == names.NVIDIA_GPU for key, _, _ in taints):
        taints.append((names.NVIDIA_GPU, "", "NoSchedule"))
    if pool.spec.admitted_pods_only:
        taints.append((names.TAINT_HELD, "", "NoSchedule"))
    return [
        {
            "key": key,
            **({"operator": "Equal", "value": value} if value else {"operator": "Exists"}),
            "effect": effect,
        }
        for key, value, effect in taints
    ]


# --- ingress and logs -----------------------------------------------------------------------------------


def _ingress(spec: Spec) -> dict[str, Any]:
    platform, ingress = spec.platform.spec, spec.platform.spec.engine_chart.ingress
    if not ingress.certificate_arn:
        return {"ingress": {"enabled": False}}
    if not platform.hostname:
        raise SpecError("an ingress needs the Platform's hostname, which its certificate is for")
    front = "alb.ingress.kubernetes.io"
    annotations = {
        f"{front}/scheme": "internal" if ingress.internal else "internet-facing",
        f"{front}/target-type": "ip",
        f"{front}/listen-ports": '[{"HTTPS": 443}]',
        f"{front}/certificate-arn": ingress.certificate_arn,
        f"{front}/ssl-policy": "ELBSecurityPolicy-TLS13-1-2-2021-06",
    }
    if ingress.prefix_lists:
        annotations[f"{front}/security-group-prefix-lists"] = ",".join(ingress.prefix_lists)
    host = {"host": platform.hostname, "paths": [{"path": "/", "pathType": "Prefix"}]}
    return {"ingress": {"enabled": True, "className": "alb", "annotations": annotations, "hosts": [host]}}


def _logs(spec: Spec) -> dict[str, Any]:
    """The chart's collector sends logs to the CloudWatch agent; its exporters and pipelines are texts."""
    endpoint = spec.platform.spec.engine_chart.otlp_endpoint
    if not endpoint:
        return {}
    parts = "receivers: [otlp]\n  processors: [memory_limiter, batch]\n  exporters: [otlphttp/cloudwatch]"
    return {
        "otelCollector": {
            "enabled": True,
            "exporters": f"otlphttp/cloudwatch:\n  endpoint: {endpoint}\n",
            "pipelines": f"logs:\n  {parts}\n",
        }
    }
