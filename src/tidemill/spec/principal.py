"""Who somebody is for the rule that the proposer does not approve, and that two approvals are two people's.

Whoever may assume a role chooses the session name, so two sessions of one role may be one person. Only a name that
somebody else sets tells people apart. Where it is not known to be so, this errs towards "the same person".
"""

from __future__ import annotations

# IAM Identity Center makes these roles, nobody else can, and sets the session name to the user it signed in.
_IDENTITY_CENTER_ROLE = "AWSReservedSSO_"


def principal(arn: str, *, sessions_are_proved: bool = False) -> str:
    """The part of a caller's ARN that they could not choose. A name that is no ARN is taken as it is."""
    parts = arn.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sts":
        return arn
    kind, _, name = parts[5].partition("/")
    head = ":".join(parts[:5])
    if kind == "federated-user":  # an IAM user who asks for such a session names it freely
        return arn if sessions_are_proved else f"{head}:{kind}"
    role, _, session = name.partition("/")
    if kind != "assumed-role" or not session:
        return arn
    if sessions_are_proved or role.startswith(_IDENTITY_CENTER_ROLE):
        return arn
    return f"{head}:{kind}/{role}"
