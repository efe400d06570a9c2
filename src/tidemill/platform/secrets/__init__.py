"""The secrets of a deployment in Secrets Manager: which there are, what must be in each, and making them.

    layout.py    the names, their formats, and what is wrong with a value: by field, never by value
    check.py     the state of each secret: fine, missing, wrong, or cannot tell
    write.py     make what is missing, replace one on purpose; both safe to repeat
    sync.py      what became of them in the cluster

Values are `SecretStr`: they print as stars. No error, result or log of this package contains one.
"""

from tidemill.platform.secrets.check import SecretCheck, SecretState, check_secrets
from tidemill.platform.secrets.layout import FaultKind, Layout, SecretFault, SecretKind, faults_of, layout_of
from tidemill.platform.secrets.write import Made, Outcome, Replaced, WrongValue, initialise, replace_secret

__all__ = [
    "FaultKind", "Layout", "Made", "Outcome", "Replaced", "SecretCheck", "SecretFault", "SecretKind", "SecretState",
    "WrongValue",
    "check_secrets", "faults_of", "initialise", "layout_of", "replace_secret",
]  # fmt: skip
