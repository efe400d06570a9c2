"""Every error Tidemill raises on purpose.

    TidemillError
    ├── SpecError            the user's: the documents or the command line say something impossible
    ├── PortError            what a port may raise; `act` turns each into an Outcome
    │   ├── Retryable        it may work later: time-outs before commit, 5xx
    │   │   ├── NotYet           too soon: asked again at the next look, and nothing is wrong
    │   │   ├── Throttled        turned away at the door: certainly nothing happened
    │   │   └── OutcomeUnknown   the call may have happened: look before anything is tried again
    │   ├── NoCapacity       this source cannot give it now: back off from the source, try the next
    │   ├── Gone             what was to be changed is no longer there: already done
    │   └── NotAllowed       AWS does not let us: credentials, region, permission (it is Refused as well)
    ├── Refused              a rule of ours said no (money, ownership, approval): fail closed
    └── InvariantViolated    the simulator saw the impossible; carries seed, instant and objects

The names in lower case are the labels in metrics and outcomes, so they do not change lightly.
"""


class TidemillError(Exception):
    """The root. The command line prints its message without a traceback; `cli` chooses the exit code.

    `code` is for programs: AWS's error code, or the kind of a reason of ours. The message is for people only.
    """

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.request_id = ""  # AWS's, for its support; empty: AWS did not answer, or gave none


class SpecError(TidemillError):
    """Something the user wrote cannot be. The message says where, what and what to write instead."""


class PortError(TidemillError):
    """A port could not do what was asked. Never raised itself: always one of its children."""


class Retryable(PortError):
    """Nothing happened, and the same call may succeed later."""


class NotYet(Retryable):
    """It is too soon. Nothing happened and nothing is wrong: the next look asks again."""


class Throttled(Retryable):
    """Too many calls: this one was not even looked at. `retry_after_s`: how long the server asks to wait."""

    def __init__(self, message: str = "", *, code: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class OutcomeUnknown(Retryable):
    """The call may have taken effect. Not found is not "not done": reconcile first."""


class NoCapacity(PortError):
    """The source has nothing to give now."""


class Gone(PortError):
    """The object is already gone, so a removal is done and a change is pointless."""


class Refused(TidemillError):
    """A safety rule stopped it. Asking again without changing something will be refused again."""


class NotAllowed(PortError, Refused):
    """AWS does not let us: nothing happened, and nothing will before somebody changes what we may do."""


class InvariantViolated(TidemillError):
    """One of the invariants was false on the simulator's truth."""

    def __init__(self, number: int, sentence: str, *, at: str, seed: int, objects: tuple[str, ...]) -> None:
        self.number = number
        self.sentence = sentence
        self.at = at
        self.seed = seed
        self.objects = objects
        super().__init__(
            f"invariant {number} violated at {at} (seed {seed}): {sentence} [{', '.join(objects)}]"
        )


def label(error: BaseException) -> str:
    """The metric label of an error: its class name in kebab case. Being throttled is one way to be retryable."""
    name = "Retryable" if isinstance(error, Throttled) else type(error).__name__
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))
