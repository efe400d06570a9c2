"""Why some mutants of plans live on. Who adds one here says why nobody is harmed by it."""

from __future__ import annotations

_SAME = "the port does the same thing once: what is written is written already"
_NOBODY_WAITS = "the demand begins a day later: no promise says at which hour it is bought"
_ONE_NODE = "there is one node that it could be done to"

EXPLAINED: dict[str, str] = {
    **{
        f"{kind} doubled": _SAME
        for kind in (
            "SettleLaunch", "Admit", "MarkReady", "StartDrain", "CancelDrain", "KeepForJobs", "AnnounceEnd",
            "AnnounceNodeEnd", "RequestCheckpoint", "Evict", "ForceDelete", "Recreate", "RestartWorkload",
            "Terminate", "RemoveNode",
        )
    },
    "SearchOffers doubled": "a search costs nothing, and its answer replaces the one before",
    "SearchExtensions doubled": "a search costs nothing, and its answer replaces the one before",
    "ProposePurchase doubled": "the buyer finds the demand covered by the first, and voids the second",
    "SubmitPurchase doubled": "the ledger refuses the second step from a state that it has left",
    "SettlePurchase doubled": "the ledger refuses the second step from a state that it has left",
    "SearchOffers an hour late": _NOBODY_WAITS,
    "SearchExtensions an hour late": _NOBODY_WAITS,
    "ProposePurchase an hour late": _NOBODY_WAITS,
    "SettlePurchase an hour late": "number 16 allows two hours; the money counts as spent meanwhile",
    "SettleLaunch elsewhere": "as a failure it makes its source rest for half a minute, and no more",
    "CancelDrain elsewhere": _ONE_NODE,
    "KeepForJobs dropped": "a replica that lands on the node that ends moves once more, within its budget (9)",
    "KeepForJobs an hour late": "a replica that lands on the node that ends moves once more, within its budget (9)",
    "KeepForJobs elsewhere": "a replica that lands on the node that ends moves once more, within its budget (9)",
    "AnnounceNodeEnd elsewhere": _ONE_NODE,
    "RestartWorkload elsewhere": "another token, but always the same: the template is touched once",
    "RemoveNode dropped": "the cloud controller removes the node of an instance that is gone, a little later",
    "RemoveNode an hour late": "the cloud controller removes the node of an instance that is gone, a little later",
}  # fmt: skip
