"""What a check found: data. `render.checklist_text` makes the sentence and the command of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Step(IntEnum):
    """In the order they are done in: the control plane comes before anything is paid for."""

    INFRASTRUCTURE = 1
    DEPENDENCIES = 2
    SECRETS = 3
    CONTROL_PLANE = 4
    BLOCKS = 5
    NODE_POOLS = 6
    COMPUTE_POOLS = 7
    GPUS = 8


class State(StrEnum):
    DONE = "done"
    MISSING = "missing"
    CANNOT_TELL = "cannot-tell"


class CheckKind(StrEnum):
    # 1
    CLUSTER = "cluster"
    CLUSTER_VERSION = "cluster-version"
    SUBNETS = "subnets"
    DATABASE = "database"
    DATABASE_SAFE = "database-safe"
    REDIS = "redis"
    BUCKET = "bucket"
    # 2
    API_SERVER = "api-server"
    DEVICE_PLUGIN = "device-plugin"
    LOAD_BALANCER_CONTROLLER = "load-balancer-controller"
    SECRETS_OPERATOR = "secrets-operator"
    KARPENTER = "karpenter"
    # 3
    SECRET = "secret"
    SYNCED = "synced"
    # 4
    CONTROL_PLANE = "control-plane"
    LOGIN_PAGE = "login-page"
    # 5
    BLOCK_OF_POOL = "block-of-pool"
    # 6
    ENGINE = "engine"
    POOL_NODES = "pool-nodes"
    # 7
    ENGINE_PODS = "engine-pods"
    # 8
    NODE_GPUS = "node-gpus"
    PODS_ON_GPUS = "pods-on-gpus"


@dataclass(frozen=True, slots=True)
class Finding:
    """`about`: what it is about, by name. `found` and `wanted`: figures or words of AWS and Kubernetes, never prose.
    `why`: what was answered where it could not be looked at."""

    step: Step
    check: CheckKind
    state: State
    about: str = ""
    found: str = ""
    wanted: str = ""
    why: str = ""
