"""A rehearsal whose engine reaches its account through boto3: the same body, on the other face."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import pytest

from tests.sim.scene import Scene
from tidemill.aws.account import AwsAccount
from tidemill.aws.buckets import Buckets
from tidemill.aws.machines import AwsMachines
from tidemill.aws.session import Aws
from tidemill.engine import Engine
from tidemill.machines import Machines
from tidemill.ports import Cloud, Cluster, Ledger
from tidemill.provision import Provisioned
from tidemill.provision.keeper import uses_groups
from tidemill.sim.crash import Crashing
from tidemill.sim.rehearsal import Rehearsal
from tidemill.sim.wire import WireServer
from tidemill.spec import Spec


class OnTheWire(Rehearsal):
    """Everything the engine asks of AWS goes through boto3 and back; the cluster and the ledger are as ever."""

    server: WireServer | None = None

    def _start_engine(self) -> Engine:
        self.alarms.engine_starts(self.spec)
        server = self._served()
        # Calls are rationed in virtual time, which stands still while a tick makes them.
        pace = Buckets(now_s=lambda: self.timeline.now().timestamp(), sleep=lambda _: None)
        region, owner = self.spec.platform.spec.region, self.spec.platform.spec.deployment
        self.aws = Aws(region, buckets=pace)
        cloud = Provisioned(
            AwsAccount(self.aws, self.timeline, self.spec.catalog, owner=owner),
            cast(Machines, AwsMachines(self.aws, owner)),
            _with_network(self.spec, server),
            self.ledger,
            self.timeline,
        )
        points = self._points
        return Engine(
            self.spec,
            self.timeline,
            cast(Cloud, Crashing(cloud, points)),
            cast(Cluster, Crashing(self.cluster, points)),
            cast(Ledger, Crashing(self.ledger, points)),
            decide=self._decide,
            beside=self._beside(),
            keeper=cloud.keeper if uses_groups(self.spec) else None,
        )

    def _served(self) -> WireServer:
        if self.server is None:
            self.server = WireServer(self.cloud, self.timeline)
            self.server.start()
            for name, value in self.server.environment.items():
                self.monkeypatch.setenv(name, value)
        return self.server

    monkeypatch: pytest.MonkeyPatch


def _with_network(spec: Spec, server: WireServer) -> Spec:
    """The documents' subnets are made up; those of the account on the wire are not."""
    network, platform = server.wire.network, spec.platform
    there = {
        "subnets": {one.zone: (one.id,) for one in network.subnets},
        "security_groups": (network.security_group,),
    }
    moved = platform.model_copy(update={"spec": platform.spec.model_copy(update=there)})
    return replace(spec, platform=moved)


@contextmanager
def on_the_wire(scene: Scene, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> Iterator[OnTheWire]:
    """Played to its end, every invariant checked."""
    monkeypatch.setattr(OnTheWire, "monkeypatch", monkeypatch, raising=False)
    rehearsal = OnTheWire(scene.spec, scene.scenario, seed)
    try:
        rehearsal.run()
        yield rehearsal
    finally:
        if rehearsal.server is not None:
            rehearsal.server.stop()
