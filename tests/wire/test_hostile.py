"""Requests nobody should send, and many at once: an AWS error each, and never a slot sold twice."""

from __future__ import annotations

import http.client
import random
import threading
import urllib.parse
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.wire.server_builder import SimulatedAws
from tidemill.sim.wire import operations

_SIGNED = "AWS4-HMAC-SHA256 Credential=AK/20261116/us-east-1/ec2/aws4_request, SignedHeaders=x, Signature=y"
_WORDS = [
    "", "1", "-1", "abc", "true", "p5.48xlarge", "cr-x", "i-x", "subnet-x", "ami-1", "us-east-1a", "tag:a", "state",
    "2026-11-17T00:00:00Z", "99999999999999999999", "é\x00<x>&", "capacity-block", "spot", "instant", "instance",
]  # fmt: skip


def post(aws: SimulatedAws, body: bytes, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(aws.url.removeprefix("http://"), timeout=10)
    given = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": _SIGNED} | headers
    connection.request("POST", "/", body, given)
    answer = connection.getresponse()
    read = answer.read().decode()
    connection.close()
    return answer.status, read


class Scribbler:
    """Fills in the parameters of a call by its model, mostly with nonsense."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def call(self, action: str) -> dict[str, str]:
        from moto.core.utils import get_service_model

        out = {"Action": action, "Version": "2016-11-15"}
        self._fill(get_service_model("ec2").operation_model(action).input_shape, "", out, 0)
        return out

    def _fill(self, shape: Any, name: str, out: dict[str, str], depth: int) -> None:
        if shape.type_name == "structure" and depth < 5:
            for member, inner in shape.members.items():
                if self.chance.random() < 0.75:
                    written = inner.serialization.get("name", member)
                    key = inner.serialization.get("queryName") or written[0].upper() + written[1:]
                    self._fill(inner, f"{name}.{key}" if name else key, out, depth + 1)
        elif shape.type_name == "list":
            for index in range(self.chance.randint(0, 2)):
                self._fill(shape.member, f"{name}.{index + 1}", out, depth + 1)
        else:
            known = getattr(shape, "enum", None)
            out[name] = self.chance.choice(list(known) if known and self.chance.random() < 0.6 else _WORDS)


def test_nonsense_in_any_call_is_a_client_error(aws: SimulatedAws):
    block = aws.block(count=3)
    aws.ids(block=block.id, MaxCount=2)
    aws.wait("2m")
    actions = [one.removeprefix("ec2:") for one in operations.known() if one.startswith("ec2:")]
    scribbler = Scribbler(seed=1)
    for n in range(400):
        asked = scribbler.call(actions[n % len(actions)])
        status, said = post(aws, urllib.parse.urlencode(asked).encode())
        assert status < 500, (asked, said)
        assert said.startswith(("<?xml", "<Response>")), said
    assert aws.reservations()[0]["TotalInstanceCount"] == 3


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"Action=NoSuchAction&Version=2016-11-15", {}),
        (b"\xff\xfe\x00", {}),
        (b"Action=DescribeInstances", {"Authorization": _SIGNED.replace("/ec2/", "/nothing/")}),
        (b"Action=DescribeInstances", {"Authorization": "Bearer x"}),
        (b"{", {"Content-Type": "application/x-amz-json-1.1"}),
        (b"not xml", {"Content-Type": "text/xml"}),
    ],
)
def test_an_unreadable_request_is_an_aws_error(aws: SimulatedAws, body: bytes, headers: dict[str, str]):
    status, said = post(aws, body, **headers)
    assert 400 <= status < 600
    assert "<html" not in said.lower()
    assert aws.reservations() == []  # and nobody else is the worse for it


@pytest.mark.requirement("CB-11")
def test_concurrent_launches_never_get_more_than_the_block_holds(aws: SimulatedAws):
    block = aws.block(count=5)
    ids: list[str] = []
    refused: list[str] = []
    aws.ec2  # noqa: B018 - made before the threads: boto3's clients are safe to share, making them is not

    def launch() -> None:
        for _ in range(4):
            try:
                ids.extend(aws.ids(block=block.id, MaxCount=1))
            except ClientError as error:
                refused.append(error.response["Error"]["Code"])

    threads = [threading.Thread(target=launch) for _ in range(6)]
    for thread in threads:
        thread.start()
    for one in threads:
        one.join()
    assert len(ids) == len(set(ids)) == 5
    assert set(refused) == {"ReservationCapacityExceeded"}
    assert len(refused) == 19
