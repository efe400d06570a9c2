"""Clients: made when first used, with time-outs and retries that are stated, and counted call by call.

boto3 is imported here and nowhere else, when the first call is made. Credentials are found the usual way (environment,
profile, IRSA, Pod Identity); a role may be assumed on top. Purchases go through a client of their own that tries once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

from tidemill import __version__
from tidemill.aws.errors import Call, CallKind, outcome_unknown, translate_error
from tidemill.model.errors import Retryable, SpecError, Throttled, TidemillError


@dataclass(frozen=True, slots=True)
class RateLimit:
    burst: int
    per_s: float


# About half of what "Request throttling for the Amazon EC2 API" documents as the default of an account and region:
# reads 100 at once and 20 a second, changes 50 and 5, RunInstances 5 and 2, TerminateInstances 100 and 5.
_READ = RateLimit(50, 10)
_CHANGE = RateLimit(25, 2.5)
RATES: Mapping[str, RateLimit] = {
    "RunInstances": RateLimit(5, 1),
    "TerminateInstances": RateLimit(50, 2.5),
    # Undocumented. Callers report CapacityBlockDescribeLimitExceeded on calls that follow each other closely, and none
    # when they are some seconds apart; a look at several sizes at once must still be possible.
    "DescribeCapacityBlockOfferings": RateLimit(10, 0.25),
    "DescribeCapacityBlockExtensionOfferings": RateLimit(10, 0.25),
}
_READS = ("Describe", "Get", "List")
# A caller that would wait longer is told so instead. A person waits this long; an engine should not: its ticks stand
# still meanwhile, and what it asks for in vain it asks for again.
LONGEST_WAIT_S = 30.0


def rate_limit_of(action: str) -> RateLimit:
    return RATES.get(action) or (_READ if action.startswith(_READS) else _CHANGE)


class RateLimits:
    """Thread-safe. Counts what went through, so that a test can say how many calls a tick makes."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        *,
        patience_s: float = LONGEST_WAIT_S,
    ) -> None:
        self._now_s, self._sleep, self._patience_s = now_s, sleep, patience_s
        self._lock = threading.Lock()
        self._left: dict[
            str, tuple[float, float]
        ] = {}  # action -> tokens, as of when; below zero: spoken for
        self.calls: Counter[str] = Counter()

    def take(self, action: str) -> None:
        """Wait until the action may be called. Throttled: that would take too long, and nothing is called."""
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
            raise Throttled(f"{action}: too many calls of our own; the next may be made in {wait_s:.0f} s")
        self._left[action] = left, now_s
        return wait_s


# A connection that is not there after some seconds will not come; EC2 answers within seconds, and a launch or a
# purchase that is cut off too early is worse than one that is waited for.
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 60
# The first try and two more, with the SDK's own back-off: everything but purchases can be repeated.
ATTEMPTS = 3
# A list that never ends is an error, not a reason to read for ever: 200 pages of 1,000 records.
MOST_PAGES = 200


class Aws:
    """One account in one region. May be used from several threads."""

    def __init__(
        self, region: str, *, profile: str = "", role_arn: str = "", rate_limits: RateLimits | None = None
    ) -> None:
        self.region = region
        self.rate_limits = rate_limits or RateLimits()
        self._profile, self._role_arn = profile, role_arn
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        self.called: set[str] = set()  # every action that was, as a policy spells it

    def call(self, service: str, operation: str, kind: CallKind, **given: Any) -> dict[str, Any]:
        """One call, e.g. `call("ec2", "RunInstances", Nature.LAUNCH, …)`, with its failure in our words."""
        about = Call(service, operation, kind, self.region)
        try:
            # A launch that is repeated by the SDK and refused then may have launched the first time: whoever wrote its
            # intent repeats it, with the same token.
            once = kind in (CallKind.PURCHASE, CallKind.LAUNCH, CallKind.ONCE)
            held = closing(self._trying_once(service)) if once else nullcontext(self._client(service))
            with held as client:
                method = getattr(client, _snake(operation))
                self.rate_limits.take(operation)
                self.called.add(about.action)
                return _from_aws(method(**given), about)
        except TidemillError:
            raise
        except Exception as error:  # botocore's, and what it lets through of urllib3 and of its parsers
            raise translate_error(error, about) from error

    def read(self, service: str, operation: str, **given: Any) -> dict[str, Any]:
        return self.call(service, operation, CallKind.READ, **given)

    def pages(
        self, service: str, operation: str, key: str, *, kind: CallKind = CallKind.READ, **given: Any
    ) -> Iterator[Any]:
        """The records under `key` of every page. What is not a list of records is nobody's list."""
        token: str | None = None
        for _ in range(MOST_PAGES):
            more = {"NextToken": token} if token else {}
            answer = self.call(service, operation, kind, **given, **more)
            records = answer.get(key) or ()
            if not isinstance(records, list | tuple):
                raise Retryable(f"{operation}: AWS answered with something that is not a list of {key}")
            yield from records
            before, token = token, answer.get("NextToken") or None
            if token is None:
                return
            if token == before or not isinstance(token, str):
                break
        raise Retryable(f"{operation}: AWS's list does not end")

    def close(self) -> None:
        """Connections are given back; the next call opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    # --- clients --------------------------------------------------------------------------------------

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._made(service, ATTEMPTS)
            return self._clients[service]

    def _trying_once(self, service: str) -> Any:
        """Exactly one try, and a fresh connection: one that went stale would leave the outcome unknown for nothing."""
        with self._lock:
            return self._made(service, 1)

    def _made(self, service: str, attempts: int) -> Any:
        from botocore.config import Config

        config = Config(
            region_name=self.region,
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": attempts},
            user_agent_extra=f"tidemill/{__version__}",
        )
        if self._session is None:
            self._session = _session(self.region, self._profile, self._role_arn)
        return self._session.client(service, config=config)


def default_region(profile: str = "") -> str:
    """The region that the AWS CLI would use; empty: none is configured. NotAllowed: there is no such profile."""
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
    session = boto3.Session(region_name=region or None, profile_name=profile or None)
    return _assuming(session, region, role_arn) if role_arn else session


def _assuming(session: Any, region: str, role_arn: str) -> Any:
    """The same with another role's credentials, which renew themselves."""
    import boto3
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import NoCredentialsError
    from botocore.session import get_session

    source = session.get_credentials()
    if source is None:
        raise NoCredentialsError
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=session.client,
        source_credentials=source,
        role_arn=role_arn,
        extra_args={"RoleSessionName": "tidemill"},
    )
    assumed = get_session()
    assumed._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return boto3.Session(botocore_session=assumed, region_name=region)


def _from_aws(answer: Any, about: Call) -> dict[str, Any]:
    """Every answer of AWS is numbered. One that is not came from something in between, and an empty list in it would
    be read as "there is nothing": all nodes gone."""
    metadata = answer.get("ResponseMetadata") if isinstance(answer, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("RequestId"):
        raise outcome_unknown(
            f"{about.operation}: something answered that is not AWS: is there a proxy in between?", about
        )
    return dict(answer)


def _snake(operation: str) -> str:
    from botocore import xform_name

    name: str = xform_name(operation)
    return name
