"""The faults that can be simulated: one table for scenarios, the wire simulator and the account file.

Each row has a name, the parameters it takes and what goes wrong. Faults of the account strike everywhere. Faults of
the cluster strike where there is one, those of the engine in a scenario only, those of calls on the wire only. How a
fault is carried out is the simulator's to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, Self

Call = Literal["launch", "purchase", "extension"]


class _Fault(StrEnum):
    """A member is written as its name, its parameters, what goes wrong, and the names it had before."""

    parameters: tuple[str, ...]
    meaning: str
    old_names: tuple[str, ...]

    def __new__(cls, name: str, parameters: str = "", meaning: str = "", *old_names: str) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.parameters = tuple(parameters.split())
        member.meaning = meaning
        member.old_names = old_names
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """An old name means the fault that it is called now."""
        return next((member for member in cls if value in member.old_names), None)


class FaultKind(_Fault):
    """Faults of the account, the cluster and the engine: what a scenario can name."""

    # The account's: in a scenario, on the wire, and in an account file.
    LAUNCH_FAILS = (
        "launch-fails", "count target", "launches fail inside EC2, and nothing is started", "launches-fail",
    )  # fmt: skip
    NO_CAPACITY = "no-capacity", "duration target", "launches find no capacity"
    NODE_DIES = "node-dies", "count target", "an instance dies at once", "instance-dies"
    SPOT_INTERRUPTION = (
        "spot-interruption", "count target", "a spot instance is interrupted in two minutes", "spot-interrupted",
    )  # fmt: skip
    RETIREMENT = "retirement", "duration target", "EC2 retires an instance after `duration`", "retired"
    SHORT_DELIVERY = "short-delivery", "count target", "the next block brings `count` fewer instances"
    PAYMENT_FAILS = "payment-fails", "count", "what is bought next is not paid"
    SHOWN_LATE = "shown-late", "duration", "from now on, purchases show in lists up to `duration` later"
    THROTTLE = "throttle", "duration", "AWS throttles every call"
    LOST_ANSWER = (
        "lost-answer", "call count", "the call takes effect, and its answer is lost", "timeout-after-commit",
        "time-out-after-commit",
    )  # fmt: skip
    LOST_REQUEST = "lost-request", "call count", "the call never arrives, which looks the same to the caller"
    EVENT_LOST = "event-lost", "count", "events are lost on their way", "events-lost"
    EVENT_DOUBLED = "event-doubled", "count", "events come twice", "events-doubled"
    EVENT_LATE = "event-late", "count duration", "events come late", "events-late"
    # The cluster's: in a scenario, and on the wire where it boots nodes.
    LATE_JOIN = "late-join", "count duration target", "a node joins the cluster `duration` later than usual"
    NEVER_JOINS = "never-joins", "count target", "a node never joins the cluster"
    GPUS_NEVER_REGISTER = (
        "gpus-never-register", "count target", "the device plugin never registers the GPUs of a node",
    )  # fmt: skip
    GPU_FAILS = "gpu-fails", "count target", "a GPU of a Ready node breaks, or the next node check fails"
    # The engine's: in a scenario.
    ENGINE_CRASH = "engine-crash", "step", "the engine crashes and starts again"
    ENGINE_ABSENT = "engine-absent", "duration", "the engine is not there"


class CallFault(_Fault):
    """Faults of single API calls, which only the wire has."""

    UNAVAILABLE = "unavailable", "action count duration", "calls are answered with 503 `Unavailable`"
    INTERNAL_ERROR = "internal-error", "action count duration", "calls are answered with 500 `InternalError`"
    ERROR = "error", "action count duration code message status", "calls are answered with any error"
    ERROR_AFTER = (
        "error-after", "action count duration code message status",
        "calls take effect, and are answered with that error",
    )  # fmt: skip
    CLEAR = "clear", "", "disarms the faults that are aimed at API calls"


ENGINE_FAULTS = frozenset({FaultKind.ENGINE_CRASH, FaultKind.ENGINE_ABSENT})
CLUSTER_FAULTS = (
    FaultKind.LATE_JOIN, FaultKind.NEVER_JOINS, FaultKind.GPUS_NEVER_REGISTER, FaultKind.GPU_FAILS,
)  # fmt: skip
ACCOUNT_FAULTS = tuple(kind for kind in FaultKind if kind not in ENGINE_FAULTS.union(CLUSTER_FAULTS))
# Of these the wire can aim at one API action, too.
CALL_FAULTS = frozenset({FaultKind.THROTTLE, FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST})


def table(kinds: Iterable[FaultKind | CallFault]) -> str:
    """For people, in Markdown."""
    rows = ["| fault | takes | what goes wrong |", "|---|---|---|"]
    for kind in kinds:
        takes = ", ".join(f"`{name}`" for name in kind.parameters)
        rows.append(f"| `{kind}` | {takes} | {kind.meaning} |")
    return "\n".join(rows)
