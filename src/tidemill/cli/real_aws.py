"""The AWS account that this machine's credentials reach, for the verbs that touch one.

Against the simulated AWS on this machine (`tidemill sim aws`) the clock is the simulator's, which runs at a speed of
its own, and the account is named as simulated. Nothing but a loopback address is ever asked whether it is one.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from tidemill.model.errors import Retryable

if TYPE_CHECKING:
    from tidemill.ports import Clock, Cloud
    from tidemill.spec import Spec

ROLE = "TIDEMILL_AWS_ROLE"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WAIT_S = 5


def open_aws(spec: Spec) -> tuple[Cloud, Clock, str]:
    """The account through boto3, its clock, and what to call it."""
    from tidemill.aws.account import AwsAccount
    from tidemill.aws.compute import AwsMachines
    from tidemill.aws.images import AwsImages
    from tidemill.aws.session import Aws
    from tidemill.provision import Provisioned

    platform, role = spec.platform.spec, os.environ.get(ROLE, "")
    clock, name = clock_and_name()
    aws = Aws(platform.region, role_arn=role)
    account = AwsAccount(aws, clock, spec.catalog, owner=platform.deployment)
    machines = AwsMachines(aws, platform.deployment, platform.cluster.name)
    cloud = Provisioned(account, machines, spec, None, clock, images=AwsImages(aws, clock, spec))
    return cloud, clock, name


def clock_and_name() -> tuple[Clock, str]:
    """What time it is there, and what to call it."""
    from tidemill.store.open_ledger import WallClock

    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if simulated := _simulated(endpoint):
        return simulated, f"SIMULATED AWS at {endpoint}"
    return WallClock(), f"AWS at {endpoint}" if endpoint else "AWS"


class SimulatedClock:
    """What time it is in the simulated AWS: asked each time, since it may run a thousand times as fast."""

    def __init__(self, endpoint: str) -> None:
        self._url = f"{endpoint.rstrip('/')}/tidemill/clock"

    def now(self) -> datetime:
        try:
            with urlopen(self._url, timeout=_WAIT_S) as answer:
                return datetime.fromisoformat(json.load(answer)["now"])
        except (URLError, ValueError, KeyError, TypeError, OSError) as error:
            raise Retryable(f"the simulated AWS does not tell the time: {self._url}: {error}") from error


def _simulated(endpoint: str) -> SimulatedClock | None:
    if urlsplit(endpoint).hostname not in _LOOPBACK:
        return None
    clock = SimulatedClock(endpoint)
    try:
        clock.now()
    except Retryable:  # some other AWS on this machine
        return None
    return clock
