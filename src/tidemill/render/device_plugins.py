"""Helm values of the device plugins that the pools need: NVIDIA, EFA, Neuron. Pinned, and kept apart where they clash.

A device plugin must run on every node of its kind, from the first second: so it tolerates every taint that a node of
the pool can have. And nowhere else: two plugins that offer the same device break both (TR-6, TR-7). `tidemill lint`
looks for the same clashes in values that are there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.decide.read_models import PoolTemplate, templates
from tidemill.spec import Spec, names, traps
from tidemill.spec.compute_pool import Provisioner
from tidemill.spec.node_class import NodeClass

# Of 2026-11. The names of the values below are those of these versions.
NVIDIA_VERSION, EFA_VERSION, NEURON_VERSION = "0.19.3", "v0.5.8", "1.1.2"
_OURS = (names.TAINT_STARTUP, names.TAINT_DRAINING, names.TAINT_HELD, names.TAINT_ENDING)
# NVIDIA's own rule, for nodes that are no business of ours.
_NVIDIA_NODES = (
    ("feature.node.kubernetes.io/pci-10de.present", "true"),
    ("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA"),
    ("nvidia.com/gpu.present", "true"),
)


@dataclass(frozen=True, slots=True)
class Plugin:
    """One chart: where it comes from, its version, its values, and the pools it is for."""

    name: str
    repository: str
    chart: str
    version: str
    namespace: str
    values: Mapping[str, Any]
    pools: tuple[str, ...]

    @property
    def command(self) -> str:
        """`helm` with the values in a file beside it."""
        source = f"--repo {self.repository} {self.chart}"
        if self.repository.startswith("oci:"):
            source = f"{self.repository}/{self.chart}"
        return (
            f"helm upgrade --install {self.name} {source} --version {self.version}"
            f" --namespace {self.namespace} --create-namespace -f {self.name}.yaml"
        )


@dataclass(frozen=True, slots=True)
class _Pools:
    """Which pools need which plugin."""

    nvidia: tuple[PoolTemplate, ...]
    bundled: tuple[PoolTemplate, ...]  # NVIDIA nodes whose image brings the plugin
    efa: tuple[PoolTemplate, ...]
    neuron: tuple[PoolTemplate, ...]
    automatic: tuple[PoolTemplate, ...]  # EKS Auto Mode brings all of them


def _sorted_out(spec: Spec) -> _Pools:
    nvidia: list[PoolTemplate] = []
    bundled: list[PoolTemplate] = []
    efa, neuron, automatic = [], [], []
    own = spec.platform.spec.karpenter
    for template in templates(spec).values():
        pool = template.pool.spec
        if pool.provisioner is Provisioner.KARPENTER and own is not None and own.auto_mode:
            automatic.append(template)
            continue
        devices = {kind.accelerator.resource for kind in template.kinds.values() if kind.accelerator}
        node_class = spec.node_classes.get(pool.node_class_name)
        brings_one = node_class is not None and traps.bundles_device_plugin(_image(node_class))
        if names.NVIDIA_GPU in devices:
            (bundled if brings_one else nvidia).append(template)
        if names.NEURON in devices:
            neuron.append(template)
        if node_class is not None and node_class.spec.efa and _efa_types((template,)):
            efa.append(template)
    return _Pools(tuple(nvidia), tuple(bundled), tuple(efa), tuple(neuron), tuple(automatic))


def device_plugins(spec: Spec) -> list[Plugin]:
    """Those that the pools need; a pool of EKS Auto Mode needs none."""
    pools = _sorted_out(spec)
    made = []
    if pools.nvidia:
        made.append(_nvidia(pools))
    if pools.efa:
        made.append(_efa(pools))
    if pools.neuron:
        made.append(_neuron(pools))
    return made


def without_plugins(spec: Spec) -> dict[str, tuple[str, ...]]:
    """Pools whose GPUs, or all devices, have a plugin already, by what brings it."""
    pools = _sorted_out(spec)
    return {
        "the NVIDIA device plugin of Bottlerocket's image": _names(pools.bundled),
        "the device plugins of EKS Auto Mode": _names(pools.automatic),
    }


# --- the charts ---------------------------------------------------------------------------------------


def _nvidia(pools: _Pools) -> Plugin:
    ours = {"key": names.LABEL_POOL, "operator": "In", "values": list(_names(pools.nvidia))}
    never = {"key": names.LABEL_POOL, "operator": "NotIn", "values": list(_names(pools.bundled))}
    theirs = [
        [{"key": key, "operator": "In", "values": [value]}, *([never] if pools.bundled else [])]
        for key, value in _NVIDIA_NODES
    ]
    values: dict[str, Any] = {
        "affinity": _affinity([[ours], *theirs]),
        "tolerations": _tolerations(pools.nvidia, names.NVIDIA_GPU),
        "priorityClassName": "system-node-critical",
    }
    if set(_names(pools.efa)) & set(_names(pools.nvidia)):
        values["mofedEnabled"] = False  # not this version's default, but that of others (TR-6)
    return Plugin(
        "nvidia-device-plugin", "https://nvidia.github.io/k8s-device-plugin", "nvidia-device-plugin", NVIDIA_VERSION,
        "nvidia-device-plugin", values, _names(pools.nvidia),
    )  # fmt: skip


def _efa(pools: _Pools) -> Plugin:
    """Its chart chooses nodes by instance type; Neuron types need the privileged one of its two DaemonSets."""
    neuron = {name for template in pools.neuron for name in template.kinds}
    types = _efa_types(pools.efa)
    values = {
        "supportedInstanceLabels": _types(sorted(types - neuron)),
        "privilegedSupportedInstanceLabels": _types(sorted(types & neuron)),
        "tolerations": _tolerations(pools.efa, "aws.amazon.com/efa"),
    }
    return Plugin(
        "aws-efa-k8s-device-plugin", "https://aws.github.io/eks-charts", "aws-efa-k8s-device-plugin", EFA_VERSION,
        "kube-system", {key: value for key, value in values.items() if value}, _names(pools.efa),
    )  # fmt: skip


def _neuron(pools: _Pools) -> Plugin:
    ours = {"key": names.LABEL_POOL, "operator": "In", "values": list(_names(pools.neuron))}
    values = {
        "devicePlugin": {"affinity": _affinity([[ours]]), "tolerations": _tolerations(pools.neuron, names.NEURON)},
        # Tidemill replaces nodes itself, and the scheduler extension is for pods that ask for single cores.
        "npd": {"enabled": False},
        "scheduler": {"enabled": False},
    }  # fmt: skip
    return Plugin(
        "neuron", "oci://public.ecr.aws/neuron", "neuron-helm-chart", NEURON_VERSION, "kube-system", values,
        _names(pools.neuron),
    )  # fmt: skip


def _tolerations(pools: Iterable[PoolTemplate], resource: str) -> list[dict[str, str]]:
    """Of every taint that a node of these pools has at any time: those of the pool, at the start, and ours."""
    keys = dict.fromkeys(("CriticalAddonsOnly", resource))
    for template in pools:
        pool = template.pool.spec
        keys |= dict.fromkeys(taint.key for taint in (*pool.taints, *pool.startup_taints))
    return [{"key": key, "operator": "Exists"} for key in (*keys, *_OURS)]


def _affinity(terms: list[list[dict[str, Any]]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _types(listed: list[str]) -> dict[str, Any]:
    return {"keys": [names.LABEL_TYPE], "values": listed} if listed else {}


def _image(node_class: NodeClass) -> str:
    alias = node_class.spec.ami_selector_terms[0].alias
    return alias or node_class.spec.ami_family


def _efa_types(pools: Iterable[PoolTemplate]) -> set[str]:
    return {name for template in pools for name, kind in template.kinds.items() if kind.efa}


def _names(pools: Iterable[PoolTemplate]) -> tuple[str, ...]:
    return tuple(sorted(template.pool.name for template in pools))
