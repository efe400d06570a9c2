"""A simulated account on the wire with the adapter in front of it: what the tests of the adapter speak to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.sim.account import OWNER, P5, Account
from tidemill import catalog
from tidemill.aws.account import AwsAccount
from tidemill.aws.compute import AwsCompute
from tidemill.aws.iam import calls
from tidemill.aws.images import AwsImages
from tidemill.aws.session import Aws, RateLimits
from tidemill.provision import ProvisionedCloud
from tidemill.sim.wire import WireServer
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform

REGION = "us-east-1"


class Wired:
    """The body, the server, and `ports.Cloud` through boto3. Time stands still unless it is moved."""

    def __init__(self, account: Account, server: WireServer) -> None:
        self.account, self.server = account, server
        self.slept_s: list[float] = []
        self.aws = Aws(REGION, rate_limits=RateLimits(sleep=self.slept_s.append))
        self.spec = spec(server.wire.network)
        self.direct = AwsAccount(self.aws, self, catalog.load(), owner=OWNER)
        self.compute = AwsCompute(self.aws, OWNER, "mill")
        images = AwsImages(self.aws, self, self.spec)
        self.cloud = ProvisionedCloud(self.direct, self.compute, self.spec, None, self, images=images)

    def now(self) -> datetime:
        return self.account.now

    def let_pass(self, time: timedelta) -> None:
        self.server.clock.advance(by=time)

    def fault(self, name: str, **given: Any) -> None:
        self._post("faults", {"fault": name, **given})

    def _post(self, path: str, given: Mapping[str, Any]) -> None:
        request = Request(
            f"{self.server.endpoint}/tidemill/{path}",
            json.dumps(given).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=10) as answer:
            answer.read()


@contextmanager
def wired(monkeypatch: pytest.MonkeyPatch, **market: Any) -> Iterator[Wired]:
    account = Account(**market)
    server = WireServer(
        account.cloud, account.timeline, roles=["mill-node"], security_groups=["sg-0123456789abcdef0"]
    )
    server.start()
    try:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        there = Wired(account, server)
        yield there
        # Whatever a test is about, it also shows that nothing is called that no policy allows.
        assert there.aws.called <= calls(), there.aws.called - calls()
    finally:
        server.stop()


def spec(network: Any, *, efa: bool = False, ami: str = "", **platform: Any) -> Spec:
    """The documents of the account on the wire: pool `train` takes whatever it gets."""
    given = {
        "region": REGION,
        "deployment": OWNER,
        "cluster": {"name": "mill", "endpoint": "https://mill.example", "certificateAuthority": "Y2E=",
                    "serviceCidr": "10.100.0.0/16"},
        "nodeRole": "mill-node",
        "subnets": {subnet.zone: [subnet.id] for subnet in network.subnets},
        "securityGroups": [network.security_group],
        **platform,
    }  # fmt: skip
    node_class = {"amiSelectorTerms": [{"id": ami or network.images["x86_64"]}], "efa": efa}
    pool = {"nodeClassName": "gpu", "requirements": {"instanceTypes": [P5]}, "limits": {"nodes": 4000}}
    return Spec(
        platform=Platform(metadata={"name": "mill"}, spec=given),
        catalog=catalog.load(),
        node_classes={"gpu": NodeClass(metadata={"name": "gpu"}, spec=node_class)},
        pools={"train": ComputePool(metadata={"name": "train"}, spec=pool)},
    )
