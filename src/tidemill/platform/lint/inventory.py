"""All files of a run as the rules see them: NodePools with their node classes, pods, installs of device plugins,
Karpenter's version, stacks. Rules that need two files find both here.

Reading only: what is a trap is decided in `rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidemill.catalog import Catalog, InstanceType
from tidemill.platform.lint.pods import PodSpec, listed, pod_specs, walk
from tidemill.platform.lint.sources import Kind, Located, Source
from tidemill.spec.importers.karpenter_labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    RESERVATION_TYPES,
    Requirement,
    allowed,
    requirements_of,
    types_that_meet,
)
from tidemill.spec.located_yaml import Path
from tidemill.spec.names import EFA, LABEL_TYPE

TEMPLATE = ("spec", "template", "spec")
NODE_CLASSES = ("EC2NodeClass", "NodeClass")
_NVIDIA_PLUGIN = re.compile(r"(^|/)k8s-device-plugin(:(?P<tag>[\w.-]+))?(@|$)")
_KARPENTER_IMAGE = re.compile(r"(^|/)karpenter/controller:(?P<tag>v?\d[\w.-]*)")


@dataclass(frozen=True, slots=True)
class NodePool:
    manifest: Located
    node_class: Located | None
    requirements: tuple[Requirement, ...]
    types: tuple[InstanceType, ...]  # empty: it names none, or one that the catalog does not know
    capacity_types: tuple[str, ...]

    @property
    def on_blocks(self) -> bool:
        """It says so; or it has reserved capacity only, of types that are sold as blocks."""
        if "reserved" not in self.capacity_types:
            return False
        asked = [one for one in self.requirements if one.key in RESERVATION_TYPES]
        if asked:
            return "capacity-block" in allowed(asked, ("capacity-block", "default"))
        sold = bool(self.types) and all(kind.block or kind.ultraserver for kind in self.types)
        return sold and self.capacity_types == ("reserved",)

    @property
    def reserved_only(self) -> bool:
        return self.capacity_types == ("reserved",)


@dataclass(frozen=True, slots=True)
class DevicePlugin:
    """An install of NVIDIA's device plugin: by values of its chart, of the GPU operator, or as a DaemonSet."""

    where: Located
    path: Path  # of its settings: where a finding points, and a fix goes
    version: str  # empty: not said
    mofed: bool | None  # None: not said
    placement: tuple[dict[str, Any], dict[str, Any]]  # nodeSelector, affinity
    values: bool = True  # settings are values of the plugin's own chart


class Inventory:
    def __init__(self, sources: Sequence[Source], catalog: Catalog) -> None:
        self.sources = tuple(sources)
        self.catalog = catalog

    def of(self, kind: Kind) -> list[Located]:
        return [located for source in self.sources for each, located in source.objects if each is kind]

    @cached_property
    def kubernetes(self) -> list[Located]:
        return self.of(Kind.KUBERNETES)

    @cached_property
    def stacks(self) -> list[Located]:
        return self.of(Kind.CLOUDFORMATION)

    @cached_property
    def values(self) -> list[Located]:
        """Helm values: of files, and inside a HelmRelease or an Argo CD Application."""
        return self.of(Kind.VALUES) + [inner for each in self.releases for inner in each.values]

    @cached_property
    def releases(self) -> list[ChartRelease]:
        return [found for each in self.kubernetes for found in chart_releases(each)]

    # --- Karpenter --------------------------------------------------------------------------------

    @cached_property
    def node_classes(self) -> list[Located]:
        groups = ("karpenter.k8s.aws", "eks.amazonaws.com")
        return [
            each
            for each in self.kubernetes
            if each.kind in NODE_CLASSES and each.text("apiVersion").partition("/")[0] in groups
        ]

    @cached_property
    def node_pools(self) -> list[NodePool]:
        return [
            self._node_pool(each)
            for each in self.kubernetes
            if each.kind == "NodePool" and each.text("apiVersion").startswith("karpenter.sh/")
        ]

    def _node_pool(self, manifest: Located) -> NodePool:
        items = [each if isinstance(each, dict) else {} for each in manifest.items(*TEMPLATE, "requirements")]
        requirements = requirements_of(items)
        asked = [one for one in requirements if one.key == CAPACITY_TYPE]
        kinds = allowed(asked, CAPACITY_TYPES) if asked else ["on-demand"]
        name = manifest.text(*TEMPLATE, "nodeClassRef", "name")
        kind = manifest.text(*TEMPLATE, "nodeClassRef", "kind") or "EC2NodeClass"
        return NodePool(
            manifest,
            next((each for each in self.node_classes if (each.name, each.kind) == (name, kind)), None),
            tuple(requirements),
            self._types(requirements),
            tuple(kinds),
        )

    def _types(self, requirements: Sequence[Requirement]) -> tuple[InstanceType, ...]:
        """Empty where it names no types, or one that the catalog does not know: then nothing is said about them."""
        naming = {
            "instance-family": {kind.family for kind in self.catalog.types.values()},
            "instance-category": {kind.category for kind in self.catalog.types.values()},
            LABEL_TYPE: set(self.catalog.types),
        }
        named = [one for one in requirements if one.operator == "In" and one.label in naming]
        if not named or any(set(one.values) - naming[one.label] for one in named):
            return ()
        return tuple(self.catalog.types[name] for name in types_that_meet(requirements, self.catalog))

    @cached_property
    def karpenter_versions(self) -> list[tuple[str, str]]:
        """Version and place, wherever Karpenter's controller is installed."""
        found = [
            (each.version, each.place) for each in self.releases if each.chart == "karpenter" and each.version
        ]
        for located in self.of(Kind.CHART):
            found += [
                (str(version), place)
                for name, version, place in _dependencies(located)
                if name == "karpenter"
            ]
        for located in self.values:
            if located.get("settings", "clusterName") is not None and located.get("controller") is not None:
                tag = located.text("controller", "image", "tag")
                found += [(tag, located.place("controller", "image", "tag"))] if tag else []
        for pod in self.pods:
            for path, container in pod.containers:
                image = _KARPENTER_IMAGE.search(str(container.get("image", "")))
                if image:
                    found.append((image["tag"], pod.owner.place(*path, "image")))
        return found

    # --- pods and plugins -------------------------------------------------------------------------

    @cached_property
    def pods(self) -> list[PodSpec]:
        return [pod for each in self.kubernetes for pod in pod_specs(each)]

    @cached_property
    def efa_users(self) -> list[str]:
        """Where EFA is asked for or installed: pods, node classes, launch templates, the EFA device plugin."""
        found = [pod.owner.place(*pod.path) for pod in self.pods if pod.requested(EFA)]
        found += [
            each.place("spec", "efa")
            for each in self.of(Kind.OURS)
            if each.kind == "NodeClass" and each.get("spec", "efa") is True
        ]
        for each in self.node_classes:
            if any(
                "efa" in str(one.get("interfaceType"))
                for one in each.items("spec", "networkInterfaces")
                if isinstance(one, dict)
            ):
                found.append(each.place("spec", "networkInterfaces"))
        for values in self.values:
            if "supportedInstanceLabels" in values.data or "aws-efa-k8s-device-plugin" in values.data:
                found.append(values.place())
            found += [values.place(*path) for path, key, _ in walk(values.data) if key == EFA]
        found += [each.place for each in self.releases if each.chart == "aws-efa-k8s-device-plugin"]
        return found

    @cached_property
    def device_plugins(self) -> list[DevicePlugin]:
        found = [plugin for values in self.of(Kind.VALUES) for plugin in _plugins_in_values(values, "", "")]
        for release in self.releases:
            for values in release.values or [release.where]:
                found += _plugins_in_values(values, release.chart, release.version)
        for pod in self.pods:
            found += _plugin_in_pod(pod)
        versions = [
            (name, str(version))
            for located in self.of(Kind.CHART)
            for name, version, _ in _dependencies(located)
        ]
        return [self._with_version(plugin, versions) for plugin in found]

    @staticmethod
    def _with_version(plugin: DevicePlugin, dependencies: list[tuple[str, str]]) -> DevicePlugin:
        """A chart that depends on the plugin's chart says which version its values are for."""
        version = next((v for name, v in dependencies if name == "nvidia-device-plugin"), "")
        if plugin.version or not plugin.values or not version:
            return plugin
        return DevicePlugin(plugin.where, plugin.path, version, plugin.mofed, plugin.placement)


# --- Helm -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartRelease:
    """A chart that Flux or Argo CD installs."""

    where: Located
    chart: str
    version: str
    place: str
    values: tuple[Located, ...]


def chart_releases(located: Located) -> Iterator[ChartRelease]:
    if located.kind == "HelmRelease":
        chart = located.inside("spec", "chart", "spec")
        if chart is not None:
            values = located.inside("spec", "values")
            yield _release(located, chart, chart.text("chart"), "version", values)
    elif located.kind == "Application" and located.text("apiVersion").startswith("argoproj.io/"):
        paths: list[Path] = [("spec", "source")]
        paths += [("spec", "sources", index) for index in range(len(located.items("spec", "sources")))]
        for path in paths:
            source = located.inside(*path)
            if source is not None and source.text("chart"):
                values = source.inside("helm", "valuesObject")
                yield _release(located, source, source.text("chart"), "targetRevision", values)


def _release(where: Located, at: Located, chart: str, key: str, values: Located | None) -> ChartRelease:
    return ChartRelease(
        where, chart.rpartition("/")[2], at.text(key), at.place(key), (values,) if values is not None else ()
    )


def _dependencies(chart: Located) -> Iterator[tuple[str, Any, str]]:
    yield chart.text("name"), chart.text("version"), chart.place("version")
    for index, each in enumerate(chart.items("dependencies")):
        if isinstance(each, dict):
            yield (
                str(each.get("name")),
                each.get("version", ""),
                chart.place("dependencies", index, "version"),
            )


_PLUGIN_KEYS = (
    "migStrategy",
    "deviceListStrategy",
    "mofedEnabled",
    "deviceIDStrategy",
    "compatWithCPUManager",
)
_OPERATOR_KEYS = ("toolkit", "driver", "dcgmExporter", "gfd", "operator", "migManager")


def _plugins_in_values(values: Located, chart: str, version: str) -> Iterator[DevicePlugin]:
    nested = values.inside("nvidia-device-plugin")  # values of a subchart
    if nested is not None:
        yield from _plugins_in_values(nested, "nvidia-device-plugin", version)
    elif chart == "nvidia-device-plugin" or (not chart and any(key in values.data for key in _PLUGIN_KEYS)):
        if values.get("devicePlugin", "enabled") is False or values.get("enabled") is False:
            return
        mofed = values.get("mofedEnabled")
        yield DevicePlugin(
            values,
            ("mofedEnabled",) if mofed is not None else (),
            values.text("image", "tag") or version,
            mofed if isinstance(mofed, bool) else None,
            (values.mapping("nodeSelector"), values.mapping("affinity")),
        )
    elif chart == "gpu-operator" or (
        not chart and "devicePlugin" in values.data and any(key in values.data for key in _OPERATOR_KEYS)
    ):
        if values.get("devicePlugin", "enabled") is False:
            return
        yield DevicePlugin(
            values,
            ("devicePlugin",),
            values.text("devicePlugin", "version"),
            _mofed_in(values.items("devicePlugin", "env")),
            (values.mapping("daemonsets", "nodeSelector"), values.mapping("daemonsets", "affinity")),
            values=False,
        )


def _plugin_in_pod(pod: PodSpec) -> Iterator[DevicePlugin]:
    for path, container in pod.containers:
        image = _NVIDIA_PLUGIN.search(str(container.get("image", "")))
        command = [str(each) for key in ("command", "args") for each in listed(container.get(key))]
        if image is None or any("gpu-feature-discovery" in each or "mps-control" in each for each in command):
            continue
        yield DevicePlugin(
            pod.owner,
            path,
            image["tag"] or "",
            _mofed_in(container.get("env")),
            (pod.node_selector, pod.owner.mapping(*pod.path, "affinity")),
            values=False,
        )


def _mofed_in(env: Any) -> bool | None:
    for each in listed(env):
        if isinstance(each, dict) and each.get("name") == "MOFED_ENABLED":
            return str(each.get("value")).lower() == "true"
    return None
