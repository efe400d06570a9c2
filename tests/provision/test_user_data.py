"""First boots, read back with the parsers a node uses: MIME and YAML on AL2023, TOML on Bottlerocket."""

from __future__ import annotations

import tomllib
from email import message_from_string

import pytest
import yaml

from tests.provision.documents import BLOCK, SPOT, booted, documents, template
from tidemill.model.errors import SpecError
from tidemill.provision.user_data.nodeadm import NODE_CONFIG, SHELL, MimePart, write_archive
from tidemill.spec.node_class import fingerprint

BOTTLEROCKET = {"amiSelectorTerms": [{"alias": "bottlerocket@v1.52.0"}]}
TAINTS = [{"key": "nvidia.com/gpu", "value": "true"}]
STARTUP = [{"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"}]


def parts(text):
    """Content type and text of each part, as cloud-init reads them."""
    archive = message_from_string(text)
    assert archive.get_content_type() == "multipart/mixed"
    return [
        (each.get_content_type(), each.get_payload(decode=True).decode()) for each in archive.get_payload()
    ]


def node_configs(text):
    return [yaml.safe_load(body) for kind, body in parts(text) if kind == "application/node.eks.aws"]


@pytest.mark.requirement("SM-1")
def test_nodeadm_gets_the_four_cluster_settings():
    (config,) = node_configs(booted(template(documents())))
    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    assert config["spec"]["cluster"] == {
        "name": "ml",
        "apiServerEndpoint": "https://1A2B.gr7.us-east-1.eks.amazonaws.com",
        "certificateAuthority": "Y2VydA==",
        "cidr": "10.100.0.0/16",
    }


def test_a_node_registers_with_its_pool_and_source_labels():
    spec = documents(labels={"tier": "train"})
    (config,) = node_configs(booted(template(spec)))
    (flag,) = config["spec"]["kubelet"]["flags"]
    assert dict(pair.split("=") for pair in flag.removeprefix("--node-labels=").split(",")) == {
        "tidemill.dev/pool": "train",
        "tidemill.dev/source": BLOCK.id,
        "tidemill.dev/node-class-hash": fingerprint(spec.node_classes["gpu"]),
        "tier": "train",
    }
    (config,) = node_configs(booted(template(spec, source=SPOT)))
    assert "tidemill.dev/source=spot" in config["spec"]["kubelet"]["flags"][0]


def test_a_node_registers_with_the_startup_taint_and_its_pools_taints():
    (config,) = node_configs(booted(template(documents(taints=TAINTS, startupTaints=STARTUP))))
    assert config["spec"]["kubelet"]["config"]["registerWithTaints"] == [
        {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"},
        {"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"},
        {"key": "tidemill.dev/starting", "effect": "NoSchedule"},
    ]


def test_a_node_for_admitted_pods_only_registers_with_their_taint():
    held = documents(admittedPodsOnly=True, startupTaints=STARTUP)
    (config,) = node_configs(booted(template(held)))
    assert [taint["key"] for taint in config["spec"]["kubelet"]["config"]["registerWithTaints"]] == [
        "ebs.csi.aws.com/agent-not-ready", "tidemill.dev/held", "tidemill.dev/starting",
    ]  # fmt: skip
    kubernetes = tomllib.loads(booted(template(documents(node_class=BOTTLEROCKET, admittedPodsOnly=True))))
    assert kubernetes["settings"]["kubernetes"]["node-taints"]["tidemill.dev/held"] == [":NoSchedule"]


@pytest.mark.requirement("PE-1")
def test_disks_pods_and_containerd_follow_the_node_class():
    downloads = "plugins.'io.containerd.cri.v1.images'.max_concurrent_downloads"
    given = {
        "instanceStorePolicy": "RAID0",
        "maxPods": 60,
        "containerRuntime": {
            downloads: "20",
            "plugins.'io.containerd.cri.v1.runtime'.sandbox": "strict mode",
        },
    }
    (config,) = node_configs(booted(template(documents(node_class=given))))
    assert config["spec"]["instance"] == {"localStorage": {"strategy": "RAID0"}}
    assert config["spec"]["kubelet"]["config"]["maxPods"] == 60
    runtime = tomllib.loads(config["spec"]["containerd"]["config"])
    assert runtime["plugins"]["io.containerd.cri.v1.images"] == {"max_concurrent_downloads": 20}
    assert runtime["plugins"]["io.containerd.cri.v1.runtime"] == {"sandbox": "strict mode"}


def test_invalid_containerd_settings_are_a_spec_error():
    with pytest.raises(SpecError, match="dotted path such as"):
        template(documents(node_class={"containerRuntime": {"a b": "1"}}))


@pytest.mark.requirement("PE-1")
def test_sysctls_are_a_file_that_is_loaded():
    text = booted(template(documents(node_class={"kernel": {"vm.nr_hugepages": "5128"}})))
    (script,) = [body for kind, body in parts(text) if kind == "text/x-shellscript"]
    assert script.startswith("#!/bin/bash\nset -eu\n")
    assert "vm.nr_hugepages = 5128\nTIDEMILL\nsysctl --load /etc/sysctl.d/90-tidemill.conf" in script


@pytest.mark.requirement("PE-1")
def test_extra_bootstrap_comes_first_so_that_ours_wins():
    theirs = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {maxPods: 9}}}\n"
    archive = write_archive([MimePart(NODE_CONFIG, theirs), MimePart(SHELL, "#!/bin/sh\necho hello")])
    text = booted(template(documents(node_class={"userData": archive, "maxPods": 60})))
    assert [kind for kind, _ in parts(text)] == [
        "application/node.eks.aws",
        "text/x-shellscript",
        "application/node.eks.aws",
    ]
    first, last = node_configs(text)
    assert first["spec"]["kubelet"]["config"]["maxPods"] == 9
    assert last["spec"]["kubelet"]["config"]["maxPods"] == 60


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\necho hello\n", "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"]
)
def test_extra_bootstrap_may_be_a_script_or_a_node_config_alone(text):
    assert text.strip() in [
        body.strip() for _, body in parts(booted(template(documents(node_class={"userData": text}))))
    ]


def test_unknown_extra_user_data_is_refused():
    with pytest.raises(SpecError, match="neither a script"):
        template(documents(node_class={"userData": "echo hello"}))
    with pytest.raises(SpecError, match="must be TOML"):
        template(documents(node_class=BOTTLEROCKET | {"userData": "#!/bin/sh\necho hello"}))


def test_a_label_that_would_keep_the_kubelet_from_starting_is_refused():
    with pytest.raises(SpecError, match=r"node-role\.kubernetes\.io/gpu"):
        template(documents(labels={"node-role.kubernetes.io/gpu": "true"}))
    assert "example.node.kubernetes.io/x" in booted(
        template(documents(labels={"example.node.kubernetes.io/x": "y"}))
    )


@pytest.mark.requirement("PE-1")
def test_bottlerocket_gets_settings():
    spec = documents(
        node_class=BOTTLEROCKET
        | {
            "maxPods": 60,
            "kernel": {"vm.nr_hugepages": "5128"},
            "instanceStorePolicy": "RAID0",
            "containerRuntime": {"max-concurrent-downloads": "20"},
            "userData": "[settings.host-containers.admin]\nenabled = true\n[settings.kubernetes]\nmax-pods = 5\n",
        },
        taints=TAINTS,
    )
    settings = tomllib.loads(booted(template(spec)))["settings"]
    kubernetes = settings["kubernetes"]
    assert kubernetes["api-server"] == "https://1A2B.gr7.us-east-1.eks.amazonaws.com"
    assert (kubernetes["cluster-name"], kubernetes["cluster-certificate"]) == ("ml", "Y2VydA==")
    assert kubernetes["node-labels"]["tidemill.dev/source"] == BLOCK.id
    assert kubernetes["node-taints"] == {
        "nvidia.com/gpu": ["true:NoSchedule"],
        "tidemill.dev/starting": [":NoSchedule"],
    }
    assert kubernetes["shutdown-grace-period"] == "3660s"
    assert kubernetes["max-pods"] == 60
    assert settings["kernel"]["sysctl"] == {"vm.nr_hugepages": "5128"}
    assert settings["container-runtime"] == {"max-concurrent-downloads": 20}
    assert settings["host-containers"]["admin"] == {"enabled": True}
    assert settings["bootstrap-commands"]["000-instance-store"]["essential"] is True


def test_an_image_named_by_id_is_al2023_unless_it_says_otherwise():
    by_id = {"amiSelectorTerms": [{"id": "ami-0abc"}]}
    assert "kind: NodeConfig" in booted(template(documents(node_class=by_id)))
    assert "[settings.kubernetes]" in booted(
        template(documents(node_class=by_id | {"amiFamily": "Bottlerocket"}))
    )


def test_an_unsupported_image_family_is_refused():
    with pytest.raises(
        SpecError, match="the image family 'windows2022' is not supported, only al2023 and bottlerocket"
    ):
        template(documents(node_class={"amiSelectorTerms": [{"alias": "windows2022@latest"}]}))
