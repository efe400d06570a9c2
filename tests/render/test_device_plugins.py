"""Device plugins for the pools: the right nodes, every taint tolerated, and nothing that clashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.decide.builders import pool
from tests.render.device_pools import cluster, with_classes
from tidemill.cli.lint import lint
from tidemill.cli.render import render
from tidemill.render.device_plugins import NVIDIA_VERSION, Plugin, device_plugins, without_plugins
from tidemill.spec import Spec, names, traps

pytestmark = pytest.mark.requirement("PE-12")

DOCUMENTS = Path(__file__).parents[2] / "examples" / "kubernetes" / "admitted-pods-only.yaml"


def by_name(spec: Spec) -> dict[str, Plugin]:
    return {plugin.name: plugin for plugin in device_plugins(spec)}


def test_each_plugin_is_for_the_pools_that_have_its_devices() -> None:
    plugins = by_name(cluster())
    assert {name: plugin.pools for name, plugin in plugins.items()} == {
        "nvidia-device-plugin": ("p5",),
        "aws-efa-k8s-device-plugin": ("p5", "rocket", "trn"),
        "neuron": ("trn",),
    }
    assert device_plugins(with_classes(pool("cpu", requirements={"instanceTypes": ["c7i.4xlarge"]}))) == []
    assert all(plugin.version in plugin.command for plugin in plugins.values()), "pinned"


def test_a_plugin_tolerates_every_taint_that_a_node_of_its_pools_can_have() -> None:
    plugins = by_name(cluster())
    tolerated = {each["key"] for each in plugins["nvidia-device-plugin"].values["tolerations"]}
    assert {"team", "warming", names.NVIDIA_GPU} <= tolerated
    ours = {names.TAINT_STARTUP, names.TAINT_DRAINING, names.TAINT_HELD, names.TAINT_ENDING}
    assert ours <= tolerated
    neuron = plugins["neuron"].values["devicePlugin"]["tolerations"]
    assert ours | {names.NEURON} <= {each["key"] for each in neuron}


def test_efa_is_offered_on_the_types_of_the_pools_and_neuron_types_by_the_privileged_one() -> None:
    values = by_name(cluster())["aws-efa-k8s-device-plugin"].values
    assert values["supportedInstanceLabels"] == {"keys": [names.LABEL_TYPE], "values": ["p5.48xlarge"]}
    assert values["privilegedSupportedInstanceLabels"]["values"] == ["trn1.32xlarge"]


def test_eks_auto_mode_brings_its_own() -> None:
    automatic = with_classes(pool("p5", provisioner="karpenter"), karpenter={"autoMode": True})
    assert device_plugins(automatic) == []
    assert without_plugins(automatic)["the device plugins of EKS Auto Mode"] == ("p5",)


# --- clashes ------------------------------------------------------------------------------------------


@pytest.mark.requirement("TR-6")
def test_mofed_is_off_where_gpu_nodes_have_efa() -> None:
    values = by_name(cluster())["nvidia-device-plugin"].values
    assert values["mofedEnabled"] is False
    assert traps.mofed_takes_efa("0.19.0", values["mofedEnabled"]) is None, "whatever its version"
    assert traps.mofed_takes_efa(NVIDIA_VERSION, None) is None, "the pinned one has it off by default too"
    assert "mofedEnabled" not in by_name(with_classes(pool("p5")))["nvidia-device-plugin"].values


@pytest.mark.requirement("TR-7")
def test_no_second_plugin_runs_on_bottlerockets_nvidia_image() -> None:
    values = by_name(cluster())["nvidia-device-plugin"].values
    (required,) = values["affinity"]["nodeAffinity"].values()
    terms = required["nodeSelectorTerms"]
    never = {"key": names.LABEL_POOL, "operator": "NotIn", "values": ["rocket"]}
    assert len(terms) == 4
    assert all(never in term["matchExpressions"] for term in terms[1:])
    assert without_plugins(cluster())["the NVIDIA device plugin of Bottlerocket's image"] == ("rocket",)


@pytest.mark.requirement("TR-6", "TR-7")
def test_the_linter_finds_nothing_wrong_with_what_is_rendered(tmp_path: Path) -> None:
    """Beside the documents that it was rendered for; with MOFED on it does."""
    said = CliRunner().invoke(render, ["device-plugins", str(DOCUMENTS), "--json"], catch_exceptions=False)
    values = json.loads(said.stdout)[0]["values"]
    file = tmp_path / "nvidia-device-plugin-values.yaml"
    for written, wanted in ((values, set()), ({**values, "mofedEnabled": True}, {"TR-6"})):
        file.write_text(yaml.safe_dump(written))
        found = CliRunner().invoke(lint, [str(DOCUMENTS), str(file), "--json"], catch_exceptions=False)
        traps_found = {each["rule"] for each in json.loads(found.stdout)["findings"]}
        assert traps_found & {"TR-6", "TR-7"} == wanted


# --- the verb -----------------------------------------------------------------------------------------


def test_the_verb_prints_values_and_how_to_install_them_and_says_what_they_avoid() -> None:
    said = CliRunner().invoke(render, ["device-plugins", str(DOCUMENTS)], catch_exceptions=False)
    nvidia, efa = yaml.safe_load_all(said.stdout)
    assert nvidia["mofedEnabled"] is False
    assert efa["supportedInstanceLabels"]["values"] == ["p5.48xlarge"]
    assert f"--version {NVIDIA_VERSION} --namespace nvidia-device-plugin" in said.stdout
    assert "note: MOFED is off in NVIDIA's plugin" in said.stderr
