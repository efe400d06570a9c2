"""One table: what AWS answers -> our errors. Nothing else in the adapter looks at the text of an error.

The same code means different things for different calls: after a purchase only a documented refusal is a refusal, a
launch without an answer is repeated with its token, a read that fails is read again. The codes are those of EC2's
documentation ("Error codes for the Amazon EC2 API", 2026-11) and the common errors of the other services. Every error
carries the code; the text is for people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tidemill.aws.iam import policy_with
from tidemill.model.errors import (
    Gone,
    NoCapacity,
    NotAllowed,
    OutcomeUnknown,
    Refused,
    Retryable,
    Throttled,
    TidemillError,
)


class CallKind(Enum):
    """What a call does: that decides what its failure means."""

    READ = "read"
    QUESTION = "question"  # a refusal is an answer: what EC2 would sell, whether a block can be extended
    CHANGE = "change"  # idempotent
    ONCE = "once"  # not idempotent: tried once, and its effect is looked up before it is called again
    LAUNCH = "launch"  # carries a token; the caller repeats it with the same token
    PURCHASE = "purchase"  # spends money, and there is no token


# The request was rejected before it was processed. Only codes that say so without doubt: after a purchase "throttled"
# means "certainly not bought". CapacityBlockDescribeLimitExceeded is the limit of offer searches.
_THROTTLED = (
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
    "RequestThrottledException", "TooManyRequestsException", "EC2ThrottledException",
    "CapacityBlockDescribeLimitExceeded",
)  # fmt: skip

# The source has no capacity: a full or inactive block, no spot, no addresses, a quota. Quotas belong here because the
# reaction is the same: back off from this source and try the next.
_NO_CAPACITY = (
    "InsufficientInstanceCapacity", "InsufficientCapacity", "InsufficientHostCapacity", "InsufficientCapacityOnHost",
    "InsufficientReservedInstanceCapacity", "InsufficientFreeAddressesInSubnet", "UnfulfillableCapacity",
    "ReservationCapacityExceeded", "InvalidCapacityReservationState.PendingActivation",
    "InvalidCapacityReservationState", "InvalidCapacityReservationId.NotFound", "CapacityReservationMismatch",
    "InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow",
    "Unsupported", "UnsupportedInstanceType",
    "InvalidCapacityBlockOfferingIdExpired", "InvalidCapacityBlockOfferingIdNotFound",
    "InvalidCapacityBlockOfferingId.NotFound", "InvalidCapacityBlockOfferingId.Expired",
    "InvalidCapacityBlockExtensionOfferingIdExpired", "InvalidCapacityBlockExtensionOfferingIdNotFound",
    "InvalidCapacityBlockExtensionOfferingId.NotFound", "InvalidCapacityBlockExtensionOfferingId.Expired",
)  # fmt: skip

# What was to be changed does not exist. For a launch or a purchase it is a refusal instead.
_GONE = (
    "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "InvalidLaunchTemplateId.NotFound",
    "InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.VersionNotFound",
    "InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed", "ResourceNotFoundException",
    "ParameterNotFound", "DBInstanceNotFound", "DBInstanceNotFoundFault", "ReplicationGroupNotFoundFault",
    "NoSuchBucket",
)  # fmt: skip

# Auto Scaling has one code, ValidationError, for everything. Only its message says that something does not exist.
_GONE_MESSAGE = re.compile(r"not found|no active lifecycle action|no managed instance", re.IGNORECASE)

# The request itself is wrong: rejected before anything was done.
_REJECTED = (
    "InvalidParameter", "InvalidParameterValue", "InvalidParameterCombination", "InvalidParameterDependency",
    "InvalidParameterException", "InvalidRequestException", "MissingParameter", "UnknownParameter", "ValidationError",
    "ValidationException", "InvalidAction", "InvalidInput", "MalformedQueryString", "InvalidQueryParameter",
    "UnsupportedOperation", "OperationNotPermitted", "InvalidCapacityBlockOfferingIdMalformed",
    "InvalidCapacityBlockOfferingId.Malformed", "InvalidCapacityBlockExtensionOfferingId.Malformed",
    "TagLimitExceeded", "InvalidTagKey.Malformed", "DryRunOperation", "ResourceInUse", "AlreadyExists",
)  # fmt: skip

_PERMISSION = (
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedAccess",
    "NotAuthorized",
)
_CREDENTIALS = (
    "AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
    "InvalidSignatureException", "IncompleteSignature", "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "InvalidAccessKeyId", "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired",
)  # fmt: skip
_ACCOUNT = ("OptInRequired", "Blocked", "PendingVerification", "SubscriptionRequiredException")

# A launch with the same token and other parameters: the first launch may have started instances.
TOKEN_USED = "IdempotentParameterMismatch"
# What every code about a missing or malformed launch template begins with.
LAUNCH_TEMPLATE_CODES = "InvalidLaunchTemplate"

# Raised by botocore before anything is sent: it cannot sign the request, or has no endpoint.
_UNSIGNED = (
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError",
    "UnauthorizedSSOTokenError", "SSOTokenLoadError", "SSOError", "ProfileNotFound", "InvalidConfigError",
    "ConfigParseError", "RefreshWithMFAUnsupportedError", "InfiniteLoopConfigError", "NoAuthTokenError",
)  # fmt: skip
_UNSENT = ("EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError")
_NOWHERE = (
    "NoRegionError",
    "InvalidRegionError",
    "UnknownEndpointError",
    "UnknownRegionError",
    "EndpointProviderError",
)


_CHANGES = (CallKind.CHANGE, CallKind.ONCE)
_LONGEST_REQUEST_ID = 100


@dataclass(frozen=True, slots=True)
class Call:
    """The call that failed."""

    service: str
    operation: str
    kind: CallKind
    region: str

    @property
    def action(self) -> str:
        return f"{self.service}:{self.operation}"


def translate_error(error: Exception, call: Call) -> TidemillError:
    """Our error for an error of botocore in this call."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        details = response["Error"] or {}
        metadata = response.get("ResponseMetadata") or {}
        status = metadata.get("HTTPStatusCode") or 0
        code, message = str(details.get("Code") or ""), _short(str(details.get("Message") or ""))
        found = _forbidden(code, message, call) or _answered(code, message, status >= 500, call)
        found.request_id = str(metadata.get("RequestId") or "")[:_LONGEST_REQUEST_ID]
        return found
    return _not_answered(error, call)


def _forbidden(code: str, message: str, call: Call) -> NotAllowed | None:
    # EKS returns what EC2 forbids as an invalid request: "You are not authorized to launch instances with this ...".
    if code in _PERMISSION or (code == "InvalidRequestException" and "not authorized" in message.lower()):
        return NotAllowed(_no_permission(message, call), code=code)
    if code in _CREDENTIALS:
        return NotAllowed(
            f"AWS does not accept these credentials for {call.action} in {call.region}: {message} ({code}). "
            f"{_what_to_do(code)}",
            code=code,
        )
    if code in _ACCOUNT:
        return NotAllowed(
            f"this account may not use {call.action} in {call.region}: {message} ({code})", code=code
        )
    return None


def _answered(code: str, message: str, server_error: bool, call: Call) -> TidemillError:
    sentence = f"{call.operation}: {message or 'AWS gave no reason'} ({code or 'no code'})"
    kind = call.kind
    if code in _THROTTLED:
        return Throttled(sentence, code=code)
    gone = code in _GONE or (code == "ValidationError" and _GONE_MESSAGE.search(message) is not None)
    if gone and kind in (CallKind.READ, *_CHANGES):
        return Gone(sentence, code=code)
    if code in _NO_CAPACITY and kind in (CallKind.LAUNCH, CallKind.PURCHASE):
        return NoCapacity(sentence, code=code)
    if code in (*_REJECTED, *_GONE) and kind in (*_CHANGES, CallKind.PURCHASE):
        return Refused(sentence, code=code)
    if kind is CallKind.QUESTION and code and not server_error:
        return Refused(sentence, code=code)
    return _unknown(sentence, code, kind, in_doubt=server_error or code in ("", TOKEN_USED))


def _not_answered(error: Exception, call: Call) -> TidemillError:
    name, message = type(error).__name__, " ".join(str(error).split())
    if name in _UNSIGNED:
        return NotAllowed(
            f"there are no usable AWS credentials for {call.action}: {message}. Set AWS_PROFILE or the AWS_* "
            "variables, or give the pod a role; `aws sts get-caller-identity` must work",
            code=name,
        )
    if name == "ValueError" and message.startswith("Invalid endpoint"):
        return NotAllowed(
            f"{call.action}: {message}: write the whole URL, https://…, in AWS_ENDPOINT_URL, or unset it",
            code=name,
        )
    if name in _NOWHERE or (name == "EndpointConnectionError" and _no_such_host(error)):
        return NotAllowed(
            f"{call.action}: there is no {call.service} in region '{call.region}', or its name cannot be resolved: "
            f"check the region's spelling ({message})",
            code=name,
        )
    if name == "ParamValidationError":
        refusing = call.kind in (*_CHANGES, CallKind.PURCHASE)
        return (Refused if refusing else Retryable)(f"{call.operation}: {message}", code=name)
    if name in _UNSENT:
        return Retryable(
            f"{call.operation}: AWS could not be reached, and nothing was sent: {message}", code=name
        )
    return _unknown(f"{call.operation}: AWS did not answer: {message}", name, call.kind, in_doubt=True)


def outcome_unknown(sentence: str, call: Call) -> TidemillError:
    """For an answer that leaves open whether the call took effect."""
    return _unknown(sentence, "", call.kind, in_doubt=True)


def _unknown(sentence: str, code: str, kind: CallKind, *, in_doubt: bool) -> TidemillError:
    """For a code that is in no table. A purchase fails closed; a launch that EC2 refused started nothing."""
    if kind is CallKind.PURCHASE or (kind is CallKind.LAUNCH and in_doubt):
        return OutcomeUnknown(sentence, code=code)
    return Retryable(sentence, code=code)


def _no_such_host(error: Exception) -> bool:
    message = f"{getattr(error, 'kwargs', {}).get('error', '')} {error.__cause__ or ''}"
    phrases = ("resolve", "Name or service not known", "getaddrinfo", "nodename nor")
    return any(phrase in message for phrase in phrases)


def _no_permission(message: str, call: Call) -> str:
    found = re.search(r"perform: ([\w-]+:\w+)", message)
    action = found.group(1) if found else call.action
    who = re.search(r"arn:[\w-]+:(?:sts|iam)::\S+", message)
    whom = f" to {who.group(0)}" if who else ""
    role = policy_with(action, called=action == call.action)
    remedy = (
        f"`tidemill iam {role}` prints a policy that does"
        if role
        else "add it to the policy of these credentials"
    )
    return f"AWS does not allow {action}{whom}: {remedy}"


def _what_to_do(code: str) -> str:
    if code.startswith(("Expired", "TokenRefresh")):
        return "They have expired: log in again"
    if code == "RequestExpired":
        return "Check this machine's clock"
    return "Check the key, the session token and the profile: `aws sts get-caller-identity` must work"


def _short(message: str) -> str:
    """In one line, and without the encoded authorization message, which nobody can read."""
    return " ".join(message.split("Encoded authorization failure message")[0].split())[:600].rstrip(" .")
