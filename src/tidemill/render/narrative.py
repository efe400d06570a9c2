"""What happens in a rehearsal, line by line, for people who watch it: events of the journal and actions of the engine.

Actions of one kind with one reason share a line. Unimportant events and actions are left out. It knows no terminal and
has no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from itertools import groupby

from tidemill.decide.read_models import deadline_of
from tidemill.model.plan import (
    Action,
    Admit,
    CancelDrain,
    Evict,
    ForceDelete,
    KeepForJobs,
    Launch,
    MarkReady,
    Plan,
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
from tidemill.model.pods import Gang, Pod
from tidemill.render.display_names import DisplayNames
from tidemill.render.figures import counted, span
from tidemill.report.pods import touched
from tidemill.sim.scenario.rehearsal import Done, Rehearsal
from tidemill.sim.timeline import Line
from tidemill.spec.compute_pool import Provisioner
from tidemill.wording import sentence


class Weight(IntEnum):
    ROUTINE = 0
    NOTABLE = 1
    TURN = 2  # a turning point: the live view slows down


@dataclass(frozen=True, slots=True)
class NarrativeLine:
    at: datetime
    who: str  # engine | aws | people | work | fault
    text: str
    weight: Weight = Weight.ROUTINE


# Kinds of journal lines that are shown, with who acts and how much it matters. The others are left out.
_EVENTS: dict[str, tuple[str, Weight]] = {
    "block-active": ("aws", Weight.TURN),
    "block-scheduled": ("aws", Weight.NOTABLE),
    "block-purchased": ("aws", Weight.TURN),
    "block-payment-failed": ("aws", Weight.TURN),
    "block-extended": ("aws", Weight.NOTABLE),
    "block-expired": ("aws", Weight.NOTABLE),
    "verdict": ("people", Weight.TURN),
    "verdict-refused": ("people", Weight.NOTABLE),
    "engine-crashed": ("fault", Weight.TURN),
    "fault": ("fault", Weight.TURN),
    "job-submitted": ("work", Weight.ROUTINE),
    "job-started": ("work", Weight.ROUTINE),
    "job-finished": ("work", Weight.ROUTINE),
    "job-restarted": ("work", Weight.NOTABLE),
    "job-failed": ("work", Weight.NOTABLE),
    "checkpoint-done": ("work", Weight.NOTABLE),
    "node-check-failed": ("fault", Weight.NOTABLE),
    "service-ready": ("work", Weight.NOTABLE),
    "service-below-minimum": ("fault", Weight.TURN),
    "service-restored": ("work", Weight.NOTABLE),
}


# Reasons to wait that end within minutes.
_PASSING = ("starting", "launching")


class Narrator:
    """`news` returns what happened since the last call. Call it after every step."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self._lines = self._done = 0
        self._draining: dict[str, datetime] = {}  # block with pods still on it -> its deadline
        self._holding: dict[str, str] = {}  # workload -> the last reason code shown for it
        self._plan: Plan | None = None

    def news(self, names: DisplayNames) -> list[NarrativeLine]:
        lines, done = self._rehearsal.journal.lines[self._lines :], self._rehearsal.done[self._done :]
        self._lines, self._done = len(self._rehearsal.journal.lines), len(self._rehearsal.done)
        # A fault is journalled after its effects; people expect the cause first.
        lines = sorted(lines, key=lambda line: (line.at, line.kind != "fault"))
        events = [shown for line in lines for shown in _event(line, names)]
        return [*events, *self._decisions(done, names), *self._held(names), *self._emptied(names)]

    def _decisions(self, done: list[Done], names: DisplayNames) -> Iterator[NarrativeLine]:
        world = self._rehearsal.world
        pods = {pod.uid: pod for pod in world.pods} if world is not None and done else {}
        full_names = {uid: pod.full_name for uid, pod in pods.items()}
        for group in group_actions(entry.action for entry in done):
            first = next(entry for entry in done if entry.action is group[0])
            text, weight = self._refined(group[0], first.error, pods) or action_text(group, full_names)
            if weight is Weight.TURN and isinstance(first.action, StartDrain | CancelDrain):
                self._note_drain(first.action)
            if text:
                yield NarrativeLine(first.at, "engine", names.readable(text), weight)

    def _refined(self, action: Action, error: str, pods: Mapping[str, Pod]) -> tuple[str, Weight] | None:
        """A better sentence that uses the history; None: the sentence of the action is good enough."""
        text, weight = action_text([action], {})
        match action:
            case Admit(pods=uids) if uids and uids[0] in pods:
                gang = pods[uids[0]].gang
                return self._gang_start(gang) if gang is not None else None
            case ProposePurchase(intent=intent):
                proposals = [p for p in self._rehearsal.ledger.purchases() if p.window == intent.window]
                return action_text([action], {}, again=len(proposals) > 1)
            case SettlePurchase(outcome="confirmed"):
                bought = counted(len(self._rehearsal.cloud.purchases), "purchase")
                return f"{text}; {bought} in all, none twice", weight
            case SubmitPurchase() | Launch() if error:
                return f"{text} -> {error}", Weight.NOTABLE
            case SubmitPurchase():
                return "", Weight.ROUTINE  # the sale by AWS is shown
        return None

    def _gang_start(self, gang: Gang) -> tuple[str, Weight]:
        job = self._rehearsal.cluster.jobs.get(gang.name)
        again = " again" if job is not None and job.restarts else ""
        return f"starts gang {gang.name}{again}: all {gang.size} pods at once", Weight.TURN

    def _held(self, names: DisplayNames) -> Iterator[NarrativeLine]:
        """Workloads that cannot start, once per workload and kind of reason."""
        plan, world = self._rehearsal.plan, self._rehearsal.world
        if plan is self._plan or world is None:
            return
        self._plan = plan
        pods = {pod.uid: pod for pod in world.pods} if plan.unmet else {}
        holding: dict[str, str] = {}
        for unmet in plan.unmet:
            pod = pods.get(unmet.pod)
            workload = (pod.workload if pod else "") or unmet.name
            if unmet.code in _PASSING or workload in holding:
                continue
            holding[workload] = unmet.code
            if self._holding.get(workload) != unmet.code:
                text = f"holds {workload.rsplit('/', 1)[-1]}: {sentence(unmet.reason)}"
                yield NarrativeLine(world.now, "engine", names.readable(text), Weight.NOTABLE)
        self._holding = holding

    def _note_drain(self, action: StartDrain | CancelDrain) -> None:
        """Start or stop to watch for the last pod on the block of this node."""
        world = self._rehearsal.world
        nodes = world.nodes if world is not None else ()
        instance = next((node.instance for node in nodes if node.name == action.node), None)
        block = self._rehearsal.cloud.reservation(instance.source.id) if instance is not None else None
        if instance is None or block is None:
            return
        deadline = deadline_of(block, Provisioner(instance.provisioner or Provisioner.NATIVE))
        self._draining.pop(block.id, None)
        if isinstance(action, StartDrain) and deadline is not None:
            self._draining[block.id] = deadline

    def _emptied(self, names: DisplayNames) -> Iterator[NarrativeLine]:
        """Blocks whose last pod has ended before the deadline."""
        for id_, deadline in list(self._draining.items()):
            at = self._rehearsal.cluster.emptied_at(id_)
            if at is not None:
                del self._draining[id_]
                text = f"block {names.block(id_)} is empty, {span(deadline - at)} before its deadline"
                yield NarrativeLine(self._rehearsal.timeline.now(), "engine", text, Weight.TURN)


def _event(line: Line, names: DisplayNames) -> Iterator[NarrativeLine]:
    who, weight = _EVENTS.get(line.kind, ("", Weight.ROUTINE))
    text = _event_text(line) if who else ""
    if text:
        yield NarrativeLine(line.at, who, names.readable(text), weight)


def _event_text(line: Line) -> str:
    about, text = line.about, line.text
    match line.kind:
        case "block-active":
            return f"{about} is delivered: {text}"
        case "block-purchased":
            return f"sells {text}"
        case "verdict" | "verdict-refused":
            return text
        case "engine-crashed":
            return _crash(line.crash_step)
        case "fault" if about == "engine-crash":
            return ""  # armed; the crash itself is shown when it happens
        case "fault" if about == "node-dies":
            return f"{', '.join(line.hit)} dies: its host failed" if line.hit else ""
        case "fault":
            return text
        case "checkpoint-done":
            return f"{about.rsplit('/', 1)[-1]} has written its checkpoint"
        case "job-submitted":
            return f"{about} arrives: {text}"
        case "job-started":
            return f"{about} runs"
        case _:
            return f"{about}: {text}"


def _crash(step: str) -> str:
    """`after:purchase`: between the call and recording its result."""
    side, _, call = step.partition(":")
    where = f" right {side} its {call} call" if call else ""
    return f"the engine crashes{where}; a new one starts and knows only what is in the ledger"


_NAMED = 2  # the most names in a sentence


def group_actions(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Groups of consecutive actions of one kind with one reason."""

    def key(action: Action) -> tuple[type, object]:
        return type(action), action.reason

    for _, group in groupby(actions, key):
        yield list(group)


def action_text(
    group: Sequence[Action], pods: Mapping[str, str], *, again: bool = False
) -> tuple[str, Weight]:
    """`pods` are names by uid; `again`: not the first proposal for its window. Empty text: not shown."""
    action = group[0]
    why = sentence(action.reason)
    match action:
        case SearchOffers(query=query):
            return f"searches offers for {query.count} x {query.instance_type}: {why}", Weight.ROUTINE
        case SearchExtensions(query=query):
            return f"searches extensions of {query.reservation_id}: {why}", Weight.ROUTINE
        case ProposePurchase(intent=intent):
            proposes = "proposes again" if again else "proposes"
            return f"{proposes} a purchase for {intent.window}: {why}; a person decides", Weight.TURN
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
            return f"opens {_subjects(group, pods)} to pods: {why}", Weight.ROUTINE
        case StartDrain():
            weight = Weight.TURN if action.reason.is_end else Weight.ROUTINE
            return f"drains {_subjects(group, pods)}: {why}", weight
        case KeepForJobs():
            return f"closes {_subjects(group, pods)} to services: {why}", Weight.ROUTINE
        case CancelDrain():
            return f"cancels the drain of {_subjects(group, pods)}: {why}", Weight.TURN
        case RequestCheckpoint():
            return f"asks {_subjects(group, pods)} for a checkpoint: {why}", Weight.NOTABLE
        case Evict():
            return f"evicts {_subjects(group, pods)}: {why}", Weight.NOTABLE
        case ForceDelete():
            return f"force-deletes {_subjects(group, pods)}: {why}", Weight.TURN
        case Recreate():
            return f"deletes {_subjects(group, pods)}: {why}", Weight.TURN
        case RestartWorkload() | ScaleWorkload():
            return f"{action.workload.rpartition('/')[2]}: {why}", Weight.TURN
        case Terminate():
            return f"terminates {_subjects(group, pods)}: {why}", Weight.ROUTINE
        case _:
            return "", Weight.ROUTINE


def _subjects(group: Sequence[Action], pods: Mapping[str, str]) -> str:
    """Names of pods without their namespace, or of nodes; more than a few are counted."""
    every = [name.rsplit("/", 1)[-1] for action in group for name in touched(action, pods)]
    listed = ", ".join(every[:_NAMED])
    return listed if len(every) <= _NAMED else f"{listed} and {len(every) - _NAMED} more"
