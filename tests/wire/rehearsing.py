"""A rehearsal whose engine reaches the simulated account through boto3, over the wire: nothing else is different."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario
from tests.wire.groups import ROLE
from tidemill.aws.account import AwsAccount
from tidemill.aws.compute import AwsCompute
from tidemill.aws.session import Aws, RateLimits
from tidemill.provision import ProvisionedCloud
from tidemill.provision.images import PretendImages
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.wire import WireServer

ONE_BLOCK_AND_JOBS: dict[str, Any] = {
    "reservations": [given.block(**{"from": "30m"}, duration="3h30m")],
    "jobs": [
        given.job(at=["0s", "1h"], lasts="40m"),
        given.job("long", at=["2h"], lasts="9h", checkpointEvery="10m"),
    ],
}
_CHAT: dict[str, Any] = {
    "replicas": 4, "minAvailable": 3, "gpus": 4, "cpu": "40", "memory": "400Gi", "load": "8m",
    "zeroDowntime": True, "handover": {"method": "rollout", "maxSurge": 2, "maxUnavailable": 0},
}  # fmt: skip
TWO_BLOCKS_AND_A_SERVICE: dict[str, Any] = {
    "reservations": [
        given.block("a", pool="train"),
        given.block("b", pool="train", zone="us-east-1b", duration="28h", **{"from": "1h"}),
    ],
    "services": [given.service(**_CHAT)],
    "duration": "5h",
}


@dataclass
class OnTheWire:
    """One server for the account of one rehearsal; every engine that is started gets an adapter of its own."""

    server: WireServer | None = None
    aws: Aws | None = None
    monkeypatch: pytest.MonkeyPatch | None = None

    def reach(self, rehearsal: Rehearsal) -> ProvisionedCloud:
        if self.server is None:
            self._serve(rehearsal)
        platform, spec = rehearsal.spec.platform.spec, rehearsal.spec
        clock = rehearsal.timeline  # the buckets fill by it too
        buckets = RateLimits(now_s=lambda: clock.now().timestamp(), sleep=lambda _: None)
        self.aws = Aws(platform.region, rate_limits=buckets)
        account = AwsAccount(self.aws, rehearsal.timeline, spec.catalog, owner=platform.deployment)
        machines = AwsCompute(self.aws, platform.deployment, platform.cluster.name)
        return ProvisionedCloud(account, machines, spec, rehearsal.ledger, rehearsal.timeline)

    def _serve(self, rehearsal: Rehearsal) -> None:
        platform = rehearsal.spec.platform.spec
        built = rehearsal.spec.node_classes.values()
        images = {PretendImages().image_id(node_class, "") for node_class in built}
        self.server = WireServer(
            rehearsal.cloud, rehearsal.timeline, subnets=platform.subnets, images=sorted(images),
            roles=[platform.node_role.rpartition("/")[2] or "node"], security_groups=platform.security_groups,
        )  # fmt: skip
        self.server.start()
        assert self.monkeypatch is not None
        for name, value in self.server.environment.items():
            self.monkeypatch.setenv(name, value)
        boto3.client("eks").create_cluster(
            name=platform.cluster.name, roleArn=ROLE, resourcesVpcConfig={"subnetIds": []}
        )


@contextmanager
def on_the_wire(
    prepared: PreparedScenario, monkeypatch: pytest.MonkeyPatch, seed: int = 1, **how: Any
) -> Iterator[Rehearsal]:
    wire = OnTheWire(monkeypatch=monkeypatch)
    try:
        yield prepared.prepare(seed, through=wire.reach, **how)
    finally:
        if wire.server is not None:
            wire.server.stop()


def story(rehearsal: Rehearsal) -> list[tuple[object, str, str]]:
    """Everything that happened, to whom and when."""
    return [(line.at, line.kind, line.about) for line in rehearsal.journal.lines]


def run_both_ways(prepared: PreparedScenario, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> Rehearsal:
    """The rehearsal over the wire, after it had the same story as the one in process."""
    with on_the_wire(prepared, monkeypatch, seed) as rehearsal:
        rehearsal.run()
    assert story(rehearsal) == story(prepared.run(seed))
    return rehearsal
