"""Actions of the engine in the words of a person who watches: the verb, what it is about, and the reason.

Actions of one kind, instant and reason are one sentence. Actions nobody would miss have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import groupby

from tidemill.model.plan import (
    Action,
    Admit,
    CancelDrain,
    Evict,
    ForceDelete,
    Launch,
    MarkReady,
    ProposePurchase,
    Recreate,
    RequestCheckpoint,
    RestartWorkload,
    ScaleWorkload,
    SearchExtensions,
    SearchOffers,
    SettlePurchase,
    StartDrain,
    SubmitPurchase,
    Terminate,
)
from tidemill.report.pods import touched
from tidemill.wording import sentence


class Weight(IntEnum):
    ROUTINE = 0
    NOTABLE = 1
    TURN = 2  # the story turns here: worth slowing down for


_NAMED = 2  # how many names a sentence bears


def alike(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Neighbours of one kind and reason."""

    def key(action: Action) -> tuple[type, object]:
        return type(action), action.reason

    for _, group in groupby(actions, key):
        yield list(group)


def in_words(group: Sequence[Action], pods: Mapping[str, str], *, again: bool = False) -> tuple[str, Weight]:
    """`pods` are names by uid; `again`: not the first proposal for its window. Empty words: not worth a line."""
    action = group[0]
    why = sentence(action.reason)
    match action:
        case SearchOffers(query=query):
            return f"asks EC2 for {query.count} x {query.instance_type}: {why}", Weight.ROUTINE
        case SearchExtensions(query=asked):
            return f"asks EC2 for more time on {asked.reservation_id}: {why}", Weight.ROUTINE
        case ProposePurchase(intent=intent):
            proposes = "proposes again" if again else "proposes"
            return f"{proposes} to buy for {intent.window}: {why}; a person decides", Weight.TURN
        case SubmitPurchase(intent=intent):
            return f"buys for {intent.window}: {why}", Weight.NOTABLE
        case SettlePurchase(intent=intent, outcome=outcome):
            weight = Weight.TURN if outcome != "voided" else Weight.NOTABLE
            return f"the purchase for {intent.window} is {outcome}: {why}", weight
        case Launch(intent=intent):
            return f"launches {intent.count} x {intent.instance_type}: {why}", Weight.NOTABLE
        case Admit():
            return f"starts {_subjects(group, pods)}: {why}", Weight.ROUTINE
        case MarkReady():
            return f"{_subjects(group, pods)} may take work: {why}", Weight.ROUTINE
        case StartDrain():
            weight = Weight.TURN if action.reason.is_end else Weight.ROUTINE
            return f"drains {_subjects(group, pods)}: {why}", weight
        case CancelDrain():
            return f"drains {_subjects(group, pods)} no longer: {why}", Weight.TURN
        case RequestCheckpoint():
            return f"asks {_subjects(group, pods)} for a checkpoint: {why}", Weight.NOTABLE
        case Evict():
            return f"moves {_subjects(group, pods)}: {why}", Weight.NOTABLE
        case ForceDelete():
            return f"stops {_subjects(group, pods)} by force: {why}", Weight.TURN
        case Recreate():
            return f"stops {_subjects(group, pods)}: {why}", Weight.TURN
        case RestartWorkload() | ScaleWorkload():
            return f"{action.workload.rpartition('/')[2]}: {why}", Weight.TURN
        case Terminate():
            return f"ends {_subjects(group, pods)}: {why}", Weight.ROUTINE
        case _:
            return "", Weight.ROUTINE


def _subjects(group: Sequence[Action], pods: Mapping[str, str]) -> str:
    """Pods without their namespace, nodes by name; beyond a few they are counted."""
    every = [name.rsplit("/", 1)[-1] for action in group for name in touched(action, pods)]
    listed = ", ".join(every[:_NAMED])
    return listed if len(every) <= _NAMED else f"{listed} and {len(every) - _NAMED} more"
