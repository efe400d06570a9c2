"""One send over the network: an HTTP POST or a publish to an SNS topic. The result is always a SendResult, within a
bounded time, whatever happens.

boto3 comes with the extra `aws` and is imported when the first SNS message is sent.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import Message as Headers
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import IO, Any, Literal
from urllib.parse import urlsplit

from tidemill import __version__
from tidemill.model.errors import SpecError

# The longest Retry-After that is obeyed: an old alert helps nobody.
LONGEST_RETRY_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class SendResult:
    """`misconfigured`: the receiver would refuse the same message again, so a person must change something."""

    outcome: Literal["sent", "retry", "misconfigured"]
    detail: str
    retry_after: timedelta | None = None


def result_of_status(status: int, detail: str, retry_after: str | None, now: datetime) -> SendResult:
    """The result of an HTTP response. 408 and 425 ask for a retry. A redirect is not followed: it would lose the
    body."""
    response = f"{status} {detail}".strip()
    if 200 <= status < 300:
        return SendResult("sent", response)
    if status in (408, 425, 429) or status >= 500:
        return SendResult("retry", response, retry_delay(retry_after, now))
    if 300 <= status < 400:
        return SendResult("misconfigured", f"{response}: a redirect; write the address that it redirects to")
    return SendResult("misconfigured", response)


def retry_delay(header: str | None, now: datetime) -> timedelta | None:
    """Retry-After as seconds or as an HTTP date; None where it cannot be read."""
    if header is None:
        return None
    if header.strip().isdigit():
        return min(timedelta(seconds=min(int(header), 86_400)), LONGEST_RETRY_AFTER)
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    delay = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return min(max(delay, timedelta(0)), LONGEST_RETRY_AFTER)


TIMEOUT_S = 10.0  # to connect, and again for each read
_READ_BYTES = 2048  # of a response
_SHOWN_CHARACTERS = 200


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Following a redirect would repeat a POST as a GET without its body."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Headers, newurl: str
    ) -> None:
        return None


# It uses the proxies of the environment.
_opener = urllib.request.build_opener(_NoRedirect)


def post(
    url: str, body: bytes, headers: Mapping[str, str], now: datetime, timeout_s: float = TIMEOUT_S
) -> SendResult:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        return SendResult("misconfigured", "the address does not begin with http:// or https://")
    request = urllib.request.Request(
        url, body, {"User-Agent": f"tidemill/{__version__}", "Content-Type": "application/json", **headers}
    )
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            return result_of_status(response.status, _response_text(response), None, now)
    except urllib.error.HTTPError as error:
        with error:
            return result_of_status(error.code, _response_text(error), error.headers.get("Retry-After"), now)
    except urllib.error.URLError as error:
        return _unreachable(error.reason)
    except (OSError, http.client.HTTPException) as error:
        return _unreachable(error)
    except ValueError as error:  # urllib cannot parse the address; its text might hold a secret
        return SendResult("misconfigured", f"the address cannot be used ({type(error).__name__})")


def _unreachable(reason: object) -> SendResult:
    """A certificate that does not verify needs a person; everything else may work later."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SendResult("misconfigured", f"the certificate does not verify: {reason.verify_message}")
    if isinstance(reason, TimeoutError):
        return SendResult("retry", "no response in time")
    detail = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return SendResult("retry", f"cannot be reached: {detail}")


def _response_text(response: IO[bytes] | http.client.HTTPResponse) -> str:
    try:
        content = (
            response.read(_READ_BYTES) if not hasattr(response, "read1") else response.read1(_READ_BYTES)
        )
    except (OSError, http.client.HTTPException):
        return ""
    return " ".join(content.decode("utf-8", "replace").split())[:_SHOWN_CHARACTERS]


_SNS_TIMEOUT_S = 10
# SNS allows 256 KiB for all formats together.
_SNS_LONGEST_BYTES = 120_000
# A retry may succeed: errors of SNS itself, and credentials that are being renewed.
_RETRYABLE_CODES = ("Throttling", "ThrottlingException", "Throttled", "InternalError", "InternalFailure",
            "ServiceUnavailable", "RequestTimeout", "ExpiredToken", "ExpiredTokenException")  # fmt: skip


def publish_to_sns(
    topic_arn: str, subject: str, body: str, plain: str, attributes: Mapping[str, str], id: str
) -> SendResult:
    """`plain` goes to mail and phones, `body` to all other subscribers."""
    client = _sns_client(topic_arn.split(":")[3])
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
        request |= {"MessageGroupId": "tidemill", "MessageDeduplicationId": _deduplication_id(id)}
    try:
        response = client.publish(**request)
    except ClientError as error:
        return _sns_error(error.response)
    except NoCredentialsError:
        return SendResult("retry", "there are no AWS credentials")
    except BotoCoreError as error:
        return SendResult("retry", str(error))
    return SendResult("sent", f"message {response['MessageId']}")


def _sns_error(response: dict[str, Any]) -> SendResult:
    error = response.get("Error", {})  # a proxy may have responded in its own format
    code, text = error.get("Code", ""), error.get("Message", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    retryable = code in _RETRYABLE_CODES or status >= 500
    return SendResult("retry" if retryable else "misconfigured", f"{status} {code}: {text}".strip(" :"))


@lru_cache(maxsize=8)
def _sns_client(region: str) -> Any:
    """One attempt a call: `delivery` decides when to retry, as for every other target."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise SpecError("alerts by SNS need boto3; run: pip install 'tidemill[aws]'") from None
    config = Config(
        connect_timeout=_SNS_TIMEOUT_S,
        read_timeout=_SNS_TIMEOUT_S,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    # Its own session: the default session keeps the first credentials it found in this process.
    return boto3.Session().client("sns", region_name=region, config=config)


def _cut(body: str) -> str:
    return body.encode()[:_SNS_LONGEST_BYTES].decode(errors="ignore")


def _deduplication_id(id: str) -> str:
    """Deduplication ids are at most 128 letters, digits and punctuation."""
    from hashlib import sha256

    return sha256(id.encode()).hexdigest()
