"""A thousand answers of AWS, each mangled somewhere: no crash, nothing guessed, nothing bought or launched on it, each
complaint logged once. Seeded: a failure names its number, and the number replays it.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.aws.answers import (
    CR,
    INSTANCE,
    event,
    extension_record,
    instance_record,
    offer_record,
    reservation_record,
    spot_record,
    status_record,
)
from tests.aws.mangling import MangledAws, mangle, places
from tests.sim.account import OWNER, P5, START, ZONES, tags
from tidemill import catalog
from tidemill.aws.account import AwsAccount
from tidemill.aws.compute import AwsCompute, template_digest
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.errors import NoCapacity, OutcomeUnknown, Retryable, TidemillError
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.offers import ExtensionQuery, ExtensionState, Offer, OfferQuery
from tidemill.ports.compute import LaunchRequest, Template, TemplateVersion
from tidemill.spec import names

NOW = START + timedelta(hours=1)


class Clock:
    def now(self) -> datetime:
        return NOW


def by_tag(operation: str, filters: list[str]) -> str:
    asks_by_tag = operation == "DescribeInstances" and any(one.startswith("tag:") for one in filters)
    return f"{operation} of ours" if asks_by_tag else operation


def answers() -> dict[str, Any]:
    """What AWS says of a healthy account: one block, one instance of ours on it, and a stranger."""
    stranger = instance_record(InstanceId="i-0aaaaaaaaaaaaaaaa", Tags=None)
    extension_offer = {key: value for key, value in extension_record().items() if "Status" not in key}
    return {
        "DescribeCapacityReservations": {"CapacityReservations": [reservation_record(), reservation_record(
            CapacityReservationId="cr-0bbbbbbbbbbbbbbbb", State="scheduled", TotalInstanceCount=0)]},
        "DescribeCapacityBlockExtensionHistory": {"CapacityBlockExtensions": [extension_record()]},
        "DescribeInstances of ours": {"Reservations": [{"Instances": [instance_record()]}]},
        "DescribeInstances": {"Reservations": [{"Instances": [instance_record(), stranger]}]},
        "DescribeInstanceStatus": {"InstanceStatuses": [status_record(event())]},
        "DescribeSpotInstanceRequests": {"SpotInstanceRequests": [spot_record()]},
        "DescribeCapacityBlockOfferings": {"CapacityBlockOfferings": [offer_record(), offer_record(UpfrontFee="99")]},
        "DescribeCapacityBlockExtensionOfferings": {"CapacityBlockExtensionOfferings": [extension_offer]},
        "GetCallerIdentity": {"Arn": "arn:aws:sts::123456789012:assumed-role/mill/x"},
        "PurchaseCapacityBlock": {"CapacityReservation": reservation_record(State="payment-pending"),
                                  "CapacityBlocks": [{"CapacityReservationIds": [CR]}]},
        "PurchaseCapacityBlockExtension": {"CapacityBlockExtensions": [extension_record()]},
    }  # fmt: skip


def mangled(draw: Random, operation: str) -> dict[str, Any]:
    """The healthy answers, with one to three things wrong in one of them."""
    table = copy.deepcopy(answers())
    mangle(draw, table[operation])
    return table


def asked(account: AwsAccount) -> dict[str, Callable[[], Any]]:
    query = OfferQuery(P5, 2, timedelta(days=2), NOW, NOW + timedelta(days=9), ZONES)
    return {
        "reservations": account.reservations,
        "instances": account.instances,
        "extensions": account.extensions,
        "offers": lambda: account.search_offers(query),
        "more": lambda: account.search_extensions(ExtensionQuery(CR, timedelta(days=1))),
        "who": account.identity,
    }


def test_a_thousand_mangled_answers_are_survived_and_nothing_is_guessed(caplog: pytest.LogCaptureFixture):
    reads = [answer for answer in answers() if not answer.startswith("Purchase")]
    came: Counter[str] = Counter()
    for number in range(1000):
        draw = Random(number)
        aws = MangledAws(mangled(draw, draw.choice(reads)), by_tag)
        account = AwsAccount(aws, Clock(), catalog.load(), owner=OWNER)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                for name, question in asked(account).items():
                    try:
                        judge(number, name, question())
                        if name == "instances" and ours_is_there(aws):
                            assert INSTANCE in {instance.id for instance in account.instances()}, (
                                number,
                                "taken for gone",
                            )
                        came["answered"] += 1
                    except TidemillError:
                        came["refused"] += 1
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == len(set(said)), (number, said)
        assert all(line.isprintable() and len(line) <= 300 for line in said), number
        assert aws.changes == [], number
    assert came["answered"] > 10_000
    assert came["refused"] > 100


def ours_is_there(aws: MangledAws) -> bool:
    """Whether AWS still spoke of it at all, however strangely."""
    groups = aws.answers["DescribeInstances of ours"].get("Reservations")
    return isinstance(groups, list) and any(
        isinstance(group, dict) and group.get("Instances") for group in groups
    )


def judge(number: int, name: str, answer: Any) -> None:
    """Whatever comes through is whole, and means what the healthy answer meant or less."""
    for one in answer if isinstance(answer, tuple) else ():
        if isinstance(one, Reservation):
            assert one.unread or one.id.startswith("cr-"), number
            assert not (one.unread and one.available), number
            assert one.state in ReservationState, number
            assert 0 <= one.available <= one.count, (number, one)
            assert one.state is ReservationState.ACTIVE or one.available == 0, (number, one)
            assert one.start.tzinfo is not None, number
            assert one.fee_usd >= 0, number
        elif isinstance(one, Instance):
            assert one.id.startswith("i-"), number
            assert one.state in InstanceState, number
            assert one.ends_at is None or one.ends_at.tzinfo is not None, number
        elif isinstance(one, Offer):
            assert one.fee_usd >= 0, number
            assert one.count >= 1, number
            assert one.start < one.end, number


def test_a_purchase_with_a_mangled_answer_is_never_read_as_refused():
    for number in range(500):
        draw = Random(number)
        operation = draw.choice(["PurchaseCapacityBlock", "PurchaseCapacityBlockExtension"])
        account = AwsAccount(
            MangledAws(mangled(draw, operation), by_tag), Clock(), catalog.load(), owner=OWNER
        )
        try:
            for block in account.purchase("cb-1", tags(intent="p-1")):
                assert block.id.startswith("cr-"), number
            assert account.purchase_extension("cbe-0123456789abcdef0", CR).state in ExtensionState, number
        except OutcomeUnknown:
            pass


@pytest.mark.parametrize("token", ["the same", 7, {"a": 1}])
def test_a_list_that_does_not_end_is_an_error(token: Any):
    table = answers()
    table["DescribeCapacityReservations"]["NextToken"] = token
    account = AwsAccount(MangledAws(table, by_tag), Clock(), catalog.load(), owner=OWNER)
    with pytest.raises(Retryable, match="does not end"):
        account.reservations()


def test_an_unreadable_instance_of_ours_fails_the_list_and_one_of_others_does_not():
    table = answers()
    _, theirs = table["DescribeInstances"]["Reservations"][0]["Instances"]
    (ours,) = table["DescribeInstances of ours"]["Reservations"][0]["Instances"]
    theirs["State"] = {"Name": "dreaming"}
    account = AwsAccount(MangledAws(table, by_tag), Clock(), catalog.load(), owner=OWNER)
    assert [instance.id for instance in account.instances()] == [INSTANCE]
    ours["State"] = {"Name": "dreaming"}
    with pytest.raises(Retryable, match="1 instances of ours cannot be read"):
        account.instances()


# --- launches -----------------------------------------------------------------------------------------

TEMPLATE = Template("mill-train", {"InstanceType": P5, "ImageId": "ami-1"}, ((names.TAG_POOL, "train"),))
VERSION = TemplateVersion("lt-0123456789abcdef0", "mill-train", 1)
ORDER = LaunchRequest(
    "l-1",
    VERSION,
    Source(SourceKind.BLOCK, CR),
    P5,
    ZONES[0],
    ("subnet-1",),
    2,
    tags(intent="l-1", provisioner="native"),
)


def machine_answers() -> dict[str, Any]:
    owner = [{"Key": names.TAG_OWNER, "Value": OWNER}]
    made = {"LaunchTemplateId": VERSION.id, "LaunchTemplateName": VERSION.name, "LatestVersionNumber": 1}
    version = {
        "LaunchTemplateId": VERSION.id, "LaunchTemplateName": VERSION.name, "VersionNumber": 1,
        "VersionDescription": template_digest(TEMPLATE.data),
        "LaunchTemplateData": {"InstanceType": P5, "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-1"]}]},
    }  # fmt: skip
    return {
        "DescribeLaunchTemplates": {"LaunchTemplates": [{**made, "Tags": owner}]},
        "DescribeLaunchTemplateVersions": {"LaunchTemplateVersions": [version]},
        "CreateLaunchTemplate": {"LaunchTemplate": made},
        "CreateLaunchTemplateVersion": {"LaunchTemplateVersion": version},
        "RunInstances": {"Instances": [instance_record(), instance_record(InstanceId="i-0aaaaaaaaaaaaaaaa")]},
        "DescribeInstances": {"Reservations": [{"Instances": [instance_record()]}]},
        "TerminateInstances": {},
        "DeleteLaunchTemplate": {},
        "GetParameter": {"Parameter": {"Value": "ami-0123456789abcdef0"}},
    }


def test_mangled_answers_to_launches_launch_nothing_twice_and_terminate_only_ours():
    came: Counter[str] = Counter()
    for number in range(1000):
        draw = Random(number)
        table = copy.deepcopy(machine_answers())
        mangle(draw, table[draw.choice(list(table))])
        aws = MangledAws(table, by_tag)
        compute = AwsCompute(aws, OWNER, "mill")
        for name, ask in {
            "templates": compute.templates,
            "put": partial(compute.put_template, TEMPLATE),
            "run": partial(compute.run, ORDER),
            "terminate": partial(compute.terminate, INSTANCE),
            "delete": partial(compute.delete_template, TEMPLATE.name),
        }.items():
            answer: Any = None
            try:
                answer = ask()
                came["answered"] += 1
            except (OutcomeUnknown, NoCapacity, Retryable):  # a launch is answered by one of these, or by ids
                came["refused"] += 1
            except TidemillError:
                came["refused"] += 1
                came["refused launches"] += name == "run"
            assert name != "run" or all(id_.startswith("i-") for id_ in answer or ()), number
        assert aws.changes.count("RunInstances") <= 1, number
        ours = places(table["DescribeInstances"])
        if not any(
            value == OWNER for container, key in ours for value in [container[key]] if isinstance(value, str)
        ):
            assert "TerminateInstances" not in aws.changes, number
    assert came["refused launches"] == 0
    assert came["answered"] > 3000
    assert came["refused"] > 100
