"""Helm values and templates: device plugins beside EFA and Bottlerocket, and replicas that cannot be 0."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.platform.lint.edits import added, overwritten
from tidemill.platform.lint.finding import Edit, Finding
from tidemill.platform.lint.inventory import TEMPLATE, DevicePlugin, Inventory, NodePool
from tidemill.platform.lint.pods import listed
from tidemill.platform.lint.rules.stacks import resources_of
from tidemill.platform.lint.rules.workloads import engine_pools
from tidemill.platform.lint.sources import Kind, Source
from tidemill.spec import traps
from tidemill.spec.importers.karpenter_labels import requirements_of
from tidemill.spec.names import LABEL_POOL, NVIDIA_GPU
from tidemill.spec.problem import quoted
from tidemill.wording.traps import TRAPS

# --- TR-6 -------------------------------------------------------------------------------------------


def device_plugin_leaves_efa_alone(files: Inventory) -> Iterator[Finding]:
    efa = tuple(dict.fromkeys(files.efa_users))
    for plugin in files.device_plugins if efa else ():
        message = traps.mofed_takes_efa(plugin.version, plugin.mofed)
        if message is None:
            continue
        edits: tuple[Edit, ...] = ()
        if plugin.values and plugin.mofed is not None:
            edits = overwritten(plugin.where, ("mofedEnabled",), "false")
        elif plugin.values and plugin.where.kind not in ("HelmRelease", "Application"):
            null = "mofedEnabled" in plugin.where.data
            edits = () if null else added(plugin.where, (), "mofedEnabled", False)
            edits = overwritten(plugin.where, ("mofedEnabled",), "false") if null else edits
        yield plugin.where.finding("TR-6", plugin.path, message, edits=edits, elsewhere=efa[:3])


# --- TR-7 -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BottlerocketNodes:
    """GPU nodes whose image brings a device plugin."""

    name: str
    place: str
    labels: dict[str, str]


def bottlerocket_has_one_device_plugin(files: Inventory) -> Iterator[Finding]:
    nodes = [*_of_karpenter(files), *_of_ours(files), *_of_stacks(files)]
    for plugin in files.device_plugins:
        there = next((each for each in nodes if _may_run_on(plugin, each)), None)
        if there is not None:
            message = traps.second_device_plugin(there.name)
            yield plugin.where.finding("TR-7", plugin.path, message, elsewhere=(there.place,))


def _of_karpenter(files: Inventory) -> Iterator[BottlerocketNodes]:
    for pool in files.node_pools:
        if pool.node_class is None or not _has_nvidia(pool):
            continue
        node_class, auto_mode = pool.node_class, pool.node_class.kind == "NodeClass"
        terms = [each for each in node_class.items("spec", "amiSelectorTerms") if isinstance(each, dict)]
        images = [str(each["alias"]) for each in terms if each.get("alias")]
        images = images or [node_class.text("spec", "amiFamily")]
        if auto_mode or any(traps.bundles_device_plugin(image) for image in images):
            template = pool.manifest.mapping("spec", "template", "metadata", "labels")
            labels = {str(key): str(value) for key, value in template.items()}
            labels["karpenter.sh/nodepool"] = pool.manifest.name
            group = "eks.amazonaws.com/nodeclass" if auto_mode else "karpenter.k8s.aws/ec2nodeclass"
            labels[group] = node_class.name
            if auto_mode:
                labels["eks.amazonaws.com/compute-type"] = "auto"
            what = f"nodes of NodePool {quoted(pool.manifest.name)}"
            yield BottlerocketNodes(what, pool.manifest.place(*TEMPLATE, "nodeClassRef"), labels)


def _has_nvidia(pool: NodePool) -> bool:
    """Only where it is said: a pool of all types is not assumed to have GPUs."""
    if any(
        one.label.startswith("instance-gpu-") and one.operator != "DoesNotExist" for one in pool.requirements
    ):
        return True
    return any(
        kind.accelerator is not None and kind.accelerator.resource == NVIDIA_GPU for kind in pool.types
    )


def _of_ours(files: Inventory) -> Iterator[BottlerocketNodes]:
    ours = files.of(Kind.OURS)
    for node_class in ours:
        if node_class.kind != "NodeClass":
            continue
        terms = [each for each in node_class.items("spec", "amiSelectorTerms") if isinstance(each, dict)]
        images = [str(each.get("alias") or node_class.text("spec", "amiFamily")) for each in terms]
        if not any(traps.bundles_device_plugin(image) for image in images):
            continue
        for pool in ours:
            if pool.kind == "ComputePool" and pool.text("spec", "nodeClassName") == node_class.name:
                labels = {str(key): str(value) for key, value in pool.mapping("spec", "labels").items()}
                labels[LABEL_POOL] = pool.name
                what = f"nodes of pool {quoted(pool.name)}"
                yield BottlerocketNodes(what, node_class.place("spec", "amiSelectorTerms"), labels)


def _of_stacks(files: Inventory) -> Iterator[BottlerocketNodes]:
    for stack in files.stacks:
        for name, resource in resources_of(stack, "AWS::EKS::Nodegroup"):
            ami = resource.text("Properties", "AmiType")
            if traps.bundles_device_plugin(ami) and "NVIDIA" in ami:
                own = resource.mapping("Properties", "Labels")
                labels = {str(key): str(value) for key, value in own.items()}
                yield BottlerocketNodes(
                    f"node group {quoted(name)}", resource.place("Properties", "AmiType"), labels
                )


# Labels that every GPU node may have: they tell no node of Bottlerocket from another.
_ON_EVERY_GPU_NODE = re.compile(r"^(feature\.node\.kubernetes\.io/|nvidia\.com/|kubernetes\.io/(os|arch)$)")


def _may_run_on(plugin: DevicePlugin, nodes: BottlerocketNodes) -> bool:
    selector, affinity = plugin.placement
    for key, value in selector.items():
        if not _ON_EVERY_GPU_NODE.match(str(key)) and nodes.labels.get(str(key)) != str(value):
            return False
    node_affinity: Any = affinity.get("nodeAffinity")
    required = (
        node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if isinstance(node_affinity, dict)
        else None
    )
    terms = (
        [each for each in listed(required.get("nodeSelectorTerms")) if isinstance(each, dict)]
        if isinstance(required, dict)
        else []
    )
    return not terms or any(_term_allows(term, nodes.labels) for term in terms)


def _term_allows(term: dict[str, Any], labels: dict[str, str]) -> bool:
    items = [each for each in listed(term.get("matchExpressions")) if isinstance(each, dict)]
    return all(
        _ON_EVERY_GPU_NODE.match(one.key) or one.allows(labels.get(one.key)) for one in requirements_of(items)
    )


# --- TR-12 ------------------------------------------------------------------------------------------


def no_replicas_means_none(files: Inventory) -> Iterator[Finding]:
    """Of values. Where the chart's templates are among the files and keep a 0, there is no trap."""
    templates = [source for source in files.sources if source.is_template and "computePools" in source.text]
    if templates and not any(True for source in templates for _ in _lost_zeros(source)):
        return
    for values in files.values:
        for path, pool in engine_pools(values):
            if pool.get("replicas") == 0 and not isinstance(pool.get("replicas"), bool):
                message = (
                    f"compute pool {quoted(pool.get('name', ''))} asks for 0 replicas, and a chart with `default 1`"
                    " renders 1: leave the pool out until it has capacity"
                )
                yield values.finding("TR-12", (*path, "replicas"), message)


# `replicas: {{ .Values.pool.replicas | default 1 | int }}` and `replicas: {{ default 1 .Values.pool.replicas }}`
_PIPED = re.compile(
    r"\breplicas:[ \t]*\{\{-?[ \t]*(?P<fix>(?P<value>[$.][\w.$]*)[ \t]*\|[ \t]*default[ \t]+(?P<default>[1-9]\d*))\b"
)
_CALLED = re.compile(
    r"\breplicas:[ \t]*\{\{-?[ \t]*(?P<fix>default[ \t]+(?P<default>[1-9]\d*)[ \t]+(?P<value>[$.][\w.$]*))"
)
# `{{- if .Values.pool.replicas }}` around `replicas:`: with 0 the field is left out, which Kubernetes reads as 1.
_LEFT_OUT = re.compile(
    r"\{\{-?[ \t]*(?:if|with)[ \t]+[$.][\w.$]*replica(?:s|Count)[ \t]*-?\}\}[ \t]*\n[ \t]*replicas:"
)
_GPU = re.compile(r"nvidia\.com/gpu|aws\.amazon\.com/neuron|gpusPerReplica|computePools", re.IGNORECASE)


def templates_keep_zero(files: Inventory) -> Iterator[Finding]:
    """Of templates whose pods take GPUs: elsewhere a pod too many costs nothing."""
    for source in files.sources:
        if source.is_template and _GPU.search(source.text):
            for found, fixable in _lost_zeros(source):
                yield _template_finding(source, found, fixable=fixable)


def _lost_zeros(source: Source) -> Iterator[tuple[re.Match[str], bool]]:
    for pattern in (_PIPED, _CALLED, _LEFT_OUT):
        for found in pattern.finditer(source.text):
            yield found, pattern is not _LEFT_OUT


def _template_finding(source: Source, found: re.Match[str], *, fixable: bool) -> Finding:
    start = found.start()
    line = source.text.count("\n", 0, start) + 1
    column = start - source.text.rfind("\n", 0, start)
    edits: tuple[Edit, ...] = ()
    if fixable:
        value, default = found["value"], found["default"]
        kept = f'ternary {default} {value} (kindIs "invalid" {value})'
        edits = (Edit(*found.span("fix"), kept),)
        message = f"0 replicas render {default}: in a template `default {default}` replaces a 0, too"
    else:
        message = (
            "0 replicas render none of the field, which Kubernetes reads as 1: `if` and `with` leave a 0 out"
        )
    trap = TRAPS["TR-12"]
    return Finding(source.file, line, column, trap.id, message, trap.fix, trap.severity, edits)
