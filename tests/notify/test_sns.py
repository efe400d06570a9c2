"""Publishing to SNS: real boto3 requests to a local topic with a queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.decide.builders import NOW
from tests.notify.receiver import Receiver
from tests.notify.sample_alerts import message, platform
from tidemill.notify import bodies, transports
from tidemill.notify.targets import senders
from tidemill.notify.transports import SendResult

boto3 = pytest.importorskip("boto3")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    transports._sns_client.cache_clear()
    yield
    transports._sns_client.cache_clear()


class Topic:
    """A topic and a queue that hears it."""

    def __init__(self, name: str) -> None:
        self.sns, self.sqs = (boto3.client(one, region_name="us-west-2") for one in ("sns", "sqs"))
        fifo = {"FifoTopic": "true"} if name.endswith(".fifo") else {}
        self.arn = self.sns.create_topic(Name=name, Attributes=fifo)["TopicArn"]
        fifo = {"FifoQueue": "true"} if fifo else {}
        self._queue = self.sqs.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]
        asked = self.sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        self.sns.subscribe(TopicArn=self.arn, Protocol="sqs", Endpoint=asked["Attributes"]["QueueArn"])

    def heard(self) -> list[dict[str, Any]]:
        got = self.sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10)
        return [json.loads(one["Body"]) for one in got.get("Messages", [])]


def send(arn: str, **fields: Any) -> SendResult:
    resolved_at = fields.pop("resolved_at", None)
    of = platform({"name": "topic", "type": "sns", "topicArn": arn, **fields}).platform
    return senders(of)["topic"](message(resolved_at=resolved_at), NOW)


@pytest.mark.requirement("NT-1")
@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("text", bodies.text(message())),
        ("webhook", bodies.webhook(message())),
        ("slack", bodies.slack(message())),
        ("pagerduty", bodies.pagerduty(message(), "")),
    ],
)
def test_every_body_can_be_published(format: str, body: Any):
    topic = Topic(f"alerts-{format}")
    answer = send(topic.arn, format=format)
    assert answer.outcome == "sent", answer
    (heard,) = topic.heard()
    assert heard["Subject"] == "[tides] error: EC2 offers nothing inside an approved envelope"
    assert (heard["Message"] if format == "text" else json.loads(heard["Message"])) == body
    attributes = {name: one["Value"] for name, one in heard["MessageAttributes"].items()}
    assert attributes == {"kind": "offer-gone", "severity": "error", "event": "raised"}


@pytest.mark.requirement("NT-1")
@pytest.mark.usefixtures("aws")
def test_a_resolved_alert_is_published():
    topic = Topic("over")
    send(topic.arn, format="pagerduty", resolved_at=NOW)
    (heard,) = topic.heard()
    assert json.loads(heard["Message"])["event_action"] == "resolve"
    assert heard["Subject"].startswith("[tides] resolved:")


@pytest.mark.usefixtures("aws")
def test_a_fifo_topic_drops_a_repetition():
    topic = Topic("ordered.fifo")
    assert [send(topic.arn).outcome for _ in range(2)] == ["sent", "sent"]
    assert len(topic.heard()) == 1


@pytest.mark.requirement("NT-1")
@pytest.mark.usefixtures("aws")
def test_a_missing_topic_is_a_misconfiguration():
    answer = send("arn:aws:sns:us-west-2:123456789012:nobody")
    assert answer.outcome == "misconfigured"
    assert "NotFound" in answer.detail


def test_an_unreachable_sns_is_tried_again(aws: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert send("arn:aws:sns:us-west-2:123456789012:t").outcome == "retry"


def test_an_sns_error_makes_one_request_per_attempt(
    aws: None, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ENDPOINT_URL", receiver.url)
    receiver.answers, receiver.says = [(503, {})] * 9, b"<ErrorResponse/>"
    assert send("arn:aws:sns:us-west-2:123456789012:t").outcome == "retry"
    (got,) = receiver.got
    assert got.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=test/")
