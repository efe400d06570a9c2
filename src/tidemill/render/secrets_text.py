"""Secrets in words: what is wrong with one, and what to type next. No value ever comes here."""

from __future__ import annotations

from tidemill.platform.oidc import OidcFault
from tidemill.platform.secrets import (
    FaultKind,
    Made,
    Outcome,
    SecretCheck,
    SecretFault,
    SecretKind,
    SecretState,
)
from tidemill.platform.secrets.sync import Synced

STATES = {
    SecretState.FINE: "fine",
    SecretState.MISSING: "missing",
    SecretState.WRONG: "wrong",
    SecretState.CANNOT_TELL: "cannot tell",
}
OUTCOMES = {
    Outcome.MADE: "created",
    Outcome.WAS_THERE: "was there",
    Outcome.NOT_GIVEN: "missing",
    Outcome.NOT_YET: "not yet",
    Outcome.WRONG: "wrong",
    Outcome.CANNOT_TELL: "cannot tell",
}
_OIDC = {
    OidcFault.NOT_JSON: "it is not JSON",
    OidcFault.NOT_AN_ARRAY: "it must be a JSON array of providers: [{{…}}]",
    OidcFault.EMPTY: "the array has no provider",
    OidcFault.TOO_MANY: "the array has more than 64 providers",
    OidcFault.FIELD: "{field} is missing or not of its form",
    OidcFault.SAME_KEY: "{field} is the key of another provider too",
}
_FAULTS = {
    FaultKind.NOT_JSON: "it is not JSON",
    FaultKind.NOT_AN_OBJECT: "it must be a JSON object",
    FaultKind.FIELD_MISSING: "field '{field}' is missing or empty",
    FaultKind.NOT_TEXT: "field '{field}' must be a string",
    FaultKind.TOO_SHORT: "it has fewer than {wanted} characters",
    FaultKind.TOO_LONG: "it has more than {wanted}",
    FaultKind.NOT_S3: "field '{field}' must be an address such as {wanted}",
    FaultKind.OTHER_BUCKET: "field '{field}' is not in the Platform's bucket {wanted}",
    FaultKind.OTHER_HOST: "field '{field}' is not the host that RDS has: {wanted}",
    FaultKind.OTHER_DATABASE: "field '{field}' is not the Platform's database '{wanted}'",
    FaultKind.NOT_REDIS: "field '{field}' must be rediss://:TOKEN@HOST:PORT",
    FaultKind.PLAIN_REDIS: "field '{field}' begins with redis://, but encryption in transit is on: it must be {wanted}",
    FaultKind.NO_TOKEN: "field '{field}' has no token: rediss://:TOKEN@HOST:PORT",
}
_ASK = {
    SecretKind.REDIS: "the Redis token or its whole address",
    SecretKind.OIDC: "the identity providers, a JSON array",
}


def fault_text(fault: SecretFault) -> str:
    if fault.kind is FaultKind.OIDC:
        return _OIDC[OidcFault(fault.wanted)].format(field=fault.field)
    return _FAULTS[fault.kind].format(field=fault.field, wanted=fault.wanted)


def faults_text(faults: tuple[SecretFault, ...]) -> str:
    return "; ".join(fault_text(fault) for fault in faults)


def check_text(check: SecretCheck, instance: str) -> str:
    """What is the matter, and what to type."""
    match check.state:
        case SecretState.FINE:
            return "RDS does not rotate it" if check.rotates is False else ""
        case SecretState.CANNOT_TELL:
            return check.why
        case SecretState.WRONG:
            return f"{faults_text(check.faults)}: {_replace(check.kind)}"
    if check.deleted_at is not None:
        restore = f"aws secretsmanager restore-secret --secret-id {check.name}"
        return f"to be deleted on {check.deleted_at:%Y-%m-%d}: {restore}"
    return _make(check.kind, instance)


def made_text(made: Made, instance: str) -> str:
    match made.outcome:
        case Outcome.MADE | Outcome.WAS_THERE:
            return ""
        case Outcome.CANNOT_TELL:
            return made.why
        case Outcome.WRONG:
            return f"{faults_text(made.faults)}: {_replace(made.kind)}"
        case Outcome.NOT_GIVEN | Outcome.NOT_YET:
            return _make(made.kind, instance)


def synced_text(synced: Synced) -> str:
    match synced.state:
        case SecretState.MISSING:
            return "not in the cluster: tidemill render secrets FILE | kubectl apply -f -"
        case SecretState.CANNOT_TELL:
            return synced.message
    parts = [
        f"keys missing: {', '.join(synced.missing_keys)}" if synced.missing_keys else "",
        "not refreshed in time" if synced.late else "",
        synced.message if synced.state is SecretState.WRONG else "",
    ]
    return "; ".join(part for part in parts if part)


def _replace(kind: SecretKind) -> str:
    if kind is SecretKind.LOGIN:
        return "have RDS write it again: aws secretsmanager rotate-secret"
    ask = " --from env:NAME|file:PATH|-" if kind in _ASK else ""
    return f"tidemill secrets set {kind}{ask}"


def _make(kind: SecretKind, instance: str) -> str:
    match kind:
        case SecretKind.LOGIN:
            return (
                f"RDS manages no login of an instance '{instance}': create it with ManageMasterUserPassword, or name"
                " another in spec.database.instance"
            )
        case SecretKind.DATABASE:
            return f"made by `tidemill secrets init` once RDS has an address for '{instance}'"
        case SecretKind.STORAGE:
            return "write spec.bucket, then: tidemill secrets init"
        case SecretKind.COOKIES:
            return "tidemill secrets init"
        case _:
            return f"give {_ASK[kind]}: tidemill secrets init --{kind} env:NAME|file:PATH|-"
