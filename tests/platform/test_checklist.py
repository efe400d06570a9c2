"""The checklist on a platform that grows from nothing: every step turns in order, a failed look concludes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import pytest
from pydantic import SecretStr

from tests.provision.documents import documents
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.errors import NotAllowed, Retryable
from tidemill.platform.checklist import CheckKind, Finding, State, Step, Views, run_checklist
from tidemill.platform.checklist.views import (
    ClusterFacts,
    DatabaseFacts,
    NodeFacts,
    PodFacts,
    RedisFacts,
    WorkloadFacts,
)
from tidemill.platform.secrets import layout_of
from tidemill.platform.secrets.check import DatabaseServer, StoredSecret
from tidemill.render.checklist_text import finding_text, fix_text
from tidemill.render.external_secrets import external_secret_objects

T = TypeVar("T")
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
SPEC = documents(
    platform={
        "hostname": "ml.example.com",
        "bucket": "models",
        "database": {"loginSecret": "rds!db-1"},
        "engineChart": {"pools": [{"name": "main", "computePool": "train", "replicas": 1}]},
    }
)
LAYOUT = layout_of(SPEC.platform.spec)
BLOCK = Reservation(
    "cr-1", SourceKind.BLOCK, "p5.48xlarge", "us-east-1a", 4, 4, ReservationState.ACTIVE, NOW, NOW + timedelta(days=3),
    owner="tides", pool="train",
)  # fmt: skip


@dataclass
class World:
    """An account and a cluster as far as the checklist looks at them: all of the views in one."""

    has: set[str] = field(default_factory=set)
    fails: dict[str, Exception] = field(default_factory=dict)

    def _answer(self, what: str, there: T, otherwise: Any = None) -> T:
        if what in self.fails:
            raise self.fails[what]
        return there if what in self.has else cast(T, otherwise)

    def cluster(self, name: str) -> ClusterFacts | None:
        return self._answer("infra", ClusterFacts("1.33", True))

    def database(self, instance: str) -> DatabaseFacts | None:
        return self._answer("infra", DatabaseFacts("17.6", True, False, True, True))

    def redis(self, group: str) -> RedisFacts | None:
        return self._answer("infra", RedisFacts(True, True, True))

    def has_bucket(self, name: str) -> bool:
        return bool(self._answer("infra", True, False))

    def zones_of(self, subnets: Sequence[str]) -> Mapping[str, str]:
        written = SPEC.platform.spec.subnets.items()
        return self._answer("infra", {subnet: zone for zone, listed in written for subnet in listed}, {})

    def blocks(self) -> Sequence[Reservation]:
        return self._answer("block", [BLOCK], [])

    def read(self, name: str) -> StoredSecret | None:
        values = {
            "rds!db-1": '{"username": "u", "password": "p"}',
            "tides/rds/connection": '{"endpoint": "db:5432", "database_name": "engine"}',
            "tides/s3/storage": '{"model_registry": "s3://models/a", "workdir": "s3://models/b"}',
            "tides/redis/auth-token": '{"url": "rediss://:t@h:6379"}',
            "tides/oidc_secret": '[{"key": "a", "name": "A", "issuer_url": "https://a.example", "client_id": "c"}]',
            "tides/cookies-secret": "x" * 64,
        }
        return self._answer("secrets", StoredSecret(name, SecretStr(values[name]), NOW))

    def create(self, name: str, value: SecretStr, description: str) -> bool:
        raise AssertionError("the checklist changes nothing")

    def put(self, name: str, value: SecretStr) -> None:
        raise AssertionError("the checklist changes nothing")

    def server(self, instance: str) -> DatabaseServer | None:
        return self._answer("infra", DatabaseServer("db", 5432, "rds!db-1"))

    def redis_host(self, replication_group: str) -> str | None:
        return None

    # the cluster

    def version(self) -> str:
        return str(self._answer("kube", "v1.37.1", "v1.37.1"))

    def workloads(self, namespace: str = "") -> Sequence[WorkloadFacts]:
        if namespace:
            return self._answer("engine", [WorkloadFacts("engine-control-plane", 2, 2)], [])
        names = ("nvidia-device-plugin", "aws-load-balancer-controller", "external-secrets")
        return self._answer("deps", [WorkloadFacts(name, 1, 1) for name in names], [])

    def engine_seen_at(self) -> datetime | None:
        return self._answer("tidemill", NOW - timedelta(seconds=8))

    def nodes(self) -> Sequence[NodeFacts]:
        return self._answer("nodes", [NodeFacts("n1", "train", "cr-1", True, 8)], [])

    def pods(self, namespace: str) -> Sequence[PodFacts]:
        return self._answer("workers", [PodFacts("w", "n1", True, 8)], [])

    def store(self, name: str) -> Mapping[str, Any] | None:
        ready = {
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "refreshTime": NOW.isoformat()}
        }
        return self._answer("synced", ready)

    def external_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return self.store(name)

    def secret_keys(self, namespace: str, name: str) -> frozenset[str] | None:
        wanted = external_secret_objects(SPEC.platform.spec)[1:]
        return frozenset(key["secretKey"] for one in wanted for key in one["spec"]["data"])

    def force_sync(self, namespace: str, name: str, at: datetime) -> None:
        raise AssertionError("the checklist changes nothing")

    def status(self, url: str) -> int:
        return int(self._answer("engine", 302, 503))


def looked(world: World, *, kube: bool = True) -> tuple[Finding, ...]:
    seen = world if kube else None
    views = Views(world, world, world, seen, seen, world, NOW)
    return run_checklist(SPEC, views, external_secret_objects(SPEC.platform.spec))


def done(findings: Sequence[Finding]) -> list[int]:
    return [
        step.value for step in Step if all(one.state is State.DONE for one in findings if one.step is step)
    ]


@pytest.mark.requirement("AE-13")
def test_every_step_turns_when_its_part_is_there_and_not_before():
    world, order = World(), ["infra", "deps", "secrets", "engine", "block", "tidemill", "nodes", "workers"]
    assert done(looked(world)) == []
    seen = []
    for part in order:
        world.has |= {part, "synced"} if part == "secrets" else {part}
        seen.append(done(looked(world)))
    assert seen == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5],
                    [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8]]  # fmt: skip


@pytest.mark.requirement("AE-13")
def test_what_is_missing_says_what_to_type():
    for one in looked(World()):
        if one.state is State.MISSING:
            assert fix_text(one, ["a.yaml", "b.yaml"]), one
            assert finding_text(one)


@pytest.mark.requirement("AE-13")
@pytest.mark.parametrize("error", [NotAllowed("denied"), Retryable("throttled")])
@pytest.mark.parametrize(
    "part", ["infra", "secrets", "block", "deps", "nodes", "workers", "synced", "engine"]
)
def test_a_look_that_fails_is_cannot_tell_and_never_missing(part: str, error: Exception):
    world = World(fails={part: error})
    without = {(one.step, one.check) for one in looked(World()) if one.state is State.MISSING}
    told = [one for one in looked(world) if one.state is State.CANNOT_TELL]
    assert told
    assert all(str(error) in finding_text(one) for one in told)
    assert all(fix_text(one, []) == "" for one in told)
    for one in looked(world):
        if one.state is State.MISSING:
            assert (one.step, one.check) in without


@pytest.mark.requirement("AE-13")
def test_without_the_cluster_nothing_is_said_of_it():
    findings = looked(World(has={"infra", "secrets", "block"}), kube=False)
    assert done(findings) == [1, 5]
    assert any("add --kube" in finding_text(one) for one in findings)


@pytest.mark.requirement("AE-7")
def test_a_login_page_that_asks_who_you_are_is_up():
    class Guarded(World):
        def status(self, url: str) -> int:
            return 401

    (page,) = [one for one in looked(Guarded()) if one.check is CheckKind.LOGIN_PAGE]
    assert page.state is State.DONE


@pytest.mark.requirement("AE-14")
def test_a_node_with_seven_of_eight_gpus_is_named():
    class Seven(World):
        def nodes(self) -> Sequence[NodeFacts]:
            return [NodeFacts("n1", "train", "cr-1", True, 8), NodeFacts("n2", "train", "cr-1", True, 7)]

    (gpus,) = [one for one in looked(Seven()) if one.check is CheckKind.NODE_GPUS]
    assert gpus.state is State.MISSING
    assert "too few on: n2" in finding_text(gpus)


@pytest.mark.requirement("AE-14")
def test_pods_on_other_nodes_than_a_blocks_do_not_count():
    class Elsewhere(World):
        def nodes(self) -> Sequence[NodeFacts]:
            return [NodeFacts("n1", "train", "on-demand", True, 8)]

    (used,) = [one for one in looked(Elsewhere(has={"workers"})) if one.check is CheckKind.PODS_ON_GPUS]
    assert used.state is State.MISSING


def test_a_block_in_a_zone_without_subnets_does_not_count():
    class Far(World):
        def blocks(self) -> Sequence[Reservation]:
            return [replace(BLOCK, zone="us-east-1f")]

    (block,) = [one for one in looked(Far()) if one.check is CheckKind.BLOCK_OF_POOL]
    assert block.state is State.MISSING
    assert "us-east-1f" in finding_text(block)
