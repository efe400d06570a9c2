"""The server: its clock, its end, what it does not know, and what it needs."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError

from tests.sim.account import START, Account
from tests.wire.server_builder import OURS, SimulatedAws, specs, tags_of
from tests.wire.test_blocks import code
from tidemill.model.errors import SpecError
from tidemill.sim.cloud.cloud import SIM_ENGINE
from tidemill.sim.timeline import Timeline
from tidemill.sim.wire import WireServer, moto_check
from tidemill.sim.wire.clock import WireClock

# --- what it does not know ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "operation", "given"),
    [
        ("ec2", "describe_placement_groups", {}),
        ("ec2", "describe_reserved_instances_listings", {}),
        (
            "ec2",
            "create_capacity_reservation_fleet",
            {"InstanceTypeSpecifications": [], "TotalTargetCapacity": 1},
        ),
        ("autoscaling", "describe_traffic_sources", {"AutoScalingGroupName": "a"}),
        ("autoscaling", "start_instance_refresh", {"AutoScalingGroupName": "a"}),
        ("eks", "describe_update", {"name": "a", "updateId": "b"}),
        ("eks", "list_insights", {"clusterName": "a"}),
        ("sqs", "start_message_move_task", {"SourceArn": "arn:aws:sqs:us-east-1:123456789012:q"}),
        ("health", "describe_events", {}),
        ("pricing", "describe_services", {}),
    ],
)
def test_an_operation_that_is_not_simulated_is_an_aws_error_that_says_so(
    aws: SimulatedAws, service: str, operation: str, given: dict[str, Any]
):
    with pytest.raises(ClientError, match=f"does not simulate {service}:") as raised:
        getattr(aws.client(service), operation)(**given)
    assert code(raised) == ("NotImplemented", 501)


def test_no_answer_is_html(aws: SimulatedAws):
    for path in ("/", "/nowhere/at/all", "/tidemill/nowhere"):
        connection = http.client.HTTPConnection(aws.url.removeprefix("http://"))
        connection.request("GET", path)
        answer = connection.getresponse()
        assert b"<html" not in answer.read().lower()
        connection.close()


@pytest.mark.parametrize("region", ["eu-west-1", "nowhere-1"])
@pytest.mark.parametrize("operation", ["describe_capacity_reservations", "describe_instance_types"])
def test_a_call_to_another_region_says_where_the_account_is(aws: SimulatedAws, operation: str, region: str):
    with pytest.raises(ClientError, match=f"is in us-east-1, not in {region}") as raised:
        getattr(aws.client("ec2", region_name=region), operation)()
    assert code(raised) == ("OptInRequired", 403)


def test_services_of_moto_work_next_to_the_account(aws: SimulatedAws):
    sqs = aws.client("sqs")
    queue = sqs.create_queue(QueueName="q")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="hello")
    (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
    assert message["Body"] == "hello"


@pytest.mark.requirement("CB-3")
def test_the_caller_is_named_by_the_account_or_by_the_access_key(aws: SimulatedAws):
    assert aws.client("sts").get_caller_identity()["Arn"] == SIM_ENGINE
    alice = aws.client("sts", aws_access_key_id="as-alice")
    assert alice.get_caller_identity()["Arn"] == "arn:aws:iam::123456789012:user/alice"


def test_a_long_poll_blocks_no_other_request(aws: SimulatedAws):
    sqs = aws.client("sqs")
    queue = sqs.create_queue(QueueName="q")["QueueUrl"]
    heard: list[Any] = []
    waiting = threading.Thread(
        target=lambda: heard.append(sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=10))
    )
    waiting.start()
    time.sleep(0.2)
    began = time.monotonic()
    assert aws.reservations() == []
    assert time.monotonic() - began < 5
    sqs.send_message(QueueUrl=queue, MessageBody="go on")
    waiting.join()
    assert heard[0]["Messages"]


# --- time ---------------------------------------------------------------------------------------------


def test_time_is_read_and_moved_by_the_admin_endpoint(aws: SimulatedAws):
    clock = aws.admin("clock")
    assert datetime.fromisoformat(clock.pop("wall")).tzinfo is not None
    start = "2026-11-16T11:30:00Z"
    assert clock == {"now": start, "exactly": start, "speed": 0.0, "nextAt": None}
    assert aws.admin("advance", {"by": "90m"})["now"] == "2026-11-16T13:00:00Z"
    assert aws.admin("advance", {"to": "2026-11-17T00:00:00Z"})["now"] == "2026-11-17T00:00:00Z"
    assert aws.admin("advance", {"to": "2026-11-16T00:00:00Z"})["now"] == "2026-11-17T00:00:00Z"
    for wrong in ({}, {"by": "soon"}, {"to": "1m", "by": "1m"}, {"to": "yesterday"}):
        assert aws.admin("advance", wrong)["error"]
    assert aws.admin("speed", {"speed": -1})["error"]
    assert aws.admin("nowhere")["error"]


def test_the_admin_endpoint_shows_the_journal_and_the_account(aws: SimulatedAws):
    aws.block(name="a")
    assert [line["kind"] for line in aws.admin("journal")] == ["block-active"]
    about = aws.admin("")
    assert (about["account"], about["region"]) == ("123456789012", "us-east-1")
    assert set(about["subnets"]) == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert "ec2:PurchaseCapacityBlock" in about["operations"]


def test_the_admin_endpoint_shows_who_asked_for_a_change(aws: SimulatedAws):
    alice = {"aws_access_key_id": "as-alice", "aws_secret_access_key": "any"}
    ec2 = boto3.client("ec2", endpoint_url=aws.url, region_name="us-east-1", **alice)
    ec2.describe_instances()
    with pytest.raises(ClientError):  # there is no such instance; it was asked for all the same
        ec2.create_tags(Resources=["i-00000000"], Tags=[{"Key": "a", "Value": "b"}])
    (call,) = aws.admin("calls")
    assert (call["key"], call["action"]) == ("as-alice", "CreateTags")


def test_a_browser_cannot_be_made_to_post_here(aws: SimulatedAws):
    request = urllib.request.Request(
        f"{aws.url}/tidemill/advance", b'{"by": "1d"}', {"Content-Type": "text/plain"}
    )
    with pytest.raises(urllib.request.HTTPError) as raised:
        urllib.request.urlopen(request)
    raised.value.close()
    assert aws.admin("clock")["now"] == "2026-11-16T11:30:00Z"


class Wall:
    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


def test_at_speed_n_time_runs_n_times_as_fast_as_wall_time():
    wall, timeline = Wall(), Timeline(START)
    clock = WireClock(timeline, speed=60, wall_s=wall)
    happened = []
    timeline.after(timedelta(minutes=5), lambda: happened.append(timeline.now()))
    wall.at_s = 4.99
    assert clock.now() == START + timedelta(seconds=299)
    assert not happened
    wall.at_s = 5
    assert clock.now() == START + timedelta(minutes=5)
    assert happened == [START + timedelta(minutes=5)]
    clock.advance(by=timedelta(hours=1))  # a jump, and it runs on from there
    wall.at_s = 6
    assert clock.now() == START + timedelta(hours=1, minutes=6)
    clock.set_speed(0)
    wall.at_s = 600
    assert clock.now() == START + timedelta(hours=1, minutes=6)


def test_at_speed_things_happen_without_a_request():
    aws = SimulatedAws(speed=3600)
    try:
        aws.block(start="1d")
        deadline = time.monotonic() + 20
        aws.admin("speed", {"speed": 200_000})
        while not aws.account.journal_lines("block-active"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        aws.stop()


def test_what_happens_while_the_clock_catches_up_does_not_move_it():
    """Events ask for the time. Were it moved by that, a busy account would lose itself in its own events."""
    wall = [0.0]
    timeline = Timeline(datetime(2026, 11, 16, 8, tzinfo=UTC))
    clock = WireClock(timeline, speed=60, wall_s=lambda: wall[0])
    seen = []

    def happen() -> None:
        wall[0] += 10  # it takes long
        seen.append((timeline.now(), clock.now()))

    for second in range(2000):
        timeline.after(timedelta(seconds=second % 60), happen)
    wall[0] = 1.0
    clock.now()
    assert len(seen) == 2000
    assert all(before == after for before, after in seen)


def test_time_does_not_move_during_a_request(aws: SimulatedAws):
    with aws.server.turn():
        before = aws.account.now
        advancing = threading.Thread(target=lambda: aws.wait("1h"))
        advancing.start()
        time.sleep(0.1)
        assert aws.account.now == before
    advancing.join()
    assert aws.account.now == before + timedelta(hours=1)


# --- beginning and end --------------------------------------------------------------------------------


def test_servers_follow_each_other_and_leave_nothing_behind():
    subnets = set()
    for _ in range(3):
        account = Account()
        with WireServer(account.cloud, account.timeline) as server:
            aws = object.__new__(SimulatedAws)
            aws.account, aws.server, aws.url, aws._clients = account, server, server.endpoint, {}
            aws.client("sqs").create_queue(QueueName="q")
            assert aws.reservations() == []
            aws.block(name="a")
            assert len(aws.reservations()) == 1
            assert not aws.ec2.describe_launch_templates()["LaunchTemplates"]
            aws.ec2.create_launch_template(
                LaunchTemplateName="t", LaunchTemplateData={"InstanceType": "g6.xlarge"}
            )
            subnets.add(tuple(subnet.id for subnet in aws.network.subnets))
            ec2 = aws.ec2
        with pytest.raises(EndpointConnectionError):
            ec2.describe_instances()
        ec2.close()
    assert len(subnets) == 1  # the same account has the same ids
    assert not [one.name for one in threading.enumerate() if one.name.startswith("tidemill-wire")]


def test_an_account_served_again_is_unchanged(aws: SimulatedAws):
    block = aws.block(count=2)
    (id_,) = aws.ids(block=block.id, TagSpecifications=specs("instance", OURS), ClientToken="once")
    aws.wait("2m")
    aws.stop()
    again = object.__new__(SimulatedAws)
    again.account, again._clients = aws.account, {}
    with WireServer(aws.account.cloud, aws.account.timeline) as again.server:
        again.url = again.server.endpoint
        (seen,) = again.instances()
        assert (seen["InstanceId"], seen["State"]["Name"]) == (id_, "running")
        assert seen["CapacityReservationId"] == block.id
        assert tags_of(seen) == OURS
        assert again.ids(block=block.id, ClientToken="once") == [id_]
        again.ec2.close()


def test_a_request_that_waits_when_the_server_stops_gets_no_answer_and_changes_nothing(aws: SimulatedAws):
    lost: list[type[Exception]] = []
    made = aws.ec2

    def launch() -> None:
        try:
            aws.run(InstanceType="g6.xlarge")
        except Exception as error:
            lost.append(type(error))

    with aws.server.turn():
        waiting = threading.Thread(target=launch)
        waiting.start()
        time.sleep(0.3)  # it is at the door now
        aws.server._dispatcher.close()  # as `stop` does once it has the turn
    waiting.join()
    assert lost == [ConnectionClosedError]
    assert not aws.cloud.instance_histories
    made.close()


def test_the_account_number_is_the_same_in_every_answer():
    account = Account()
    account.cloud._identity = "arn:aws:iam::210987654321:user/you"
    aws = object.__new__(SimulatedAws)
    aws.account, aws._clients = account, {}
    with WireServer(account.cloud, account.timeline) as aws.server:
        aws.url = aws.server.endpoint
        assert "/210987654321/" in aws.client("sqs").create_queue(QueueName="q")["QueueUrl"]
        aws.block(name="a")
        assert aws.reservations()[0]["OwnerId"] == "210987654321"
        made = aws.ec2.create_launch_template(
            LaunchTemplateName="t",
            LaunchTemplateData={"InstanceType": "g6.xlarge", "ImageId": aws.network.images["x86_64"]},
        )
        used = {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"]}
        assert aws.ec2.run_instances(MinCount=1, MaxCount=1, LaunchTemplate=used)["OwnerId"] == "210987654321"
        for client in aws._clients.values():
            client.close()


def test_a_second_server_in_a_process_is_refused(aws: SimulatedAws):
    other = Account()
    with pytest.raises(SpecError, match="already runs"):
        WireServer(other.cloud, other.timeline).start()


def test_a_taken_port_is_reported_and_the_server_can_start_later(aws: SimulatedAws):
    port = int(aws.url.rsplit(":", 1)[1])
    holder = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    try:
        aws.stop()
        account = Account()
        with pytest.raises(SpecError, match=r"cannot listen on 127.*in use; name another"):
            WireServer(account.cloud, account.timeline, port=holder.server_port).start()
        with WireServer(account.cloud, account.timeline, port=port) as server:
            assert server.endpoint == f"http://127.0.0.1:{port}"
    finally:
        holder.server_close()


def test_names_that_moto_lacks_are_reported_before_the_server_starts(monkeypatch: pytest.MonkeyPatch):
    import moto.core.parse

    monkeypatch.delattr(moto.core.parse, "PROTOCOL_PARSERS")
    with pytest.raises(SpecError, match=r"lacks moto.core.parse.PROTOCOL_PARSERS; install it afresh"):
        moto_check.check()


def test_another_version_of_moto_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(moto_check, "MOTO", "5.0.0")
    with pytest.raises(SpecError, match=r"needs moto 5\.0\.0, and 5\.2\.5 is installed"):
        moto_check.check()


def test_an_unknown_zone_is_refused_with_its_name():
    account = Account()
    account.cloud.zones = ("us-east-1q",)
    with pytest.raises(SpecError, match="us-east-1 has no zone us-east-1q"):
        WireServer(account.cloud, account.timeline).start()
