"""What is installed in a cluster that acts on nodes or offers devices: found by image or name. Only reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.kube.api import KubeApi
from tidemill.kube.custom_objects import all_pages
from tidemill.kube.drainers import recognized
from tidemill.model.errors import PortError

# The beginning of an image's or workload's name.
_DEVICE_PLUGINS = (
    "nvidia-device-plugin", "k8s-device-plugin", "aws-efa-k8s-device-plugin", "neuron-device-plugin", "gpu-operator",
    "nvdp-nvidia-device-plugin",
)  # fmt: skip


def installed(api: KubeApi) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Those that drain or scale nodes, device plugins, and what could not be read with why."""
    drainers: list[str] = []
    plugins: list[str] = []
    missed: list[str] = []
    for kind in ("DaemonSet", "Deployment"):
        try:
            for workload in all_pages(api, f"/apis/apps/v1/{kind.lower()}s", kind):
                meta = workload["metadata"]
                name = f"{kind}/{meta['namespace']}/{meta['name']}"
                if recognized(workload) is not None:
                    drainers.append(name)
                if any(word.startswith(_DEVICE_PLUGINS) for word in _words(workload)):
                    plugins.append(name)
        except PortError as error:
            missed.append(f"{kind}s: {error}")
    try:
        pools = all_pages(api, "/apis/karpenter.sh/v1/nodepools", "NodePool")
        drainers += [f"NodePool/{one['metadata']['name']}" for one in pools]
    except PortError as error:
        missed.append(f"NodePools of Karpenter: {error}")
    return tuple(drainers), tuple(plugins), tuple(missed)


def _words(workload: Mapping[str, Any]) -> Iterator[str]:
    yield workload["metadata"]["name"]
    for container in workload["spec"]["template"]["spec"].get("containers", ()):
        yield str(container.get("image", "")).partition("@")[0].rpartition("/")[2].partition(":")[0]
