"""One account and region: boto3 clients with explicit time-outs, retries and rate limits.

boto3 is imported only here, at the first call. Credentials are found the usual way (environment, profile, IRSA, Pod
Identity); a role may be assumed with them. Purchases, launches and other calls that must not be doubled are tried once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill import __version__
from tidemill.aws.errors import Call, CallKind, outcome_unknown, translate_error
from tidemill.model.errors import Retryable, SpecError, Throttled, TidemillError


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A token bucket, as EC2 has them for each action."""

    burst: int
    per_s: float


# About half of the defaults in "Request throttling for the Amazon EC2 API" (reads 100 at once and 20 a second, changes
# 50 and 5, RunInstances 5 and 2, TerminateInstances 100 and 5), so that others in the account have the rest.
_READ = RateLimit(50, 10)
_CHANGE = RateLimit(25, 2.5)
RATES: Mapping[str, RateLimit] = {
    "RunInstances": RateLimit(5, 1),
    "TerminateInstances": RateLimit(50, 2.5),
    # Undocumented. Callers report CapacityBlockDescribeLimitExceeded for calls in quick succession and none for calls
    # some seconds apart. A search for several sizes at once must be possible.
    "DescribeCapacityBlockOfferings": RateLimit(10, 0.25),
    "DescribeCapacityBlockExtensionOfferings": RateLimit(10, 0.25),
}
_READS = ("Describe", "Get", "List")
# A caller that would wait longer gets Throttled. A person may wait this long; an engine should not, because its ticks
# stop meanwhile, and it asks again anyway.
LONGEST_WAIT_S = 30.0


def rate_limit_of(action: str) -> RateLimit:
    return RATES.get(action) or (_READ if action.startswith(_READS) else _CHANGE)


class RateLimits:
    """Thread-safe. Counts the calls, so that a test can say how many a tick makes."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        *,
        patience_s: float = LONGEST_WAIT_S,
    ) -> None:
        self._now_s, self._sleep, self._patience_s = now_s, sleep, patience_s
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # action -> tokens left, and when; negative: booked
        self.calls: Counter[str] = Counter()

    def take(self, action: str) -> None:
        """Wait until the action may be called. Throttled: that would take too long."""
        with self._lock:
            wait_s = self._book(action)
            self.calls[action] += 1
        if wait_s > 0:
            self._sleep(wait_s)

    def _book(self, action: str) -> float:
        rate, now_s = rate_limit_of(action), self._now_s()
        left, since_s = self._left.get(action, (float(rate.burst), now_s))
        left = min(float(rate.burst), left + (now_s - since_s) * rate.per_s) - 1
        wait_s = max(0.0, -left / rate.per_s)
        if wait_s > self._patience_s:
            raise Throttled(
                f"{action}: our own rate limit is reached; the next call is possible in {wait_s:.0f} s"
            )
        self._left[action] = left, now_s
        return wait_s


# EC2 answers within seconds. The read time-out is long: a launch or a purchase that is cut off has an unknown outcome.
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 60
# The SDK's own retries and back-off, for calls that may be repeated.
ATTEMPTS = 3
# Calls that change nothing. What they cost is an answer that comes too late.
_LOOKS = (CallKind.READ, CallKind.QUESTION)
# 200 pages of 1,000 records: a longer list is an error.
MOST_PAGES = 200


class Aws:
    """One account in one region. May be used from several threads."""

    def __init__(
        self,
        region: str,
        *,
        profile: str = "",
        role_arn: str = "",
        rate_limits: RateLimits | None = None,
        longest_s: float = CONNECT_TIMEOUT_S + READ_TIMEOUT_S,
        may_begin: Callable[[float], None] | None = None,
    ) -> None:
        """`longest_s`: how long one try of a call may take, connecting included. `may_begin`: asked with it before
        every call that is no read; raises Throttled if the call may not begin. With it the SDK repeats no such call:
        that would take longer."""
        self.region = region
        self.rate_limits = rate_limits or RateLimits()
        self._profile, self._role_arn = profile, role_arn
        self._longest_s, self._may_begin = longest_s, may_begin
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, int], Any] = {}
        self.called: set[str] = set()  # every action that was called, as IAM policies spell it
        self.change_count = 0  # calls that may have changed something, and changes that AWS told of

    def call(self, service: str, operation: str, kind: CallKind, **given: Any) -> dict[str, Any]:
        """One call, such as `call("ec2", "RunInstances", CallKind.LAUNCH, …)`. Raises our errors."""
        about = Call(service, operation, kind, self.region)
        try:
            # Not even a launch: if the SDK repeated it and EC2 refused the second try, the first may have launched. The
            # caller repeats it with the same token.
            once = kind in (CallKind.PURCHASE, CallKind.LAUNCH, CallKind.ONCE)
            guarded = self._may_begin is not None and kind not in _LOOKS
            held = (
                closing(self._client_that_tries_once(service))
                if once
                else nullcontext(self._client(service, 1 if guarded else ATTEMPTS))
            )
            with held as client:
                method = getattr(client, _snake(operation))
                self.rate_limits.take(operation)  # first: it may wait
                if guarded and self._may_begin is not None:
                    self._may_begin(self._longest_s)
                self.called.add(about.action)
                return _from_aws(method(**given), about)
        except TidemillError:
            raise
        except Exception as error:  # botocore's, and those of urllib3 and its parsers that it lets through
            raise translate_error(error, about) from error
        finally:
            if kind not in _LOOKS:
                self.note_change()

    def note_change(self) -> None:
        """What was listed before is read anew."""
        with self._lock:
            self.change_count += 1

    def read(self, service: str, operation: str, **given: Any) -> dict[str, Any]:
        return self.call(service, operation, CallKind.READ, **given)

    def pages(
        self, service: str, operation: str, key: str, *, kind: CallKind = CallKind.READ, **given: Any
    ) -> Iterator[Any]:
        """The records under `key` of every page. Retryable: an answer that is no list, or a list that does not end."""
        token: str | None = None
        for _ in range(MOST_PAGES):
            more = {"NextToken": token} if token else {}
            answer = self.call(service, operation, kind, **given, **more)
            records = answer.get(key) or ()
            if not isinstance(records, list | tuple):
                raise Retryable(f"{operation}: AWS did not answer with a list of {key}")
            yield from records
            before, token = token, answer.get("NextToken") or None
            if token is None:
                return
            if token == before or not isinstance(token, str):
                break
        raise Retryable(f"{operation}: AWS's list does not end")

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    # --- clients --------------------------------------------------------------------------------------

    def _client(self, service: str, attempts: int = ATTEMPTS) -> Any:
        with self._lock:
            if (service, attempts) not in self._clients:
                self._clients[service, attempts] = self._make_client(service, attempts)
            return self._clients[service, attempts]

    def _client_that_tries_once(self, service: str) -> Any:
        """With a fresh connection: a stale one would fail and leave the outcome unknown."""
        with self._lock:
            return self._make_client(service, 1)

    def _make_client(self, service: str, attempts: int) -> Any:
        if self._session is None:  # first: it says what to install if boto3 is missing
            self._session = _session(self.region, self._profile, self._role_arn)
        from botocore.config import Config

        connect_s = min(CONNECT_TIMEOUT_S, self._longest_s / 3)
        config = Config(
            region_name=self.region,
            connect_timeout=connect_s,
            read_timeout=self._longest_s - connect_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
            user_agent_extra=f"tidemill/{__version__}",
        )
        client = self._session.client(service, config=config)
        if attempts == 1 and self._may_begin is not None:
            # Asked again with the signed request in hand: finding credentials may take a while, and a process that
            # was frozen meanwhile leads no more.
            client.meta.events.register_last("before-send", self._ask_again)
        return client

    def _ask_again(self, **_: Any) -> None:
        if self._may_begin is not None:
            self._may_begin(self._longest_s)


def default_region(profile: str = "") -> str:
    """The region that the AWS CLI would use; empty: none is configured. NotAllowed: the profile does not exist."""
    try:
        return str(_session("", profile, "").region_name or "")
    except TidemillError:
        raise
    except Exception as error:
        raise translate_error(error, Call("sts", "GetCallerIdentity", CallKind.READ, "")) from error


def _session(region: str, profile: str, role_arn: str) -> Any:
    try:
        import boto3
    except ImportError:
        raise SpecError("a real AWS account needs boto3: pip install 'tidemill[aws]'") from None
    session = boto3.Session(
        botocore_session=_parsing_session(), region_name=region or None, profile_name=profile or None
    )
    return _assume_role(session, region, role_arn) if role_arn else session


def _parsing_session() -> Any:
    """botocore's session, with our own reading of timestamps."""
    from botocore.session import get_session

    session = get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_timestamp)
    return session


def parse_timestamp(value: Any) -> datetime:
    """As botocore reads it. Each instance has two, and dateutil takes a third of the time that reading a list of a
    thousand instances takes: EC2's own spelling is read by the standard library."""
    if isinstance(value, str) and value.endswith("Z") and "T" in value:
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    from botocore.utils import parse_timestamp as any_spelling

    found: datetime = any_spelling(value)
    return found


def _assume_role(session: Any, region: str, role_arn: str) -> Any:
    """A session with the credentials of another role, which renew themselves."""
    import boto3
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    source = session.get_credentials()
    if source is None:
        raise NoCredentialsError
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=session.client,
        source_credentials=source,
        role_arn=role_arn,
        extra_args={"RoleSessionName": "tidemill"},
    )
    assumed = _parsing_session()
    assumed._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return boto3.Session(botocore_session=assumed, region_name=region)


def _from_aws(answer: Any, about: Call) -> dict[str, Any]:
    """Every answer of AWS has a request id. An answer without one came from something in between, such as a proxy; an
    empty list in it would look as if all nodes were gone."""
    metadata = answer.get("ResponseMetadata") if isinstance(answer, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("RequestId"):
        raise outcome_unknown(
            f"{about.operation}: the answer is not from AWS: is there a proxy in between?", about
        )
    return dict(answer)


def _snake(operation: str) -> str:
    from botocore import xform_name

    name: str = xform_name(operation)
    return name
