"""The objects by which the External Secrets Operator brings a deployment's secrets into the cluster.

One store, three secrets: what the control plane needs (every 3 minutes, so that a rotated password is there soon), what
the workers need and Redis (every hour). The keys are the ones that engine charts read from existing secrets. The
objects name secrets and never contain one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.model.errors import SpecError
from tidemill.platform.secrets import Layout, SecretKind, layout_of
from tidemill.spec.platform import PlatformSpec

API_VERSION = "external-secrets.io/v1"
# RDS keeps the old password usable for the moment of a rotation only; connections that are open go on.
CONTROL_PLANE_EVERY = "3m"
OTHERS_EVERY = "1h"
# Where the operator's own chart puts it.
OPERATOR_NAMESPACE, OPERATOR_ACCOUNT = "external-secrets", "external-secrets"


def secret_names(platform: PlatformSpec) -> dict[str, str]:
    """The Kubernetes secrets, by what they are for: `secrets.existing…Secret` of the engine's values."""
    release = platform.engine_chart.release
    return {
        "control-plane": f"{release}-control-plane",
        "workers": f"{release}-workers",
        "redis": f"{release}-redis",
    }


def store_name(platform: PlatformSpec) -> str:
    return f"{platform.deployment}-secrets"


def external_secret_objects(platform: PlatformSpec, *, irsa: bool = False) -> list[dict[str, Any]]:
    """`irsa`: the operator's role is bound by an annotation of its service account, not by EKS Pod Identity."""
    layout, names = layout_of(platform), secret_names(platform)
    if not layout.login:
        raise SpecError(
            "the objects must name the secret that RDS keeps the login in: write spec.database.loginSecret;"
            " `tidemill secrets check` shows it"
        )
    return [
        _store(platform, irsa),
        _secret(platform, names["control-plane"], CONTROL_PLANE_EVERY, _control_plane(layout)),
        _secret(platform, names["workers"], OTHERS_EVERY, _workers(layout)),
        _secret(platform, names["redis"], OTHERS_EVERY, {"redisUrl": (layout.name(SecretKind.REDIS), "url")}),
    ]


_Sources = Mapping[str, tuple[str, str]]  # key -> name in Secrets Manager, and its field; no field: all of it


def _control_plane(layout: Layout) -> _Sources:
    connection = layout.name(SecretKind.DATABASE)
    return {
        "dbUsername": (layout.login, "username"),
        "dbPassword": (layout.login, "password"),
        "dbHost": (connection, "endpoint"),
        "dbName": (connection, "database_name"),
        "cookiesSecret": (layout.name(SecretKind.COOKIES), ""),
        "oidcProviders": (layout.name(SecretKind.OIDC), ""),
    }


def _workers(layout: Layout) -> _Sources:
    storage = layout.name(SecretKind.STORAGE)
    return {
        "modelRegistryUrl": (storage, "model_registry"),
        "sharedDirectoryUrl": (storage, "workdir"),
    }


def _store(platform: PlatformSpec, irsa: bool) -> dict[str, Any]:
    aws: dict[str, Any] = {"service": "SecretsManager", "region": platform.region}
    if irsa:  # with Pod Identity the operator's own credentials are the right ones
        account = {"name": OPERATOR_ACCOUNT, "namespace": OPERATOR_NAMESPACE}
        aws["auth"] = {"jwt": {"serviceAccountRef": account}}
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterSecretStore",
        "metadata": {"name": store_name(platform)},
        "spec": {
            "provider": {"aws": aws},
            # Secrets of this deployment go nowhere else.
            "conditions": [{"namespaces": [platform.engine_chart.namespace]}],
        },
    }


def _secret(platform: PlatformSpec, name: str, every: str, sources: _Sources) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ExternalSecret",
        "metadata": {"name": name, "namespace": platform.engine_chart.namespace},
        "spec": {
            "refreshInterval": every,
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": store_name(platform)},
            # Retain: a store that cannot be reached takes no secret away from a running engine.
            "target": {"name": name, "creationPolicy": "Owner", "deletionPolicy": "Retain"},
            "data": [
                {
                    "secretKey": key,
                    "remoteRef": {"key": source, **({"property": field} if field else {})},
                }
                for key, (source, field) in sources.items()
            ],
        },
    }
