"""What people should know before it happens: one sentence for every kind of warning."""

from __future__ import annotations

from tidemill.model.warning_reasons import BlockNotFilled, WarningKind, WarningReason
from tidemill.wording.actions import action_sentence, drain_sentence
from tidemill.wording.templates import Sentence, fill

WARNINGS: dict[WarningKind, Sentence[WarningReason]] = {
    WarningKind.FAILED_NODE_WAITS: lambda reason: (
        f"{drain_sentence(reason.drain)}; other nodes of its pool are emptied first, and it gets no new pods"
    ),
    WarningKind.DO_NOT_DISRUPT_ENDS: "do-not-disrupt cannot hold back the end of {name} at {at}",
    WarningKind.BUDGET_BLOCKS_EVICTION: (
        "its disruption budget allows no eviction now; pods that are still there at {at} are deleted"
    ),
    WarningKind.DOUBLE_NODE: (
        "it names the same instance as {name}, which joined later and is the one that counts; it is left alone, and"
        " can be deleted"
    ),
    WarningKind.GANG_POD_NOT_RECREATED: lambda reason: (
        f"{action_sentence(reason.recreate) if reason.recreate else 'its gang is stopped'},"
        " but nothing would create this pod again"
    ),
    WarningKind.KARPENTER_SPLITS_GANG: (
        "pool {name} is Karpenter's, which knows no gangs: its pods start one by one, as nodes come"
    ),
    WarningKind.POOL_REFUSED: (
        "{name} drains or scales its nodes too: nothing is launched, bought or consolidated there until it is gone or"
        " keeps off these nodes; what a deadline forces goes on"
    ),
    WarningKind.PAUSED: lambda reason: (
        fill(
            "paused since {at} by {name}: nothing is bought, launched, admitted or consolidated;"
            " what a deadline forces goes on; end it with: tidemill resume",
            reason,
        )
        + (f" ({reason.detail})" if reason.detail else "")
    ),
    WarningKind.DRIFT_DO_NOT_DISRUPT: lambda reason: _drifted(reason, "is marked do-not-disrupt"),
    WarningKind.DRIFT_NOT_RECREATED: lambda reason: _drifted(reason, "would not be created again"),
    WarningKind.DRIFT_GANG_OPEN_END: lambda reason: _drifted(
        reason, f"is part of gang {reason.gang}, which does not say when it is done"
    ),
}


def warning_sentence(reason: WarningReason) -> str:
    return fill(WARNINGS[reason.kind], reason)


def not_filled_sentence(reason: BlockNotFilled) -> str:
    told = f': "{reason.answer}"' if reason.answer else ""
    return (
        fill(
            "it is paid for and has {free} of {count} free, but since {since} EC2 launches nothing there",
            reason,
        )
        + told
    )


def _drifted(reason: WarningReason, pod_stays: str) -> str:
    return f"{drain_sentence(reason.drain)}, but {reason.name} {pod_stays}"
