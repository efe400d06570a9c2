"""A simulated account behind a wire server, for the tests: boto3 without retries, and the account behind it."""

from __future__ import annotations

import json
import urllib.request
from datetime import timedelta
from typing import Any
from urllib.error import HTTPError

import boto3
from botocore.config import Config

from tests.sim.account import OWNER, P5, Account
from tidemill.model.capacity import Reservation
from tidemill.sim.wire import WireServer
from tidemill.sim.wire.data_plane.api_client import KubeApi
from tidemill.spec import names

ONE_TRY = Config(retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=5, read_timeout=10)


class SimulatedAws:
    def __init__(
        self, *, speed: float = 0, kube: KubeApi | None = None, boot_fast: bool = False, **account: Any
    ) -> None:
        self.account = Account(**account)
        self.server = WireServer(
            self.account.cloud, self.account.timeline, speed=speed, kube=kube, boot_fast=boot_fast,
            roles=["node"], security_groups=["sg-1", "sg-2"],
        )  # fmt: skip
        self.url = self.server.start()
        self._clients: dict[str, Any] = {}

    def client(self, service: str, **given: Any) -> Any:
        where = {
            "endpoint_url": self.url,
            "region_name": "us-east-1",
            "aws_access_key_id": "simulated",
            "aws_secret_access_key": "simulated",
            "config": ONE_TRY,
        }
        if given:
            return boto3.client(service, **where | given)
        if service not in self._clients:
            self._clients[service] = boto3.client(service, **where)
        return self._clients[service]

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    @property
    def cloud(self) -> Any:
        return self.account.cloud

    @property
    def network(self) -> Any:
        return self.server.wire.network

    def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        self.server.stop()

    # --- time and faults, as a user has them ----------------------------------------------------------

    def admin(self, path: str, given: Any = None) -> Any:
        """GET, or POST where something is given. An error is answered as its JSON."""
        data = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(
            f"{self.url}/tidemill/{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                return json.load(error)

    def wait(self, written: str) -> None:
        self.admin("advance", {"by": written})

    # --- doing ----------------------------------------------------------------------------------------

    def offers(self, **given: Any) -> Any:
        asked = {"InstanceType": P5, "InstanceCount": 2, "CapacityDurationHours": 48} | given
        return self.ec2.describe_capacity_block_offerings(**asked)["CapacityBlockOfferings"]

    def buy(self, **tags: str) -> Any:
        """The cheapest offer that starts tomorrow or later."""
        offers = self.offers(StartDateRange=self.account.now + timedelta(days=1))
        return self.ec2.purchase_capacity_block(
            CapacityBlockOfferingId=offers[0]["CapacityBlockOfferingId"],
            InstancePlatform="Linux/UNIX",
            TagSpecifications=specs("capacity-reservation", tags),
        )

    def block(self, **given: Any) -> Reservation:
        with self.server.turn():
            return self.account.block(**given)

    def run(self, block: str = "", **given: Any) -> Any:
        asked: dict[str, Any] = {
            "ImageId": self.network.images["x86_64"],
            "InstanceType": P5,
            "MinCount": 1,
            "MaxCount": 1,
        }
        if block:
            asked |= on_block(block)
        return self.ec2.run_instances(**asked | given)

    def ids(self, **given: Any) -> list[str]:
        return [one["InstanceId"] for one in self.run(**given)["Instances"]]

    # --- looking --------------------------------------------------------------------------------------

    def reservations(self, **given: Any) -> Any:
        return self.ec2.describe_capacity_reservations(**given)["CapacityReservations"]

    def instances(self, **given: Any) -> list[dict[str, Any]]:
        answer = self.ec2.describe_instances(**given)
        return [one for call in answer["Reservations"] for one in call["Instances"]]


def on_block(block: str) -> dict[str, Any]:
    return {
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": block}},
    }


def specs(kind: str, tags: dict[str, str]) -> list[dict[str, Any]]:
    return (
        [{"ResourceType": kind, "Tags": [{"Key": key, "Value": tags[key]} for key in tags]}] if tags else []
    )


def tags_of(one: dict[str, Any]) -> dict[str, str]:
    """What users put there."""
    return {tag["Key"]: tag["Value"] for tag in one.get("Tags", []) if not tag["Key"].startswith("aws:")}


OURS = {names.TAG_OWNER: OWNER, names.TAG_POOL: "train"}
