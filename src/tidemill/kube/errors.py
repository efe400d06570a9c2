"""One table: what an API server answers -> our errors. Nothing else in the adapter looks at the text of an answer.

The body of a failure is a `Status` (k8s.io/apimachinery, meta/v1); what comes from a proxy in between is anything.
Reasons and causes decide, the text is for people. Every error carries a code.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

import httpx2
import msgspec

from tidemill.model.errors import Gone, NotAllowed, Refused, Retryable, Throttled, TidemillError

# Codes that callers of the adapter tell apart.
EXPIRED = "expired"  # 410: the resourceVersion or the continue token is too old
CONFLICT = "conflict"  # somebody else wrote the object since it was read
FIELD_CONFLICT = "field-conflict"  # server-side apply: another manager owns a field
ALREADY_EXISTS = "already-exists"
NOT_SERVED = "not-served"  # no such resource: its CRD is not installed
DISRUPTION_BUDGET = "disruption-budget"  # an eviction that a budget forbids now
OTHER_UID = "other-uid"  # an object of that name is there, but another one
TERMINATING_NAMESPACE = "terminating-namespace"

_MAX_TEXT = 400
# There is no reason or cause for it; these are the words of apiserver's storage and of its registry.
_OTHER_UID = re.compile(r"UID in (the )?precondition", re.IGNORECASE)


class Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: list[Cause] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct):
    """What an API server says instead of the object that was asked for."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None

    @property
    def causes(self) -> list[Cause]:
        return (self.details.causes if self.details is not None else None) or []


_status = msgspec.json.Decoder(Status)


@dataclass(frozen=True, slots=True)
class Asked:
    """The call that failed, for the sentence about it."""

    verb: str
    what: str  # "pods/eviction", or a path that names no resource
    server: str
    identity: str

    def __str__(self) -> str:
        return f"{self.verb} {self.what}"


def read_status(body: bytes) -> Status:
    """Of an answer that is no Status the first words are the message."""
    try:
        return _status.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return Status(message=_short(body[: 4 * _MAX_TEXT].decode("utf-8", "replace")))


def _short(text: str) -> str:
    text = re.sub(r"<[^>]*>", " ", text)  # a proxy's HTML
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def error_of(code: int, body: bytes, asked: Asked, retry_after: str = "") -> TidemillError:
    """Our error for an answer with this HTTP status (or the code of an ERROR event inside a watch)."""
    status = read_status(body)
    said = _short(status.message) or f"status {code}"
    if code == 401:
        return NotAllowed(
            f"{asked.server} does not accept the credentials of {asked.identity} (401 to {asked}): {said}",
            code="unauthorized",
        )
    if code == 403:
        return _forbidden(status, said, asked)
    if code == 404:
        named = status.details is not None and status.details.name
        return Gone(f"{asked}: {said}", code="not-found" if named else NOT_SERVED)
    if code == 409:
        return _conflict(status, said, asked)
    if code == 410:
        return Retryable(f"{asked}: {said}", code=EXPIRED)
    if code == 429:
        return _too_many(status, said, asked, retry_after)
    if code == 422 and any(cause.field == "metadata.uid" for cause in status.causes):
        return Gone(f"{asked}: {said}", code=OTHER_UID)  # a patch that names another uid
    if code >= 500 or code < 400:
        return Retryable(f"{asked.server} failed to {asked} ({code}): {said}", code=f"status-{code}")
    return Refused(
        f"{asked.server} refused to {asked} ({code}): {said}", code=_kebab(status.reason) or f"status-{code}"
    )


def _forbidden(status: Status, said: str, asked: Asked) -> TidemillError:
    if any(cause.reason == "NamespaceTerminating" for cause in status.causes):
        return Gone(f"{asked}: {said}", code=TERMINATING_NAMESPACE)
    who = "" if asked.identity in said or "User " in said else f" as {asked.identity}"
    # RBAC's own words; an admission policy that denies is not helped by more rights.
    hint = (
        "; `tidemill rbac` prints the rights it needs" if " cannot " in said and ' resource "' in said else ""
    )
    return NotAllowed(f"{asked.server} does not allow to {asked}{who}: {said}{hint}", code="forbidden")


def _conflict(status: Status, said: str, asked: Asked) -> TidemillError:
    fields = [cause for cause in status.causes if cause.reason == "FieldManagerConflict"]
    if fields:
        owners = "; ".join(f"{cause.field} ({cause.message})" for cause in fields[:5])
        more = f" and {len(fields) - 5} more" if len(fields) > 5 else ""
        return Refused(
            f"another manager owns what {asked} would set: {_short(owners)}{more}", code=FIELD_CONFLICT
        )
    if status.reason == "AlreadyExists":
        return Refused(f"{asked}: {said}", code=ALREADY_EXISTS)
    if _OTHER_UID.search(said):
        return Gone(f"{asked}: {said}", code=OTHER_UID)
    return Retryable(f"{asked}: {said}", code=CONFLICT)


def _too_many(status: Status, said: str, asked: Asked, retry_after: str) -> TidemillError:
    budget = any(cause.reason == "DisruptionBudget" for cause in status.causes)
    if budget or "disruption budget" in said:
        return Refused(f"{asked}: {said}", code=DISRUPTION_BUDGET)
    wait_s = float(retry_after) if retry_after.isdecimal() else 0.0
    if status.details is not None:
        wait_s = max(wait_s, float(status.details.retry_after_seconds))
    return Throttled(
        f"{asked.server} has too many requests ({asked}): {said}",
        code="too-many-requests",
        retry_after_s=wait_s,
    )


def _kebab(reason: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", reason).lower()


def transport_error(error: httpx2.HTTPError | OSError, asked: Asked) -> TidemillError:
    """Our error for a call that got no answer."""
    tls = _tls_fault(error)
    if tls is not None:
        return NotAllowed(
            f"the certificate of {asked.server} does not fit the kubeconfig: {_short(tls)}", code="tls"
        )
    if isinstance(error, httpx2.TimeoutException):
        kind = "cannot be reached" if isinstance(error, httpx2.ConnectTimeout) else "did not answer"
        return Retryable(f"{asked.server} {kind} in time ({asked})", code="time-out")
    said = _short(str(error)) or type(error).__name__
    if isinstance(error, httpx2.ConnectError):
        return Retryable(f"{asked.server} cannot be reached ({asked}): {said}", code="unreachable")
    return Retryable(f"the connection to {asked.server} broke ({asked}): {said}", code="connection")


def _tls_fault(error: BaseException | None) -> str | None:
    """What a certificate check said, however deep it is wrapped; a connection cut in a handshake is none."""
    for _ in range(8):
        if error is None:
            return None
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message or str(error)
        if "CERTIFICATE_VERIFY_FAILED" in str(error) or "WRONG_VERSION_NUMBER" in str(error):
            return re.sub(r"^\[[^]]*\] |\(_ssl\.c:\d+\)", "", str(error)).strip()
        if isinstance(error, ssl.SSLError) and "ALERT" in str(error.reason or "").upper():
            return f"it does not accept our client certificate ({error.reason})"
        error = error.__cause__ or error.__context__
    return None
