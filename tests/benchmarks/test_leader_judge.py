"""The judge of the leader chaos can say no: each kind of harm is found in records that show it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.leader_judge import Judgement, _drains, _extensions, _launches, _purchases
from tidemill.spec import names

A, B = "cr-a", "cr-b"


class Records:
    """What a scene without harm leaves behind; a test changes one thing."""

    block_a, block_b, jobs = A, B, 1
    retired = ("i-s0",)

    def __init__(self) -> None:
        self.account: Any = self
        self.launches = [{"id": "ti-1", "pool": "burst", "count": 1, "source_id": ""}]
        self.instances_made = [self.instance("i-1", "ti-1", "burst")]
        self.bought = [
            {
                "id": "tp-1", "window": "w1", "reservation_ids": ["cr-1"], "max_fee_usd": 900, "fee_usd": 800,
                "extends": "", "offer_id": "",
            },
            {
                "id": "tp-e", "window": "e1", "reservation_ids": [B], "max_fee_usd": 900, "fee_usd": 800,
                "extends": B, "offer_id": "cbe-1",
            },
        ]  # fmt: skip
        self.extended = ["cbe-1"]
        self.sold = {A: "", B: "", "cr-1": "tp-1"}
        self.states = ["proposed", "approved", "submitted", "confirmed"]
        self.people: list[dict[str, str]] = []
        row = {"node": "n", "daemon": False, "end": "stopped"}
        self.seen: dict[str, Any] = {
            "nodes": [{"node": "n", "instance": "i-a"}],
            "pods": [row],
            "diedWithInstance": [],
            "withoutFullGrace": [],
        }

    @staticmethod
    def instance(id_: str, intent: str, pool: str, block: str = "") -> dict[str, Any]:
        tags = {names.TAG_INTENT: intent, names.TAG_POOL: pool}
        written = [{"Key": key, "Value": value} for key, value in tags.items()]
        return {"InstanceId": id_, "CapacityReservationId": block, "Tags": written}

    def rows(self, query: str, *given: Any) -> list[dict[str, Any]]:
        for word, found in (
            ("FROM launches", self.launches),
            ("FROM purchases", self.bought),
            ("FROM verdicts", self.people),
            ("FROM audit", [{"what": "purchase", "after": {"state": state}} for state in self.states]),
        ):
            if word in query:
                return found
        raise AssertionError(query)

    def instances(self, *states: str) -> list[dict[str, Any]]:
        return self.instances_made

    def instances_on(self, block: str, *states: str) -> list[dict[str, Any]]:
        on_a = [self.instance("i-a", "ti-1", "gpu", A)] if block == A and not states else []
        return on_a + [one for one in self.instances_made if one["CapacityReservationId"] == block]

    def journal(self) -> list[dict[str, Any]]:
        return [{"kind": "block-purchased", "about": block} for block in self.sold]

    def kubelets(self) -> dict[str, Any]:
        return self.seen

    @property
    def ec2(self) -> Any:
        blocks = [
            {"CapacityReservationId": block, "Tags": [{"Key": names.TAG_INTENT, "Value": intent}]}
            for block, intent in self.sold.items()
        ]
        extended = [{"CapacityBlockExtensionOfferingId": offer} for offer in self.extended]
        return SimpleNamespace(
            describe_capacity_reservations=lambda: {"CapacityReservations": blocks},
            describe_capacity_block_extension_history=lambda: {"CapacityBlockExtensions": extended},
        )


def faults(records: Any) -> list[str]:
    told = Judgement()
    for look in (_launches, _purchases, _extensions, _drains):
        look(records, told)
    return told.faults


def test_no_harm_no_fault():
    assert faults(Records()) == []


def _launched_twice(records: Records) -> None:
    records.jobs = 2
    records.instances_made.append(records.instance("i-2", "ti-1", "burst"))


def _launched_for_nobody(records: Records) -> None:
    records.launches.append({"id": "ti-2", "pool": "burst", "count": 1, "source_id": ""})
    records.instances_made.append(records.instance("i-2", "ti-2", "burst"))


def _launched_unwritten(records: Records) -> None:
    records.jobs = 2
    records.instances_made.append(records.instance("i-2", "ti-2", "burst"))


def _too_many_on_a_block(records: Records) -> None:
    records.launches.append({"id": "ti-2", "pool": "gpu", "count": 2, "source_id": A})
    records.instances_made += [records.instance(f"i-{number}", "ti-2", "gpu", A) for number in (2, 3)]


def _sold_twice(records: Records) -> None:
    records.sold["cr-2"] = "tp-1"


def _window_twice(records: Records) -> None:
    records.bought.append({**records.bought[0], "id": "tp-2", "reservation_ids": ["cr-2"]})
    records.sold["cr-2"] = "tp-2"


def _extended_twice(records: Records) -> None:
    records.extended.append("cbe-1")


def _extended_for_one_window_twice(records: Records) -> None:
    records.bought.append({**records.bought[1], "id": "tp-f", "offer_id": "cbe-2"})
    records.extended.append("cbe-2")


def _service_moved_to_two_nodes(records: Records) -> None:
    for number in range(6):  # four replicas, one of which moved
        records.launches.append({"id": f"ti-s{number}", "pool": "steady", "count": 1, "source_id": ""})
        records.instances_made.append(records.instance(f"i-s{number}", f"ti-s{number}", "steady"))


def _not_approved(records: Records) -> None:
    records.states.remove("approved")


def _dear_and_nobody_asked(records: Records) -> None:
    records.bought[0]["max_fee_usd"] = 5_000


def _died(records: Records) -> None:
    records.seen["diedWithInstance"] = [{"pod": "a/b"}]


def _without_grace(records: Records) -> None:
    records.seen["withoutFullGrace"] = [{"pod": "a/b"}]


def _nothing_drained(records: Records) -> None:
    records.seen["pods"] = []


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_launched_twice, "asked for 1 and launched"),
        (_launched_for_nobody, "2 nodes were launched for 1 Jobs"),
        (_launched_unwritten, "instances of no intent"),
        (_too_many_on_a_block, "3 instances were launched on block cr-a of 2"),
        (_sold_twice, "EC2 sold"),
        (_window_twice, "2 blocks were bought for window w1"),
        (_extended_twice, "EC2 extended by"),
        (_extended_for_one_window_twice, "extended 2 times for window e1"),
        (_service_moved_to_two_nodes, "6 nodes for 4 replicas"),
        (_not_approved, "without an approval"),
        (_dear_and_nobody_asked, "nobody approved it"),
        (_died, "diedWithInstance"),
        (_without_grace, "withoutFullGrace"),
        (_nothing_drained, "nothing was drained"),
    ],
)
def test_each_harm_is_found(harm: Any, said: str):
    records = Records()
    harm(records)
    assert any(said in fault for fault in faults(records)), faults(records)
