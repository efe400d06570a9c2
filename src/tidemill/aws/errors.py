"""One table: what AWS answers -> our errors. Nothing else in the adapter looks at an error code.

The same answer means different things to different calls: after a purchase only a documented no is a no, a launch that
was not answered is asked about again by its token, and a read that fails is read again. Error codes are those of EC2's
documentation ("Error codes for the Amazon EC2 API") and of the common errors of the other services.
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
    """What a call does, which is what its failure means."""

    READ = "read"
    QUESTION = "question"  # EC2's no to it is an answer: what it would sell, whether a block can be extended
    CHANGE = "change"  # made twice it changes nothing more
    ONCE = "once"  # made twice it changes more: tried once, and looked at before it is asked for again
    LAUNCH = "launch"  # carries a token; the caller repeats it with the same one
    PURCHASE = "purchase"  # money leaves, and there is no token


# Turned away at the door: the request was not looked at. Only codes that say so without doubt: after a purchase
# "throttled" is read as "certainly not bought". CapacityBlockDescribeLimitExceeded is the slow limit of offer searches.
_THROTTLED = (
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
    "RequestThrottledException", "TooManyRequestsException", "EC2ThrottledException",
    "CapacityBlockDescribeLimitExceeded",
)  # fmt: skip

# The source has nothing to give: a full or inactive block, no spot, no addresses, a quota. Quotas belong here because
# the answer is the same: back off from this source and try the next.
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

# What was to be changed is not there. Where something new was to come of it (a launch, a purchase) it is a no instead.
_GONE = (
    "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "InvalidLaunchTemplateId.NotFound",
    "InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.VersionNotFound",
    "InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed", "ResourceNotFoundException",
    "ParameterNotFound",
)  # fmt: skip

# Auto Scaling has one code for everything that is wrong; what is not there it says in words.
_GONE_WORDS = re.compile(r"not found|no active lifecycle action|no managed instance", re.IGNORECASE)

# The request itself was wrong: looked at, and rejected before anything was done.
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

# A launch with the same token and other parameters: the first one may have given instances.
TOKEN_USED = "IdempotentParameterMismatch"
# What every code about a missing or malformed launch template begins with.
LAUNCH_TEMPLATE_CODES = "InvalidLaunchTemplate"

# Raised by botocore before anything is sent, because it cannot sign or does not know where to.
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


@dataclass(frozen=True, slots=True)
class Call:
    """Which call it was that failed."""

    service: str
    operation: str
    nature: CallKind
    region: str

    @property
    def action(self) -> str:
        return f"{self.service}:{self.operation}"


def translate_error(error: Exception, call: Call) -> TidemillError:
    """The error of ours that says what this one means for this call."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        said = response["Error"] or {}
        status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
        code, words = str(said.get("Code") or ""), _short(str(said.get("Message") or ""))
        return _forbidden(code, words, call) or _answered(code, words, status >= 500, call)
    return _not_answered(error, call)


def _forbidden(code: str, words: str, call: Call) -> NotAllowed | None:
    # EKS passes on what EC2 forbids as an invalid request: "You are not authorized to launch instances with this ...".
    if code in _PERMISSION or (code == "InvalidRequestException" and "not authorized" in words.lower()):
        return NotAllowed(_no_permission(words, call), code=code)
    if code in _CREDENTIALS:
        return NotAllowed(
            f"AWS does not accept these credentials for {call.action} in {call.region}: {words} ({code}). "
            f"{_what_to_do(code)}",
            code=code,
        )
    if code in _ACCOUNT:
        return NotAllowed(
            f"this account may not use {call.action} in {call.region}: {words} ({code})", code=code
        )
    return None


def _answered(code: str, words: str, trouble_of_theirs: bool, call: Call) -> TidemillError:
    sentence = f"{call.operation}: {words or 'AWS gave no reason'} ({code or 'no code'})"
    nature = call.nature
    if code in _THROTTLED:
        return Throttled(sentence, code=code)
    gone = code in _GONE or (code == "ValidationError" and _GONE_WORDS.search(words) is not None)
    if gone and nature in (CallKind.READ, *_CHANGES):
        return Gone(sentence, code=code)
    if code in _NO_CAPACITY and nature in (CallKind.LAUNCH, CallKind.PURCHASE):
        return NoCapacity(sentence, code=code)
    if code in (*_REJECTED, *_GONE) and nature in (*_CHANGES, CallKind.PURCHASE):
        return Refused(sentence, code=code)
    if nature is CallKind.QUESTION and code and not trouble_of_theirs:
        return Refused(sentence, code=code)
    return _unknown(sentence, code, nature, in_doubt=trouble_of_theirs or code in ("", TOKEN_USED))


def _not_answered(error: Exception, call: Call) -> TidemillError:
    kind, words = type(error).__name__, " ".join(str(error).split())
    if kind in _UNSIGNED:
        return NotAllowed(
            f"there are no usable AWS credentials for {call.action}: {words}. Set AWS_PROFILE or the AWS_* "
            "variables, or give the pod a role; `aws sts get-caller-identity` must work",
            code=kind,
        )
    if kind == "ValueError" and words.startswith("Invalid endpoint"):
        return NotAllowed(
            f"{call.action}: {words}: write all of https://… in AWS_ENDPOINT_URL, or unset it", code=kind
        )
    if kind in _NOWHERE or (kind == "EndpointConnectionError" and _no_such_host(error)):
        return NotAllowed(
            f"{call.action}: there is no {call.service} in region '{call.region}', or its name cannot be resolved: "
            f"check the region's spelling ({words})",
            code=kind,
        )
    if kind == "ParamValidationError":
        refusing = call.nature in (*_CHANGES, CallKind.PURCHASE)
        return (Refused if refusing else Retryable)(f"{call.operation}: {words}", code=kind)
    if kind in _UNSENT:
        return Retryable(
            f"{call.operation}: AWS could not be reached, and nothing was sent: {words}", code=kind
        )
    return _unknown(f"{call.operation}: AWS did not answer: {words}", kind, call.nature, in_doubt=True)


def outcome_unknown(sentence: str, call: Call) -> TidemillError:
    """The call may have been made, or not."""
    return _unknown(sentence, "", call.nature, in_doubt=True)


def _unknown(sentence: str, code: str, nature: CallKind, *, in_doubt: bool) -> TidemillError:
    """No code we know. Money fails closed; a launch that was answered with a no of any kind made nothing."""
    if nature is CallKind.PURCHASE or (nature is CallKind.LAUNCH and in_doubt):
        return OutcomeUnknown(sentence, code=code)
    return Retryable(sentence, code=code)


def _no_such_host(error: Exception) -> bool:
    words = f"{getattr(error, 'kwargs', {}).get('error', '')} {error.__cause__ or ''}"
    return any(
        one in words for one in ("resolve", "Name or service not known", "getaddrinfo", "nodename nor")
    )


def _no_permission(words: str, call: Call) -> str:
    found = re.search(r"perform: ([\w-]+:\w+)", words)
    action = found.group(1) if found else call.action
    who = re.search(r"arn:[\w-]+:(?:sts|iam)::\S+", words)
    whom = f" to {who.group(0)}" if who else ""
    role = policy_with(action, called=action == call.action)
    cure = (
        f"`tidemill iam {role}` prints a policy that does"
        if role
        else "add it to the policy of these credentials"
    )
    return f"AWS does not allow {action}{whom}: {cure}"


def _what_to_do(code: str) -> str:
    if code.startswith(("Expired", "TokenRefresh")):
        return "They have expired: log in again"
    if code == "RequestExpired":
        return "Check this machine's clock"
    return "Check the key, the session token and the profile: `aws sts get-caller-identity` must work"


def _short(words: str) -> str:
    """In one line, and without the encoded part, which says nothing to a reader."""
    return " ".join(words.split("Encoded authorization failure message")[0].split())[:600].rstrip(" .")
