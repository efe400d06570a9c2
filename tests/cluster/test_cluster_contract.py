"""The contract of `ports.Cluster` on a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.start import ControlPlane
from tests.cluster.kube_stage import KubeStage
from tests.contracts.cluster_contract import *  # noqa: F403
from tests.contracts.cluster_contract import Backend


@pytest.fixture
def backend(cluster: ControlPlane, namespace: str) -> Iterator[Backend]:
    stage = KubeStage(cluster, namespace)
    yield stage
    stage.close()
