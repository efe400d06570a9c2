"""One account, used in process and over the wire: whatever is done by either, both show the same afterwards."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.sim.account import P5, SPOT, ZONES
from tests.wire.server_builder import OURS, SimulatedAws, specs, tags_of
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.errors import TidemillError
from tidemill.model.nodes import Instance
from tidemill.spec import names

G6 = "g6.xlarge"


def utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)


def reservation(one: Reservation) -> tuple[Any, ...]:
    early = one.state.value in ("payment-pending", "scheduled", "payment-failed")
    count = 0 if early and one.kind is SourceKind.BLOCK else one.count
    where = (one.id, one.instance_type, one.zone, count, one.available)
    return (*where, one.state.value, one.start, one.end, tuple(sorted(one.tags)))


def reservation_on_the_wire(one: dict[str, Any]) -> tuple[Any, ...]:
    counts = one["TotalInstanceCount"], one["AvailableInstanceCount"]
    where = (one["CapacityReservationId"], one["InstanceType"], one["AvailabilityZone"], *counts)
    when = utc(one["StartDate"]), utc(one.get("EndDate"))
    return (*where, one["State"], *when, tuple(sorted(tags_of(one).items())))


def instance(one: Instance) -> tuple[Any, ...]:
    marks = one.owner, one.pool, one.intent_id, one.provisioner
    where = (one.id, one.instance_type, one.zone, one.source.id, one.state.value, one.launched_at)
    lifecycle = {SourceKind.BLOCK: "capacity-block", SourceKind.SPOT: "spot"}.get(one.source.kind, "")
    return (*where, lifecycle, *marks)


def instance_on_the_wire(one: dict[str, Any]) -> tuple[Any, ...]:
    tag = tags_of(one)
    keys = names.TAG_OWNER, names.TAG_POOL, names.TAG_INTENT, names.TAG_PROVISIONER
    where = (one["InstanceId"], one["InstanceType"], one["Placement"]["AvailabilityZone"])
    state = one.get("CapacityReservationId", ""), one["State"]["Name"], utc(one["LaunchTime"])
    return (*where, *state, one.get("InstanceLifecycle", ""), *(tag.get(key, "") for key in keys))


class Hands:
    """Does something at random, on the wire or in process."""

    def __init__(self, aws: SimulatedAws, seed: int) -> None:
        self.aws, self.chance = aws, random.Random(seed)
        self.done = 0

    def act(self) -> None:
        deeds = [self.buy, self.run_on_a_block, self.run_by_the_hour, self.launch_in_process, self.terminate]
        deed = self.chance.choice([*deeds, self.tag, self.extend, self.wait, self.trouble])
        try:
            deed()
            self.done += 1
        except (ClientError, BotoCoreError, TidemillError, IndexError):
            pass  # refused, lost, or nothing to do it to: both faces must agree on that too

    def buy(self) -> None:
        self.aws.buy(**OURS, n=str(self.chance.random()))

    def run_on_a_block(self) -> None:
        block = self.chance.choice(self.aws.cloud.all_reservations())
        self.aws.run(
            block=block.id, MaxCount=self.chance.randint(1, 3), TagSpecifications=specs("instance", OURS)
        )

    def run_by_the_hour(self) -> None:
        market: dict[str, Any] = (
            {"InstanceMarketOptions": {"MarketType": "spot"}} if self.chance.random() < 0.5 else {}
        )
        self.aws.run(InstanceType=G6, Placement={"AvailabilityZone": self.chance.choice(ZONES)}, **market)

    def launch_in_process(self) -> None:
        with self.aws.server.turn():
            self.aws.account.launch(SPOT, instance_type=G6, count=2)

    def terminate(self) -> None:
        id_ = self.chance.choice([one.id for one in self.aws.cloud.instances()])
        self.aws.ec2.terminate_instances(InstanceIds=[id_])

    def tag(self) -> None:
        ids = [one.id for one in (*self.aws.cloud.instances(), *self.aws.cloud.reservations())]
        key = self.chance.choice([names.TAG_OWNER, names.TAG_POOL, names.TAG_INTENT, "colour"])
        change = self.chance.choice([self.aws.ec2.create_tags, self.aws.ec2.delete_tags])
        tag = {"Key": key, "Value": self.chance.choice(["mill", "train", "red"])}
        change(Resources=[self.chance.choice(ids)], Tags=[tag])

    def extend(self) -> None:
        block = self.chance.choice(self.aws.cloud.all_reservations()).id
        offers = self.aws.ec2.describe_capacity_block_extension_offerings(
            CapacityReservationId=block, CapacityBlockExtensionDurationHours=24
        )["CapacityBlockExtensionOfferings"]
        self.aws.ec2.purchase_capacity_block_extension(
            CapacityBlockExtensionOfferingId=offers[0]["CapacityBlockExtensionOfferingId"],
            CapacityReservationId=block,
        )

    def wait(self) -> None:
        self.aws.server.advance(by=timedelta(minutes=self.chance.choice([1, 7, 60, 600, 2000])))

    def trouble(self) -> None:
        name = self.chance.choice(
            ["lost-answer", "lost-request", "internal-error", "payment-fails", "node-dies"]
        )
        self.aws.admin("faults", {"fault": name})


@pytest.mark.parametrize("seed", range(4))
def test_in_process_and_on_the_wire_show_the_same_after_random_calls(aws: SimulatedAws, seed: int):
    aws.block(name="a", count=4, duration="3d")
    aws.block(name="b", count=2, duration="2d", start="1d", instance_type=P5, zone=ZONES[1])
    hands = Hands(aws, seed)
    for _ in range(40):
        hands.act()
        aws.admin("faults", {"fault": "clear"})
        seen = [reservation_on_the_wire(one) for one in aws.reservations()]
        assert seen == [reservation(one) for one in aws.cloud.reservations()]
        found = [instance_on_the_wire(one) for one in aws.instances()]
        assert sorted(found) == sorted(instance(one) for one in aws.cloud.instances())
    assert hands.done > 15
    told = aws.ec2.describe_capacity_block_extension_history()["CapacityBlockExtensions"]
    assert [
        (one["CapacityBlockExtensionOfferingId"], one["CapacityBlockExtensionStatus"], one["UpfrontFee"])
        for one in told
    ] == [
        (extension.offer_id, extension.state.value, str(extension.fee_usd))
        for extension in aws.cloud.extensions()
    ]
