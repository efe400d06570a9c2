"""How the four components are started: their command lines, and the kubeconfigs they and their users have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ETCD, API_SERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
COMPONENTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)


@dataclass(frozen=True)
class Options:
    """What differs from a usual cluster."""

    components: Sequence[str] = COMPONENTS
    arguments: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # added to a component's command line
    controllers: str = "*"
    feature_gates: str = ""
    runtime_config: str = ""
    audit: bool = False  # every request in log/audit.log


def command_lines(
    options: Options, folder: Path, ports: Mapping[str, int], binaries: Path
) -> dict[str, list[str]]:
    """By component; to be run in the folder of the keys."""
    gates = ("--feature-gates", options.feature_gates) if options.feature_gates else ()
    arguments = {
        ETCD: _etcd(folder, ports),
        API_SERVER: [*_api_server(options, folder, ports), *gates],
        CONTROLLER_MANAGER: [*_controller_manager(options, ports), *gates],
        SCHEDULER: [*_client("scheduler"), *_serving(ports[SCHEDULER]), "--leader-elect=false", *gates],
    }
    return {
        name: [str(binaries / name), *arguments[name], *options.arguments.get(name, ())]
        for name in COMPONENTS
    }


def _etcd(folder: Path, ports: Mapping[str, int]) -> list[str]:
    url, peer = f"http://127.0.0.1:{ports[ETCD]}", f"http://127.0.0.1:{ports['peer']}"
    return [
        "--name", "default", "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
        "--listen-client-urls", url, "--advertise-client-urls", url,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
    ]  # fmt: skip


def _api_server(options: Options, folder: Path, ports: Mapping[str, int]) -> list[str]:
    command = [
        "--etcd-servers", f"http://127.0.0.1:{ports[ETCD]}", *_serving(ports[API_SERVER]),
        "--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none",
        "--tls-cert-file", "apiserver.crt", "--tls-private-key-file", "apiserver.key",
        "--client-ca-file", "ca.crt", "--token-auth-file", "tokens.csv", "--authorization-mode", "Node,RBAC",
        "--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged=true",
        "--service-account-issuer", "https://kubernetes.default.svc",
        "--service-account-key-file", "sa.pub", "--service-account-signing-key-file", "sa.key",
        "--requestheader-client-ca-file", "ca.crt", "--requestheader-allowed-names", "front-proxy",
        "--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
        "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
    ]  # fmt: skip
    if options.runtime_config:
        command += ["--runtime-config", options.runtime_config]
    if options.audit:
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
        (folder / "pki/audit.yaml").write_text(json.dumps(policy | {"rules": [{"level": "Metadata"}]}))
        command += ["--audit-policy-file", "audit.yaml", "--audit-log-path", str(folder / "log/audit.log")]
    return command


def _controller_manager(options: Options, ports: Mapping[str, int]) -> list[str]:
    return [
        *_client("controller-manager"), *_serving(ports[CONTROLLER_MANAGER]), "--leader-elect=false",
        "--use-service-account-credentials", "--service-account-private-key-file", "sa.key",
        "--root-ca-file", "ca.crt", "--cluster-signing-cert-file", "ca.crt", "--cluster-signing-key-file", "ca.key",
        "--controllers", options.controllers,
    ]  # fmt: skip


def _serving(port: int) -> tuple[str, ...]:
    return ("--bind-address", "127.0.0.1", "--secure-port", str(port), "--profiling=false")


def _client(name: str) -> tuple[str, ...]:
    config = f"{name}.conf"
    return (
        "--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config
    )  # fmt: skip


def write_kubeconfig(
    path: Path, server: str, ca: Path, *, certificate: Path | None = None, token: str = ""
) -> Path:
    """For one user: `<certificate>.crt` and `.key`, or a bearer token."""
    user: dict[str, Any] = {"token": token} if token else {}
    if certificate is not None:
        user |= {"client-certificate": f"{certificate}.crt", "client-key": f"{certificate}.key"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2))  # JSON is YAML
    return path
