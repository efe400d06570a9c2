"""Publishing to an SNS topic. boto3 comes with the extra `aws` and is imported when the first message is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tidemill.model.errors import SpecError
from tidemill.notify.delivery_result import Answer

_TIMEOUT_S = 10
# SNS takes 256 KiB; ours have a few. The same body in two forms must fit.
_LONGEST_BYTES = 120_000
# What a repetition may mend: SNS's own trouble, and credentials that are being renewed.
_PASSING = ("Throttling", "ThrottlingException", "Throttled", "InternalError", "InternalFailure",
            "ServiceUnavailable", "RequestTimeout", "ExpiredToken", "ExpiredTokenException")  # fmt: skip


def publish(
    topic_arn: str, subject: str, body: str, plain: str, attributes: Mapping[str, str], id: str
) -> Answer:
    """`plain` goes to mail and phones, `body` to everything else subscribed."""
    client = _client(topic_arn.split(":")[3])
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    structure = {"default": _cut(body), "email": _cut(plain), "sms": subject}
    named = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
    request: dict[str, Any] = {
        "TopicArn": topic_arn,
        "Subject": subject,
        "Message": json.dumps(structure),
        "MessageStructure": "json",
        "MessageAttributes": named,
    }
    if topic_arn.endswith(".fifo"):
        request |= {"MessageGroupId": "tidemill", "MessageDeduplicationId": _short(id)}
    try:
        said = client.publish(**request)
    except ClientError as error:
        return _refused(error.response)
    except NoCredentialsError:
        return Answer("retry", "there are no AWS credentials to publish with")
    except BotoCoreError as error:
        return Answer("retry", str(error))
    return Answer("sent", f"message {said['MessageId']}")


def _refused(response: dict[str, Any]) -> Answer:
    error = response.get("Error", {})  # a proxy in between may have answered, in words of its own
    code, words = error.get("Code", ""), error.get("Message", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    passing = code in _PASSING or status >= 500
    return Answer("retry" if passing else "misconfigured", f"{status} {code}: {words}".strip(" :"))


@lru_cache(maxsize=8)
def _client(region: str) -> Any:
    """One try a call: when to try again is decided by whoever sends, like for every other target."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise SpecError("alerts by SNS need boto3: pip install 'tidemill[aws]'") from None
    config = Config(
        connect_timeout=_TIMEOUT_S,
        read_timeout=_TIMEOUT_S,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    # A session of its own: the default one remembers whose credentials were found first in this process.
    return boto3.Session().client("sns", region_name=region, config=config)


def _cut(body: str) -> str:
    return body.encode()[:_LONGEST_BYTES].decode(errors="ignore")


def _short(id: str) -> str:
    """Deduplication ids are at most 128 letters, digits and punctuation."""
    from hashlib import sha256

    return sha256(id.encode()).hexdigest()
